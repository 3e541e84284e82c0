// How the elements of an MPI datatype lie in memory.
#ifndef TUTTI_BINDINGS_MPI_DATATYPES_H_
#define TUTTI_BINDINGS_MPI_DATATYPES_H_

#include <tutti/tutti.h>

#include <cstddef>

#include "interface.h"

namespace tutti::mpi {

// The kinds of predefined datatypes that reductions distinguish.
enum class TypeKind {
  kNone,  // nothing is reduced with it, or it is derived
  kInteger,
  kFloat,
  kComplex,
  kBool,     // of C and C++
  kLogical,  // of Fortran
  kBytes,    // MPI_BYTE
  kPair,     // of MPI_MAXLOC and MPI_MINLOC
  kCharacter,
};

struct Layout {
  std::size_t bytes = 0;  // of what an element sends: its signature
  MPI_Aint extent = 0;
  bool dense = false;  // elements are contiguous in the order in which they are sent, from the buffer's address on
  bool predefined = false;
  TypeKind kind = TypeKind::kNone;
  bool native = false;  // tutti has it, as `datatype`
  tuttiDataType_t datatype = tuttiUint8;
};

// Of any datatype but MPI_DATATYPE_NULL. Predefined ones are looked up in a table.
Layout layout_of(MPI_Datatype type);

// Whether the program has committed it: others communicate nothing.
bool is_committed(MPI_Datatype type);
// Before MPI_Finalize.
void forget_datatypes();

// `bytes` are count elements' signature. Pieces keep what MPI_Pack counts with int below its limit.
int pack(const void* from, std::size_t count, MPI_Datatype type, const Layout& layout, std::byte* to, MPI_Comm comm);
int unpack(const std::byte* from, void* to, std::size_t count, MPI_Datatype type, const Layout& layout, MPI_Comm comm);

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_DATATYPES_H_

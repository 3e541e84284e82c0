#include "datatypes.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "communicators.h"

namespace tutti::mpi {
namespace {

struct Predefined {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  Layout layout;
};

// Open addressing, filled once. The handle of a predefined MPI type always names the same type.
class Table {
 public:
  Table();
  [[nodiscard]] const Layout* find(MPI_Datatype type) const {
    for (std::size_t at = slot(type);; at = (at + 1) % kSlots) {
      if (slots_[at].type == type) return &slots_[at].layout;
      if (slots_[at].type == MPI_DATATYPE_NULL) return nullptr;
    }
  }

 private:
  static constexpr std::size_t kSlots = 256;

  static std::size_t slot(MPI_Datatype type) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &type, sizeof type);
    return (bits * 0x9e3779b97f4a7c15U) >> 56U;
  }
  void add(MPI_Datatype type, TypeKind kind, bool is_signed = true);

  std::array<Predefined, kSlots> slots_;
};

void set_native(Layout& layout, bool is_signed) {
  layout.native = true;
  switch (layout.kind) {
    case TypeKind::kInteger:
      switch (layout.bytes) {
        case 1: layout.datatype = is_signed ? tuttiInt8 : tuttiUint8; return;
        case 2: layout.datatype = is_signed ? tuttiInt16 : tuttiUint16; return;
        case 4: layout.datatype = is_signed ? tuttiInt32 : tuttiUint32; return;
        case 8: layout.datatype = is_signed ? tuttiInt64 : tuttiUint64; return;
        default: break;
      }
      break;
    case TypeKind::kFloat:
      if (layout.bytes == 4 || layout.bytes == 8) {
        layout.datatype = layout.bytes == 4 ? tuttiFloat32 : tuttiFloat64;
        return;
      }
      break;
    case TypeKind::kComplex:
      if (layout.bytes == 8 || layout.bytes == 16) {
        layout.datatype = layout.bytes == 8 ? tuttiComplex64 : tuttiComplex128;
        return;
      }
      break;
    case TypeKind::kBool:
      if (layout.bytes == 1) {
        layout.datatype = tuttiBool;
        return;
      }
      break;
    case TypeKind::kBytes: layout.datatype = tuttiUint8; return;
    default: break;
  }
  layout.native = false;
}

void Table::add(MPI_Datatype type, TypeKind kind, bool is_signed) {
  // A variable that another version of the MPI library lacks has no address.
  if (type == MPI_DATATYPE_NULL || type == MPI_Datatype{}) return;
  std::size_t at = slot(type);
  for (; slots_[at].type != MPI_DATATYPE_NULL; at = (at + 1) % kSlots) {
    if (slots_[at].type == type) return;
  }
  int bytes = 0;
  MPI_Aint lower = 0;
  Layout layout;
  PMPI_Type_size(type, &bytes);
  PMPI_Type_get_extent(type, &lower, &layout.extent);
  // A compiler that lacks the type: MPI has it, without a size.
  if (bytes <= 0) return;
  layout.bytes = static_cast<std::size_t>(bytes);
  layout.dense = lower == 0 && layout.extent == bytes;
  layout.predefined = true;
  layout.kind = kind;
  set_native(layout, is_signed);
  slots_[at] = {type, layout};
}

Table::Table() {
  for (MPI_Datatype type :
       {MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T,
        MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8}) {
    add(type, TypeKind::kInteger);
  }
  for (MPI_Datatype type : {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG,
                            MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T}) {
    add(type, TypeKind::kInteger, false);
  }
  for (MPI_Datatype type :
       {MPI_FLOAT, MPI_DOUBLE, MPI_LONG_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8}) {
    add(type, TypeKind::kFloat);
  }
  for (MPI_Datatype type :
       {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX,
        MPI_COMPLEX8, MPI_COMPLEX16, MPI_CXX_FLOAT_COMPLEX, MPI_CXX_DOUBLE_COMPLEX, MPI_CXX_LONG_DOUBLE_COMPLEX}) {
    add(type, TypeKind::kComplex);
  }
  for (MPI_Datatype type : {MPI_C_BOOL, MPI_CXX_BOOL}) add(type, TypeKind::kBool);
  for (MPI_Datatype type : {MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_INT, MPI_2INT, MPI_SHORT_INT, MPI_LONG_DOUBLE_INT,
                            MPI_2REAL, MPI_2DOUBLE_PRECISION, MPI_2INTEGER}) {
    add(type, TypeKind::kPair);
  }
  for (MPI_Datatype type : {MPI_CHAR, MPI_WCHAR, MPI_CHARACTER}) add(type, TypeKind::kCharacter);
  add(MPI_LOGICAL, TypeKind::kLogical);
  add(MPI_BYTE, TypeKind::kBytes);
  add(MPI_PACKED, TypeKind::kNone);
}

const Table& table() {
  static const Table kTable;
  return kTable;
}

// A communicator of this process alone, whose errors are returned. Not MPI_COMM_NULL before: when the binding is loaded
// there may be no MPI library yet to ask for it.
struct Quiet {
  std::mutex mutex;
  std::atomic<bool> made{false};
  MPI_Comm comm{};
};
Quiet& quiet() {
  static auto* const kQuiet = new Quiet;
  return *kQuiet;
}

bool make_quiet() {
  MPI_Comm made{};
  if (quiet().made.load(std::memory_order_acquire)) return true;
  if (make_own_self(made) != MPI_SUCCESS) return false;
  PMPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  const std::lock_guard lock(quiet().mutex);
  if (quiet().made) {
    PMPI_Comm_free(&made);
  } else {
    quiet().comm = made;
    quiet().made.store(true, std::memory_order_release);
  }
  return true;
}

// Whether the type is, by MPI_Type_contiguous and MPI_Type_dup alone, made of a predefined one without holes. Of others
// size and extent do not tell, as their parts may be sent in another order than they lie in.
bool made_dense(MPI_Datatype type) {
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = 0;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  if (combiner == MPI_COMBINER_NAMED) return layout_of(type).dense;
  if ((combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_DUP) || types != 1 || integers > 1) return false;
  int count = 0;
  MPI_Aint address = 0;
  MPI_Datatype inner = MPI_DATATYPE_NULL;
  if (PMPI_Type_get_contents(type, integers, addresses, types, &count, &address, &inner) != MPI_SUCCESS) return false;
  const bool dense = made_dense(inner);
  PMPI_Type_get_envelope(inner, &integers, &addresses, &types, &combiner);
  if (combiner != MPI_COMBINER_NAMED) PMPI_Type_free(&inner);
  return dense;
}

// Of MPI_BOTTOM, which MPICH takes for a forgotten buffer: packs or unpacks, as `call` does, by a datatype that has the
// same places seen from another address.
template <typename Call>
int at_bottom(std::size_t count, MPI_Datatype type, Call call) {
  constexpr MPI_Aint kElsewhere = 4096;
  const int length = static_cast<int>(count);
  const MPI_Aint back = -kElsewhere;
  MPI_Datatype moved = MPI_DATATYPE_NULL;
  int error = PMPI_Type_create_hindexed(1, &length, &back, type, &moved);
  if (error != MPI_SUCCESS) return error;
  error = PMPI_Type_commit(&moved);
  if (error == MPI_SUCCESS) {
    error = call(reinterpret_cast<std::byte*>(kElsewhere), 1, moved);  // NOLINT(performance-no-int-to-ptr)
  }
  PMPI_Type_free(&moved);
  return error;
}

// call(address, count, type), with what stands for MPI_BOTTOM where the address is that.
template <typename Call>
int anywhere(std::byte* address, std::size_t count, MPI_Datatype type, Call call) {
  return address == nullptr ? at_bottom(count, type, call) : call(address, static_cast<int>(count), type);
}

// How many elements at once.
std::size_t piece_of(const Layout& layout) {
  constexpr std::size_t kMostBytes = INT_MAX / 2;
  return std::max<std::size_t>(1, kMostBytes / std::max<std::size_t>(1, layout.bytes));
}

}  // namespace

Layout layout_of(MPI_Datatype type) {
  if (const Layout* layout = table().find(type)) return *layout;
  Layout layout;
  MPI_Count bytes = 0;
  MPI_Aint lower = 0;
  PMPI_Type_size_x(type, &bytes);
  PMPI_Type_get_extent(type, &lower, &layout.extent);
  layout.bytes = static_cast<std::size_t>(std::max<MPI_Count>(0, bytes));
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = 0;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  layout.predefined = combiner == MPI_COMBINER_NAMED;
  layout.dense = lower == 0 && layout.extent == bytes && (layout.predefined || made_dense(type));
  return layout;
}

// Nothing tells but a call that asks for it, of no elements.
bool is_committed(MPI_Datatype type) {
  if (table().find(type) != nullptr) return true;
  if (!make_quiet()) return true;
  std::byte nothing{};
  int position = 0;
  return PMPI_Pack(&nothing, 0, type, &nothing, 0, &position, quiet().comm) == MPI_SUCCESS;
}

void forget_datatypes() {
  if (quiet().made.exchange(false)) PMPI_Comm_free(&quiet().comm);
}

int pack(const void* from, std::size_t count, MPI_Datatype type, const Layout& layout, std::byte* to, MPI_Comm comm) {
  if (layout.dense) {
    if (count > 0) std::memcpy(to, from, count * layout.bytes);
    return MPI_SUCCESS;
  }
  const std::size_t piece = piece_of(layout);
  for (std::size_t done = 0; done < count; done += piece) {
    const std::size_t now = std::min(piece, count - done);
    int position = 0;
    auto* address = static_cast<std::byte*>(const_cast<void*>(from)) + static_cast<MPI_Aint>(done) * layout.extent;
    const int error = anywhere(address, now, type, [&](const std::byte* at, int elements, MPI_Datatype of) {
      return PMPI_Pack(at, elements, of, to + done * layout.bytes, static_cast<int>(now * layout.bytes), &position,
                       comm);
    });
    if (error != MPI_SUCCESS) return error;
  }
  return MPI_SUCCESS;
}

int unpack(const std::byte* from, void* to, std::size_t count, MPI_Datatype type, const Layout& layout, MPI_Comm comm) {
  if (layout.dense) {
    if (count > 0) std::memcpy(to, from, count * layout.bytes);
    return MPI_SUCCESS;
  }
  const std::size_t piece = piece_of(layout);
  for (std::size_t done = 0; done < count; done += piece) {
    const std::size_t now = std::min(piece, count - done);
    int position = 0;
    auto* address = static_cast<std::byte*>(to) + static_cast<MPI_Aint>(done) * layout.extent;
    const int error = anywhere(address, now, type, [&](std::byte* at, int elements, MPI_Datatype of) {
      return PMPI_Unpack(from + done * layout.bytes, static_cast<int>(now * layout.bytes), &position, at, elements, of,
                         comm);
    });
    if (error != MPI_SUCCESS) return error;
  }
  return MPI_SUCCESS;
}

}  // namespace tutti::mpi

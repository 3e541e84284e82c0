#include "operators.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "progress.h"

namespace tutti::mpi {
namespace {

constexpr std::size_t kMostElementBytes = 4096;  // of tuttiTypeCreate

enum class Family { kExtreme, kArithmetic, kLogical, kBits, kLocation };

struct PredefinedOperator {
  MPI_Op op;
  tuttiRedOp_t native;
  Family family;
};

const PredefinedOperator* find_predefined(MPI_Op op) {
  static const std::array<PredefinedOperator, 12> kOperators = {{
      {MPI_SUM, tuttiSum, Family::kArithmetic},
      {MPI_MAX, tuttiMax, Family::kExtreme},
      {MPI_MIN, tuttiMin, Family::kExtreme},
      {MPI_PROD, tuttiProd, Family::kArithmetic},
      {MPI_LAND, tuttiLand, Family::kLogical},
      {MPI_LOR, tuttiLor, Family::kLogical},
      {MPI_LXOR, tuttiLxor, Family::kLogical},
      {MPI_BAND, tuttiBand, Family::kBits},
      {MPI_BOR, tuttiBor, Family::kBits},
      {MPI_BXOR, tuttiBxor, Family::kBits},
      {MPI_MAXLOC, tuttiSum, Family::kLocation},
      {MPI_MINLOC, tuttiSum, Family::kLocation},
  }};
  for (const PredefinedOperator& predefined : kOperators) {
    if (predefined.op == op) return &predefined;
  }
  return nullptr;
}

// The standard's table (MPI 3.1, section 5.9.2). The MPI library decides about pairs that the table lacks.
bool allowed(Family family, TypeKind kind) {
  switch (family) {
    case Family::kExtreme: return kind == TypeKind::kInteger || kind == TypeKind::kFloat;
    case Family::kArithmetic:
      return kind == TypeKind::kInteger || kind == TypeKind::kFloat || kind == TypeKind::kComplex;
    case Family::kLogical: return kind == TypeKind::kInteger || kind == TypeKind::kBool || kind == TypeKind::kLogical;
    case Family::kBits: return kind == TypeKind::kInteger || kind == TypeKind::kBytes;
    case Family::kLocation: return kind == TypeKind::kPair;
  }
  return false;
}

void combine_aligned(const BoundOperator& bound, const void* in, void* inout, std::size_t count) {
  // MPI_Reduce_local makes inout[i] = in[i] op inout[i], as tutti does. Counts are below int's limit: pieces are cut.
  constexpr std::size_t kMost = std::size_t{1} << 30U;
  while (count > 0) {
    const std::size_t now = std::min(count, kMost);
    PMPI_Reduce_local(in, inout, static_cast<int>(now), bound.mpi_type, bound.mpi_op);
    in = static_cast<const std::byte*>(in) + now * bound.extent;
    inout = static_cast<std::byte*>(inout) + now * bound.extent;
    count -= now;
  }
}

bool is_aligned(const void* address, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
}

// Pieces may begin anywhere, while functions of MPI programs expect elements aligned as in their arrays.
void combine(const void* in, void* inout, std::size_t count, tuttiDataType_t /*datatype*/, void* context) {
  const auto& bound = *static_cast<const BoundOperator*>(context);
  const Outside outside;
  if (is_aligned(in, bound.alignment) && is_aligned(inout, bound.alignment)) {
    combine_aligned(bound, in, inout, count);
    return;
  }
  constexpr std::size_t kBytes = 2 * kMostElementBytes;
  alignas(16) std::array<std::byte, kBytes> first;
  alignas(16) std::array<std::byte, kBytes> second;
  const std::size_t most = kBytes / bound.extent;
  for (std::size_t done = 0; done < count; done += most) {
    const std::size_t now = std::min(most, count - done);
    const std::size_t offset = done * bound.extent;
    std::memcpy(first.data(), static_cast<const std::byte*>(in) + offset, now * bound.extent);
    std::memcpy(second.data(), static_cast<std::byte*>(inout) + offset, now * bound.extent);
    combine_aligned(bound, first.data(), second.data(), now);
    std::memcpy(static_cast<std::byte*>(inout) + offset, second.data(), now * bound.extent);
  }
}

tuttiResult_t make(BoundOperator& bound, Communicator& communicator, MPI_Op op, MPI_Datatype type, std::size_t extent) {
  int commutes = 0;
  PMPI_Op_commutative(op, &commutes);
  bound.mpi_op = op;
  bound.mpi_type = type;
  bound.extent = extent;
  // The size of a type is a multiple of its alignment.
  bound.alignment = std::min<std::size_t>(16, extent & (~extent + 1));
  tuttiResult_t result = tuttiTypeCreate(&bound.datatype, extent, communicator.comm);
  if (result != tuttiSuccess) return result;
  result = tuttiRedOpCreate(&bound.op, combine, &bound, commutes, communicator.comm);
  if (result != tuttiSuccess) {
    tuttiTypeDestroy(bound.datatype, communicator.comm);
    return result;
  }
  bound.comm = communicator.comm;
  return tuttiSuccess;
}

// Made once for each pair: a handle of a predefined operator or datatype always names the same one.
BoundOperator* find_bound(Communicator& communicator, MPI_Op op, MPI_Datatype type, std::size_t extent,
                          tuttiResult_t& result) {
  for (const auto& bound : communicator.operators) {
    if (bound->mpi_op == op && bound->mpi_type == type) return bound.get();
  }
  std::unique_ptr<BoundOperator, BoundOperatorDeleter> made(new BoundOperator);
  result = make(*made, communicator, op, type, extent);
  if (result != tuttiSuccess) return nullptr;
  communicator.operators.push_back(std::move(made));
  return communicator.operators.back().get();
}

}  // namespace

void BoundOperatorDeleter::operator()(BoundOperator* bound) const {
  delete bound;
}

BoundOperator::~BoundOperator() {
  if (comm == nullptr) return;
  tuttiRedOpDestroy(op, comm);
  tuttiTypeDestroy(datatype, comm);
}

void bind_reduction(Communicator& communicator, MPI_Op op, MPI_Datatype type, const Layout& layout, bool nonblocking,
                    Reduction& reduction) {
  const PredefinedOperator* predefined = find_predefined(op);
  reduction.extent = layout.bytes;
  if (predefined != nullptr) {
    if (!allowed(predefined->family, layout.kind)) {
      reduction.reason = Reason::kOperator;
      return;
    }
    if (layout.native) {
      reduction.op = predefined->native;
      reduction.datatype = layout.datatype;
      return;
    }
  }
  // MPI_REPLACE and MPI_NO_OP are for one-sided communication.
  if (op == MPI_REPLACE || op == MPI_NO_OP) {
    reduction.reason = Reason::kOperator;
    return;
  }
  if (nonblocking) {
    reduction.reason = Reason::kFunction;
    return;
  }
  MPI_Aint lower = 0;
  MPI_Aint extent = 0;
  MPI_Aint true_lower = 0;
  MPI_Aint true_extent = 0;
  PMPI_Type_get_extent(type, &lower, &extent);
  PMPI_Type_get_true_extent(type, &true_lower, &true_extent);
  if (lower != 0 || true_lower < 0 || true_lower + true_extent > extent || extent < 1 ||
      extent > static_cast<MPI_Aint>(kMostElementBytes)) {
    reduction.reason = Reason::kType;
    return;
  }
  reduction.extent = static_cast<std::size_t>(extent);
  reduction.holes = extent != static_cast<MPI_Aint>(layout.bytes);
  const BoundOperator* bound = nullptr;
  if (predefined != nullptr) {
    bound = find_bound(communicator, op, type, reduction.extent, reduction.result);
  } else {
    reduction.own.emplace();
    reduction.result = make(*reduction.own, communicator, op, type, reduction.extent);
    bound = &*reduction.own;
  }
  if (reduction.result != tuttiSuccess) return;
  reduction.op = bound->op;
  reduction.datatype = bound->datatype;
}

}  // namespace tutti::mpi

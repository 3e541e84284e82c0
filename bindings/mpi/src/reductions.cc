#include <cstring>
#include <numeric>

#include "collectives.h"

namespace tutti::mpi {
namespace {

// Elements as their extents have them, in memory of the binding's: the operator may touch all of it.
std::byte* lay_out(Work& work, const Block& block) {
  const std::size_t bytes = block.count * static_cast<std::size_t>(block.layout.extent);
  std::byte* laid = work.scratch(bytes);
  std::memset(laid, 0, bytes);
  std::byte* packed = work.scratch(block.bytes());
  work.pack_into(packed, block);
  unpack(packed, laid, block.count, block.type, block.layout, work.communicator().handle);
  return laid;
}

void take_back(Work& work, const std::byte* laid, const Block& block) {
  std::byte* packed = work.scratch(block.bytes());
  work.pack_into(packed, Block(laid, block.count, block.type, block.layout));
  work.unpack_later(packed, block);
}

// Whether the operator serves; if not, `refused` says what becomes of the call.
// REQUIRES: a datatype that is not wrong.
bool bind(Work& work, MPI_Datatype type, MPI_Op op, Layout& layout, Outcome& refused) {
  if (op == MPI_OP_NULL) {
    refused = Outcome::pass(Reason::kArgument);
    return false;
  }
  layout = layout_of(type);
  bind_reduction(work.communicator(), op, type, layout, work.nonblocking(), work.reduction);
  refused = Outcome(work.reduction.reason, work.reduction.result, MPI_SUCCESS);
  return work.reduction.reason == Reason::kNone && work.reduction.result == tuttiSuccess;
}

// A reduction of `count` elements to as many, call(send, recv). receives: recv means something on this rank.
template <typename Call>
Outcome reduce_vector(Work& work, const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op,
                      bool receives, Call call) {
  const void* from = send == MPI_IN_PLACE ? recv : send;
  if (wrong_block(from, count, type) || (receives && wrong_buffer(recv, count, type))) {
    return Outcome::pass(Reason::kArgument);
  }
  Outcome refused = tuttiSuccess;
  Layout layout;
  if (!bind(work, type, op, layout, refused)) return refused;
  const auto elements = static_cast<std::size_t>(count);
  if (work.is_short(elements * layout.bytes)) return Outcome::pass(Reason::kShort);
  if (!work.reduction.holes) return run(work, [&] { return call(from, recv); });
  const std::byte* laid = lay_out(work, Block(from, elements, type, layout));
  std::byte* result = work.scratch(elements * work.reduction.extent);
  const Outcome outcome = run(work, [&] { return call(laid, result); });
  if (receives && outcome.result == tuttiSuccess) take_back(work, result, Block(recv, elements, type, layout));
  return outcome;
}

bool wrong_blocks(const void* send, const void* recv, MPI_Count total, MPI_Count own, MPI_Datatype type) {
  return wrong_block(recv, own, type) || wrong_buffer(send == MPI_IN_PLACE ? recv : send, total, type);
}

// The same, of all blocks, `total` elements, to this rank's, which has `own`.
template <typename Call>
Outcome reduce_blocks(Work& work, const void* send, void* recv, std::size_t total, std::size_t own, MPI_Datatype type,
                      const Layout& layout, Call call) {
  if (work.is_short(total * layout.bytes)) return Outcome::pass(Reason::kShort);
  const void* from = send == MPI_IN_PLACE ? recv : send;
  if (work.reduction.holes) {
    const std::byte* laid = lay_out(work, Block(from, total, type, layout));
    std::byte* result = work.scratch(own * work.reduction.extent);
    const Outcome outcome = run(work, [&] { return call(laid, result); });
    if (outcome.result == tuttiSuccess) take_back(work, result, Block(recv, own, type, layout));
    return outcome;
  }
  if (from != recv) return run(work, [&] { return call(from, recv); });
  // MPI has the result at the begin of what is reduced, and programs expect the rest as it was.
  std::byte* block = work.scratch_alike(own * work.reduction.extent, static_cast<const std::byte*>(recv));
  work.move_later(block, static_cast<std::byte*>(recv), own * work.reduction.extent);
  return run(work, [&] { return call(from, block); });
}

}  // namespace

Outcome allreduce(Work& work, const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op) {
  return reduce_vector(work, send, recv, count, type, op, true, [&](const void* from, void* to) {
    return tuttiAllReduce(from, to, static_cast<std::size_t>(count), work.reduction.datatype, work.reduction.op,
                          work.comm(), work.stream());
  });
}

Outcome reduce(Work& work, const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root) {
  if (wrong_root(work, root) || (send == MPI_IN_PLACE && work.rank() != root)) {
    return Outcome::pass(Reason::kArgument);
  }
  return reduce_vector(work, send, recv, count, type, op, work.rank() == root, [&](const void* from, void* to) {
    return tuttiReduce(from, to, static_cast<std::size_t>(count), work.reduction.datatype, work.reduction.op, root,
                       work.comm(), work.stream());
  });
}

Outcome scan(Work& work, const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op) {
  return reduce_vector(work, send, recv, count, type, op, true, [&](const void* from, void* to) {
    return tuttiScan(from, to, static_cast<std::size_t>(count), work.reduction.datatype, work.reduction.op, work.comm(),
                     work.stream());
  });
}

Outcome exscan(Work& work, const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op) {
  if (recv == MPI_IN_PLACE) return Outcome::pass(Reason::kArgument);
  return reduce_vector(work, send, recv, count, type, op, work.rank() > 0, [&](const void* from, void* to) {
    return tuttiExscan(from, to, static_cast<std::size_t>(count), work.reduction.datatype, work.reduction.op,
                       work.comm(), work.stream());
  });
}

Outcome reduce_scatter(Work& work, const void* send, void* recv, Numbers counts, MPI_Datatype type, MPI_Op op) {
  const auto ranks = static_cast<std::size_t>(work.ranks());
  if (counts.wrong(work.ranks())) return Outcome::pass(Reason::kArgument);
  std::vector<std::size_t> blocks;
  for (std::size_t rank = 0; rank < ranks; ++rank) blocks.push_back(static_cast<std::size_t>(counts[rank]));
  const std::size_t total = std::accumulate(blocks.begin(), blocks.end(), std::size_t{0});
  const std::size_t own = blocks[static_cast<std::size_t>(work.rank())];
  if (wrong_blocks(send, recv, static_cast<MPI_Count>(total), static_cast<MPI_Count>(own), type)) {
    return Outcome::pass(Reason::kArgument);
  }
  Outcome refused = tuttiSuccess;
  Layout layout;
  if (!bind(work, type, op, layout, refused)) return refused;
  return reduce_blocks(work, send, recv, total, own, type, layout, [&](const void* from, void* to) {
    return tuttiReduceScatterV(from, to, blocks.data(), work.reduction.datatype, work.reduction.op, work.comm(),
                               work.stream());
  });
}

Outcome reduce_scatter_block(Work& work, const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op) {
  if (wrong_blocks(send, recv, count * work.ranks(), count, type)) return Outcome::pass(Reason::kArgument);
  Outcome refused = tuttiSuccess;
  Layout layout;
  if (!bind(work, type, op, layout, refused)) return refused;
  const auto own = static_cast<std::size_t>(count);
  return reduce_blocks(work, send, recv, own * static_cast<std::size_t>(work.ranks()), own, type, layout,
                       [&](const void* from, void* to) {
                         return tuttiReduceScatter(from, to, own, work.reduction.datatype, work.reduction.op,
                                                   work.comm(), work.stream());
                       });
}

}  // namespace tutti::mpi

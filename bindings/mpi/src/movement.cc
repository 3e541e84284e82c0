#include "collectives.h"

// Bytes move: the datatypes of two ranks may differ, as long as they send and receive the same.
namespace tutti::mpi {
namespace {

constexpr tuttiDataType_t kByte = tuttiUint8;

std::size_t of_all(const Work& work, MPI_Count count) {
  return static_cast<std::size_t>(count) * static_cast<std::size_t>(work.ranks());
}

// This rank's block among those of `base`, which are `blocks` as they are received: in place.
std::byte* own_in_place(Work& work, std::byte* base, const Block& blocks, MPI_Count count) {
  const Block own =
      blocks.at(static_cast<MPI_Aint>(work.rank()) * static_cast<MPI_Aint>(count), static_cast<std::size_t>(count));
  std::byte* place = base + static_cast<std::size_t>(work.rank()) * own.bytes();
  if (!blocks.layout.dense) work.pack_into(place, own);
  return place;
}

// Memory for `parts` equal parts of a block, `bytes` of each. If the block has room for another number, the other ranks
// most likely send as many as this one does: so all make the same call, and what this rank has no room for is dropped.
std::byte* received(Work& work, const Block& block, std::size_t parts, std::size_t bytes) {
  if (bytes * parts == block.bytes()) [[likely]]
    return work.received(block);
  std::byte* const memory = work.scratch(bytes * parts);
  const std::size_t elements = block.count / parts;
  for (std::size_t part = 0; part < parts; ++part) {
    work.unpack_later(memory + part * bytes, block.at(static_cast<MPI_Aint>(part * elements), elements), bytes);
  }
  return memory;
}

}  // namespace

Outcome barrier(Work& work) {
  if (work.is_short(0)) return Outcome::pass(Reason::kShort);
  return run(work, [&] { return tuttiBarrier(work.comm(), work.stream()); });
}

Outcome bcast(Work& work, void* buffer, MPI_Count count, MPI_Datatype type, int root) {
  if (wrong_block(buffer, count, type) || wrong_root(work, root)) return Outcome::pass(Reason::kArgument);
  const Block block(buffer, static_cast<std::size_t>(count), type);
  if (work.is_short(block.bytes())) return Outcome::pass(Reason::kShort);
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  if (work.rank() == root) {
    from = work.sent(block);
    to = const_cast<std::byte*>(from);
  } else {
    to = work.received(block);
  }
  return run(work, [&] { return tuttiBroadcast(from, to, block.bytes(), kByte, root, work.comm(), work.stream()); });
}

Outcome allgather(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                  MPI_Count recv_count, MPI_Datatype recv_type) {
  if (wrong_block(recv, recv_count, recv_type) || wrong_unless_in_place(send, send_count, send_type)) {
    return Outcome::pass(Reason::kArgument);
  }
  const bool in_place = send == MPI_IN_PLACE;
  const Block blocks(recv, of_all(work, recv_count), recv_type);
  const Block block = in_place ? Block(recv, static_cast<std::size_t>(recv_count), recv_type, blocks.layout)
                               : Block(send, static_cast<std::size_t>(send_count), send_type);
  const std::size_t bytes = block.bytes();
  if (work.is_short(bytes * static_cast<std::size_t>(work.ranks()))) return Outcome::pass(Reason::kShort);
  std::byte* to = received(work, blocks, static_cast<std::size_t>(work.ranks()), bytes);
  const std::byte* from =
      in_place ? own_in_place(work, to, blocks, recv_count) : work.apart(work.sent(block), bytes, to, blocks.bytes());
  return run(work, [&] { return tuttiAllGather(from, to, bytes, kByte, work.comm(), work.stream()); });
}

Outcome gather(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
               MPI_Count recv_count, MPI_Datatype recv_type, int root) {
  if (wrong_root(work, root)) return Outcome::pass(Reason::kArgument);
  const bool receives = work.rank() == root;
  const bool in_place = send == MPI_IN_PLACE;
  if ((receives && wrong_block(recv, recv_count, recv_type)) || wrong_unless_in_place(send, send_count, send_type) ||
      (in_place && !receives)) {
    return Outcome::pass(Reason::kArgument);
  }
  const Block block = in_place ? Block(recv, static_cast<std::size_t>(recv_count), recv_type)
                               : Block(send, static_cast<std::size_t>(send_count), send_type);
  const std::size_t bytes = block.bytes();
  if (work.is_short(bytes * static_cast<std::size_t>(work.ranks()))) return Outcome::pass(Reason::kShort);
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t room = 0;
  if (receives) {
    const std::size_t all = of_all(work, recv_count);
    const Block blocks = in_place ? Block(recv, all, recv_type, block.layout) : Block(recv, all, recv_type);
    to = received(work, blocks, static_cast<std::size_t>(work.ranks()), bytes);
    room = blocks.bytes();
    if (in_place) from = own_in_place(work, to, blocks, recv_count);
  }
  if (!in_place) from = work.apart(work.sent(block), bytes, to, room);
  return run(work, [&] { return tuttiGather(from, to, bytes, kByte, root, work.comm(), work.stream()); });
}

Outcome scatter(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                MPI_Count recv_count, MPI_Datatype recv_type, int root) {
  if (wrong_root(work, root)) return Outcome::pass(Reason::kArgument);
  const bool sends = work.rank() == root;
  const bool in_place = recv == MPI_IN_PLACE;
  if ((sends && wrong_block(send, send_count, send_type)) || wrong_unless_in_place(recv, recv_count, recv_type) ||
      (in_place && !sends)) {
    return Outcome::pass(Reason::kArgument);
  }
  const Block block = in_place ? Block(send, static_cast<std::size_t>(send_count), send_type)
                               : Block(recv, static_cast<std::size_t>(recv_count), recv_type);
  std::size_t bytes = block.bytes();
  if (work.is_short(bytes * static_cast<std::size_t>(work.ranks()))) return Outcome::pass(Reason::kShort);
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  if (sends) {
    const std::size_t all = of_all(work, send_count);
    const Block blocks = in_place ? Block(send, all, send_type, block.layout) : Block(send, all, send_type);
    from = work.sent(blocks);
    bytes = static_cast<std::size_t>(send_count) * blocks.layout.bytes;
    // In place nothing is written there.
    to = const_cast<std::byte*>(from) + static_cast<std::size_t>(work.rank()) * bytes;
  }
  if (!in_place) {
    to = received(work, block, 1, bytes);
    if (sends) from = work.apart(from, of_all(work, static_cast<MPI_Count>(bytes)), to, bytes);
  }
  return run(work, [&] { return tuttiScatter(from, to, bytes, kByte, root, work.comm(), work.stream()); });
}

Outcome alltoall(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                 MPI_Count recv_count, MPI_Datatype recv_type) {
  if (wrong_block(recv, recv_count, recv_type) || wrong_unless_in_place(send, send_count, send_type)) {
    return Outcome::pass(Reason::kArgument);
  }
  const Block blocks(recv, of_all(work, recv_count), recv_type);
  const bool in_place = send == MPI_IN_PLACE;
  const Block sent = in_place ? blocks : Block(send, of_all(work, send_count), send_type);
  if (work.is_short(sent.bytes())) return Outcome::pass(Reason::kShort);
  const std::size_t bytes = static_cast<std::size_t>(in_place ? recv_count : send_count) * sent.layout.bytes;
  std::byte* to = received(work, blocks, static_cast<std::size_t>(work.ranks()), bytes);
  // In place what lies in the receive buffer is sent, in another memory if it must be packed.
  const std::byte* from = work.sent(sent);
  if (from != to) from = work.apart(from, sent.bytes(), to, blocks.bytes());
  return run(work, [&] { return tuttiAlltoAll(from, to, bytes, kByte, work.comm(), work.stream()); });
}

}  // namespace tutti::mpi

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
  const Block blocks(recv, of_all(work, recv_count), recv_type);
  if (work.is_short(blocks.bytes())) return Outcome::pass(Reason::kShort);
  std::byte* to = work.received(blocks);
  const std::size_t bytes = static_cast<std::size_t>(recv_count) * blocks.layout.bytes;
  const std::byte* from = nullptr;
  if (send == MPI_IN_PLACE) {
    from = own_in_place(work, to, blocks, recv_count);
  } else {
    const Block block(send, static_cast<std::size_t>(send_count), send_type);
    from = work.apart(work.sent(block), block.bytes(), to, blocks.bytes());
  }
  return run(work, [&] { return tuttiAllGather(from, to, bytes, kByte, work.comm(), work.stream()); });
}

Outcome gather(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
               MPI_Count recv_count, MPI_Datatype recv_type, int root) {
  if (wrong_root(work, root)) return Outcome::pass(Reason::kArgument);
  const bool receives = work.rank() == root;
  if ((receives && wrong_block(recv, recv_count, recv_type)) || wrong_unless_in_place(send, send_count, send_type) ||
      (send == MPI_IN_PLACE && !receives)) {
    return Outcome::pass(Reason::kArgument);
  }
  const Block shown =
      receives ? Block(recv, of_all(work, recv_count), recv_type) : Block(send, of_all(work, send_count), send_type);
  if (work.is_short(shown.bytes())) return Outcome::pass(Reason::kShort);
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
  std::size_t received = 0;
  if (receives) {
    const Block& blocks = shown;
    to = work.received(blocks);
    received = blocks.bytes();
    bytes = static_cast<std::size_t>(recv_count) * blocks.layout.bytes;
    if (send == MPI_IN_PLACE) from = own_in_place(work, to, blocks, recv_count);
  }
  if (send != MPI_IN_PLACE) {
    const auto elements = static_cast<std::size_t>(send_count);
    const Block block = receives ? Block(send, elements, send_type) : Block(send, elements, send_type, shown.layout);
    bytes = block.bytes();
    from = work.apart(work.sent(block), bytes, to, received);
  }
  return run(work, [&] { return tuttiGather(from, to, bytes, kByte, root, work.comm(), work.stream()); });
}

Outcome scatter(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                MPI_Count recv_count, MPI_Datatype recv_type, int root) {
  if (wrong_root(work, root)) return Outcome::pass(Reason::kArgument);
  const bool sends = work.rank() == root;
  if ((sends && wrong_block(send, send_count, send_type)) || wrong_unless_in_place(recv, recv_count, recv_type) ||
      (recv == MPI_IN_PLACE && !sends)) {
    return Outcome::pass(Reason::kArgument);
  }
  const Block shown =
      sends ? Block(send, of_all(work, send_count), send_type) : Block(recv, of_all(work, recv_count), recv_type);
  if (work.is_short(shown.bytes())) return Outcome::pass(Reason::kShort);
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
  if (sends) {
    const Block& blocks = shown;
    from = work.sent(blocks);
    bytes = static_cast<std::size_t>(send_count) * blocks.layout.bytes;
    // In place nothing is written there.
    to = const_cast<std::byte*>(from) + static_cast<std::size_t>(work.rank()) * bytes;
  }
  if (recv != MPI_IN_PLACE) {
    const auto elements = static_cast<std::size_t>(recv_count);
    const Block block = sends ? Block(recv, elements, recv_type) : Block(recv, elements, recv_type, shown.layout);
    to = work.received(block);
    bytes = block.bytes();
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
  if (work.is_short(blocks.bytes())) return Outcome::pass(Reason::kShort);
  std::byte* to = work.received(blocks);
  // In place what lies in the receive buffer is sent, in another memory if it must be packed.
  const Block sent = send == MPI_IN_PLACE ? blocks : Block(send, of_all(work, send_count), send_type);
  const std::byte* from = work.sent(sent);
  if (from != to) from = work.apart(from, sent.bytes(), to, blocks.bytes());
  const std::size_t bytes = static_cast<std::size_t>(recv_count) * blocks.layout.bytes;
  return run(work, [&] { return tuttiAlltoAll(from, to, bytes, kByte, work.comm(), work.stream()); });
}

}  // namespace tutti::mpi

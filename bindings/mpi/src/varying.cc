#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "collectives.h"

// Blocks of different counts, in bytes as in movement.cc.
namespace tutti::mpi {
namespace {

constexpr tuttiDataType_t kByte = tuttiUint8;

// The blocks of all ranks in the caller's buffer, or packed and contiguous in the binding's memory.
struct Parts {
  std::byte* base = nullptr;
  bool packed = false;
  bool cut = false;  // counts are not those of the blocks
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displs;
  std::vector<Block> blocks;  // where they are the caller's
};

Parts parts_of(const Work& work, const void* buffer, Numbers counts, Numbers displs, MPI_Datatype type) {
  Parts parts;
  const auto ranks = static_cast<std::size_t>(work.ranks());
  const Block whole(buffer, 0, type);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    parts.blocks.push_back(whole.at(static_cast<MPI_Aint>(displs[rank]), static_cast<std::size_t>(counts[rank])));
    parts.counts.push_back(parts.blocks.back().bytes());
  }
  return parts;
}

// MPI_Alltoallw's: displacements in bytes, a datatype for each block.
Parts parts_of(const Work& work, const void* buffer, Numbers counts, Numbers displs, const MPI_Datatype* types) {
  Parts parts;
  const auto ranks = static_cast<std::size_t>(work.ranks());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    parts.blocks.emplace_back(static_cast<const std::byte*>(buffer) + displs[rank],
                              static_cast<std::size_t>(counts[rank]), counts[rank] == 0 ? MPI_BYTE : types[rank]);
    parts.counts.push_back(parts.blocks.back().bytes());
  }
  return parts;
}

bool all_dense(const Parts& parts) {
  return std::all_of(parts.blocks.begin(), parts.blocks.end(),
                     [](const Block& block) { return block.count == 0 || block.layout.dense; });
}

// REQUIRES: all are dense.
bool overlap(const Parts& parts) {
  std::vector<std::pair<const std::byte*, std::size_t>> places;
  for (std::size_t at = 0; at < parts.blocks.size(); ++at) {
    if (parts.counts[at] > 0) places.emplace_back(parts.blocks[at].address, parts.counts[at]);
  }
  if (!std::is_sorted(places.begin(), places.end())) std::sort(places.begin(), places.end());
  const auto meet = [](const auto& one, const auto& next) { return one.first + one.second > next.first; };
  return std::adjacent_find(places.begin(), places.end(), meet) != places.end();
}

// Fills in base and displs. Displacements may be negative: the base is the lowest address.
void place(Work& work, Parts& parts) {
  std::size_t total = 0;
  for (std::size_t at = 0; at < parts.blocks.size(); ++at) {
    const Block& block = parts.blocks[at];
    parts.displs.push_back(total);
    total += parts.counts[at];
    if (!parts.packed && parts.counts[at] > 0 && (parts.base == nullptr || block.address < parts.base)) {
      parts.base = block.address;
    }
  }
  if (parts.packed) {
    parts.base = work.scratch(total);
    return;
  }
  for (std::size_t at = 0; at < parts.blocks.size(); ++at) {
    parts.displs[at] = parts.counts[at] == 0 ? 0 : static_cast<std::size_t>(parts.blocks[at].address - parts.base);
  }
}

// Other ranks must send what this one receives, as it does itself: `own` bytes. If that is not what it has room for,
// and all blocks are of one length, the other ranks most likely send as many as well: so all make the same call.
void expect(Parts& parts, int rank, std::size_t own) {
  const std::size_t room = parts.counts[static_cast<std::size_t>(rank)];
  if (room == own) [[likely]]
    return;
  parts.cut = true;
  const auto is_other = [room](std::size_t count) { return count != room; };
  if (std::none_of(parts.counts.begin(), parts.counts.end(), is_other)) {
    std::fill(parts.counts.begin(), parts.counts.end(), own);
  } else {
    parts.counts[static_cast<std::size_t>(rank)] = own;
  }
}

// Blocks that overlap are an error that MPI libraries let pass: as there, one of the ranks' stays. `own`: where this
// rank's own block comes from, if it does not come with the others.
void place_received(Work& work, Parts& parts, const std::byte* own = nullptr) {
  parts.packed = parts.cut || !all_dense(parts) || overlap(parts);
  place(work, parts);
  if (!parts.packed) return;
  for (std::size_t at = 0; at < parts.blocks.size(); ++at) {
    const bool apart = own != nullptr && at == static_cast<std::size_t>(work.rank());
    work.unpack_later(apart ? own : parts.base + parts.displs[at], parts.blocks[at], parts.counts[at]);
  }
}

void place_sent(Work& work, Parts& parts) {
  parts.packed = !all_dense(parts);
  place(work, parts);
  if (!parts.packed) return;
  for (std::size_t at = 0; at < parts.blocks.size(); ++at) {
    work.pack_into(parts.base + parts.displs[at], parts.blocks[at]);
  }
}

// The data that this rank sends, outside the memory that it receives into.
const std::byte* sent_apart(Work& work, const Block& block, const Parts& received) {
  std::size_t end = 0;
  for (std::size_t at = 0; at < received.counts.size(); ++at) {
    end = std::max(end, received.displs[at] + received.counts[at]);
  }
  return work.apart(work.sent(block), block.bytes(), received.base, end);
}

// The position of this rank's own block in the receive buffer, which already contains it.
std::byte* own_in_place(Work& work, Parts& parts) {
  const auto own = static_cast<std::size_t>(work.rank());
  std::byte* place = parts.base + parts.displs[own];
  if (parts.packed) work.pack_into(place, parts.blocks[own]);
  return place;
}

bool wrong_counts(const Work& work, Numbers counts, Numbers displs, MPI_Datatype type) {
  return displs.none() || wrong(0, type) || counts.wrong(work.ranks());
}

bool wrong_blocks(const Work& work, const void* buffer, Numbers counts, Numbers displs, MPI_Datatype type) {
  if (wrong_counts(work, counts, displs, type)) return true;
  MPI_Count most = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(work.ranks()); ++rank) most = std::max(most, counts[rank]);
  return wrong_buffer(buffer, most, type);
}

bool wrong_types(const Work& work, Numbers counts, Numbers displs, const MPI_Datatype* types) {
  if (wrong_counts(work, counts, displs, MPI_BYTE)) return true;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(work.ranks()); ++rank) {
    if (counts[rank] > 0 && (types == nullptr || wrong(counts[rank], types[rank]))) return true;
  }
  return false;
}

// send NULL: in place.
Outcome exchange(Work& work, Parts* send, Parts& recv) {
  Parts copy;
  if (send == nullptr) {
    place_received(work, recv);
    if (recv.packed) {
      copy.blocks = recv.blocks;
      copy.counts = recv.counts;
      place_sent(work, copy);
      send = &copy;
    } else {
      send = &recv;
    }
  } else {
    const auto own = static_cast<std::size_t>(work.rank());
    place_sent(work, *send);
    expect(recv, work.rank(), send->counts[own]);
    place_received(work, recv, send->base + send->displs[own]);
    // Unpacked from where it is sent from.
    if (recv.packed) send->counts[own] = recv.counts[own] = 0;
  }
  return run(work, [&] {
    return tuttiAlltoAllV(send->base, send->counts.data(), send->displs.data(), recv.base, recv.counts.data(),
                          recv.displs.data(), kByte, work.comm(), work.stream());
  });
}

}  // namespace

Outcome allgatherv(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                   Numbers counts, Numbers displs, MPI_Datatype recv_type) {
  if (wrong_blocks(work, recv, counts, displs, recv_type) || wrong_unless_in_place(send, send_count, send_type)) {
    return Outcome::pass(Reason::kArgument);
  }
  Parts parts = parts_of(work, recv, counts, displs, recv_type);
  const std::size_t total = std::accumulate(parts.counts.begin(), parts.counts.end(), std::size_t{0});
  if (work.is_short(total)) return Outcome::pass(Reason::kShort);
  const std::byte* from = nullptr;
  std::size_t bytes = parts.counts[static_cast<std::size_t>(work.rank())];
  if (send == MPI_IN_PLACE) {
    place_received(work, parts);
    from = own_in_place(work, parts);
  } else {
    const Block block(send, static_cast<std::size_t>(send_count), send_type);
    bytes = block.bytes();
    expect(parts, work.rank(), bytes);
    place_received(work, parts);
    from = sent_apart(work, block, parts);
  }
  return run(work, [&] {
    return tuttiAllGatherV(from, bytes, parts.base, parts.counts.data(), parts.displs.data(), kByte, work.comm(),
                           work.stream());
  });
}

Outcome gatherv(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv, Numbers counts,
                Numbers displs, MPI_Datatype recv_type, int root) {
  if (wrong_root(work, root)) return Outcome::pass(Reason::kArgument);
  const bool receives = work.rank() == root;
  if ((receives && wrong_blocks(work, recv, counts, displs, recv_type)) ||
      wrong_unless_in_place(send, send_count, send_type) || (send == MPI_IN_PLACE && !receives)) {
    return Outcome::pass(Reason::kArgument);
  }
  const bool in_place = send == MPI_IN_PLACE;
  Parts parts;
  if (receives) parts = parts_of(work, recv, counts, displs, recv_type);
  const Block block = in_place ? parts.blocks[static_cast<std::size_t>(root)]
                               : Block(send, static_cast<std::size_t>(send_count), send_type);
  const std::size_t bytes = block.bytes();
  if (receives) {
    expect(parts, root, bytes);
    place_received(work, parts);
  }
  const std::byte* from = in_place ? own_in_place(work, parts) : sent_apart(work, block, parts);
  return run(work, [&] {
    return tuttiGatherV(from, bytes, parts.base, parts.counts.data(), parts.displs.data(), kByte, root, work.comm(),
                        work.stream());
  });
}

Outcome scatterv(Work& work, const void* send, Numbers counts, Numbers displs, MPI_Datatype send_type, void* recv,
                 MPI_Count recv_count, MPI_Datatype recv_type, int root) {
  if (wrong_root(work, root)) return Outcome::pass(Reason::kArgument);
  const bool sends = work.rank() == root;
  if ((sends && wrong_blocks(work, send, counts, displs, send_type)) ||
      wrong_unless_in_place(recv, recv_count, recv_type) || (recv == MPI_IN_PLACE && !sends)) {
    return Outcome::pass(Reason::kArgument);
  }
  Parts parts;
  std::byte* to = nullptr;
  std::size_t bytes = 0;
  if (sends) {
    parts = parts_of(work, send, counts, displs, send_type);
    place_sent(work, parts);
    bytes = parts.counts[static_cast<std::size_t>(root)];
    to = parts.base + parts.displs[static_cast<std::size_t>(root)];
  }
  if (recv != MPI_IN_PLACE) {
    const Block block(recv, static_cast<std::size_t>(recv_count), recv_type);
    if (!sends) bytes = block.bytes();
    if (bytes == block.bytes()) {
      to = work.received(block);
    } else {
      to = work.scratch(bytes);
      work.unpack_later(to, block, bytes);
    }
  }
  return run(work, [&] {
    return tuttiScatterV(parts.base, parts.counts.data(), parts.displs.data(), to, bytes, kByte, root, work.comm(),
                         work.stream());
  });
}

Outcome alltoallv(Work& work, const void* send, Numbers send_counts, Numbers send_displs, MPI_Datatype send_type,
                  void* recv, Numbers recv_counts, Numbers recv_displs, MPI_Datatype recv_type) {
  const bool in_place = send == MPI_IN_PLACE;
  if (wrong_blocks(work, recv, recv_counts, recv_displs, recv_type) ||
      (!in_place && wrong_blocks(work, send, send_counts, send_displs, send_type))) {
    return Outcome::pass(Reason::kArgument);
  }
  Parts to = parts_of(work, recv, recv_counts, recv_displs, recv_type);
  if (in_place) return exchange(work, nullptr, to);
  Parts from = parts_of(work, send, send_counts, send_displs, send_type);
  return exchange(work, &from, to);
}

Outcome alltoallw(Work& work, const void* send, Numbers send_counts, Numbers send_displs,
                  const MPI_Datatype* send_types, void* recv, Numbers recv_counts, Numbers recv_displs,
                  const MPI_Datatype* recv_types) {
  const bool in_place = send == MPI_IN_PLACE;
  if (recv == MPI_IN_PLACE || wrong_types(work, recv_counts, recv_displs, recv_types) ||
      (!in_place && wrong_types(work, send_counts, send_displs, send_types))) {
    return Outcome::pass(Reason::kArgument);
  }
  Parts to = parts_of(work, recv, recv_counts, recv_displs, recv_types);
  if (in_place) return exchange(work, nullptr, to);
  Parts from = parts_of(work, send, send_counts, send_displs, send_types);
  return exchange(work, &from, to);
}

}  // namespace tutti::mpi

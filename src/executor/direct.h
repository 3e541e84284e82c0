// Collectives of ranks that reach each other's buffers, as memory of one device: each output element is made, once, of
// the inputs that it needs, in the order of ranks. Inputs are read once and outputs written once, and all ranks get the
// same bits. Each rank has a part of the work: of what all ranks get, or the root, a share of the elements; else its
// own block. After Rabenseifner's reduce-scatter and all-gather (2004), with both done in place at the peers.
//
// Either one launch does the parts of all ranks, when all inputs are there; or each rank launches its own, and their
// thread blocks meet: before, to tell each other where the buffers are, and after. Such a launch needs nothing of the
// host, and meetings are numbered on the device: so it can be captured in a graph and replayed.
//
// Thread blocks run this code on devices, and threads of the host in tests (direct_host.h): they differ in their Block.
//   int row()                    of the launch: the rank whose part it is, where one launch does all
//   int column()                 of the blocks of a row
//   const std::byte** from(); std::byte** to()      kMostDirectRanks places that the block's threads share
//   void each(int n, f)          f(i) for each i < n, by some thread; the same i the same thread
//   void sync()                  what the block's threads wrote before is seen behind it
//   bool all(bool)               sync(), and whether it is true for all threads
//   std::uint64_t load(place); void store(place, value)      acquire and release, between blocks of all ranks
//   bool told(const DirectControl&)                          to stop, by the host; asked by one of the threads
//   void report(DirectControl&, int rank, DirectOutcome, int peer)
//   std::uint64_t now_ns()
//   void combine(const DirectCall&, int inputs, int outputs, std::size_t count)   of from(), in their order, to all
//   to() void move(int outputs, std::size_t bytes)               from the first from() to all to() void
//   exchange(std::size_t bytes)                         from()[0] to to()[0], from()[1] to to()[1], which may be
//                                                            each other's sources
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "base/types.h"
#include "transport/fingerprint.h"

namespace tutti::internal::executor {

inline constexpr int kMostDirectRanks = 8;
inline constexpr unsigned kMostDirectBlocks = 64;  // of a rank that meets others

inline constexpr std::uint32_t kDirect = collectives_that([](const CollectiveInfo& info) {
  return !info.varies && info.origin != Origin::kPrefix && info.origin != Origin::kPrefixBefore;
});
// Whether there is such code for the collective.
constexpr bool runs_directly(Collective c) {
  return is_among(kDirect, c);
}

// What a rank says of its call, to a thread block of a peer.
struct DirectNotice {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  transport::Fingerprint fingerprint;
};

// A rank's, in memory of the device; zero at first. A thread block of a rank meets those of the same number of its
// peers here. Each field is written by one rank: `arrived` and `notices` by the rank of their index.
struct DirectMailbox {
  // In place of a number: this rank was told to stop, or has given up. What comes later does nothing.
  static constexpr std::uint64_t kEnded = UINT64_MAX;
  struct alignas(128) Counter {
    std::uint64_t value = 0;
  };
  struct alignas(128) Meeting {
    std::array<Counter, kMostDirectRanks> arrived;  // how often that rank has come
    std::array<DirectNotice, kMostDirectRanks> notices;
    std::uint64_t meetings = 0;  // that have been, or kEnded; the rank's own
  };
  std::array<Meeting, kMostDirectBlocks> meetings;
};

enum class DirectOutcome : std::uint32_t { kGoes = 0, kMismatch = 1, kTimeout = 2 };

// What host and device tell each other of ranks that meet: in page-locked memory.
struct DirectControl {
  struct Report {
    std::uint32_t outcome = 0;  // DirectOutcome; written last
    std::uint32_t peer = 0;
    std::uint32_t sequence = 0;  // of the call's fingerprint
  };
  std::uint32_t stop = 0;                        // by the host, not 0: every launch ends that waits for others
  std::array<Report, kMostDirectRanks> reports;  // by rank, of its first failure
};

struct DirectCall {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUint8;  // with `op` what has code of its own on devices
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int ranks = 1;
  int rank = -1;          // whose part it is; -1: one launch does all of them
  std::size_t count = 0;  // elements, as in the call
  std::size_t element_bytes = 1;
  std::uint32_t divisor = 0;  // of an average
  // By rank; of one that meets the others its own alone.
  std::array<const std::byte*, kMostDirectRanks> in{};
  std::array<std::byte*, kMostDirectRanks> out{};
  // Of ranks that meet.
  std::array<DirectMailbox*, kMostDirectRanks> mailboxes{};
  DirectControl* control = nullptr;
  std::uint64_t timeout_ns = 0;  // that a rank waits for another
  transport::Fingerprint fingerprint;
};

inline constexpr std::size_t kDirectShareUnit =
    16;  // bytes that a share begins at a multiple of, unless elements do not fit

// A rank's share of `count` elements begins here, the next one's there.
constexpr std::size_t direct_share_begin(const DirectCall& call, int rank) {
  const std::size_t unit = call.element_bytes < kDirectShareUnit && kDirectShareUnit % call.element_bytes == 0
                               ? kDirectShareUnit / call.element_bytes
                               : 1;
  const std::size_t units = (call.count + unit - 1) / unit;
  const auto n = static_cast<std::size_t>(call.ranks);
  const auto r = static_cast<std::size_t>(rank);
  const std::size_t begin = (units / n * r + units % n * r / n) * unit;
  return begin < call.count ? begin : call.count;
}

// Every rank's thread block of this number has come here as often as this one: false if the launch is to end. What they
// wrote before is seen after.
template <class Block>
TUTTI_HOST_DEVICE bool meet(const DirectCall& call, Block& block, std::uint64_t number) {
  constexpr unsigned kIdleBetweenLooks = 1024;
  const int column = block.column();
  block.sync();
  block.each(call.ranks,
             [&](int peer) { block.store(call.mailboxes[peer]->meetings[column].arrived[call.rank].value, number); });
  bool goes_on = true;
  block.each(call.ranks, [&](int peer) {
    const std::uint64_t& arrived = call.mailboxes[call.rank]->meetings[column].arrived[peer].value;
    std::uint64_t since = 0;
    for (unsigned idle = 0; goes_on && block.load(arrived) < number;) {
      if (++idle % kIdleBetweenLooks != 0) continue;
      const std::uint64_t now = block.now_ns();
      if (since == 0) since = now;
      if (block.told(*call.control)) {
        goes_on = false;
      } else if (now - since > call.timeout_ns) {
        block.report(*call.control, call.rank, DirectOutcome::kTimeout, peer, call.fingerprint.sequence);
        goes_on = false;
      }
    }
  });
  return block.all(goes_on);
}

// Tells the others of the call and hears of theirs. Their notices are this rank's to read until the next meeting.
template <class Block>
TUTTI_HOST_DEVICE bool tell_notices(const DirectCall& call, Block& block, std::uint64_t number) {
  const int column = block.column();
  block.each(call.ranks, [&](int peer) {
    call.mailboxes[peer]->meetings[column].notices[call.rank] = {call.in[call.rank], call.out[call.rank],
                                                                 call.fingerprint};
  });
  if (!meet(call, block, number)) return false;
  bool same = true;
  block.each(call.ranks, [&](int peer) {
    const DirectNotice& notice = call.mailboxes[call.rank]->meetings[column].notices[peer];
    if (notice.fingerprint == call.fingerprint) return;
    same = false;
    block.report(*call.control, call.rank, DirectOutcome::kMismatch, peer, call.fingerprint.sequence);
  });
  return block.all(same);
}

// The block's threads together: rank `rank`'s part, by the columns of blocks together.
template <class Block>
TUTTI_HOST_DEVICE void do_part(const DirectCall& call, Block& block, int rank) {
  const auto input = [&](int peer) {
    return call.rank < 0 ? call.in[peer] : call.mailboxes[rank]->meetings[block.column()].notices[peer].in;
  };
  const auto output = [&](int peer) {
    return call.rank < 0 ? call.out[peer] : call.mailboxes[rank]->meetings[block.column()].notices[peer].out;
  };
  const auto element = call.element_bytes;
  const auto own_block = static_cast<std::size_t>(rank) * call.count * element;
  if (call.collective == Collective::kAllToAll) {
    // The blocks of a pair change places, or are copied, together: each rank of the two does half of each. A rank's
    // half with itself is both.
    for (int peer = 0; peer < call.ranks; ++peer) {
      const std::size_t half = call.count / 2;
      const std::size_t begin = rank <= peer ? 0 : half;
      const std::size_t end = rank < peer ? half : call.count;
      block.sync();
      block.each(1, [&](int) {
        const auto at = [&](int one) { return (static_cast<std::size_t>(one) * call.count + begin) * element; };
        block.from()[0] = input(rank) + at(peer);
        block.to()[0] = output(peer) + at(rank);
        block.from()[1] = input(peer) + at(rank);
        block.to()[1] = output(rank) + at(peer);
      });
      block.sync();
      block.exchange((end - begin) * element);
    }
    return;
  }
  bool all_in = true;
  bool all_out = true;
  int in_rank = rank;
  int out_rank = rank;
  std::size_t in_at = 0;
  std::size_t out_at = 0;
  std::size_t count = call.count;
  const auto share = [&] {
    const std::size_t begin = direct_share_begin(call, rank);
    in_at = out_at = begin * element;
    count = (rank + 1 == call.ranks ? call.count : direct_share_begin(call, rank + 1)) - begin;
  };
  switch (call.collective) {
    case Collective::kAllReduce: share(); break;
    case Collective::kReduce:
      share();
      all_out = false;
      out_rank = call.root;
      break;
    case Collective::kBroadcast:
      share();
      all_in = false;
      in_rank = call.root;
      break;
    case Collective::kReduceScatter:
      all_out = false;
      in_at = own_block;
      break;
    case Collective::kAllGather:
      all_in = false;
      out_at = own_block;
      break;
    case Collective::kGather:
      all_in = all_out = false;
      out_rank = call.root;
      out_at = own_block;
      break;
    case Collective::kScatter:
      all_in = all_out = false;
      in_rank = call.root;
      in_at = own_block;
      break;
    default: return;  // a barrier moves nothing
  }
  block.sync();
  block.each(call.ranks, [&](int i) {
    if (all_in) block.from()[i] = input(i) + in_at;
    if (all_out) block.to()[i] = output(i) + out_at;
    if (i > 0) return;
    if (!all_in) block.from()[0] = input(in_rank) + in_at;
    if (!all_out) block.to()[0] = output(out_rank) + out_at;
  });
  block.sync();
  const int outputs = all_out ? call.ranks : 1;
  if (reduces(call.collective)) {
    block.combine(call, call.ranks, outputs, count);
  } else {
    block.move(outputs, count * element);
  }
}

// The host's word is behind the bus: who need not wait does not look.
template <class Block>
TUTTI_HOST_DEVICE void run_directly(const DirectCall& call, Block& block) {
  if (call.rank < 0) return do_part(call, block, block.row());
  std::uint64_t& meetings = call.mailboxes[call.rank]->meetings[block.column()].meetings;
  const std::uint64_t before = meetings;
  if (before == DirectMailbox::kEnded) return;
  bool goes_on = tell_notices(call, block, before + 1);
  if (goes_on) {
    do_part(call, block, call.rank);
    // Until all have read this rank's input and written its output. Also the notices may be written anew then.
    goes_on = meet(call, block, before + 2);
  }
  block.sync();
  block.each(1, [&](int) { meetings = goes_on ? before + 2 : DirectMailbox::kEnded; });
}

}  // namespace tutti::internal::executor

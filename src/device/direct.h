// Collectives of ranks that can access each other's buffers, as memory of one device. Each output element is computed
// once, from the inputs that it needs, in the order of ranks. Inputs are read once and outputs written once, and all
// ranks get the same bits. Each rank does a part of the work: a share of the elements if all ranks or the root get the
// result; else its own block. After Rabenseifner's reduce-scatter and all-gather (2004), with both done in place at the
// peers.
//
// Either one launch does the parts of all ranks, when all inputs are there; or each rank launches its own part, and
// their thread blocks rendezvous (rendezvous.h) twice: before the work, to exchange the addresses of the buffers, and
// after it. Such a launch needs no host, and the device counts the rendezvous: so it can be captured in a graph and
// replayed.
//
// Thread blocks run this code on devices, and host threads in tests (direct_host.h): they have different Block types.
//   int row()                    in the launch: the rank whose part it is, if one launch does all
//   int column()                 number of the block in its row
//   const std::byte** from(); std::byte** to()      kMostDirectRanks entries that the block's threads share
//   void each(int n, f)          f(i) for each i < n, by some thread; the same i always by the same thread
//   void sync()                  earlier writes of the block's threads are visible after it
//   bool all(bool)               sync(), and whether the value is true for all threads
//   std::uint64_t load(entry); void store(entry, value)      acquire and release, between blocks of all ranks
//   std::uint64_t add(entry, value), set_bits(entry, bits)   acquire and release; returns the old value
//   bool exchange(entry, expected, value)                    acquire and release; whether it had the expected value
//   bool told(const DirectControl&); void stop(DirectControl&)
//   void report(const DirectCall&, DirectOutcome, int peer)  if it is the rank's first
//   std::uint64_t now_ns()
//   void combine(const DirectCall&, int inputs, int outputs, std::size_t count)
//                                                            from all from(), in order, to all to()
//   void move(int outputs, std::size_t bytes)                from the first from() to all to()
//   void exchange(std::size_t bytes)                         from()[0] to to()[0], from()[1] to to()[1]; sources and
//                                                            targets may be the same memory
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "base/types.h"
#include "transport/fingerprint.h"

namespace tutti::internal {

inline constexpr int kMostDirectRanks = 8;
inline constexpr unsigned kMostDirectBlocks = 64;  // of a rank whose kernel waits for others

inline constexpr std::uint32_t kDirect = collectives_that([](const CollectiveInfo& info) {
  return !info.varies && info.origin != Origin::kPrefix && info.origin != Origin::kPrefixBefore;
});
// Whether this code supports the collective.
constexpr bool runs_directly(Collective c) {
  return is_among(kDirect, c);
}

// A rank's message about its call, for a thread block of a peer.
struct DirectNotice {
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  transport::Fingerprint fingerprint;
};

// A rank's mailbox, in memory of the device; zero at first. A rendezvous joins the thread blocks of all ranks that have
// the same number, their column.
struct DirectMailbox {
  // In a counter: one of the ranks has given up. Then no rank passes the rendezvous any more.
  static constexpr std::uint64_t kEnded = std::uint64_t{1} << 63;
  struct alignas(128) Counter {
    std::uint64_t value = 0;
  };
  struct alignas(128) Column {
    // Rank 0's: total number of arrivals of all ranks, and kEnded.
    Counter all;
    std::array<DirectNotice, kMostDirectRanks> notices;     // by the rank that wrote it
    std::array<std::uint64_t, kMostDirectRanks> arrived{};  // rank 0's, by rank: its number of arrivals, for reports
    std::uint64_t passed = 0;                               // completed rendezvous; the rank's own
  };
  std::array<Column, kMostDirectBlocks> columns;
};

// kStopped: by the host, because the communicator has failed or a rank has left it.
enum class DirectOutcome : std::uint8_t { kGoes = 0, kMismatch = 1, kTimeout = 2, kStopped = 3 };

// The report of a failed launch: the peer, and the number of the call.
struct DirectReport {
  DirectOutcome outcome = DirectOutcome::kGoes;
  int peer = 0;
  std::uint32_t number = 0;
};
constexpr std::uint64_t pack_report(DirectOutcome outcome, int peer, std::uint32_t number) {
  return static_cast<std::uint64_t>(outcome) | static_cast<std::uint64_t>(peer) << 8 | std::uint64_t{number} << 32;
}
constexpr DirectReport unpack_report(std::uint64_t word) {
  return {static_cast<DirectOutcome>(word & 0xff), static_cast<int>(word >> 8 & 0xff),
          static_cast<std::uint32_t>(word >> 32)};
}

// Words of a rendezvous that host and device share: in page-locked memory.
struct DirectControl {
  std::uint32_t stop = 0;  // not 0: set by the host, or by a device on which calls differ: every waiting launch ends
  alignas(8) std::array<std::uint64_t, kMostDirectRanks> reports{};  // by rank, the first failure as of pack_report()
};

struct DirectCall {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kUint8;  // devices have special code for some pairs with `op`
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  int ranks = 1;
  int rank = -1;          // whose part it is, in a rendezvous with the others; -1: no kernel waits
  int only = -1;          // if rank is -1: whose part it is; -1: one launch does all parts
  std::size_t count = 0;  // elements, as in the call
  std::size_t element_bytes = 1;
  std::uint32_t divisor = 0;  // for an average
  // By rank, as the device accesses them; before a rendezvous only the rank's own.
  std::array<const std::byte*, kMostDirectRanks> in{};
  std::array<std::byte*, kMostDirectRanks> out{};
  // For a rendezvous. A launch that can be stopped also has a control.
  std::array<DirectMailbox*, kMostDirectRanks> mailboxes{};
  DirectControl* control = nullptr;
  std::uint64_t timeout_ns = 0;  // longest wait of a rank for another
  transport::Fingerprint fingerprint;
  std::uint32_t number = 0;  // for reports
};

// The fields that a call determines; the caller sets the others.
constexpr DirectCall direct_call(Collective collective, DataType type, ReduceOp op, int root, int ranks) {
  DirectCall call;
  call.collective = collective;
  call.type = type;
  call.op = op;
  call.root = root;
  call.ranks = ranks;
  call.divisor = reduces(collective) && op == ReduceOp::kAvg ? static_cast<std::uint32_t>(ranks) : 0;
  return call;
}

inline constexpr std::size_t kDirectShareUnit =
    16;  // bytes that a share begins at a multiple of, unless elements do not fit

// Where a rank's share of `count` elements begins; the next rank's begins at its end.
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

// How a wait for the other ranks' blocks may end early: kWhenTold: when the host says so, or after the timeout;
// kAtTimeout: only after the timeout, because they may still read and write this rank's memory.
enum class GivesUp : bool { kWhenTold, kAtTimeout };

// Returns when every rank's thread block of this number has arrived as often as this one; earlier writes of all are
// then visible. False if the launch must end; then no rank passes.
template <class Block>
TUTTI_HOST_DEVICE bool rendezvous(const DirectCall& call, Block& block, std::uint64_t number, GivesUp gives_up) {
  constexpr unsigned kIdleBetweenLooks = 1024;
  DirectMailbox::Column& column = call.mailboxes[0]->columns[block.column()];
  const std::uint64_t wanted = number * static_cast<std::uint64_t>(call.ranks);
  bool goes_on = true;
  block.sync();
  block.each(1, [&](int) {
    block.store(column.arrived[call.rank], number);
    std::uint64_t come = block.add(column.all.value, 1) + 1;
    std::uint64_t since = 0;
    for (unsigned idle = 0; come < wanted;) {
      if (++idle % kIdleBetweenLooks == 0) {
        const std::uint64_t now = block.now_ns();
        if (since == 0) since = now;
        const bool told = gives_up == GivesUp::kWhenTold && block.told(*call.control);
        if (told || now - since > call.timeout_ns) {
          // Unless all have arrived meanwhile: they may have passed already.
          std::uint64_t seen = block.load(column.all.value);
          while (seen < wanted && !block.exchange(column.all.value, seen, seen | DirectMailbox::kEnded)) {
            seen = block.load(column.all.value);
          }
          if (seen < wanted) {
            int late = 0;
            while (late + 1 < call.ranks && block.load(column.arrived[late]) >= number) ++late;
            block.report(call, told ? DirectOutcome::kStopped : DirectOutcome::kTimeout, late);
            goes_on = false;
          } else if ((seen & DirectMailbox::kEnded) != 0) {
            block.report(call, DirectOutcome::kStopped, call.rank);
            goes_on = false;
          }
          return;
        }
      }
      come = block.load(column.all.value);
    }
    if ((come & DirectMailbox::kEnded) == 0) return;
    goes_on = false;
    block.report(call, DirectOutcome::kStopped, call.rank);
  });
  return block.all(goes_on);
}

// Sends this rank's notice to the others and receives theirs, which this rank may read until the next rendezvous. If
// one differs from this rank's, each rank finds one that differs from its own.
template <class Block>
TUTTI_HOST_DEVICE bool exchange_notices(const DirectCall& call, Block& block, std::uint64_t number) {
  const int column = block.column();
  // No notice is written after the end: peers may still be comparing earlier ones.
  bool ended = false;
  block.each(1, [&](int) {
    ended = (block.load(call.mailboxes[0]->columns[column].all.value) & DirectMailbox::kEnded) != 0;
    if (ended) block.report(call, DirectOutcome::kStopped, call.rank);
  });
  if (!block.all(!ended)) return false;
  block.each(call.ranks, [&](int peer) {
    call.mailboxes[peer]->columns[column].notices[call.rank] = {call.in[call.rank], call.out[call.rank],
                                                                call.fingerprint};
  });
  if (!rendezvous(call, block, number, GivesUp::kWhenTold)) return false;
  bool same = true;
  block.each(call.ranks, [&](int peer) {
    const DirectNotice& notice = call.mailboxes[call.rank]->columns[column].notices[peer];
    if (notice.fingerprint == call.fingerprint) return;
    same = false;
    block.report(call, DirectOutcome::kMismatch, peer);
    // All ranks detect the difference, and none continues; later launches do not start. Blocks without a counterpart
    // wait.
    (void)block.set_bits(call.mailboxes[0]->columns[column].all.value, DirectMailbox::kEnded);
    block.stop(*call.control);
  });
  return block.all(same);
}

// The buffers that a rank's part of the collective reads and writes, and its position there, in bytes.
struct DirectPart {
  bool all_in = true;   // from every rank's input; else only from in_rank's
  bool all_out = true;  // to every rank's output; else only to out_rank's
  int in_rank = 0;
  int out_rank = 0;
  std::size_t in_at = 0;
  std::size_t out_at = 0;
  std::size_t count = 0;  // elements
};

TUTTI_HOST_DEVICE inline DirectPart direct_part(const DirectCall& call, int rank) {
  DirectPart part{true, true, rank, rank, 0, 0, call.count};
  const std::size_t own_block = static_cast<std::size_t>(rank) * call.count * call.element_bytes;
  const auto share = [&] {
    const std::size_t begin = direct_share_begin(call, rank);
    part.in_at = part.out_at = begin * call.element_bytes;
    part.count = (rank + 1 == call.ranks ? call.count : direct_share_begin(call, rank + 1)) - begin;
  };
  switch (call.collective) {
    case Collective::kAllReduce: share(); break;
    case Collective::kReduce:
      share();
      part.all_out = false;
      part.out_rank = call.root;
      break;
    case Collective::kBroadcast:
      share();
      part.all_in = false;
      part.in_rank = call.root;
      break;
    case Collective::kReduceScatter:
      part.all_out = false;
      part.in_at = own_block;
      break;
    case Collective::kAllGather:
      part.all_in = false;
      part.out_at = own_block;
      break;
    case Collective::kGather:
      part.all_in = part.all_out = false;
      part.out_rank = call.root;
      part.out_at = own_block;
      break;
    case Collective::kScatter:
      part.all_in = part.all_out = false;
      part.in_rank = call.root;
      part.in_at = own_block;
      break;
    default: part.count = 0; break;  // a barrier moves nothing
  }
  return part;
}

// Done by the block's threads together: rank `rank`'s part of an all-to-all. The two blocks of a pair are exchanged, or
// copied, together: each rank of the pair does half of each. With itself, a rank does both halves.
template <class Block, class Input, class Output>
TUTTI_HOST_DEVICE void exchange_blocks(const DirectCall& call, Block& block, int rank, const Input& input,
                                       const Output& output) {
  const auto element = call.element_bytes;
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
}

// Done by the block's threads together, and by all columns: rank `rank`'s part.
template <class Block>
TUTTI_HOST_DEVICE void do_part(const DirectCall& call, Block& block, int rank) {
  const auto input = [&](int peer) {
    return call.rank < 0 ? call.in[peer] : call.mailboxes[rank]->columns[block.column()].notices[peer].in;
  };
  const auto output = [&](int peer) {
    return call.rank < 0 ? call.out[peer] : call.mailboxes[rank]->columns[block.column()].notices[peer].out;
  };
  if (call.collective == Collective::kAllToAll) {
    exchange_blocks(call, block, rank, input, output);
    return;
  }
  if (call.collective == Collective::kBarrier) return;
  const DirectPart part = direct_part(call, rank);
  block.sync();
  block.each(call.ranks, [&](int i) {
    if (part.all_in) block.from()[i] = input(i) + part.in_at;
    if (part.all_out) block.to()[i] = output(i) + part.out_at;
    if (i > 0) return;
    if (!part.all_in) block.from()[0] = input(part.in_rank) + part.in_at;
    if (!part.all_out) block.to()[0] = output(part.out_rank) + part.out_at;
  });
  block.sync();
  const int outputs = part.all_out ? call.ranks : 1;
  if (reduces(call.collective)) {
    block.combine(call, call.ranks, outputs, part.count);
  } else {
    block.move(outputs, part.count * call.element_bytes);
  }
}

template <class Block>
TUTTI_HOST_DEVICE void run_directly(const DirectCall& call, Block& block) {
  if (call.rank < 0) {
    // A stopped launch touches no windows: the communicator has failed or ended.
    bool goes = true;
    if (call.control != nullptr) block.each(1, [&](int) { goes = !block.told(*call.control); });
    if (block.all(goes)) do_part(call, block, call.only < 0 ? block.row() : call.only);
    return;
  }
  std::uint64_t& passed = call.mailboxes[call.rank]->columns[block.column()].passed;
  const std::uint64_t before = passed;
  if (!exchange_notices(call, block, before + 1)) return;
  do_part(call, block, call.rank);
  // Waits until all ranks have read this rank's input and written its output. That does not take long: they are at
  // work, unless the launch of one has died. After it the notices may be written again.
  if (!rendezvous(call, block, before + 2, GivesUp::kAtTimeout)) return;
  block.each(1, [&](int) { passed = before + 2; });
}

}  // namespace tutti::internal

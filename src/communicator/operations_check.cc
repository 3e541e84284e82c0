// How ranks detect before an operation that they have called different ones (TUTTI_CHECK=strict), and after it that a
// result that must be alike on all ranks is not (TUTTI_CHECKSUM).
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/rank_list.h"
#include "calls/descriptions.h"
#include "communicator/operations.h"
#include "transport/checked/crc32c.h"

namespace tutti::internal {
namespace {

// The CRC32C of each half of some memory, after memory with the digest `before`.
std::uint64_t digest_of(const std::byte* data, std::size_t n, std::uint64_t before) {
  const std::size_t half = n / 2;
  const std::uint64_t low = transport::checked::crc32c(data, half, static_cast<std::uint32_t>(before));
  const std::uint64_t high =
      transport::checked::crc32c(data + half, n - half, static_cast<std::uint32_t>(before >> 32));
  return high << 32 | low;
}

// Of the result, without what lies between blocks.
std::uint64_t digest_of_result(const Call& call, int ranks, std::uint64_t before) {
  const auto* const result = static_cast<const std::byte*>(call.recv);
  const std::size_t element_bytes = element_bytes_of(call);
  if (call.varying == nullptr) {
    const std::size_t blocks = has_blocks(call.collective) ? static_cast<std::size_t>(ranks) : 1;
    return digest_of(result, blocks * call.count * element_bytes, before);
  }
  const BlockCounts& blocks = call.varying->recv;
  std::size_t packed = 0;
  for (int r = 0; r < ranks; ++r) {
    const std::size_t begin = blocks.displacements != nullptr ? blocks.displacements[r] : packed;
    if (blocks.counts[r] != 0)
      before = digest_of(result + begin * element_bytes, blocks.counts[r] * element_bytes, before);
    packed += blocks.counts[r];
  }
  return before;
}

// Which ranks have another digest than most, if most have the same.
std::optional<std::vector<int>> others(const std::vector<std::uint64_t>& digests) {
  for (const std::uint64_t digest : digests) {
    const auto same = std::count(digests.begin(), digests.end(), digest);
    if (2 * same <= static_cast<std::ptrdiff_t>(digests.size())) continue;
    std::vector<int> different;
    for (std::size_t r = 0; r < digests.size(); ++r) {
      if (digests[r] != digest) different.push_back(static_cast<int>(r));
    }
    return different;
  }
  return {};
}

}  // namespace

// One in-place collective of a check: the maxima of the words of all ranks (kAllReduce), or the words of `root`
// (kBroadcast).
Status Operations::run_check(Collective collective, std::span<std::uint64_t> words, std::uint32_t sequence, int root) {
  Call check;
  check.collective = collective;
  check.send = check.recv = words.data();
  check.count = words.size();
  check.type = DataType::kUint64;
  check.op = ReduceOp::kMax;
  check.root = root;
  return bind_and_run(check, executor::fingerprint_of_check(sequence));
}

// One word and its complement: their maxima are complements only if all ranks have the same word.
Status Operations::check_beforehand(std::uint32_t sequence) {
  const std::array<std::uint64_t, 2> own{history_.hash(), ~history_.hash()};
  std::array<std::uint64_t, 2> most = own;
  if (Status s = run_check(Collective::kAllReduce, most, sequence); !s.is_ok()) return s;
  if (most == own) return {};
  return failures_.explain(Status::mismatch(
      fmt::format("ranks called different operations: {} of rank {} meets ranks that call something else, "
                  "or group their calls differently",
                  executor::describe(executor::fingerprint_of_check(sequence)), epoch_.rank())));
}

// Counts that only two ranks share are not in the history. If one of them is 0, no message would show the difference.
Status Operations::check_counts_beforehand(const Call& call, const transport::Fingerprint& fingerprint) {
  if (call.varying == nullptr || counts_are_common(call.collective)) return {};
  const PairBytes own = pair_bytes(call, epoch_.ranks(), epoch_.rank());
  std::vector<std::uint64_t> told(own.sends.size());
  Call check;
  check.collective = Collective::kAllToAll;
  check.send = own.sends.data();
  check.recv = told.data();
  check.count = 1;
  check.type = DataType::kUint64;
  if (Status s = bind_and_run(check, executor::fingerprint_of_check(fingerprint.sequence)); !s.is_ok()) return s;
  // All ranks report the same pair that differs: the last one, by receiver and sender. 0: there is none.
  const std::size_t n = told.size();
  std::array<std::uint64_t, 1> last{};
  for (std::size_t r = 0; r < n; ++r) {
    if (told[r] != own.receives[r]) last[0] = 1 + static_cast<std::size_t>(epoch_.rank()) * n + r;
  }
  if (Status s = run_check(Collective::kAllReduce, last, fingerprint.sequence); !s.is_ok()) return s;
  if (last[0] == 0) return {};
  const std::size_t receiver = (last[0] - 1) / n;
  const std::size_t sender = (last[0] - 1) % n;
  std::array<std::uint64_t, 2> bytes{told[sender], own.receives[sender]};
  if (Status s = run_check(Collective::kBroadcast, bytes, fingerprint.sequence, static_cast<int>(receiver));
      !s.is_ok()) {
    return s;
  }
  return Status::mismatch(fmt::format(
      "ranks called different operations: in {} rank {} sends {} bytes to rank {}, which expects {}. Pass the same "
      "count on both",
      executor::describe(fingerprint), sender, bytes[0], receiver, bytes[1]));
}

Status Operations::check_results(std::span<const Call> calls, std::uint32_t sequence) {
  std::uint64_t digest = 0;
  bool any = false;
  for (const Call& call : calls) {
    if (!bound_.compares_results(call)) continue;
    digest = digest_of_result(call, epoch_.ranks(), digest);
    any = true;
  }
  if (!any) return {};
  const executor::PlanIdentity* const plan = history_.plan();
  const std::array<std::uint64_t, 2> own{digest, ~digest};
  std::array<std::uint64_t, 2> most = own;
  Status status = run_check(Collective::kAllReduce, most, sequence);
  if (status.is_ok() && most != own) status = name_damaged(calls.front(), digest, sequence);
  // In the records the plan is that of the operation.
  if (plan != nullptr) history_.set_plan(*plan);
  return status;
}

// The error of all ranks, whose digests differ.
Status Operations::name_damaged(const Call& call, std::uint64_t digest, std::uint32_t sequence) {
  std::vector<std::uint64_t> digests(static_cast<std::size_t>(epoch_.ranks()));
  Call check;
  check.collective = Collective::kAllGather;
  check.send = &digest;
  check.recv = digests.data();
  check.count = 1;
  check.type = DataType::kUint64;
  if (Status s = bind_and_run(check, executor::fingerprint_of_check(sequence)); !s.is_ok()) return s;
  const auto damaged = others(digests);
  return Status::remote(fmt::format(
      "the result of {} is not the same on all ranks: {}. Memory or a processor has changed data, or a program has "
      "written to its buffer during the call",
      name_of(call.collective),
      damaged ? fmt::format("that of {} differs from that of the others", list_ranks(*damaged))
              : fmt::format("rank 0 has the digest {:016x}, rank {} has {:016x}", digests[0], digests.size() - 1,
                            digests.back())));
}

}  // namespace tutti::internal

// How ranks detect before an operation that they have called different ones (TUTTI_CHECK=strict).
#include <fmt/core.h>

#include <array>
#include <span>
#include <vector>

#include "communicator/operations.h"

namespace tutti::internal {

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

}  // namespace tutti::internal

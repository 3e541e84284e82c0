#include "trial.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "values.h"

namespace tutti::internal::test {
namespace {

constexpr std::size_t kGuardBytes = 64;
constexpr auto kGuard = static_cast<std::byte>(0xa5);

bool is_guard(const std::byte* at, std::size_t bytes) {
  return std::all_of(at, at + bytes, [](std::byte b) { return b == kGuard; });
}

std::size_t times(std::size_t count, int ranks) {
  return count * static_cast<std::size_t>(ranks);
}

}  // namespace

std::string Spec::text() const {
  std::string s = std::string(name_of(collective)) + " " + name_of(type);
  if (reduces(collective)) s += std::string(" ") + name_of(op);
  if (has_root(collective)) s += " root " + std::to_string(root);
  s += " count " + std::to_string(count) + (in_place ? " in place" : " out of place");
  return s + (registered ? " tuttiMemAlloc+" : " malloc+") + std::to_string(misalign);
}

Memory::~Memory() {
  release();
}

void Memory::release() {
  if (memory_ == nullptr) return;
  if (registered_) {
    if (tuttiMemFree(memory_) != tuttiSuccess) std::abort();
  } else {
    std::free(memory_);
  }
  memory_ = nullptr;
  bytes_ = 0;
}

std::byte* Memory::get(std::size_t bytes, bool registered) {
  if (memory_ != nullptr && registered == registered_ && bytes <= bytes_) return memory_;
  release();
  const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
  void* made = nullptr;
  if (registered) {
    if (tuttiMemAlloc(&made, rounded) != tuttiSuccess) return nullptr;
  } else {
    made = std::aligned_alloc(64, rounded);
  }
  memory_ = static_cast<std::byte*>(made);
  bytes_ = made == nullptr ? 0 : rounded;
  registered_ = registered;
  return memory_;
}

std::size_t Trial::elements_sent() const {
  return spec_.count * blocks_in(info().input, spec_.collective, ranks_);
}

std::size_t Trial::elements_received() const {
  return spec_.count * blocks_in(info().output, spec_.collective, ranks_);
}

Trial::Window Trial::open(Memory* memory, std::size_t bytes) const {
  const std::size_t whole = kGuardBytes + spec_.misalign + bytes + kGuardBytes;
  std::byte* at = memory->get(whole, spec_.registered);
  if (at == nullptr) std::abort();
  std::memset(at, static_cast<int>(kGuard), whole);
  return {at + kGuardBytes + spec_.misalign, bytes};
}

void Trial::prepare(Memory* send, Memory* recv) {
  if (spec_.collective == Collective::kBarrier) return;
  const std::size_t sent = elements_sent();
  const std::size_t received = elements_received();
  if (spec_.in_place) {
    recv_window_ = open(recv, std::max(sent, received) * size());
    send_ = recv_ = recv_window_.data;
    if (gives_own_block(spec_.collective)) send_ += own() * size();
    if (gets_own_block(spec_.collective)) recv_ += own() * size();
  } else {
    send_window_ = open(send, sent * size());
    recv_window_ = open(recv, received * size());
    send_ = send_window_.data;
    recv_ = recv_window_.data;
  }
  if (gives()) fill_periodic(send_, *input_pattern(spec_.type, op(), ranks_, rank_), spec_.first, sent);
  if (spec_.in_place) return;
  // An ignored argument may be NULL, or a buffer that must not be touched.
  const bool null = (static_cast<std::size_t>(rank_) + spec_.count) % 2 == 0;
  if (null && !gives()) send_ = nullptr;
  if (null && !receives()) recv_ = nullptr;
}

tuttiResult_t Trial::issue(tuttiComm_t comm, void* stream) {
  const auto type = static_cast<tuttiDataType_t>(public_value(spec_.type));
  const auto op = static_cast<tuttiRedOp_t>(public_value(spec_.op));
  // All blocks have equal counts: separate tests have other counts.
  const std::vector<std::size_t> counts(varies(spec_.collective) ? static_cast<std::size_t>(ranks_) : 0, spec_.count);
  const std::size_t* const c = counts.data();
  switch (spec_.collective) {
    case Collective::kAllReduce: return tuttiAllReduce(send_, recv_, spec_.count, type, op, comm, stream);
    case Collective::kReduceScatter: return tuttiReduceScatter(send_, recv_, spec_.count, type, op, comm, stream);
    case Collective::kAllGather: return tuttiAllGather(send_, recv_, spec_.count, type, comm, stream);
    case Collective::kBroadcast:
      if (spec_.in_place) return tuttiBcast(recv_, spec_.count, type, spec_.root, comm, stream);
      return tuttiBroadcast(send_, recv_, spec_.count, type, spec_.root, comm, stream);
    case Collective::kReduce: return tuttiReduce(send_, recv_, spec_.count, type, op, spec_.root, comm, stream);
    case Collective::kBarrier: return tuttiBarrier(comm, stream);
    case Collective::kGather: return tuttiGather(send_, recv_, spec_.count, type, spec_.root, comm, stream);
    case Collective::kScatter: return tuttiScatter(send_, recv_, spec_.count, type, spec_.root, comm, stream);
    case Collective::kAllToAll: return tuttiAlltoAll(send_, recv_, spec_.count, type, comm, stream);
    case Collective::kScan: return tuttiScan(send_, recv_, spec_.count, type, op, comm, stream);
    case Collective::kExscan: return tuttiExscan(send_, recv_, spec_.count, type, op, comm, stream);
    case Collective::kAllGatherV: return tuttiAllGatherV(send_, spec_.count, recv_, c, nullptr, type, comm, stream);
    case Collective::kReduceScatterV: return tuttiReduceScatterV(send_, recv_, c, type, op, comm, stream);
    case Collective::kAllToAllV: return tuttiAlltoAllV(send_, c, nullptr, recv_, c, nullptr, type, comm, stream);
    case Collective::kGatherV:
      return tuttiGatherV(send_, spec_.count, recv_, c, nullptr, type, spec_.root, comm, stream);
    case Collective::kScatterV:
      return tuttiScatterV(send_, c, nullptr, recv_, spec_.count, type, spec_.root, comm, stream);
  }
  return tuttiInternalError;
}

std::string Trial::check_guards(const Window& w, const char* name) const {
  if (w.data == nullptr) return {};
  if (!is_guard(w.data - kGuardBytes, kGuardBytes)) return std::string("bytes before ") + name + " were written";
  if (!is_guard(w.data + w.bytes, kGuardBytes)) return std::string("bytes after ") + name + " were written";
  return {};
}

// Out of place, no call writes its input; in place, only at the output.
std::string Trial::check_input() const {
  if (!gives()) {
    if (!spec_.in_place && !is_guard(send_window_.data, send_window_.bytes)) return "an ignored sendbuff was written";
    return {};
  }
  const auto mine = input_pattern(spec_.type, op(), ranks_, rank_);
  const std::size_t sent = elements_sent();
  const bool by_block = gives_own_block(spec_.collective) || gets_own_block(spec_.collective);
  const bool overwritten = spec_.in_place && receives() && !by_block && info().origin != Origin::kRoot;
  if (overwritten) return {};
  if (spec_.in_place && reduces(spec_.collective) && gets_own_block(spec_.collective)) {
    const std::size_t after = own() + spec_.count;
    if (find_difference(send_, *mine, spec_.first, own()) != own() ||
        find_difference(send_ + after * size(), *mine, spec_.first + after, sent - after) != sent - after) {
      return "a block of sendbuff that is not recvbuff was written";
    }
    return {};
  }
  const std::size_t at = find_difference(send_, *mine, spec_.first, sent);
  return at == sent ? "" : "sendbuff element " + std::to_string(at) + " was written";
}

std::string Trial::check_output() const {
  const std::size_t count = spec_.count;
  if (!receives()) {
    if (!spec_.in_place && !is_guard(recv_window_.data, recv_window_.bytes)) return "an ignored recvbuff was written";
    return {};
  }
  const Origin origin = info().origin;
  if (origin == Origin::kOwner || origin == Origin::kPeer) {
    for (int r = 0; r < ranks_; ++r) {
      const std::size_t at =
          find_difference(recv_ + times(count, r) * size(), *input_pattern(spec_.type, op(), ranks_, r),
                          spec_.first + (origin == Origin::kPeer ? own() : 0), count);
      if (at != count) return "element " + std::to_string(at) + " of block " + std::to_string(r) + " is wrong";
    }
    return {};
  }
  const int combined = origin == Origin::kPrefix ? rank_ + 1 : origin == Origin::kPrefixBefore ? rank_ : ranks_;
  const auto want = origin == Origin::kRoot ? input_pattern(spec_.type, op(), ranks_, spec_.root)
                                            : combined_pattern(spec_.type, op(), ranks_, combined);
  const std::size_t first = spec_.first + (gets_own_block(spec_.collective) ? own() : 0);
  const std::size_t at = find_difference(recv_, *want, first, count);
  return at == count ? "" : "element " + std::to_string(at) + " is wrong";
}

std::string Trial::check() const {
  if (spec_.collective == Collective::kBarrier) return {};
  std::string wrong = check_guards(send_window_, "sendbuff");
  if (wrong.empty()) wrong = check_guards(recv_window_, "recvbuff");
  if (wrong.empty()) wrong = check_input();
  if (wrong.empty()) wrong = check_output();
  if (wrong.empty()) return {};
  return spec_.text() + ", rank " + std::to_string(rank_) + " of " + std::to_string(ranks_) + ": " + wrong;
}

// FNV-1a.
std::uint64_t Trial::digest() const {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (std::size_t i = 0; i < elements_received() * size(); ++i) {
    hash = (hash ^ static_cast<std::uint64_t>(recv_[i])) * 0x100000001b3ULL;
  }
  return hash;
}

std::string Runner::run(const Spec& spec, std::uint64_t* digest) {
  Trial trial(spec, rank_, ranks_);
  trial.prepare(&send_[spec.registered ? 1 : 0], &recv_[spec.registered ? 1 : 0]);
  const tuttiResult_t result = trial.issue(comm_, nullptr);
  if (result != tuttiSuccess) {
    return spec.text() + ", rank " + std::to_string(rank_) + " of " + std::to_string(ranks_) + ": result " +
           std::to_string(result) + ", " + tuttiGetLastError(comm_);
  }
  if (digest != nullptr) *digest = trial.digest();
  return trial.check();
}

std::string Runner::run_all(const std::vector<Spec>& specs) {
  for (const Spec& spec : specs) {
    if (std::string wrong = run(spec); !wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace tutti::internal::test

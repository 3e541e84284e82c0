// Progress in schedule order: each rank runs its steps one after the other, as an executor does for small messages. A
// send needs an empty lane and leaves one message in it; the matching receive takes it out. Matching has been proven
// before, so messages are only counts of chunks.
#include <algorithm>
#include <vector>

#include "schedule/verify_parts.h"

namespace tutti::internal::schedule::parts {
namespace {

class ProgramOrder {
 public:
  ProgramOrder(std::span<const Schedule> schedules, Pause& pause)
      : schedules_(schedules),
        pause_(pause),
        ranks_(schedules.size()),
        at_(ranks_, 0),
        received_(ranks_, 0),
        queued_(ranks_, 1),
        lanes_(ranks_ * ranks_, 0) {}

  Status run() {
    for (std::size_t r = ranks_; r-- > 0;) ready_.push_back(r);
    while (!ready_.empty()) {
      const std::size_t r = ready_.back();
      ready_.pop_back();
      queued_[r] = 0;
      const std::size_t before = at_[r];
      while (at_[r] < schedules_[r].steps.size() && take_step(r)) ++at_[r];
      if (Status s = pause_.after(at_[r] - before + 1); !s.is_ok()) return s;
    }
    for (std::size_t r = 0; r < ranks_; ++r) {
      if (at_[r] == schedules_[r].steps.size()) continue;
      return at_step(schedules_[r], at_[r], "waits without end if steps are taken in order, with one message per lane");
    }
    return Status::ok();
  }

 private:
  // The number of chunks that are in the lane.
  std::uint32_t& lane(std::size_t from, std::size_t to) { return lanes_[from * ranks_ + to]; }

  void wake(std::size_t r) {
    if (queued_[r] == 0) ready_.push_back(r);
    queued_[r] = 1;
  }

  bool take_step(std::size_t r) {
    const Step& s = schedules_[r].steps[at_[r]];
    if (is_local(s.kind)) return true;
    const auto peer = static_cast<std::size_t>(s.peer);
    if (s.kind == StepKind::kSend) {
      if (lane(r, peer) != 0) return false;
      lane(r, peer) = s.chunks;
      wake(peer);
      return true;
    }
    std::uint32_t& arrived = lane(peer, r);
    const std::uint32_t taken = std::min(arrived, s.chunks - received_[r]);
    if (taken == 0) return false;
    received_[r] += taken;
    arrived -= taken;
    if (arrived == 0) wake(peer);
    if (received_[r] < s.chunks) return false;
    received_[r] = 0;
    return true;
  }

  std::span<const Schedule> schedules_;
  Pause& pause_;
  const std::size_t ranks_;
  std::vector<std::size_t> at_;          // per rank: its step
  std::vector<std::uint32_t> received_;  // per rank: chunks that the step has received
  std::vector<char> queued_;             // per rank: is in ready_
  std::vector<std::uint32_t> lanes_;
  std::vector<std::size_t> ready_;
};

}  // namespace

Status check_program_order(std::span<const Schedule> schedules, Pause& pause) {
  return ProgramOrder(schedules, pause).run();
}

}  // namespace tutti::internal::schedule::parts

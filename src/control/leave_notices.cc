#include "control/leave_notices.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// Leave notices that have waited this long to be merged are forwarded unmerged.
constexpr std::int64_t kMergeMs = 20;

}  // namespace

void LeaveNotices::part(const CallSummary& calls, std::vector<std::uint64_t> agreements) {
  parted_ = true;
  own_calls_ = calls;
  last_leave_ns_ = now_ns();
  const MutexLock lock(shared_.mutex);
  add({members_.own_place(), gathers_.given(), own_calls_, std::move(agreements)});
}

RankSet LeaveNotices::hear(const LeaveNotice& leave_notice, const Neighbour* from,
                           std::shared_ptr<const Watching>* watching) {
  RankSet is_new;
  {
    const MutexLock lock(shared_.mutex);
    is_new = add(leave_notice);
    *watching = shared_.watching;
    shared_.changed.notify_all();
  }
  if (from != nullptr) told_[from->rank].add(leave_notice.places);
  if (!is_new.empty()) last_leave_ns_ = now_ns();
  return is_new;
}

RankSet LeaveNotices::add(const LeaveNotice& leave_notice) {
  RankSet is_new = leave_notice.places.without(shared_.departed_places);
  if (is_new.empty()) return is_new;
  shared_.departed_places.add(is_new);
  const auto same = std::find_if(shared_.departed.begin(), shared_.departed.end(), [&](const LeaveNotice& known) {
    return known.rounds == leave_notice.rounds && known.calls.operations == leave_notice.calls.operations &&
           known.calls.hash == leave_notice.calls.hash && known.agreements == leave_notice.agreements;
  });
  if (same == shared_.departed.end()) {
    shared_.departed.push_back({is_new, leave_notice.rounds, leave_notice.calls, leave_notice.agreements});
  } else {
    same->places.add(is_new);
  }
  return is_new;
}

void LeaveNotices::wake_waiting() {
  const MutexLock lock(shared_.mutex);
  shared_.compared = parted_;
  shared_.all_parted = members_.are_all(shared_.departed_places);
  shared_.changed.notify_all();
}

void LeaveNotices::pass_on(bool at_once) {
  gathers_.pass_on_all();
  RankSet all;
  {
    const MutexLock lock(shared_.mutex);
    all = shared_.departed_places;
  }
  const bool complete = members_.are_all(all);
  bool waits = false;
  for (Neighbour* const neighbour : neighbours_.listeners()) {
    RankSet& told = told_[neighbour->rank];
    if (told.contains(all) || !neighbours_.leads_to(members_.name().members, *neighbour)) continue;
    if (!at_once && !complete && !(neighbour->is_parent && all.contains(members_.places_below()))) {
      waits = true;
      continue;
    }
    std::vector<LeaveNotice> notices = shared_.all_departed();
    for (LeaveNotice& notice : notices) {
      notice.places = notice.places.without(told);
      if (complete && notices.size() == 1) notice.calls.calls.clear();
    }
    std::erase_if(notices, [](const LeaveNotice& notice) { return notice.places.empty(); });
    neighbours_.send(pack_leave_notices(members_.name(), notices), neighbour);
    told = all;
  }
  if (!waits) {
    due_ns_ = 0;
  } else if (due_ns_ == 0) {
    due_ns_ = now_ns() + kMergeMs * kNsPerMs;
  }
}

void LeaveNotices::advance(std::int64_t now_ns) {
  if (due_ns_ != 0 && now_ns >= due_ns_) pass_on(true);
}

bool LeaveNotices::has_departed(int rank) const {
  const MutexLock lock(shared_.mutex);
  return shared_.departed_places.contains(members_.place_of(rank));
}

bool LeaveNotices::is_over() const {
  const MutexLock lock(shared_.mutex);
  return shared_.all_parted;
}

bool LeaveNotices::may_have_left(int job_rank, std::int64_t recent_ns) const {
  const int rank = members_.rank_of(job_rank);
  return rank < 0 || last_leave_ns_ > recent_ns || has_departed(rank);
}

}  // namespace tutti::internal::control

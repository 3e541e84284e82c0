#include "control/parent_search.h"

#include <algorithm>
#include <utility>

#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// When a job ends, all ranks leave at the same time, and none needs a new parent.
constexpr std::int64_t kPauseMs = 10;
constexpr std::int64_t kLongestPauseMs = 500;
constexpr std::int64_t kCandidateMs = 500;  // the time for one rank to answer
// Until the next one is asked as well: about 250 silent hosts can be skipped.
constexpr std::int64_t kNextMs = 20;

}  // namespace

void ParentSearch::begin(DialPurpose purpose, bool at_once) {
  if (search_ || (purpose == DialPurpose::kSeek && view_.rank() == 0)) return;
  search_.emplace();
  search_->purpose = purpose;
  search_->begin_ns = now_ns() + (at_once ? 0 : kPauseMs * kNsPerMs);
  search_->end_ns = search_->begin_ns + silence_ms_ * kNsPerMs;
  search_->pause_ms = kPauseMs;
  shortage_ = {};
}

void ParentSearch::prepare(net::PollSet* set) {
  if (!search_) return;
  const std::int64_t now = now_ns();
  const auto wake_at = [&](std::int64_t at_ns) {
    set->wake_at(Deadline::after_ms(std::max<std::int64_t>(0, at_ns - now + kNsPerMs - 1) / kNsPerMs));
  };
  for (Candidate& candidate : search_->asked) {
    candidate.polled = candidate.stream.valid();
    if (candidate.polled) candidate.entry = set->add(candidate.stream, POLLIN);
    if (candidate.dial) candidate.dial->prepare(set);
    wake_at(candidate.since_ns + kCandidateMs * kNsPerMs);
  }
  const bool may_ask = search_->asked.empty() || (!search_->left.empty() && now < search_->end_ns);
  if (may_ask) wake_at(std::max(search_->begin_ns, search_->asked.empty() ? 0 : search_->next_ns));
}

std::optional<ParentSearch::Parent> ParentSearch::read(const net::PollSet& set, std::vector<int>* dead) {
  std::list<Candidate>& asked = search_->asked;
  for (auto at = asked.begin(); at != asked.end();) {
    Candidate& candidate = *at;
    if (candidate.polled && set.ready(candidate.entry) != 0) {
      Result<net::FrameReader::Progress> progress = candidate.welcome.read(&candidate.stream);
      if (progress.is_ok() && *progress == net::FrameReader::Progress::kFrame) {
        Parent found{candidate.rank, std::move(candidate.stream)};
        search_.reset();
        return found;
      }
      if (!progress.is_ok() || *progress == net::FrameReader::Progress::kClosed) candidate.stream.reset();
    }
    at = advance(&candidate, set, dead) ? std::next(at) : asked.erase(at);
  }
  return std::nullopt;
}

// False if the candidate is no longer asked.
bool ParentSearch::advance(Candidate* candidate, const net::PollSet& set, std::vector<int>* dead) {
  const bool late = now_ns() >= candidate->since_ns + kCandidateMs * kNsPerMs;
  if (!candidate->dial) {
    if (candidate->stream.valid() && late) search_->silent.insert(host_of(candidate->rank));
    return candidate->stream.valid() && !late;
  }
  candidate->dial->process(set);
  if (candidate->dial->done()) {
    candidate->stream = candidate->dial->take();
    candidate->dial.reset();
    candidate->since_ns = now_ns();  // the other side may be busy
    shortage_ = {};
    return true;
  }
  const bool failed = candidate->dial->unreachable();
  if (!failed && !late) return true;
  const auto refused = search_->refused_ns.try_emplace(candidate->rank, now_ns()).first;
  if (!candidate->dial->gone_for(0)) {
    search_->refused_ns.erase(refused);
  } else if (dialler_.counts_as_dead(candidate->rank, refused->second)) {
    dead->push_back(candidate->rank);
  }
  if (candidate->dial->lacks()) shortage_ = Status(Code::kSystemError, candidate->dial->trouble());
  if (!failed) search_->silent.insert(host_of(candidate->rank));
  return false;
}

ParentSearch::State ParentSearch::ask(bool needed) {
  Search& search = *search_;
  const auto end_as = [this](State state) {
    search_.reset();
    return state;
  };
  for (;;) {
    const std::int64_t now = now_ns();
    if (now < search.begin_ns) return State::kOn;
    if (!search.asked.empty() && (now < search.next_ns || now >= search.end_ns || search.left.empty())) {
      return State::kOn;
    }
    if (now >= search.end_ns) return end_as(shortage_.is_ok() ? State::kSilent : State::kUnable);
    if (search.left.empty() && std::exchange(search.asked_any, false)) {
      // A rank that listens no more has left as well, or died.
      if (search.purpose == DialPurpose::kTell) return end_as(State::kNobody);
      search.begin_ns = now + search.pause_ms * kNsPerMs;  // all have been asked
      search.pause_ms = std::min(search.pause_ms * 2, kLongestPauseMs);
      return State::kOn;
    }
    if (search.left.empty()) {
      search.left = search.purpose == DialPurpose::kTell ? view_.possible_receivers() : view_.possible_parents();
      if (search.left.empty() || !needed) return end_as(State::kNobody);
    }
    const int rank = next_candidate();
    search.asked_any = true;
    if (view_.is_there(rank)) dial(rank);
  }
}

int ParentSearch::next_candidate() {
  std::vector<int>& left = search_->left;
  const auto next =
      std::find_if(left.begin(), left.end(), [&](int rank) { return !search_->silent.contains(host_of(rank)); });
  const auto at = next == left.end() ? left.begin() : next;
  const int rank = *at;
  left.erase(at);
  return rank;
}

void ParentSearch::dial(int rank) {
  std::unique_ptr<net::Dial> made = dialler_.dial(rank, search_->purpose);
  if (made == nullptr) return;
  Candidate& candidate = search_->asked.emplace_back();
  candidate.rank = rank;
  candidate.since_ns = now_ns();
  candidate.dial = std::move(made);
  search_->next_ns = candidate.since_ns + kNextMs * kNsPerMs;
}

}  // namespace tutti::internal::control

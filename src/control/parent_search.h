// A rank's search for another parent in the control tree, when its own has died or left for good.
//
// The candidates are the nearest ancestors, then the other lower ranks, the lowest first. A parent always has a lower
// number than its child, so the tree has no cycles, whichever ranks have died and whatever the ranks know of that. The
// rank asks the next candidate when the last has failed or has been silent for a while. The first one to answer becomes
// the parent. Candidates on a host where one was silent are asked last.
//
// Threads: the tree's only.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "control/job_view.h"
#include "control/tree_dial.h"
#include "net/dial.h"
#include "net/frame.h"
#include "net/socket.h"
#include "os/unique_fd.h"

namespace tutti::internal::control {

class ParentSearch {
 public:
  // Both outlive it. `silence_ms`: a search ends after this time.
  ParentSearch(const JobView& view, const TreeDialler& dialler, std::int64_t silence_ms)
      : view_(view), dialler_(dialler), silence_ms_(silence_ms) {}

  // Does nothing if a search is on, and for kSeek on rank 0, which has no lower rank. kTell: this rank has left, and
  // looks for any rank. `at_once`: without the pause in which a job may end.
  void begin(DialPurpose purpose = DialPurpose::kSeek, bool at_once = false);
  void stop() { search_.reset(); }
  [[nodiscard]] bool is_on() const { return search_.has_value(); }

  // In a poll loop: prepare(set), set.wait(), read(set), ask().
  void prepare(net::PollSet* set);
  struct Parent {
    int rank = -1;
    net::ByteStream stream;
  };
  // The candidate that has welcomed this rank, which ends the search. *dead: candidates that have died.
  std::optional<Parent> read(const net::PollSet& set, std::vector<int>* dead);
  enum class State : std::uint8_t {
    kOn,
    kNobody,  // there is no candidate: this rank is the root, or needs no parent
    kSilent,  // no lower rank answers
    kUnable,  // this rank cannot connect: shortage()
  };
  // `needed`: this rank still needs a parent. Every state except kOn ends the search. REQUIRES: is_on().
  State ask(bool needed);
  // Why this rank could not connect last. REQUIRES: kUnable.
  [[nodiscard]] const Status& shortage() const { return shortage_; }

 private:
  // A rank that is asked to become the parent.
  struct Candidate {
    int rank = -1;
    std::int64_t since_ns = 0;
    std::unique_ptr<net::Dial> dial;
    net::ByteStream stream;  // connected, but not welcomed yet
    net::FrameReader welcome{0};
    std::size_t entry = 0;
    bool polled = false;
  };
  struct Search {
    DialPurpose purpose = DialPurpose::kSeek;
    std::int64_t begin_ns = 0;  // not before this time
    std::int64_t end_ns = 0;    // no candidate is asked after this time
    std::int64_t pause_ms = 0;  // before all are asked again
    std::int64_t next_ns = 0;   // then the next one is asked, although others may still answer
    bool asked_any = false;
    std::vector<int> left;  // to be asked, in this order
    std::list<Candidate> asked;
    std::set<std::string> silent;            // hosts
    std::map<int, std::int64_t> refused_ns;  // since when the rank's host refuses connections
  };
  [[nodiscard]] bool advance(Candidate* candidate, const net::PollSet& set, std::vector<int>* dead);
  [[nodiscard]] const std::string& host_of(int rank) const { return view_.contact(rank)->host; }
  [[nodiscard]] int next_candidate();
  void dial(int rank);

  const JobView& view_;
  const TreeDialler& dialler_;
  const std::int64_t silence_ms_;
  std::optional<Search> search_;
  Status shortage_;
};

}  // namespace tutti::internal::control

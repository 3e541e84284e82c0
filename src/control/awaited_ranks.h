// Ranks whose parent is gone and of which nothing has been heard since. They may have died when nobody was next to
// them, so they are asked by a connection to their listeners: by the root after a while, so that a death costs one
// connection, and by the others only if the root does not.
//
// A rank listens until its leave notice is on its way. So one whose host refuses the connection has died; one that
// answers is alive, and is waited for; one that does neither is stopped, or its host is cut off: it counts as dead when
// the limit for silent hosts has passed.
//
// Threads: the tree's alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "control/job_view.h"
#include "control/tree_dial.h"
#include "net/dial.h"
#include "net/socket.h"

namespace tutti::internal::control {

class AwaitedRanks {
 public:
  // Both outlive it.
  AwaitedRanks(const JobView& view, const TreeDialler& dialler, std::int64_t silence_ms)
      : view_(view), dialler_(dialler), silence_ms_(silence_ms) {}

  // Those that were below a rank that is gone are to say where they are now.
  void await_below(int gone);
  // It has: those below it are where they were.
  void found(int rank);
  void clear() { awaited_.clear(); }
  [[nodiscard]] bool empty() const { return awaited_.empty(); }

  // In a poll loop: prepare(set), set.wait(), judge(set). `is_root`: this rank has no parent.
  void prepare(net::PollSet* set, bool is_root);
  // Those that have died, which are awaited no longer.
  std::vector<int> judge(const net::PollSet& set, bool is_root);

 private:
  struct Awaited {
    std::int64_t since_ns = 0;
    std::int64_t not_before_ns = 0;   // it is asked again
    std::int64_t asked_ns = 0;        // since when the dial tries
    std::int64_t refused_ns = 0;      // since when its host refuses connections; 0: it does not
    std::int64_t pause_ms = 0;        // after the dial
    std::unique_ptr<net::Dial> dial;  // while the rank is asked
  };
  void forget_root();
  // When a rank is to be asked next.
  [[nodiscard]] static std::int64_t ask_ns(const Awaited& awaited, bool is_root);
  void begin_asking(int rank, Awaited* awaited) const;
  bool is_lost(int rank, Awaited* awaited, const net::PollSet& set) const;

  const JobView& view_;
  const TreeDialler& dialler_;
  const std::int64_t silence_ms_;
  std::map<int, Awaited> awaited_;
};

}  // namespace tutti::internal::control

// Ranks whose parent is gone and that have not been heard of since. They may have died while no neighbour was connected
// to them, so this rank connects to their listeners: the root does so after a while, so that a death costs one
// connection, and the other ranks only if the root does not.
//
// A rank listens until it has sent its leave notice. So a rank whose host refuses the connection has died; one that
// answers is alive, and is awaited further; one that does neither is stopped, or its host is cut off: it counts as dead
// after the limit for silent hosts.
//
// Threads: the tree's only.
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

  // The ranks that were below `gone` must report their new positions.
  void await_below(int gone);
  // The rank must report its new position, and this rank asks it now.
  void ask_at_once(int rank);
  // The rank has done so: the ranks below it have not moved.
  void found(int rank);
  void clear() { awaited_.clear(); }
  [[nodiscard]] bool empty() const { return awaited_.empty(); }

  // In a poll loop: prepare(set), set.wait(), judge(set). `is_root`: this rank has no parent.
  void prepare(net::PollSet* set, bool is_root);
  // Returns the ranks that have died, and no longer awaits them.
  std::vector<int> judge(const net::PollSet& set, bool is_root);

 private:
  struct Awaited {
    std::int64_t since_ns = 0;
    bool at_once = false;             // without time to report by itself
    std::int64_t not_before_ns = 0;   // when it is asked again
    std::int64_t asked_ns = 0;        // since when this rank tries to connect
    std::int64_t refused_ns = 0;      // since when its host refuses connections; 0: it does not
    std::int64_t pause_ms = 0;        // after the connection
    std::unique_ptr<net::Dial> dial;  // while the rank is asked
  };
  void forget_root();
  // When the rank must be asked next.
  [[nodiscard]] static std::int64_t ask_ns(const Awaited& awaited, bool is_root);
  void begin_asking(int rank, Awaited* awaited) const;
  bool is_lost(int rank, Awaited* awaited, const net::PollSet& set) const;

  const JobView& view_;
  const TreeDialler& dialler_;
  const std::int64_t silence_ms_;
  std::map<int, Awaited> awaited_;
};

}  // namespace tutti::internal::control

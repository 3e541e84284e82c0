// The events of the processes of a job, from successive readings: for clients of NCCL's RAS protocol that monitor.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "monitor/job_reading.h"

namespace tutti::internal::monitor {

// Bits.
enum EventGroup : unsigned { kLifecycle = 1, kTrace = 2 };

struct RasEvent {
  EventGroup group = kLifecycle;
  std::string name;
  int pid = -1;  // the process; -1: the event is about a communicator
  std::string host;
  std::string details;

  [[nodiscard]] std::string json(const std::string& time) const;
  [[nodiscard]] std::string text(const std::string& time) const;
};

// PEER_NEW, PEER_DEAD: a process has a rank in one of the communicators, or has ended. COMM_FAILED: a communicator has
// failed. In the group TRACE: PEER_DISCONNECTED, a process has left all communicators, and lives; PEER_UNRESPONSIVE,
// PEER_RECOVERED: it is stopped, or no longer; COMM_STUCK, COMM_MOVES: a communicator stands still, or no longer.
class RasWatch {
 public:
  // Since the reading before; of the first one none.
  std::vector<RasEvent> compare(const JobReading& reading);
  [[nodiscard]] bool has_begun() const { return has_begun_; }
  void end() { *this = RasWatch(); }

 private:
  struct Peer {
    std::string host;
    std::string ranks;  // "rank 2 of 10c9a18a29dda6b4"
    bool stopped = false;
  };
  bool has_begun_ = false;
  std::map<int, Peer> peers_;  // by process
  std::set<std::uint64_t> stuck_;
  std::set<std::uint64_t> failed_;
};

}  // namespace tutti::internal::monitor

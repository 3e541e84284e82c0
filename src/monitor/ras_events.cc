#include "monitor/ras_events.h"

#include <fmt/core.h>

#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "observe/origin.h"

namespace tutti::internal::monitor {
namespace {

using EventJson = nlohmann::ordered_json;

// Also one that has ended, and that its parent has not waited for yet.
bool has_ended(int pid) {
  if (::kill(pid, 0) != 0) return errno == ESRCH;
  const auto stat = observe::stat_of(std::to_string(pid));
  return !stat || stat->fields.front() == 'Z';
}

std::string ranks_text(const observe::SeenProcess& process) {
  constexpr std::size_t kMostNamed = 4;
  std::string text;
  for (std::size_t i = 0; i < process.ranks.size() && i < kMostNamed; ++i) {
    const observe::SeenRank& seen = process.ranks[i];
    text += fmt::format("{}rank {} of communicator {:016x}", i == 0 ? "" : ", ", seen.rank, seen.communicator);
  }
  if (process.ranks.size() > kMostNamed) text += fmt::format(", and {} more", process.ranks.size() - kMostNamed);
  return text;
}

std::string conclusion_of(const CommunicatorFindings& findings) {
  for (const Finding& finding : findings.findings) {
    if (finding.kind == Finding::Kind::kConclusion) return ": " + finding.text;
  }
  return {};
}

std::optional<std::string> failure_of(const JobCommunicator& communicator) {
  for (const Finding& finding : communicator.findings.findings) {
    if (finding.kind == Finding::Kind::kFailed) return finding.text;
  }
  return std::nullopt;
}

std::string communicator_name(std::uint64_t id) {
  return fmt::format("communicator {:016x}", id);
}

}  // namespace

std::string RasEvent::json(const std::string& time) const {
  EventJson event{{"timestamp", time}, {"group", group == kLifecycle ? "LIFECYCLE" : "TRACE"}, {"event", name}};
  if (pid >= 0) {
    event["peer"] = {
        {"host", host}, {"pid", pid}, {"cuda_devs", EventJson::array()}, {"nvml_devs", EventJson::array()}};
  }
  event["details"] = details;
  return event.dump(2, ' ', false, EventJson::error_handler_t::replace) + "\n";
}

std::string RasEvent::text(const std::string& time) const {
  const std::string peer = pid < 0 ? "" : fmt::format("process {} on {}: ", pid, host);
  return fmt::format("[{}] {}: {}{}\n", time, name, peer, details);
}

std::vector<RasEvent> RasWatch::compare(const JobReading& reading) {
  std::map<int, Peer> peers;
  for (const observe::SeenProcess& process : reading.processes) {
    peers[process.pid] = {process.host, ranks_text(process), process.stopped()};
  }
  std::set<std::uint64_t> stuck;
  std::set<std::uint64_t> failed;
  std::vector<RasEvent> events;
  for (const auto& [pid, peer] : peers) {
    const auto before = peers_.find(pid);
    if (before == peers_.end()) {
      events.push_back({kLifecycle, "PEER_NEW", pid, peer.host, peer.ranks});
    } else if (peer.stopped != before->second.stopped) {
      events.push_back({kTrace, peer.stopped ? "PEER_UNRESPONSIVE" : "PEER_RECOVERED", pid, peer.host,
                        fmt::format("{}: the process is {}", peer.ranks, peer.stopped ? "stopped" : "running again")});
    }
  }
  for (const auto& [pid, peer] : peers_) {
    if (peers.contains(pid)) continue;
    const bool dead = has_ended(pid);
    events.push_back({dead ? kLifecycle : kTrace, dead ? "PEER_DEAD" : "PEER_DISCONNECTED", pid, peer.host,
                      fmt::format("{}: the process has {}", peer.ranks, dead ? "ended" : "left")});
  }
  for (const JobCommunicator& communicator : reading.communicators) {
    const std::uint64_t id = communicator.id;
    if (const auto failure = failure_of(communicator)) {
      failed.insert(id);
      if (!failed_.contains(id))
        events.push_back({kLifecycle, "COMM_FAILED", -1, "", communicator_name(id) + ": " + *failure});
    }
    if (communicator.findings.stuck) stuck.insert(id);
    if (communicator.findings.stuck == stuck_.contains(id)) continue;
    if (communicator.findings.stuck) {
      const std::string why = conclusion_of(communicator.findings);
      events.push_back({kTrace, "COMM_STUCK", -1, "", communicator_name(id) + " stands still" + why});
    } else {
      events.push_back({kTrace, "COMM_MOVES", -1, "", communicator_name(id) + " moves again"});
    }
  }
  peers_ = std::move(peers);
  stuck_ = std::move(stuck);
  failed_ = std::move(failed);
  if (!std::exchange(has_begun_, true)) events.clear();
  return events;
}

}  // namespace tutti::internal::monitor

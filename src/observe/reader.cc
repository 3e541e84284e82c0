#include "observe/reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>
#include <utility>

#include "observe/layout.h"
#include "os/clock.h"
#include "os/ticks.h"
#include "os/unique_fd.h"

namespace tutti::internal::observe {
namespace {

// A process that reports a wait does so every 50 ms.
constexpr std::int64_t kFreshNs = 1'000'000'000;
constexpr std::uint32_t kMostRings = 1 << 20;
constexpr std::int64_t kMeasurableNs = 10'000'000;

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

template <std::size_t size>
std::string text_of(const std::array<char, size>& text) {
  return {text.data(), ::strnlen(text.data(), size)};
}

// Turns readings of ticks() into times of CLOCK_MONOTONIC.
class Clock {
 public:
  // From the times in a file, and the present.
  explicit Clock(const Header& header) : ticks_(header.ticks), ns_(header.monotonic_ns) {
    const std::int64_t passed_ns = now_ns() - ns_;
    const auto passed = static_cast<double>(ticks() - ticks_);
    // Of a file that is so young, no time matters.
    ns_per_tick_ = passed_ns > kMeasurableNs && passed > 0 ? static_cast<double>(passed_ns) / passed : 0;
  }
  [[nodiscard]] std::int64_t ns_of(std::uint64_t reading) const {
    const auto passed = static_cast<double>(static_cast<std::int64_t>(reading - ticks_));
    return ns_ + static_cast<std::int64_t>(passed * ns_per_tick_);
  }

 private:
  std::uint64_t ticks_;
  std::int64_t ns_;
  double ns_per_tick_ = 0;
};

bool read_at(int fd, void* to, std::size_t bytes, std::size_t at) {
  return ::pread(fd, to, bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes);
}

std::string plan_of(const Ring& ring, std::uint32_t hash) {
  for (std::uint32_t row = 0; hash != 0 && row < kPlanRows; ++row) {
    const PlanText& plan = ring.plans[(hash + row) % kPlans];
    if (plan.hash.load() == hash) return text_of(plan.text);
  }
  return {};
}

// `again`: the same ring, read later: what has changed in between may be half of one call and half of another.
std::vector<SeenCall> calls_of(const Ring& ring, const Ring& again, const Clock& clock) {
  std::vector<SeenCall> calls;
  for (std::uint32_t i = 0; i < kEvents; ++i) {
    const Event& event = ring.events[i];
    const std::uint64_t state = event.state.load();
    if (state == 0 || state != again.events[i].state.load()) continue;
    SeenCall call;
    call.number = static_cast<std::uint32_t>(state);
    call.call = event.call.load();
    call.root = event.root.load();
    call.count = event.count.load();
    call.before = event.before.load();
    call.plan = plan_of(ring, event.plan.load());
    const std::uint64_t begun = event.begun.load();
    const std::uint64_t ended = event.ended.load();
    call.begun_ns = clock.ns_of(begun);
    if (static_cast<std::int64_t>(ended - begun) > 0) call.ended_ns = clock.ns_of(ended);
    const std::uint64_t waited = event.waited.load();
    call.waited_ms = static_cast<std::uint32_t>(waited);
    call.waited_for = static_cast<int>(waited >> 32) - 1;
    calls.push_back(std::move(call));
  }
  const std::uint32_t last = ring.at.sequence.load();
  std::sort(calls.begin(), calls.end(), [last](const SeenCall& a, const SeenCall& b) {
    return last - a.number > last - b.number;  // numbers wrap around
  });
  return calls;
}

SeenRank rank_of(const Ring& ring, const Ring& again, const Clock& clock, bool stopped) {
  const Position& at = ring.at;
  SeenRank seen;
  seen.communicator = at.communicator.load();
  seen.rank = at.rank;
  seen.ranks = at.ranks;
  seen.number = at.sequence.load();
  seen.inside = at.inside.load() != 0;
  if (const std::uint32_t kind = at.transfer.load(); kind != 0 && seen.inside) {
    seen.transfer = SeenRank::Transfer{kind == 1, at.transfer_peer.load(), at.transfer_bytes.load()};
  }
  const std::int64_t reported_ns = at.seen_ns.load();
  if (seen.inside && reported_ns != 0 && (stopped || now_ns() - reported_ns < kFreshNs)) {
    SeenRank::Wait wait{.ms = at.waited_ms.load(), .ranks = {}, .count = 0, .seen_ns = reported_ns};
    wait.count = static_cast<int>(at.awaiting.load());
    for (std::uint32_t i = 0; i < std::min(at.awaiting.load(), kAwaited); ++i)
      wait.ranks.push_back(at.awaited[i].load());
    seen.wait = std::move(wait);
  }
  if (at.failed.load() != 0) seen.failure = text_of(at.failure);
  seen.calls = calls_of(ring, again, clock);
  return seen;
}

// The open file of events of a process; invalid: it has none.
Result<UniqueFd> open_events(int pid) {
  const std::string path = fmt::format("/proc/{}/fd", pid);
  const Folder folder(::opendir(path.c_str()));
  if (folder == nullptr) {
    if (errno == ENOENT) return Status::invalid_argument(fmt::format("there is no process {}", pid));
    return Status::system(fmt::format("the descriptors of process {}", pid), errno);
  }
  const std::string wanted = fmt::format("/memfd:{} (deleted)", kFileName);
  while (const dirent* const entry = ::readdir(folder.get())) {
    const std::string name = path + "/" + entry->d_name;
    std::array<char, 64> target{};
    const ssize_t length = ::readlink(name.c_str(), target.data(), target.size());
    if (length < 0 || std::string_view(target.data(), static_cast<std::size_t>(length)) != wanted) continue;
    UniqueFd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return Status::system(fmt::format("the events of process {}", pid), errno);
    return fd;
  }
  return UniqueFd();
}

// Its name and state, from /proc/PID/stat: "77 (name) S ...".
void read_state(SeenProcess* process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process->pid));
  std::string line;
  std::getline(file, line);
  const std::size_t open = line.find('(');
  const std::size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 >= line.size()) return;
  process->program = line.substr(open + 1, close - open - 1);
  process->state = line[close + 2];
}

Result<SeenProcess> read_events(int pid, const UniqueFd& fd) {
  auto header = std::make_unique<Header>();
  if (!read_at(fd.get(), header.get(), sizeof(Header), 0) || header->magic != kMagic) {
    return Status::invalid_argument(fmt::format("process {} is making or closing its file of events", pid));
  }
  if (header->layout != kLayout || header->rings_at != kHeaderBytes || header->ring_bytes != kRingBytes) {
    return Status::system(fmt::format("the events of process {} have the layout of tutti {}: use its program", pid,
                                      text_of(header->version)),
                          EPROTO);
  }
  // A forked child has its parent's file.
  if (header->pid != pid) return Status::invalid_argument(fmt::format("process {} has no communicator", pid));
  SeenProcess process;
  process.pid = pid;
  process.host = text_of(header->host);
  process.version = text_of(header->version);
  read_state(&process);
  const bool stopped = process.state == 'T' || process.state == 't';
  const Clock clock(*header);
  const std::uint32_t rings = std::min(header->rings.load(), kMostRings);
  auto ring = std::make_unique<Ring>();
  auto again = std::make_unique<Ring>();
  for (std::uint32_t i = 0; i < rings; ++i) {
    const std::size_t at = kHeaderBytes + i * kRingBytes;
    if (!read_at(fd.get(), ring.get(), sizeof(Ring), at) || !read_at(fd.get(), again.get(), sizeof(Ring), at)) break;
    const std::uint64_t communicator = ring->at.communicator.load();
    if (communicator == 0 || communicator != again->at.communicator.load()) continue;
    process.ranks.push_back(rank_of(*ring, *again, clock, stopped));
  }
  process.read_ns = now_ns();
  return process;
}

}  // namespace

Result<SeenProcess> read_process(int pid) {
  auto fd = open_events(pid);
  if (!fd.is_ok()) return fd.status();
  if (!fd->valid()) return Status::invalid_argument(fmt::format("process {} has no communicator", pid));
  return read_events(pid, *fd);
}

std::vector<SeenProcess> read_all_processes(int* unreadable) {
  std::vector<int> pids;
  if (const Folder folder(::opendir("/proc")); folder != nullptr) {
    while (const dirent* const entry = ::readdir(folder.get())) {
      char* end = nullptr;
      const long pid = std::strtol(entry->d_name, &end, 10);
      if (end != entry->d_name && *end == '\0') pids.push_back(static_cast<int>(pid));
    }
  }
  std::sort(pids.begin(), pids.end());
  std::vector<SeenProcess> processes;
  *unreadable = 0;
  for (const int pid : pids) {
    auto process = read_process(pid);
    if (process.is_ok()) {
      processes.push_back(std::move(*process));
    } else if (process.status().code() == Code::kSystemError) {
      ++*unreadable;
    }
  }
  return processes;
}

}  // namespace tutti::internal::observe

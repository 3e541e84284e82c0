#include "observe/reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
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

// A rank that waits says so every 50 ms, if it gets a processor.
constexpr std::int64_t kFreshNs = 1'000'000'000;
// Of files that no library has written.
constexpr std::uint32_t kMostRings = 1 << 16;
constexpr int kMostRanks = 1 << 20;
constexpr std::int64_t kMostMs = std::int64_t{1} << 40;
constexpr std::int64_t kMeasurableNs = 10'000'000;

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

// For a terminal: text of another process may have any bytes.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

template <std::size_t size>
std::string text_of(const std::array<char, size>& text) {
  return printable({text.data(), ::strnlen(text.data(), size)});
}

// Turns readings of ticks() into times of CLOCK_MONOTONIC.
class Clock {
 public:
  // From the times in a file, and the present.
  explicit Clock(const Header& header)
      : ticks_(header.ticks), ns_(std::clamp<std::int64_t>(header.monotonic_ns, 0, now_ns())) {
    const std::int64_t passed_ns = now_ns() - ns_;
    const auto passed = static_cast<double>(ticks() - ticks_);
    // Of a file that is so young, no time matters.
    ns_per_tick_ = passed_ns > kMeasurableNs && passed > 0 ? static_cast<double>(passed_ns) / passed : 0;
  }
  // Not in the future, whatever the file says.
  [[nodiscard]] std::int64_t ns_of(std::uint64_t reading) const {
    const auto passed = static_cast<double>(static_cast<std::int64_t>(reading - ticks_));
    const double ns = static_cast<double>(ns_) + passed * ns_per_tick_;
    return static_cast<std::int64_t>(std::clamp(ns, 0.0, static_cast<double>(now_ns())));
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

// What is the same in both readings is of one call.
bool same(const Event& a, const Event& b) {
  return a.state.load() == b.state.load() && a.call.load() == b.call.load() && a.root.load() == b.root.load() &&
         a.count.load() == b.count.load() && a.before.load() == b.before.load();
}

// `again`: the same ring, read later.
std::vector<SeenCall> calls_of(const Ring& ring, const Ring& again, const Clock& clock) {
  const std::uint32_t last = ring.at.sequence.load();
  std::vector<SeenCall> calls;
  for (std::uint32_t i = 0; i < kEvents; ++i) {
    const Event& event = ring.events[i];
    const std::uint64_t state = event.state.load();
    const auto number = static_cast<std::uint32_t>(state);
    // One that began after the ring's position was read counts for the next reading.
    if (state != Event::written(number) || last - number >= kEvents || !same(event, again.events[i])) continue;
    SeenCall call;
    call.number = number;
    call.call = event.call.load();
    call.root = event.root.load();
    call.count = event.count.load();
    call.plan = plan_of(ring, event.plan.load());
    const std::uint64_t begun = event.begun.load();
    const std::uint64_t ended = event.ended.load();
    if (begun != 0) call.begun_ns = clock.ns_of(begun);
    if (begun != 0 && static_cast<std::int64_t>(ended - begun) > 0) call.ended_ns = clock.ns_of(ended);
    const std::uint64_t waited = event.waited.load();
    call.waited_ms = static_cast<std::uint32_t>(waited);
    call.waited_for = static_cast<int>(waited >> 32) - 1;
    calls.push_back(std::move(call));
  }
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
  const std::int64_t reported_ns = std::clamp<std::int64_t>(at.seen_ns.load(), 0, now_ns());
  const std::int64_t age_ns = now_ns() - reported_ns;
  if (seen.inside && reported_ns != 0 && (stopped || age_ns < kFreshNs)) {
    SeenRank::Wait wait;
    // A stopped rank waits on, and does not say so.
    wait.ms = std::clamp<std::int64_t>(at.waited_ms.load(), 0, kMostMs) +
              (stopped ? std::max<std::int64_t>(0, age_ns / 1'000'000) : 0);
    const std::uint32_t awaiting = at.awaiting.load();
    wait.others = awaiting > kAwaited;
    for (std::uint32_t i = 0; i < std::min(awaiting, kAwaited); ++i) {
      wait.ranks.push_back(std::clamp(at.awaited[i].load(), 0, at.ranks - 1));
    }
    std::sort(wait.ranks.begin(), wait.ranks.end());
    wait.ranks.erase(std::unique(wait.ranks.begin(), wait.ranks.end()), wait.ranks.end());
    seen.wait = std::move(wait);
  }
  if (const std::int64_t since_ns = at.agreeing_since_ns.load(); since_ns > 0) {
    seen.agreement = SeenRank::Agreement{text_of(at.agreement), std::min(since_ns, now_ns())};
  }
  if (at.failed.load() != 0) seen.failure = text_of(at.failure);
  seen.calls = calls_of(ring, again, clock);
  return seen;
}

// The files of events that a process has open: its own, those of a parent that forked it, and one for each copy of the
// library in it.
Result<std::vector<UniqueFd>> open_events(int pid) {
  const std::string path = fmt::format("/proc/{}/fd", pid);
  const Folder folder(::opendir(path.c_str()));
  if (folder == nullptr) {
    if (errno == ENOENT) return Status::invalid_argument(fmt::format("there is no process {}", pid));
    return Status::system(fmt::format("the descriptors of process {}", pid), errno);
  }
  const std::string wanted = fmt::format("/memfd:{} (deleted)", kFileName);
  std::vector<UniqueFd> files;
  while (const dirent* const entry = ::readdir(folder.get())) {
    const std::string name = path + "/" + entry->d_name;
    std::array<char, 64> target{};
    const ssize_t length = ::readlink(name.c_str(), target.data(), target.size());
    if (length < 0 || std::string_view(target.data(), static_cast<std::size_t>(length)) != wanted) continue;
    // It may be another file by now, or one that another process has given that name.
    UniqueFd fd(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd.valid() && errno == ENOENT) continue;
    if (!fd.valid()) return Status::system(fmt::format("the events of process {}", pid), errno);
    struct stat info {};
    if (::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode)) files.push_back(std::move(fd));
  }
  return files;
}

// Its name and state, from /proc/PID/stat: "77 (name) S ...".
void read_state(SeenProcess* process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process->pid));
  std::string line;
  std::getline(file, line);
  const std::size_t open = line.find('(');
  const std::size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 >= line.size()) return;
  process->program = printable(line.substr(open + 1, close - open - 1));
  process->state = line[close + 2];
}

// The process's number for itself, which is another one in a container.
std::int64_t own_pid(int pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("NSpid:", 0) != 0) continue;
    return std::strtoll(line.c_str() + line.find_last_of("\t ") + 1, nullptr, 10);
  }
  return pid;
}

// Appends the ranks of one file.
Status read_events(const UniqueFd& fd, SeenProcess* process) {
  auto header = std::make_unique<Header>();
  // Otherwise it is being made or closed.
  if (!read_at(fd.get(), header.get(), sizeof(Header), 0) || header->magic != kMagic) return {};
  if (header->layout != kLayout || header->rings_at != kHeaderBytes || header->ring_bytes != kRingBytes ||
      header->ring_events != kEvents) {
    return Status::remote(
        fmt::format("process {} has tutti {}, whose events this program cannot read: use the one of that "
                    "version",
                    process->pid, text_of(header->version)));
  }
  if (header->pid != own_pid(process->pid)) return {};  // of a parent
  process->host = text_of(header->host);
  process->version = text_of(header->version);
  const Clock clock(*header);
  const std::uint32_t rings = std::min(header->rings.load(), kMostRings);
  auto ring = std::make_unique<Ring>();
  auto again = std::make_unique<Ring>();
  for (std::uint32_t i = 0; i < rings; ++i) {
    const std::size_t at = kHeaderBytes + i * kRingBytes;
    if (!read_at(fd.get(), ring.get(), sizeof(Ring), at) || !read_at(fd.get(), again.get(), sizeof(Ring), at)) break;
    const Position& own = ring->at;
    if (own.communicator.load() == 0 || own.communicator.load() != again->at.communicator.load()) continue;
    if (own.ranks < 1 || own.ranks > kMostRanks || own.rank < 0 || own.rank >= own.ranks) continue;
    process->ranks.push_back(rank_of(*ring, *again, clock, process->stopped()));
  }
  return {};
}

}  // namespace

Result<SeenProcess> read_process(int pid) {
  auto files = open_events(pid);
  if (!files.is_ok()) return files.status();
  SeenProcess process;
  process.pid = pid;
  read_state(&process);
  for (const UniqueFd& fd : *files) {
    if (Status s = read_events(fd, &process); !s.is_ok()) return s;
  }
  process.read_ns = now_ns();
  if (process.ranks.empty()) return Status::invalid_argument(fmt::format("process {} has no communicator", pid));
  return process;
}

SeenProcesses read_all_processes() {
  std::vector<int> pids;
  if (const Folder folder(::opendir("/proc")); folder != nullptr) {
    while (const dirent* const entry = ::readdir(folder.get())) {
      char* end = nullptr;
      const long pid = std::strtol(entry->d_name, &end, 10);
      if (end != entry->d_name && *end == '\0') pids.push_back(static_cast<int>(pid));
    }
  }
  std::sort(pids.begin(), pids.end());
  SeenProcesses seen;
  for (const int pid : pids) {
    auto process = read_process(pid);
    if (process.is_ok()) {
      seen.processes.push_back(std::move(*process));
    } else if (process.status().code() == Code::kSystemError) {
      ++seen.unreadable;
    } else if (process.status().code() == Code::kRemoteError) {
      seen.others.push_back(process.status().message());
    }
  }
  return seen;
}

}  // namespace tutti::internal::observe

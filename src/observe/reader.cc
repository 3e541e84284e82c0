#include "observe/reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "observe/folder.h"
#include "observe/layout.h"
#include "observe/origin.h"
#include "observe/recorded_file.h"
#include "observe/tick_clock.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace tutti::internal::observe {
namespace {

// A rank that waits says so every 50 ms, if it gets a processor.
constexpr std::int64_t kFreshNs = 1'000'000'000;
// Of files that no library has written.
constexpr std::uint32_t kMostRings = 1 << 16;
constexpr std::int64_t kMostMs = std::int64_t{1} << 40;

// For a terminal: text of another process may have any bytes.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

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

void add_causes(const Ring& ring, const Ring& again, SeenCall* call) {
  const Causes& causes = ring.causes[call->number % kCauses];
  const Causes& later = again.causes[call->number % kCauses];
  if (causes.number.load() != call->number || later.number.load() != call->number) return;
  const auto wait = [&](std::uint32_t peer, std::uint32_t us) {
    const auto most = static_cast<std::uint32_t>(ring.at.ranks);
    return SeenCall::LinkWait{peer > most ? -1 : static_cast<int>(peer) - 1, us};
  };
  call->data = wait(causes.data_from.load(), causes.data_us.load());
  call->room = wait(causes.room_at.load(), causes.room_us.load());
  call->delay_us = causes.inside_delay_us.load();
  const std::uint32_t us = causes.outside_us.load();
  if (us == 0 || causes.run_us.load() != later.run_us.load()) return;
  call->before = Outside{us, std::min(us, causes.run_us.load()), std::min(us, causes.delay_us.load()),
                         std::min(us, causes.elsewhere_us.load())};
}

// `again`: the same ring, read later.
std::vector<SeenCall> calls_of(const Ring& ring, const Ring& again, const TickClock& clock) {
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
    if (begun != 0 && clock.knows_times()) {
      call.begun_ns = clock.ns_of(begun);
      if (static_cast<std::int64_t>(ended - begun) > 0) call.ended_ns = clock.ns_of(ended);
    }
    const std::uint64_t waited = event.waited.load();
    call.waited_ms = static_cast<std::uint32_t>(waited);
    call.waited_for = static_cast<int>(waited >> 32) - 1;
    add_causes(ring, again, &call);
    calls.push_back(std::move(call));
  }
  std::sort(calls.begin(), calls.end(), [last](const SeenCall& a, const SeenCall& b) {
    return last - a.number > last - b.number;  // numbers wrap around
  });
  return calls;
}

Moment first_of(const Header& header) {
  return {header.origin.ticks, header.origin.monotonic_ns};
}

// What a reader knows of the writer of a ring, which it cannot see in the ring.
struct Writer {
  TickClock clock;
  bool stopped = false;
  bool past = false;  // it is not known whether the ring is that of a process that still runs
};

// The last wait that the rank has reported, until `until_ns`.
std::optional<SeenRank::Wait> wait_of(const Position& at, std::int64_t reported_ns, std::int64_t until_ns) {
  if (reported_ns == 0) return std::nullopt;
  SeenRank::Wait wait;
  wait.ms = std::clamp<std::int64_t>(at.waited_ms.load(), 0, kMostMs) +
            std::max<std::int64_t>(0, (until_ns - reported_ns) / 1'000'000);
  const std::uint32_t awaiting = at.awaiting.load();
  wait.others = awaiting > kAwaited;
  for (std::uint32_t i = 0; i < std::min(awaiting, kAwaited); ++i) {
    wait.ranks.push_back(std::clamp(at.awaited[i].load(), 0, at.ranks - 1));
  }
  std::sort(wait.ranks.begin(), wait.ranks.end());
  wait.ranks.erase(std::unique(wait.ranks.begin(), wait.ranks.end()), wait.ranks.end());
  return wait;
}

SeenRank rank_of(const Ring& ring, const Ring& again, const Writer& writer) {
  const Position& at = ring.at;
  const std::int64_t limit_ns = writer.clock.limit_ns();
  SeenRank seen;
  seen.communicator = at.communicator.load();
  seen.rank = at.rank;
  seen.ranks = at.ranks;
  seen.number = at.sequence.load();
  seen.inside = at.inside.load() != 0;
  std::optional<SeenRank::Transfer> transfer;
  if (const std::uint32_t kind = at.transfer.load(); kind != 0) {
    transfer = SeenRank::Transfer{kind == 1, at.transfer_peer.load(), at.transfer_bytes.load()};
  }
  const std::int64_t reported_ns = std::clamp<std::int64_t>(at.seen_ns.load(), 0, limit_ns);
  if (const std::uint32_t failed = at.failed.load(); failed != Position::kNot) {
    SeenRank::Failure failure;
    failure.error = text_of(at.failure);
    failure.at_ns = std::clamp<std::int64_t>(at.failed_ns.load(), 0, limit_ns);
    failure.inside = failed == Position::kInside;
    if (failure.inside) {
      failure.transfer = transfer;
      failure.wait = wait_of(at, reported_ns, failure.at_ns);
    }
    seen.failure = std::move(failure);
  } else if (seen.inside) {
    seen.transfer = transfer;
    // A stopped rank waits on, and does not say so.
    if (writer.stopped || writer.past || limit_ns - reported_ns < kFreshNs) {
      seen.wait = wait_of(at, reported_ns, writer.stopped ? limit_ns : reported_ns);
    }
  }
  if (const std::int64_t since_ns = at.agreeing_since_ns.load(); since_ns > 0) {
    seen.agreement = SeenRank::Agreement{text_of(at.agreement), std::min(since_ns, limit_ns)};
  }
  if (const std::int64_t since_ns = at.behind_since_ns.load(); since_ns > 0) {
    seen.behind_since_ns = std::min(since_ns, limit_ns);
  }
  std::transform(at.calls.begin(), at.calls.end(), seen.counts.begin(), [](const auto& count) { return count.load(); });
  seen.calls = calls_of(ring, again, writer.clock);
  seen.thread = at.thread.load();
  return seen;
}

UniqueFd open_file(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

bool is_regular(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM;
}

// The files of events that a process has open: its own, those of a parent that forked it, and one for each copy of the
// library in it. Sets *complete to false if this reader cannot open them now.
Result<std::vector<UniqueFd>> open_events(int pid, bool* complete) {
  const std::string path = fmt::format("/proc/{}/fd", pid);
  const Folder folder = open_folder(path);
  if (folder == nullptr) {
    if (is_shortage(errno)) *complete = false;
    if (errno == ENOENT) return Status::invalid_argument(fmt::format("there is no process {}", pid));
    return Status::system(fmt::format("the descriptors of process {}", pid), errno);
  }
  constexpr std::string_view kDeleted = " (deleted)";  // a memfd, and a file that somebody has removed
  const std::string memfd = fmt::format("/memfd:{}", kFileName);
  std::vector<UniqueFd> files;
  std::set<std::pair<dev_t, ino_t>> found;
  while (const dirent* const entry = ::readdir(folder.get())) {
    const std::string name = path + "/" + entry->d_name;
    std::array<char, PATH_MAX> target{};
    const ssize_t length = ::readlink(name.c_str(), target.data(), target.size());
    if (length < 0) continue;
    std::string_view file(target.data(), static_cast<std::size_t>(length));
    if (file.ends_with(kDeleted)) file.remove_suffix(kDeleted.size());
    if (file != memfd && !is_recorded(file, kEventsKind)) continue;
    // It may be another file by now, or one that another process has given that name.
    UniqueFd fd = open_file(name);
    if (!fd.valid() && errno == ENOENT) continue;
    if (!fd.valid() && is_shortage(errno)) *complete = false;
    if (!fd.valid()) return Status::system(fmt::format("the events of process {}", pid), errno);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    // A reader in the process has it open as well.
    if (found.insert({info.st_dev, info.st_ino}).second) files.push_back(std::move(fd));
  }
  return files;
}

void read_state(SeenProcess* process) {
  const auto stat = stat_of(std::to_string(process->pid));
  if (!stat) return;
  process->program = printable(stat->name);
  process->state = stat->fields.front();
}

// What the rank does now. Its process lives here, and has the id `own` for itself, which is another one in a container.
std::optional<Outside> present_time(const Ring& ring, const SeenRank& rank, const TickClock& clock, int pid,
                                    std::int64_t own) {
  const std::uint64_t read_ticks = ring.at.read_ticks.load();
  const int thread = ring.at.thread.load();
  if (rank.inside || read_ticks == 0 || rank.last() == nullptr || !rank.last()->begun_ns) return std::nullopt;
  const bool first = thread == static_cast<int>(own);
  if (thread != 0 && !first && own != pid) return std::nullopt;
  const auto times = times_of(pid, first ? pid : thread);
  if (!times) return std::nullopt;
  const ThreadTimes passed{times->run_ns - std::min(times->run_ns, ring.at.run_ns.load()),
                           times->delay_ns - std::min(times->delay_ns, ring.at.delay_ns.load())};
  const std::int64_t now = now_ns();
  const std::int64_t since = rank.last()->ended_ns.value_or(*rank.last()->begun_ns);
  return split_time(now - since, now - clock.ns_of(read_ticks), passed);
}

// The threads of ranks outside may be in collectives of other communicators. Not found: those of queued operations, and
// sends and receives.
void note_elsewhere(std::vector<SeenRank>* ranks) {
  for (SeenRank& rank : *ranks) {
    if (!rank.outside || rank.thread == 0) continue;
    for (const SeenRank& other : *ranks) {
      const SeenCall* const call = other.inside && other.thread == rank.thread ? other.last() : nullptr;
      if (call == nullptr || !call->begun_ns || call->ended_ns) continue;
      const std::int64_t us = std::max<std::int64_t>(0, now_ns() - *call->begun_ns) / 1000;
      const auto part_us = static_cast<std::uint32_t>(std::min<std::int64_t>(us, rank.outside->us));
      rank.outside->elsewhere_us = std::max(rank.outside->elsewhere_us, part_us);
    }
  }
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

// From one ring of a file to the next.
std::size_t stride_of(const Header& header) {
  const bool measures = header.ring_bytes == kRingBytes + kMeasuresBytes;
  return kRingBytes + (measures ? kMeasuresBytes : 0);
}

// False: it is not a file of events yet, or no longer. kRemoteError: of another layout.
Result<bool> read_header(int fd, const std::string& of, Header* header) {
  if (!read_at(fd, header, sizeof(Header), 0) || header->magic != kMagic) return false;
  if (header->layout != kLayout || header->rings_at != kHeaderBytes || header->ring_bytes != stride_of(*header) ||
      header->ring_events != kEvents) {
    return Status::remote(
        fmt::format("{} has tutti {}, whose events this program cannot read: use the one of that "
                    "version",
                    of, text_of(header->origin.version)));
  }
  return true;
}

// Calls use(ring, the same one later, its measures or null) for each communicator.
template <class Use>
void for_each_ring(int fd, const Header& header, Use use) {
  const std::size_t stride = stride_of(header);
  const std::uint32_t rings = std::min(header.rings.load(), kMostRings);
  auto ring = std::make_unique<Ring>();
  auto again = std::make_unique<Ring>();
  auto measured = std::make_unique<Measures>();
  for (std::uint32_t i = 0; i < rings; ++i) {
    const std::size_t at = kHeaderBytes + i * stride;
    if (!read_at(fd, ring.get(), sizeof(Ring), at)) break;
    const bool measures = stride > kRingBytes && read_at(fd, measured.get(), sizeof(Measures), at + kRingBytes);
    // Last, so that all is of one communicator if it is still there: another one may use the ring.
    if (!read_at(fd, again.get(), sizeof(Ring), at)) break;
    const Position& own = ring->at;
    if (own.communicator.load() == 0 || own.communicator.load() != again->at.communicator.load()) continue;
    if (own.ranks < 1 || own.ranks > kMostRanks || own.rank < 0 || own.rank >= own.ranks) continue;
    use(*ring, *again, measures ? measured.get() : nullptr);
  }
}

std::int64_t last_event_ns(const SeenRank& rank) {
  std::int64_t last = rank.failure ? rank.failure->at_ns : 0;
  for (const SeenCall& call : rank.calls) {
    last = std::max({last, call.begun_ns.value_or(0), call.ended_ns.value_or(0)});
  }
  return last;
}

// Appends the ranks of one file of a process that lives on this host.
Status read_events(const UniqueFd& fd, SeenProcess* process) {
  auto header = std::make_unique<Header>();
  auto found = read_header(fd.get(), fmt::format("process {}", process->pid), header.get());
  if (!found.is_ok()) return found.status();
  const std::int64_t own = own_pid(process->pid);
  if (!*found || header->origin.pid != own) return {};  // of a parent
  process->host = text_of(header->origin.host);
  process->version = text_of(header->origin.version);
  const Moment now = moment_now();
  for_each_ring(fd.get(), *header, [&](const Ring& ring, const Ring& again, const Measures* measures) {
    // What has been written after the reading of the header counts as now.
    const Writer writer{TickClock(first_of(*header), now, now_ns()), process->stopped(), false};
    process->ranks.push_back(rank_of(ring, again, writer));
    SeenRank& rank = process->ranks.back();
    rank.outside = present_time(ring, rank, writer.clock, process->pid, own);
    if (measures != nullptr) rank.measures = read(*measures);
  });
  return {};
}

// Of two readings.
bool same_process(const SeenProcess& a, const SeenProcess& b) {
  return a.host == b.host && !a.ranks.empty() && !b.ranks.empty() &&
         a.ranks.front().communicator == b.ranks.front().communicator && a.ranks.front().rank == b.ranks.front().rank;
}

// A file in a folder, open.
struct Recorded {
  UniqueFd fd;
  std::unique_ptr<Header> header;
  Moment last;  // that the process has noted
};

// Nothing: it is no longer there, or not complete.
Result<std::optional<Recorded>> open_recorded(const std::string& path) {
  Recorded recorded{open_file(path), std::make_unique<Header>(), {}};
  if (!recorded.fd.valid() && errno == ENOENT) return std::optional<Recorded>();
  if (!recorded.fd.valid()) return Status::system(path, errno);
  if (!is_regular(recorded.fd.get())) return Status::remote(path + " is not a file");
  auto found = read_header(recorded.fd.get(), path, recorded.header.get());
  if (!found.is_ok()) return found.status();
  if (!*found) return std::optional<Recorded>();
  for_each_ring(recorded.fd.get(), *recorded.header, [&](const Ring& ring, const Ring&, const Measures*) {
    const std::int64_t ns = ring.at.mark_ns.load();
    if (ns > recorded.last.ns) recorded.last = {ring.at.mark_ticks.load(), ns};
  });
  return std::optional<Recorded>(std::move(recorded));
}

SeenProcess read_recorded(const Recorded& recorded, const Moments& of_machine) {
  const Header& header = *recorded.header;
  SeenProcess process;
  process.pid = static_cast<int>(std::clamp<std::int64_t>(header.origin.pid, 0, INT_MAX));
  process.host = text_of(header.origin.host);
  process.version = text_of(header.origin.version);
  process.program = text_of(header.origin.program);
  const Life life = life_of(header.origin);
  process.ended = life == Life::kUnknown ? !is_being_written(recorded.fd.get()) : life == Life::kEnded;
  const bool here = of_this_machine(header.origin);
  const Writer writer{TickClock(of_machine.first, here ? moment_now() : of_machine.last, here ? now_ns() : kMostNs),
                      false, process.ended || !here};
  for_each_ring(recorded.fd.get(), header, [&](const Ring& ring, const Ring& again, const Measures* measures) {
    process.ranks.push_back(rank_of(ring, again, writer));
    SeenRank& rank = process.ranks.back();
    rank.last_ns = std::max(ring.at.mark_ns.load(), last_event_ns(rank));
    if (measures != nullptr) rank.measures = read(*measures);
  });
  if (!process.ended) process.read_ns = here ? now_ns() : of_machine.last.ns;
  return process;
}

Result<SeenProcess> read_one(int pid, bool* complete) {
  auto files = open_events(pid, complete);
  if (!files.is_ok()) return files.status();
  SeenProcess process;
  process.pid = pid;
  read_state(&process);
  for (const UniqueFd& fd : *files) {
    if (Status s = read_events(fd, &process); !s.is_ok()) return s;
  }
  note_elsewhere(&process.ranks);
  process.read_ns = now_ns();
  if (process.ranks.empty()) return Status::invalid_argument(fmt::format("process {} has no communicator", pid));
  return process;
}

}  // namespace

Result<SeenProcess> read_process(int pid) {
  bool complete = true;
  return read_one(pid, &complete);
}

SeenProcesses read_all_processes() {
  SeenProcesses seen;
  std::vector<int> pids;
  if (const Folder folder = open_folder("/proc"); folder == nullptr) {
    seen.complete = !is_shortage(errno);
  } else {
    while (const dirent* const entry = ::readdir(folder.get())) {
      char* end = nullptr;
      const long pid = std::strtol(entry->d_name, &end, 10);
      if (end != entry->d_name && *end == '\0') pids.push_back(static_cast<int>(pid));
    }
  }
  std::sort(pids.begin(), pids.end());
  for (const int pid : pids) {
    auto process = read_one(pid, &seen.complete);
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

Result<SeenProcesses> read_folder(const std::string& folder) {
  auto paths = find_recorded(folder, kEventsKind);
  if (!paths.is_ok()) return paths.status();
  SeenProcesses seen;
  std::map<std::string, Moments> moments;  // by machine, whose processes have the same counter
  std::vector<std::string> usable;
  for (const std::string& path : *paths) {
    auto file = open_recorded(path);
    if (!file.is_ok()) seen.others.push_back(file.status().message());
    if (!file.is_ok() || !*file) continue;
    moments[machine_of((*file)->header->origin)].note(first_of(*(*file)->header), (*file)->last);
    usable.push_back(path);
  }
  // Opened again: there may be more files than a process may have open.
  for (const std::string& path : usable) {
    auto file = open_recorded(path);
    if (!file.is_ok()) seen.others.push_back(file.status().message());
    if (!file.is_ok() || !*file) continue;
    SeenProcess process = read_recorded(**file, moments[machine_of((*file)->header->origin)]);
    if (process.ranks.empty()) continue;
    // One that lives here can be seen better.
    if (!process.ended) {
      auto living = read_process(process.pid);
      if (living.is_ok() && same_process(process, *living)) process = std::move(*living);
    }
    seen.processes.push_back(std::move(process));
  }
  // Times of one host can be compared.
  std::map<std::pair<std::string, std::uint64_t>, std::int64_t> last_ns;
  for (const bool sets : {false, true}) {
    for (SeenProcess& process : seen.processes) {
      for (SeenRank& rank : process.ranks) {
        std::int64_t& last = last_ns[{process.host, rank.communicator}];
        if (sets) rank.last_ns = last;
        last = std::max(last, rank.last_ns);
      }
    }
  }
  return seen;
}

}  // namespace tutti::internal::observe

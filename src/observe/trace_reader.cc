#include "observe/trace_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "observe/recorded_file.h"
#include "observe/tick_clock.h"
#include "os/unique_fd.h"

namespace tutti::internal::observe {
namespace {

// A file in memory, as long as it is when it is opened.
class Mapped {
 public:
  Mapped() = default;
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (bytes_ > 0) (void)::munmap(const_cast<std::byte*>(data_), bytes_);
  }
  Status open(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd.valid()) return Status::system(path, errno);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return Status::system(path, errno);
    if (!S_ISREG(info.st_mode) || static_cast<std::size_t>(info.st_size) < kTraceHeaderBytes) {
      return Status::remote(path + " is not a trace");
    }
    const auto bytes = static_cast<std::size_t>(info.st_size);
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (mapped == MAP_FAILED) return Status::system(path, errno);
    data_ = static_cast<const std::byte*>(mapped);
    bytes_ = bytes;
    return {};
  }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const TraceHeader& header() const { return *reinterpret_cast<const TraceHeader*>(data_); }

 private:
  const std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

Status check(const TraceHeader& header, const std::string& path) {
  if (header.magic != kTraceMagic) return Status::remote(path + " is not a trace");
  if (header.layout != kTraceLayout || header.record_bytes != sizeof(TraceRecord)) {
    return Status::remote(path + " is of another version of tutti: use the program of that version");
  }
  return {};
}

TracedOperation operation_of(const TraceRecord& record, const TickClock& clock, int ranks) {
  TracedOperation operation;
  operation.kind = static_cast<TraceRecord::Kind>(record.kind);
  operation.number = record.number;
  operation.call = record.call;
  operation.root = record.root;
  operation.count = record.count;
  operation.plan = record.plan;
  operation.begun_ns = clock.ns_of(record.begun);
  operation.ended_ns = std::max(operation.begun_ns, clock.ns_of(record.ended));
  operation.waited_ms = static_cast<std::uint32_t>(record.waited);
  operation.waited_for = std::clamp(static_cast<int>(record.waited >> 32), 0, ranks) - 1;
  return operation;
}

TracedSteps steps_of(const OperationRecord& record) {
  TracedSteps steps;
  steps.number = record.number;
  steps.plan = record.plan;
  steps.bytes = record.bytes;
  steps.element_bytes = std::max<std::uint32_t>(record.element_bytes, 1);
  steps.uneven = record.uneven != 0;
  steps.in_order = record.in_order != 0;
  steps.left_out = record.left_out;
  return steps;
}

void add_steps(const StepsRecord& record, const TickClock& clock, int ranks, TracedSteps* steps) {
  constexpr std::uint32_t kIndex = (1u << StepsRecord::kIndexBits) - 1;
  constexpr std::uint32_t kKind = (1u << StepsRecord::kKindBits) - 1;
  for (std::size_t i = 0; i < std::min<std::size_t>(record.used, StepsRecord::kSteps); ++i) {
    TracedStep step;
    const std::uint32_t upper = record.steps[i] >> StepsRecord::kIndexBits;
    step.step = record.steps[i] & kIndex;
    step.kind = upper & kKind;
    step.bytes = std::uint64_t{upper >> StepsRecord::kKindBits} << 32 | record.bytes[i];
    step.peer = std::clamp(record.peers[i], -1, ranks - 1);
    step.begun_ns = clock.ns_of(record.begun[i]);
    step.ended_ns = std::max(step.begun_ns, clock.ns_of(record.ended[i]));
    steps->steps.push_back(step);
  }
}

template <class Record>
Record as(const TraceRecord& record) {
  static_assert(sizeof(Record) == sizeof(TraceRecord));
  Record other;
  std::memcpy(&other, &record, sizeof other);
  return other;
}

void read_record(const TraceRecord& record, const TickClock& clock, TracedRank* rank) {
  switch (record.kind) {
    case TraceRecord::kCollective:
    case TraceRecord::kSend:
    case TraceRecord::kReceive:
      if (record.begun != 0) rank->operations.push_back(operation_of(record, clock, rank->ranks));
      return;
    case TraceRecord::kPlan: {
      const auto plan = as<PlanRecord>(record);
      rank->plans[plan.hash] = text_of(plan.text);
      return;
    }
    case TraceRecord::kOperation: rank->steps.push_back(steps_of(as<OperationRecord>(record))); return;
    case TraceRecord::kSteps:
      if (!rank->steps.empty()) add_steps(as<StepsRecord>(record), clock, rank->ranks, &rank->steps.back());
      return;
    case TraceRecord::kJob: {
      const auto job = as<JobRecord>(record);
      if (job.part == 0) rank->job.clear();
      rank->job.append(job.text.data(), ::strnlen(job.text.data(), job.text.size()));
      return;
    }
    default: return;
  }
}

void read_chunk(const std::byte* chunk, const TickClock& clock, TracedProcess* process) {
  const auto& header = *reinterpret_cast<const ChunkHeader*>(chunk);
  const std::uint32_t records = std::min(header.records.load(), records_of(header.bytes));
  if (records == 0) return;
  if (header.ranks < 1 || header.ranks > kMostRanks || header.rank < 0 || header.rank >= header.ranks) return;
  auto rank = std::find_if(process->ranks.begin(), process->ranks.end(), [&](const TracedRank& one) {
    return one.communicator == header.communicator && one.rank == header.rank && one.ranks == header.ranks;
  });
  if (rank == process->ranks.end()) {
    rank = process->ranks.insert(rank, TracedRank{header.communicator, header.rank, header.ranks, {}, {}, {}, {}});
  }
  for (std::uint32_t i = 1; i <= records; ++i) {
    TraceRecord record;
    std::memcpy(&record, chunk + i * sizeof record, sizeof record);
    read_record(record, clock, &*rank);
  }
}

TracedProcess read_traced(const Mapped& file, const TickClock& clock) {
  const TraceHeader& header = file.header();
  TracedProcess process;
  process.pid = static_cast<int>(std::clamp<std::int64_t>(header.origin.pid, 0, INT_MAX));
  process.host = text_of(header.origin.host);
  process.machine = machine_of(header.origin);
  process.program = text_of(header.origin.program);
  process.realtime_offset_ns = header.origin.realtime_ns - header.origin.monotonic_ns;
  process.dropped = header.dropped.load();
  const std::uint64_t end = std::min<std::uint64_t>(header.bytes.load(), file.bytes());
  for (std::uint64_t at = kTraceHeaderBytes; at + kFirstChunkBytes <= end;) {
    const std::uint32_t bytes = reinterpret_cast<const ChunkHeader*>(file.data() + at)->bytes;
    if ((bytes != kFirstChunkBytes && bytes != kChunkBytes) || at + bytes > end) break;
    read_chunk(file.data() + at, clock, &process);
    at += bytes;
  }
  return process;
}

}  // namespace

Result<TracedProcesses> read_traces(const std::string& folder) {
  auto paths = find_recorded(folder, kTraceKind);
  if (!paths.is_ok()) return paths.status();
  TracedProcesses traced;
  std::vector<std::unique_ptr<Mapped>> files;
  std::map<std::string, Moments> moments;
  for (const std::string& path : *paths) {
    auto file = std::make_unique<Mapped>();
    Status opened = file->open(path);
    if (opened.is_ok()) opened = check(file->header(), path);
    if (!opened.is_ok()) {
      traced.others.push_back(opened.message());
      continue;
    }
    const TraceHeader& header = file->header();
    moments[machine_of(header.origin)].note({header.origin.ticks, header.origin.monotonic_ns},
                                            {header.mark_ticks.load(), header.mark_ns.load()});
    files.push_back(std::move(file));
  }
  for (const auto& file : files) {
    const Moments& of_machine = moments[machine_of(file->header().origin)];
    traced.processes.push_back(read_traced(*file, TickClock(of_machine.first, of_machine.last, kMostNs)));
  }
  return traced;
}

}  // namespace tutti::internal::observe

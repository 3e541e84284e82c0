#include "observe/trace_file.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/config.h"
#include "base/first_use.h"
#include "base/log.h"
#include "base/memfd.h"
#include "observe/recorded_file.h"
#include "observe/tick_clock.h"
#include "os/fork.h"

namespace tutti::internal::observe {
namespace {

// Of this process. Made with the first communicator if TUTTI_TRACE is set then; it stays open until the process ends.
class TraceFile final : public ForkAware {
 public:
  TraceFile() { enlist(); }
  void before_fork() override TUTTI_ACQUIRE(mutex_) { mutex_.lock(); }
  void after_fork_in_parent() override TUTTI_RELEASE(mutex_) { mutex_.unlock(); }
  // A child makes its own file.
  void after_fork_in_child() override TUTTI_RELEASE(mutex_) {
    state_ = State::kNew;
    mutex_.unlock();
  }

  bool open_once() {
    const Status opened = guarded([this] {
      const MutexLock lock(mutex_);
      return open_if_new();
    });
    if (!opened.is_ok()) log::warn("there is no trace of this process: " + opened.message());
    const MutexLock lock(mutex_);
    return state_ == State::kOpen || state_ == State::kFull;
  }

  // Null: there is no room. The chunk has its header.
  std::byte* take_chunk(const ChunkOwner& owner, std::size_t bytes, bool* in_first_half) {
    const MutexLock lock(mutex_);
    if (state_ != State::kOpen) return nullptr;
    set_mark();
    const std::size_t at = header_->bytes.load(std::memory_order_relaxed);
    *in_first_half = at < kMostTraceBytes / 2;
    Status made = at + bytes > kMostTraceBytes ? Status::system("it is full", ENOSPC) : Status();
    if (made.is_ok()) made = allocate_file(fd_.get(), at, bytes);
    void* mapped = MAP_FAILED;
    if (made.is_ok()) {
      mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), static_cast<off_t>(at));
      if (mapped == MAP_FAILED) made = map_error("mapping the trace", errno);
    }
    if (!made.is_ok()) {
      state_ = State::kFull;
      log::warn("the trace of this process ends here: " + made.message());
      return nullptr;
    }
    auto* const header = static_cast<ChunkHeader*>(mapped);
    header->communicator = owner.communicator;
    header->rank = owner.rank;
    header->ranks = owner.ranks;
    header->bytes = static_cast<std::uint32_t>(bytes);
    header_->bytes.store(at + bytes, std::memory_order_release);
    return static_cast<std::byte*>(mapped);
  }

  // A forked child may have chunks of its parent's file.
  void give_back(std::byte* chunk, std::size_t bytes) {
    (void)::munmap(chunk, bytes);
    const MutexLock lock(mutex_);
    if (state_ == State::kOpen || state_ == State::kFull) set_mark();
  }

  void drop() {
    const MutexLock lock(mutex_);
    if (state_ == State::kFull) header_->dropped.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  enum class State { kNew, kNone, kOpen, kFull };

  Status open_if_new() TUTTI_REQUIRES(mutex_) {
    if (state_ != State::kNew) return {};
    state_ = State::kNone;
    const auto folder = environment_variable("TUTTI_TRACE");
    if (!folder) return {};
    Status opened = open(*folder);
    if (!opened.is_ok()) return opened.with_context("TUTTI_TRACE=\"" + *folder + "\"");
    state_ = State::kOpen;
    return {};
  }

  Status open(const std::string& folder) TUTTI_REQUIRES(mutex_) {
    auto file = make_recorded(folder, kTraceKind);
    if (!file.is_ok()) return file.status();
    if (Status s = allocate_file(file->fd.get(), 0, kTraceHeaderBytes); !s.is_ok()) {
      (void)::unlink(file->path.c_str());
      return s;
    }
    void* const mapped = ::mmap(nullptr, kTraceHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd.get(), 0);
    if (mapped == MAP_FAILED) return map_error("mapping the trace", errno);
    if (header_ != nullptr) (void)::munmap(header_, kTraceHeaderBytes);  // of a forked child's parent
    header_ = static_cast<TraceHeader*>(mapped);
    fd_ = std::move(file->fd);
    header_->layout = kTraceLayout;
    header_->record_bytes = sizeof(TraceRecord);
    header_->bytes.store(kTraceHeaderBytes, std::memory_order_relaxed);
    set_origin(&header_->origin);
    // A reader that finds it finds the rest.
    std::atomic_thread_fence(std::memory_order_release);
    header_->magic = kTraceMagic;
    return {};
  }

  void set_mark() TUTTI_REQUIRES(mutex_) {
    const Moment now = moment_now();
    header_->mark_ticks.store(now.ticks, std::memory_order_relaxed);
    header_->mark_ns.store(now.ns, std::memory_order_release);
  }

  Mutex mutex_;
  State state_ TUTTI_GUARDED_BY(mutex_) = State::kNew;
  UniqueFd fd_ TUTTI_GUARDED_BY(mutex_);
  TraceHeader* header_ TUTTI_GUARDED_BY(mutex_) = nullptr;  // valid if open or full
};

constinit FirstUse<TraceFile, Surplus::kKept> trace_file;

}  // namespace

std::unique_ptr<Trace> Trace::open(std::uint64_t communicator, int rank, int ranks) {
  if (!trace_file.get().open_once()) return nullptr;
  return std::unique_ptr<Trace>(new Trace({communicator, rank, ranks}));
}

Trace::~Trace() {
  if (chunk_ != nullptr) trace_file.get().give_back(chunk_, chunk_bytes_);
}

bool Trace::take_chunk() {
  if (chunk_ != nullptr) trace_file.get().give_back(chunk_, chunk_bytes_);
  chunk_bytes_ = chunk_bytes_ == 0 ? kFirstChunkBytes : kChunkBytes;
  chunk_ = trace_file.get().take_chunk(owner_, chunk_bytes_, &keeps_steps_);
  records_ = 0;
  return chunk_ != nullptr;
}

bool Trace::add(const TraceRecord& record) {
  if ((chunk_ == nullptr || records_ == records_of(chunk_bytes_)) && !take_chunk()) return false;
  std::memcpy(chunk_ + (records_ + 1) * sizeof(TraceRecord), &record, sizeof(TraceRecord));
  ++records_;
  reinterpret_cast<ChunkHeader*>(chunk_)->records.store(records_, std::memory_order_release);
  return true;
}

void Trace::add_collective(const CallWords& call, const Times& times, std::uint64_t waited) {
  const TraceRecord record{TraceRecord::kCollective,
                           call.number,
                           call.call,
                           call.root,
                           call.count,
                           times.begun,
                           times.ended,
                           waited,
                           call.plan};
  if (!add(record)) trace_file.get().drop();
}

void Trace::add_transfer(bool sends, int peer, std::uint64_t bytes, const Times& times) {
  TraceRecord record{};
  record.kind = sends ? TraceRecord::kSend : TraceRecord::kReceive;
  record.root = static_cast<std::uint32_t>(peer);
  record.count = bytes;
  record.begun = times.begun;
  record.ended = times.ended;
  if (!add(record)) trace_file.get().drop();
}

void Trace::name_plan(std::uint32_t hash, std::string_view text) {
  if (std::find(named_.begin(), named_.end(), hash) != named_.end()) return;
  named_.push_back(hash);
  PlanRecord plan{};
  plan.kind = TraceRecord::kPlan;
  plan.hash = hash;
  std::memcpy(plan.text.data(), text.data(), std::min(text.size(), plan.text.size() - 1));
  (void)add_as_record(plan);
}

template <class Record>
bool Trace::add_as_record(const Record& record) {
  TraceRecord same;
  std::memcpy(&same, &record, sizeof same);
  return add(same);
}

void Trace::add_steps(const StepLog& log) {
  if (!keeps_steps_) return;
  const StepsOf& of = log.operation();
  if (!add_as_record(OperationRecord{TraceRecord::kOperation, of.number, of.plan, of.element_bytes, of.bytes,
                                     log.left_out(), of.uneven ? 1u : 0u, of.in_order ? 1u : 0u})) {
    return;
  }
  const std::vector<StepTimes>& steps = log.steps();
  for (std::size_t i = 0; i < steps.size(); i += StepsRecord::kSteps) {
    StepsRecord record{};
    record.kind = TraceRecord::kSteps;
    record.used = static_cast<std::uint32_t>(std::min(StepsRecord::kSteps, steps.size() - i));
    for (std::uint32_t j = 0; j < record.used; ++j) {
      const StepTimes& step = steps[i + j];
      const std::uint64_t bytes = std::min(step.bytes, StepsRecord::kMostBytes);
      record.begun[j] = step.begun;
      record.ended[j] = step.ended;
      record.peers[j] = step.peer;
      record.steps[j] = (step.step & ((1u << StepsRecord::kIndexBits) - 1)) | step.kind << StepsRecord::kIndexBits |
                        static_cast<std::uint32_t>(bytes >> 32) << (StepsRecord::kIndexBits + StepsRecord::kKindBits);
      record.bytes[j] = static_cast<std::uint32_t>(bytes);
    }
    if (!add_as_record(record)) return;
  }
}

void Trace::name_job(std::string_view text) {
  for (std::uint32_t part = 0; !text.empty(); ++part) {
    JobRecord record{};
    record.kind = TraceRecord::kJob;
    record.part = part;
    const std::size_t length = std::min(text.size(), record.text.size());
    std::memcpy(record.text.data(), text.data(), length);
    text.remove_prefix(length);
    if (!add_as_record(record)) return;
  }
}

}  // namespace tutti::internal::observe

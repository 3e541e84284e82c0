// Runs the flat programs of all ranks over plain memory of this process, by the step function that devices run.
#pragma once

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "executor/strand.h"
#include "interpreter.h"

namespace tutti::internal::executor {

// Elements are std::uint32_t. Reductions add, or compose (interpreter.h).
class HostMemory {
 public:
  // `mark` is added where a reduction is complete.
  HostMemory(schedule::Order order, std::uint32_t mark) : order_(order), mark_(mark) {}
  static bool reached(const FlatCounter& counter, std::uint64_t value) {
    return std::atomic_ref(const_cast<std::uint64_t&>(counter.value)).load(std::memory_order_acquire) >= value;
  }
  static void publish(FlatCounter& counter, std::uint64_t value) {
    std::atomic_ref(counter.value).store(value, std::memory_order_release);
  }
  static FlatHeader load(const FlatHeader& header) { return header; }
  static void store(FlatHeader& header, const FlatHeader& value) { header = value; }
  static void count(std::uint64_t& messages) { ++messages; }
  void move(const Bytes& bytes) const;

 private:
  schedule::Order order_;
  std::uint32_t mark_;
};

// What the threads of a team, which run a strand together, have in common.
struct Team {
  static constexpr std::size_t kThreads = 2;
  std::barrier<> all{kThreads};
  bool answer = false;
};

// As one of them sees the memory: as a thread of a thread block does.
class TeamMemory {
 public:
  TeamMemory(const HostMemory& memory, Team* team, std::size_t member)
      : memory_(memory), team_(team), member_(member) {}
  [[nodiscard]] bool reached(const FlatCounter& counter, std::uint64_t value) const {
    if (leads()) team_->answer = HostMemory::reached(counter, value);
    team_->all.arrive_and_wait();
    const bool answer = team_->answer;
    team_->all.arrive_and_wait();
    return answer;
  }
  void publish(FlatCounter& counter, std::uint64_t value) const {
    team_->all.arrive_and_wait();
    if (leads()) HostMemory::publish(counter, value);
  }
  static FlatHeader load(const FlatHeader& header) { return header; }
  void store(FlatHeader& header, const FlatHeader& value) const {
    if (leads()) header = value;
  }
  void count(std::uint64_t& messages) const {
    team_->all.arrive_and_wait();
    if (leads()) ++messages;
    team_->all.arrive_and_wait();
  }
  void move(const Bytes& bytes) const;

 private:
  [[nodiscard]] bool leads() const { return member_ == 0; }
  const HostMemory& memory_;
  Team* team_;
  std::size_t member_;
};

// The lanes between some ranks, which operations use one after the other.
class Wires {
 public:
  Wires(std::uint32_t slot_count, std::uint32_t slot_bytes) : slot_count_(slot_count), slot_bytes_(slot_bytes) {}
  // One side's end of the lane, the same each time.
  FlatLaneEnd* end(int from, int to, bool of_sender);
  [[nodiscard]] std::uint32_t slot_bytes() const { return slot_bytes_; }

 private:
  struct Wire {
    FlatCounter sent;
    FlatCounter taken;
    std::vector<FlatHeader> headers;
    std::vector<std::byte> slots;
    FlatLaneEnd ends[2];
  };
  const std::uint32_t slot_count_;
  const std::uint32_t slot_bytes_;
  std::map<std::pair<int, int>, std::unique_ptr<Wire>> wires_;
};

// One operation of all ranks. run.slice_* are not used: the flat programs make slices of their own.
class FlatJob {
 public:
  FlatJob(std::span<const schedule::Schedule> schedules, const std::vector<schedule::Vector>& inputs,
          const schedule::Run& run, Wires* wires, std::uint32_t mark = 0);
  ~FlatJob();
  FlatJob(const FlatJob&) = delete;
  FlatJob& operator=(const FlatJob&) = delete;

  // What rank r says its calls are.
  void set_fingerprint(std::size_t rank, const transport::Fingerprint& fingerprint);
  // All strands in one thread, in random order, until all are done, or none moves or one fails.
  StrandState run_in_one_thread();
  // Each in a thread of its own. kIdle: not done after a minute.
  StrandState run_in_threads();
  // Each in a team of threads. REQUIRES: no rank calls something else.
  StrandState run_in_teams();
  [[nodiscard]] std::vector<schedule::Vector> outputs() const;
  [[nodiscard]] const FlatProgram& program(std::size_t rank) const;

 private:
  struct Rank;
  std::vector<std::unique_ptr<Rank>> ranks_;
  HostMemory memory_;
  schedule::Run run_;
};

}  // namespace tutti::internal::executor

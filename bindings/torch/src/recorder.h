// The flight recorder: the latest calls of the process groups of this process. tutti_torch/flight.py writes them in the
// format of torch's analyser.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "tensors.h"

namespace tutti_torch {

// Any thread.
class Recorder {
 public:
  enum class State { kScheduled, kStarted, kCompleted, kFailed };
  // A process group: the same one when it is made again with the same name and ranks, so that its numbers go on. All
  // its members have then made it as often as this process.
  struct Group {
    std::uint64_t id = 0;
    std::string name;
    std::string description;
    std::vector<int> ranks;  // in the default group
  };
  // A message goes from one rank of the group to another; a collective has neither.
  struct Route {
    int from = -1;
    int to = -1;
  };
  struct Entry {
    std::uint64_t id = 0;
    std::shared_ptr<const Group> group;
    std::string operation;
    std::string type;            // torch's name
    std::uint64_t sequence = 0;  // from 1, of the group's collectives or of the messages of that route
    Route route;
    std::vector<std::vector<std::int64_t>> input_sizes;
    std::vector<std::vector<std::int64_t>> output_sizes;
    std::vector<std::string> input_types;
    std::vector<std::string> output_types;
    std::thread::id thread;
    std::string thread_name;
    std::int64_t created_ns = 0;  // of the epoch
    std::int64_t timeout_ms = 0;
    std::atomic<State> state{State::kScheduled};
    std::atomic<std::int64_t> started_ns{0};  // 0: not yet
    std::atomic<std::int64_t> ended_ns{0};

    [[nodiscard]] bool transfer() const { return route.from >= 0; }
    void start();
    void end(bool succeeded);
  };
  // The entries of one call: one, or one for each message of a coalesced call; empty if the recorder is off.
  class Entries {
   public:
    void add(std::shared_ptr<Entry> entry) {
      if (entry != nullptr) entries_.push_back(std::move(entry));
    }
    void start() const;
    void end(bool succeeded) const;
    // The call was refused for its arguments: the next one gets its numbers.
    void withdraw() const;

   private:
    std::vector<std::shared_ptr<Entry>> entries_;
  };
  struct Call {
    const char* operation = "";
    c10d::OpType type = c10d::OpType::UNKNOWN;
    Route route;
    std::chrono::milliseconds timeout{0};
  };

  // The process's own. It keeps as many entries as TORCH_FR_BUFFER_SIZE says (2000 by default; 0: none).
  static Recorder& get();
  std::shared_ptr<const Group> group(const std::string& name, const std::string& description, std::vector<int> ranks);
  // Null if none is kept.
  std::shared_ptr<Entry> add(const std::shared_ptr<const Group>& group, const Call& call, const Tensors& inputs,
                             const Tensors& outputs);
  // The number that the next call gets; 0 if none is kept.
  std::uint64_t next(const std::shared_ptr<const Group>& group, const Route& route);
  [[nodiscard]] std::vector<std::shared_ptr<const Entry>> entries() const;

 private:
  using Messages = std::pair<int, int>;  // from, to; -1, -1: the collectives
  Recorder();
  std::uint64_t& last_number(const Group& group, const Route& route) {
    return numbers_[{group.id, {route.from, route.to}}];
  }
  void withdraw(const std::shared_ptr<Entry>& entry);

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::uint64_t next_id_ = 0;
  std::vector<std::shared_ptr<const Group>> groups_;
  std::map<std::pair<std::uint64_t, Messages>, std::uint64_t> numbers_;  // the last ones
  std::deque<std::shared_ptr<Entry>> entries_;
};

const char* name_of(Recorder::State state);

}  // namespace tutti_torch

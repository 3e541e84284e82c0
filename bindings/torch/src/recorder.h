// What the process groups of this process have called lately: the flight recorder. Its dump has the layout of
// torch.distributed's own, so that torch's analyser reads it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensors.h"

namespace tutti_torch {

// Any thread.
class Recorder {
 public:
  enum class State { kScheduled, kStarted, kCompleted, kFailed };
  struct Entry {
    std::uint64_t id = 0;
    std::string group;
    std::string description;
    std::string operation;
    std::uint64_t sequence = 0;
    bool transfer = false;
    std::vector<std::vector<std::int64_t>> input_sizes;
    std::vector<std::vector<std::int64_t>> output_sizes;
    std::vector<std::string> input_types;
    std::vector<std::string> output_types;
    std::int64_t created_ns = 0;  // of the epoch
    std::int64_t timeout_ms = 0;
    std::atomic<State> state{State::kScheduled};
    std::atomic<std::int64_t> ended_ns{0};

    void end(bool succeeded);
  };

  // The process's own. It keeps as many entries as TORCH_FR_BUFFER_SIZE says (2000 by default; 0: none).
  static Recorder& get();
  // Null if none is kept.
  std::shared_ptr<Entry> add(const std::string& group, const std::string& description, const std::string& operation,
                             std::uint64_t sequence, bool transfer, std::int64_t timeout_ms, const Tensors& inputs,
                             const Tensors& outputs);
  [[nodiscard]] std::vector<std::shared_ptr<const Entry>> entries() const;

 private:
  Recorder();

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::uint64_t next_id_ = 0;
  std::deque<std::shared_ptr<Entry>> entries_;
};

const char* name_of(Recorder::State state);

}  // namespace tutti_torch

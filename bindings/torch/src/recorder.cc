#include "recorder.h"

#include <chrono>
#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace tutti_torch {
namespace {

constexpr int kMostEntries = 2000;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void describe(const Tensors& tensors, std::vector<std::vector<std::int64_t>>* sizes, std::vector<std::string>* types) {
  for (const at::Tensor& tensor : tensors) {
    sizes->push_back(tensor.sizes().vec());
    types->emplace_back(c10::toString(tensor.scalar_type()));
  }
}

}  // namespace

void Recorder::Entry::end(bool succeeded) {
  ended_ns = now_ns();
  state = succeeded ? State::kCompleted : State::kFailed;
}

Recorder::Recorder()
    : most_(static_cast<std::size_t>(
          std::max(0, c10d::getCvarInt({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}, kMostEntries)))) {}

// Never destroyed: operations may end after the interpreter has.
Recorder& Recorder::get() {
  static Recorder* const recorder = new Recorder;
  return *recorder;
}

std::shared_ptr<Recorder::Entry> Recorder::add(const std::string& group, const std::string& description,
                                               const std::string& operation, std::uint64_t sequence, bool transfer,
                                               std::int64_t timeout_ms, const Tensors& inputs, const Tensors& outputs) {
  if (most_ == 0) return nullptr;
  auto entry = std::make_shared<Entry>();
  entry->group = group;
  entry->description = description;
  entry->operation = operation;
  entry->sequence = sequence;
  entry->transfer = transfer;
  entry->timeout_ms = timeout_ms;
  describe(inputs, &entry->input_sizes, &entry->input_types);
  describe(outputs, &entry->output_sizes, &entry->output_types);
  entry->created_ns = now_ns();
  const std::lock_guard<std::mutex> lock(mutex_);
  entry->id = next_id_++;
  entries_.push_back(entry);
  if (entries_.size() > most_) entries_.pop_front();
  return entry;
}

std::vector<std::shared_ptr<const Recorder::Entry>> Recorder::entries() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {entries_.begin(), entries_.end()};
}

const char* name_of(Recorder::State state) {
  switch (state) {
    case Recorder::State::kScheduled: return "scheduled";
    case Recorder::State::kStarted: return "started";
    case Recorder::State::kCompleted: return "completed";
    case Recorder::State::kFailed: return "failed";
  }
  return "";
}

}  // namespace tutti_torch

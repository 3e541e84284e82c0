#include "recorder.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace tutti_torch {
namespace {

constexpr int kMostEntries = 2000;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Asked once: that is a call of the system.
const std::string& name_of_thread() {
  thread_local const std::string name = [] {
    char text[16] = {};
    (void)pthread_getname_np(pthread_self(), text, sizeof text);
    return std::string(text);
  }();
  return name;
}

void describe(const Tensors& tensors, std::vector<std::vector<std::int64_t>>* sizes, std::vector<std::string>* types) {
  for (const at::Tensor& tensor : tensors) {
    sizes->push_back(tensor.sizes().vec());
    types->emplace_back(c10::toString(tensor.scalar_type()));
  }
}

}  // namespace

void Recorder::Entry::start() {
  started_ns = now_ns();
  state = State::kStarted;
}

void Recorder::Entry::end(bool succeeded) {
  ended_ns = now_ns();
  state = succeeded ? State::kCompleted : State::kFailed;
}

void Recorder::Entries::start() const {
  for (const auto& entry : entries_) entry->start();
}

void Recorder::Entries::end(bool succeeded) const {
  for (const auto& entry : entries_) entry->end(succeeded);
}

void Recorder::Entries::withdraw() const {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) get().withdraw(*entry);
}

Recorder::Recorder()
    : most_(static_cast<std::size_t>(
          std::max(0, c10d::getCvarInt({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}, kMostEntries)))) {}

// Never destroyed: operations may end after the interpreter has.
Recorder& Recorder::get() {
  static Recorder* const recorder = new Recorder;
  return *recorder;
}

std::shared_ptr<const Recorder::Group> Recorder::group(const std::string& name, const std::string& description,
                                                       std::vector<int> ranks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto known = std::find_if(groups_.begin(), groups_.end(), [&](const auto& one) {
    return one->name == name && one->description == description && one->ranks == ranks;
  });
  if (known != groups_.end()) return *known;
  groups_.push_back(std::make_shared<const Group>(Group{groups_.size(), name, description, std::move(ranks)}));
  return groups_.back();
}

std::shared_ptr<Recorder::Entry> Recorder::add(const std::shared_ptr<const Group>& group, const Call& call,
                                               const Tensors& inputs, const Tensors& outputs) {
  if (most_ == 0) return nullptr;
  auto entry = std::make_shared<Entry>();
  entry->group = group;
  entry->operation = call.operation;
  entry->type = c10d::opTypeToString(call.type);
  entry->route = call.route;
  entry->timeout_ms = call.timeout.count();
  describe(inputs, &entry->input_sizes, &entry->input_types);
  describe(outputs, &entry->output_sizes, &entry->output_types);
  entry->thread = std::this_thread::get_id();
  entry->thread_name = name_of_thread();
  entry->created_ns = now_ns();
  const std::lock_guard<std::mutex> lock(mutex_);
  entry->sequence = ++last_number(*entry->group, entry->route);
  entry->id = next_id_++;
  entries_.push_back(entry);
  if (entries_.size() > most_) entries_.pop_front();
  return entry;
}

std::uint64_t Recorder::next(const std::shared_ptr<const Group>& group, const Route& route) {
  if (most_ == 0) return 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_number(*group, route) + 1;
}

// Another thread may have called meanwhile: then the entry stays.
void Recorder::withdraw(const std::shared_ptr<Entry>& entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::uint64_t& last = last_number(*entry->group, entry->route);
  if (last != entry->sequence || entries_.empty() || entries_.back() != entry) return;
  --last;
  --next_id_;
  entries_.pop_back();
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

#include "device/convoy.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/first_use.h"
#include "device/backend.h"

namespace tutti::internal {
namespace {

// For so long a rank waits for one that another thread serves: shorter than a pause in which the program would notice
// it, and longer than a thread is late by chance. Of one that has never come it is not known who serves it.
constexpr std::int64_t kPatienceMs = 200;
constexpr std::int64_t kPatienceWithNewMs = 100;
// The others' threads may need this processor to come.
constexpr int kSpins = 200;

struct Convoys {
  Mutex mutex;
  std::map<Secret, std::weak_ptr<DeviceConvoy>> by_secret TUTTI_GUARDED_BY(mutex);
};
Convoys& convoys() {
  static constinit FirstUse<Convoys> all;
  return all.get();
}

}  // namespace

DeviceSubmission::~DeviceSubmission() {
  if (convoy != nullptr && state.load(std::memory_order_acquire) == State::kUnderWay) convoy->give_up(*this);
}

std::shared_ptr<DeviceConvoy> DeviceConvoy::join(const Secret& secret, int ranks, int of_all, int rank,
                                                 const memory::CudaDevice& device) {
  // A single rank's secret may be that of others.
  std::shared_ptr<DeviceConvoy> convoy = of_all == 1 ? std::make_shared<DeviceConvoy>(1, 1) : nullptr;
  if (convoy == nullptr) {
    const MutexLock lock(convoys().mutex);
    auto& all = convoys().by_secret;
    std::erase_if(all, [](const auto& one) { return one.second.expired(); });
    std::weak_ptr<DeviceConvoy>& known = all[secret];
    convoy = known.lock();
    if (convoy == nullptr) known = convoy = std::make_shared<DeviceConvoy>(ranks, of_all);
  }
  const MutexLock lock(convoy->mutex_);
  const auto at = std::find_if(convoy->members_.begin(), convoy->members_.end(),
                               [&](const Member& other) { return other.rank > rank; });
  Member own;
  own.rank = rank;
  own.device = &device;
  convoy->members_.insert(at, own);
  std::set<const memory::CudaDevice*> devices;
  for (const Member& m : convoy->members_) devices.insert(m.device);
  convoy->shares_device_ = devices.size() < convoy->members_.size();
  convoy->changed_.notify_all();
  return convoy;
}

void DeviceConvoy::leave() {
  stop();
  const MutexLock lock(mutex_);
  await_driver();
  left_ = true;
  settle(DeviceSubmission::State::kApart);
  changed_.notify_all();
}

void DeviceConvoy::stop() noexcept {
  stopped_.store(true);
  DirectControl* const control = control_.load();
  if (control != nullptr) std::atomic_ref(control->stop).store(1);
}

DirectReport DeviceConvoy::report(int rank) const {
  DirectControl* const control = control_.load(std::memory_order_acquire);
  if (control == nullptr) return {};
  std::atomic_ref<std::uint64_t> report(control->reports[static_cast<std::size_t>(rank)]);
  return unpack_report(report.load(std::memory_order_acquire));
}

bool DeviceConvoy::has_one_device() const {
  if (static_cast<int>(members_.size()) < ranks_ || ranks_ < of_all_ || ranks_ > kMostDirectRanks) return false;
  const memory::CudaDevice* const first = members_.front().device;
  return std::all_of(members_.begin(), members_.end(), [&](const Member& m) { return m.device == first; });
}

// Whether it matters in which order streams are filled, as far as is known yet.
bool DeviceConvoy::travels_together() const {
  return !left_ && (static_cast<int>(members_.size()) < ranks_ || ranks_ == 1 || shares_device_);
}

void DeviceConvoy::settle(DeviceSubmission::State state) {
  for (Member& m : members_) {
    if (m.here == nullptr) continue;
    settled_ = std::max(settled_, m.batches);
    std::exchange(m.here, nullptr)->state.store(state, std::memory_order_release);
  }
  changed_.notify_all();
}

void DeviceConvoy::come(int rank, DeviceSubmission* submission) {
  MutexLock lock(mutex_);
  Member& own = *std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.rank == rank; });
  own.thread = std::this_thread::get_id();
  const bool late = own.batches++ < settled_;
  if (late || !travels_together()) {
    submission->state.store(DeviceSubmission::State::kApart, std::memory_order_relaxed);
    return;
  }
  submission->convoy = shared_from_this();
  std::vector<DeviceSubmission*> all;
  all.reserve(members_.size());
  // From here on it is known to the others.
  own.here = submission;
  for (const Member& m : members_) {
    if (m.here != nullptr) all.push_back(m.here);
  }
  if (submission->own_thread) return settle(DeviceSubmission::State::kApart);
  if (static_cast<int>(all.size()) < ranks_) return;
  const bool direct = has_one_device() && DeviceBackend::can_submit_directly(all);
  // The driver may take its time, and must not hold up those that only look. Nobody settles meanwhile.
  submitting_ = true;
  lock.unlock();
  DeviceBackend::submit_together(all, direct);
  lock.lock();
  submitting_ = false;
  settle(DeviceSubmission::State::kDone);
}

void DeviceConvoy::await_driver() {
  while (submitting_) changed_.wait(mutex_);
}

std::int64_t DeviceConvoy::patience_ms() const {
  std::int64_t least = kPatienceMs;
  for (const Member& m : members_) {
    if (m.here != nullptr) continue;
    if (m.thread == std::this_thread::get_id()) return 0;  // it does not come while this thread waits
    if (m.thread == std::thread::id()) least = kPatienceWithNewMs;
  }
  return least;
}

void DeviceConvoy::wait(DeviceSubmission* submission, const FailureState& failure) {
  const auto settled = [&] {
    return submission->state.load(std::memory_order_acquire) != DeviceSubmission::State::kUnderWay;
  };
  for (int spins = 0; spins < kSpins; ++spins) {
    if (settled()) return;
    std::this_thread::yield();
  }
  const MutexLock lock(mutex_);
  const Deadline deadline = Deadline::after_ms(patience_ms());
  while (!settled()) {
    await_driver();
    if (settled()) break;
    if (changed_.wait_until(mutex_, deadline) && !failure.failed()) continue;
    if (!submitting_ && !settled()) settle(DeviceSubmission::State::kApart);
  }
}

void DeviceConvoy::give_up(const DeviceSubmission& submission) {
  const MutexLock lock(mutex_);
  await_driver();
  const bool known =
      std::any_of(members_.begin(), members_.end(), [&](const Member& m) { return m.here == &submission; });
  if (known) settle(DeviceSubmission::State::kApart);
}

bool DeviceConvoy::is_one_device(const FailureState& failure) {
  const MutexLock lock(mutex_);
  while (static_cast<int>(members_.size()) < ranks_ && !left_ && !failure.failed()) {
    (void)changed_.wait_until(mutex_, Deadline::after_ms(kFailureCheckMs));
  }
  return has_one_device() && !left_;
}

Result<std::shared_ptr<DirectMeetings>> DeviceConvoy::meetings(const DirectKernels& kernels) {
  MutexLock lock(mutex_);
  while (meeting_) changed_.wait(mutex_);
  if (met_) return meetings_;
  // The driver may wait for what runs on the device, and that for a rank that has still to come.
  const memory::CudaDevice& device = *members_[0].device;
  meeting_ = true;
  lock.unlock();
  auto made = guarded_result([&] { return DirectMeetings::make(ranks_, kernels, device); });
  lock.lock();
  meeting_ = false;
  changed_.notify_all();
  if (!made.is_ok()) return made;
  meetings_ = std::move(*made);
  met_ = true;
  if (meetings_ != nullptr) control_.store(&meetings_->control());
  if (stopped_.load()) stop();
  return meetings_;
}

}  // namespace tutti::internal

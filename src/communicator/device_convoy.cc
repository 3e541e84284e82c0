#include "communicator/device_convoy.h"

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "communicator/communicator.h"

namespace tutti::internal {
namespace {

// For so long a rank waits for the others. Threads that do the same come within much less; one thread that serves
// several ranks, without a group, loses it with each call: so it is seldom spent where it was in vain.
constexpr std::int64_t kPatienceMs = 20;
constexpr unsigned kPatientAgain = 16;  // batches
constexpr unsigned kVain = 4;
// The others' threads may need this processor to come.
constexpr int kSpins = 200;

struct Convoys {
  Mutex mutex;
  std::map<Secret, std::weak_ptr<DeviceConvoy>> by_secret TUTTI_GUARDED_BY(mutex);
};
Convoys& convoys() {
  static auto* const all = new Convoys;
  return *all;
}

}  // namespace

DeviceSubmission::~DeviceSubmission() {
  if (convoy != nullptr) convoy->give_up(*this);
}

std::shared_ptr<DeviceConvoy> DeviceConvoy::join(const Secret& secret, int ranks, int of_all, int rank,
                                                 const memory::CudaDevice& device) {
  std::shared_ptr<DeviceConvoy> convoy;
  {
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
  convoy->changed_.notify_all();
  return convoy;
}

void DeviceConvoy::leave() {
  stop();
  const MutexLock lock(mutex_);
  left_ = true;
  settle(DeviceSubmission::State::kApart);
  changed_.notify_all();
}

void DeviceConvoy::stop() noexcept {
  executor::DirectControl* const control = control_.load(std::memory_order_acquire);
  if (control != nullptr) std::atomic_ref(control->stop).store(1);
}

executor::DirectControl::Report DeviceConvoy::report(int rank) const {
  executor::DirectControl* const control = control_.load(std::memory_order_acquire);
  if (control == nullptr) return {};
  executor::DirectControl::Report& of = control->reports[static_cast<std::size_t>(rank)];
  executor::DirectControl::Report seen;
  seen.outcome = std::atomic_ref(of.outcome).load(std::memory_order_acquire);
  if (seen.outcome == 0) return seen;
  seen.peer = of.peer;
  seen.sequence = of.sequence;
  return seen;
}

bool DeviceConvoy::has_one_device() const {
  return ranks_ == of_all_ && ranks_ <= executor::kMostDirectRanks && static_cast<int>(members_.size()) == ranks_ &&
         std::all_of(members_.begin(), members_.end(), [&](const Member& m) { return m.device == members_[0].device; });
}

// Whether it matters in which order streams are filled, as far as is known yet.
bool DeviceConvoy::travels_together() const {
  if (left_) return false;
  if (static_cast<int>(members_.size()) < ranks_ || ranks_ == 1) return true;
  std::set<const memory::CudaDevice*> devices;
  for (const Member& m : members_) devices.insert(m.device);
  return devices.size() < members_.size();
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
  const MutexLock lock(mutex_);
  Member& own = *std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.rank == rank; });
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
  if (static_cast<int>(all.size()) < ranks_) return;
  missed_ = 0;
  const bool direct = has_one_device() && Communicator::can_submit_directly(all);
  Communicator::submit_together(all, direct);
  settle(DeviceSubmission::State::kDone);
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
  const bool vain = missed_ >= kVain && missed_ % kPatientAgain != 0;
  const Deadline deadline = Deadline::after_ms(vain ? 0 : kPatienceMs);
  while (!settled()) {
    if (changed_.wait_until(mutex_, deadline) && !failure.failed()) continue;
    if (settled()) return;
    ++missed_;
    settle(DeviceSubmission::State::kApart);
  }
}

void DeviceConvoy::give_up(const DeviceSubmission& submission) {
  const MutexLock lock(mutex_);
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

Result<std::shared_ptr<DirectMeetings>> DeviceConvoy::meetings(const executor::DirectKernels& kernels) {
  const MutexLock lock(mutex_);
  if (!met_) {
    auto made = DirectMeetings::make(ranks_, kernels, *members_[0].device);
    if (!made.is_ok()) return made;
    meetings_ = std::move(*made);
    met_ = true;
    if (meetings_ != nullptr) control_.store(&meetings_->control(), std::memory_order_release);
  }
  return meetings_;
}

}  // namespace tutti::internal

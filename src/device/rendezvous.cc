// Membership, batched launches, and the end; rendezvous_memory.cc has the memory that kernels access.
#include "device/rendezvous.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/first_use.h"

namespace tutti::internal {
namespace {

// How long a rank waits for a rank that another thread serves: shorter than a pause that the program would notice, and
// longer than a thread is late by chance. If a rank has not brought a batch yet, its thread is not known.
constexpr std::int64_t kLongestWaitMs = 200;
constexpr std::int64_t kLongestWaitForNewMs = 100;
// The other ranks' threads may need this processor for their calls.
constexpr int kSpins = 200;

struct Registry {
  Mutex mutex;
  std::map<Secret, std::weak_ptr<DeviceRendezvous>> by_secret TUTTI_GUARDED_BY(mutex);
};
Registry& registry() {
  static constinit FirstUse<Registry> all;
  return all.get();
}

}  // namespace

DeviceSubmission::~DeviceSubmission() {
  if (rendezvous != nullptr && state.load(std::memory_order_acquire) == State::kUnderWay) rendezvous->give_up(*this);
}

std::shared_ptr<DeviceRendezvous> DeviceRendezvous::join(const Secret& secret, const RankTable<PeerInfo>& peers,
                                                         int rank, const memory::CudaDevice& device) {
  const auto& process = peers[static_cast<std::size_t>(rank)].process;
  const auto here = static_cast<int>(
      std::count_if(peers.begin(), peers.end(), [&](const PeerInfo& peer) { return peer.process == process; }));
  const auto ranks = static_cast<int>(peers.size());
  std::shared_ptr<DeviceRendezvous> joined;
  if (here == 1) {
    joined = std::make_shared<DeviceRendezvous>(here, ranks);
  } else {
    const MutexLock lock(registry().mutex);
    auto& all = registry().by_secret;
    std::erase_if(all, [](const auto& one) { return one.second.expired(); });
    std::weak_ptr<DeviceRendezvous>& known = all[secret];
    joined = known.lock();
    // A graph may keep the rendezvous of a communicator that has ended.
    if (joined == nullptr || joined->is_full()) known = joined = std::make_shared<DeviceRendezvous>(here, ranks);
  }
  const MutexLock lock(joined->mutex_);
  auto& members = joined->members_;
  Member own;
  own.rank = rank;
  own.device = &device;
  joined->shares_device_ |=
      std::any_of(members.begin(), members.end(), [&](const Member& m) { return m.device == &device; });
  members.insert(std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.rank > rank; }), own);
  joined->changed_.notify_all();
  return joined;
}

bool DeviceRendezvous::is_full() {
  const MutexLock lock(mutex_);
  return static_cast<int>(members_.size()) == here_;
}

DeviceRendezvous::Member& DeviceRendezvous::member(int rank) {
  return *std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return m.rank == rank; });
}

void DeviceRendezvous::leave(int rank) {
  // With windows, the barrier tells the other ranks.
  if (here_ == ranks_) stop(rank);
  const MutexLock lock(mutex_);
  await_launch();
  left_ = true;
  settle(DeviceSubmission::State::kAlone);
  changed_.notify_all();
}

void DeviceRendezvous::stop(int rank) noexcept {
  stopped_.store(true);
  DirectControl* const words = control(rank);
  if (words != nullptr) std::atomic_ref(words->stop).store(1);
}

void DeviceRendezvous::set_quiet(int rank) {
  const MutexLock lock(mutex_);
  member(rank).quiet = true;
}

DirectControl* DeviceRendezvous::control(int rank) const {
  return rank < kMostDirectRanks ? controls_[static_cast<std::size_t>(rank)].load() : nullptr;
}

bool DeviceRendezvous::has_one_device() const {
  if (static_cast<int>(members_.size()) < ranks_ || ranks_ > kMostDirectRanks) return false;
  const memory::CudaDevice* const first = members_.front().device;
  return std::all_of(members_.begin(), members_.end(), [&](const Member& m) { return m.device == first; });
}

bool DeviceRendezvous::is_one_device(const FailureState& failure) {
  if (here_ < ranks_) return false;
  const MutexLock lock(mutex_);
  while (static_cast<int>(members_.size()) < here_ && !left_ && !failure.failed()) {
    (void)changed_.wait_until(mutex_, Deadline::after_ms(kFailureCheckMs));
  }
  return has_one_device() && !left_;
}

// Whether the order in which streams are filled matters, as far as is known yet.
bool DeviceRendezvous::launches_together() const {
  return !left_ && (static_cast<int>(members_.size()) < here_ || ranks_ == 1 || shares_device_);
}

void DeviceRendezvous::settle(DeviceSubmission::State state) {
  for (Member& m : members_) {
    if (m.here == nullptr) continue;
    settled_ = std::max(settled_, m.batches);
    std::exchange(m.here, nullptr)->state.store(state, std::memory_order_release);
  }
  changed_.notify_all();
}

DeviceRendezvous::Launch DeviceRendezvous::bring(int rank, DeviceSubmission* submission) {
  const MutexLock lock(mutex_);
  Launch launch;
  Member& own = member(rank);
  own.thread = std::this_thread::get_id();
  const bool late = own.batches++ < settled_;
  if (late || !launches_together()) {
    submission->state.store(DeviceSubmission::State::kAlone, std::memory_order_relaxed);
    return launch;
  }
  submission->rendezvous = shared_from_this();
  launch.all.reserve(members_.size());
  // From here on the other ranks see it.
  own.here = submission;
  if (submission->own_thread) {
    settle(DeviceSubmission::State::kAlone);
    return launch;
  }
  for (const Member& m : members_) {
    if (m.here != nullptr) launch.all.push_back(m.here);
  }
  // No thread settles submissions meanwhile.
  launching_ = static_cast<int>(launch.all.size()) == here_;
  if (!launching_) launch.all.clear();
  launch.one_device = launching_ && has_one_device();
  return launch;
}

void DeviceRendezvous::finish() {
  const MutexLock lock(mutex_);
  launching_ = false;
  settle(DeviceSubmission::State::kDone);
}

void DeviceRendezvous::await_launch() {
  while (launching_) changed_.wait(mutex_);
}

std::int64_t DeviceRendezvous::longest_wait_ms() {
  const MutexLock lock(mutex_);
  std::int64_t longest = kLongestWaitMs;
  for (const Member& m : members_) {
    if (m.here != nullptr) continue;
    if (m.thread == std::this_thread::get_id()) return 0;  // it brings nothing while this thread waits
    if (m.thread == std::thread::id()) longest = kLongestWaitForNewMs;
  }
  return longest;
}

void DeviceRendezvous::wait(DeviceSubmission* submission, const FailureState& failure) {
  const auto settled = [&] {
    return submission->state.load(std::memory_order_acquire) != DeviceSubmission::State::kUnderWay;
  };
  for (int spins = 0; spins < kSpins; ++spins) {
    if (settled()) return;
    std::this_thread::yield();
  }
  const Deadline deadline = Deadline::after_ms(longest_wait_ms());
  const MutexLock lock(mutex_);
  while (!settled()) {
    await_launch();
    if (settled()) break;
    if (changed_.wait_until(mutex_, deadline) && !failure.failed()) continue;
    if (!launching_ && !settled()) settle(DeviceSubmission::State::kAlone);
  }
}

void DeviceRendezvous::give_up(const DeviceSubmission& submission) {
  const MutexLock lock(mutex_);
  await_launch();
  const bool known =
      std::any_of(members_.begin(), members_.end(), [&](const Member& m) { return m.here == &submission; });
  if (known) settle(DeviceSubmission::State::kAlone);
}

}  // namespace tutti::internal

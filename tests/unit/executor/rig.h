// Runs one schedule of the catalog on real bytes: n threads, each with its own executor, over links of
// a chosen kind. No communicator, so plans and layouts can be set by hand.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/catalog.h"
#include "base/failure.h"
#include "executor/cpu_executor.h"
#include "sim/network.h"
#include "transport/shm/link.h"

namespace tutti::internal::test {

using LinkFactory = std::function<std::unique_ptr<transport::Link>(int from, int to)>;

class Rig {
 public:
  Rig(int ranks, bool simulated, std::uint64_t seed, bool zcopy = false) : Rig(ranks) {
    if (simulated) {
      transport::sim::Options options;
      options.maps_source = zcopy;
      simulate(seed, options);
    }
  }
  // Over a simulated network of the test's choice.
  Rig(int ranks, std::uint64_t seed, const transport::sim::Options& options) : Rig(ranks) { simulate(seed, options); }
  // Over links of the test's own making: called once for each rank and peer, from the ranks' threads.
  Rig(int ranks, LinkFactory links) : Rig(ranks) { factory_ = std::move(links); }

  // Runs on all ranks at once; `setup` fills the operation's buffers and sizes for a rank. Returns the
  // first error, but rather the cause than what others make of it.
  Status run(const algorithms::AlgorithmEntry& entry, int root, std::size_t slice_chunk_bytes,
             const std::function<void(int rank, executor::Operation*)>& setup, int repeats = 1) {
    std::vector<Part> parts;
    for (int r = 0; r < ranks_; ++r) {
      const auto algorithm = other_algorithm.find(r);
      const auto slice = other_slice_chunk_bytes.find(r);
      const algorithms::AlgorithmEntry& own = algorithm == other_algorithm.end() ? entry : *algorithm->second;
      auto schedule = algorithms::make_schedule(own, world, r, root);
      if (!schedule.is_ok()) return schedule.status();
      parts.push_back(
          {own.name, std::move(*schedule), slice == other_slice_chunk_bytes.end() ? slice_chunk_bytes : slice->second});
    }
    return run_parts(parts, setup, repeats);
  }

  // What one rank runs.
  struct Part {
    std::string algorithm;
    schedule::Schedule schedule;
    std::size_t slice_chunk_bytes = 0;
  };
  // The same with schedules that no algorithm need have written, one for each rank.
  Status run_parts(const std::vector<Part>& parts, const std::function<void(int rank, executor::Operation*)>& setup,
                   int repeats = 1) {
    results.assign(static_cast<std::size_t>(ranks_), {});
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks_; ++r) {
      threads.emplace_back([&, r] {
        const auto i = static_cast<std::size_t>(r);
        results[i] = run_rank(parts[i], setup, r, repeats);
      });
    }
    for (std::thread& t : threads) t.join();
    Status first;
    for (const Status& s : results) {
      if (first.is_ok() || first.code() == Code::kRemoteError) first = s.is_ok() ? first : s;
    }
    return first;
  }

  // What single ranks do otherwise than run() is told.
  std::map<int, const algorithms::AlgorithmEntry*> other_algorithm;
  std::map<int, std::size_t> other_slice_chunk_bytes;
  // This rank calls something else, of the same size.
  int odd_rank = -1;
  // This one begins 100 ms later.
  int late_rank = -1;
  // Of the last run, by rank.
  std::vector<Status> results;
  // Thresholds low enough that small tests take every path.
  executor::CpuTuning tuning;
  // Without progress for so long, an operation fails.
  std::int64_t timeout_ms = 60'000;
  // Which ranks share a host, for algorithms that ask.
  algorithms::World world;
  // Of links through shared memory (LinkOptions).
  bool own_processors = true;
  bool far = false;

 private:
  explicit Rig(int ranks) : world{ranks, {}}, ranks_(ranks) {
    for (int r = 0; r < ranks; ++r) wakeup_fds_.push_back(std::move(transport::WakeupFd::create().value()));
  }
  void simulate(std::uint64_t seed, const transport::sim::Options& options) {
    sim_ = std::make_unique<transport::sim::Network>(seed, ranks_, options);
  }

  Status run_rank(const Part& part, const std::function<void(int, executor::Operation*)>& setup, int rank,
                  int repeats) {
    FailureState failure;
    auto waiter = executor::Waiter::create(wakeup_fds_[static_cast<std::size_t>(rank)], failure, true, timeout_ms);
    if (!waiter.is_ok()) return waiter.status();
    std::map<int, std::unique_ptr<transport::Link>> links;
    const auto plan = executor::make_plan(
        part.algorithm, part.schedule,
        [&](int peer) {
          auto& link = links[peer];
          if (link == nullptr) {
            link = make_link(rank, peer);
            (void)(*waiter)->add_link(*link);
          }
          return link.get();
        },
        part.slice_chunk_bytes);
    executor::CpuExecutor cpu(**waiter, tuning);
    executor::Operation op;
    op.plan = plan.get();
    setup(rank, &op);
    op.fingerprint = executor::with_plan(op.fingerprint, plan->identity.hash);
    if (rank == odd_rank) op.fingerprint.count_low += 1;
    if (rank == late_rank) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Status status;
    for (int i = 0; i < repeats && status.is_ok(); ++i) {
      op.fingerprint.sequence += 1;
      status = cpu.run(op, op.fingerprint.sequence);
    }
    // A peer may still ring this rank's wakeup fd or read its memory until all are through.
    leave();
    return status;
  }

  std::unique_ptr<transport::Link> make_link(int from, int to) {
    if (factory_) return factory_(from, to);
    if (sim_) return sim_->link(from, to);
    const std::lock_guard lock(mutex_);
    auto& segment = segments_[std::minmax(from, to)];
    transport::shm::LinkOptions options{to, own_processors, &wakeup_fds_[static_cast<std::size_t>(from)]};
    options.far = far;
    if (segment == nullptr) {
      segment = transport::shm::Segment::create_private(transport::shm::turns_of(options)).value();
    }
    return transport::shm::make_private_link(segment, from > to ? 0 : 1, wakeup_fds_[static_cast<std::size_t>(to)].fd(),
                                             options);
  }

  void leave() {
    std::unique_lock lock(mutex_);
    ++left_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return left_ >= ranks_; });
  }

  int ranks_;
  std::vector<transport::WakeupFd> wakeup_fds_;
  std::unique_ptr<transport::sim::Network> sim_;
  LinkFactory factory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_ = 0;
  std::map<std::pair<int, int>, std::shared_ptr<transport::shm::Segment>> segments_;
};

}  // namespace tutti::internal::test

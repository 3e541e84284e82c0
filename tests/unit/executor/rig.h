// Runs one schedule of the catalog on real bytes: n ranks, each with its own executor, over links of a chosen kind.
// Each rank has its own thread, which waits, or one thread drives several ranks. There is no communicator, so plans and
// layouts can be set by hand.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/catalog.h"
#include "base/failure.h"
#include "executor/cpu_executor.h"
#include "os/asymmetric_fence.h"
#include "sim/network.h"
#include "transport/event_set.h"
#include "transport/shm/link.h"
#include "transport/shm/private_memory.h"

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
  // Over a simulated network that the test chooses.
  Rig(int ranks, std::uint64_t seed, const transport::sim::Options& options) : Rig(ranks) { simulate(seed, options); }
  // Over links that the test makes: the ranks' threads call `links` once for each rank and peer.
  Rig(int ranks, LinkFactory links) : Rig(ranks) { factory_ = std::move(links); }

  // Runs on all ranks at once; `setup` fills the operation's buffers and sizes for a rank. Returns the first error, and
  // prefers the cause to the resulting errors.
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

  // The schedule of one rank.
  struct Part {
    std::string algorithm;
    schedule::Schedule schedule;
    std::size_t slice_chunk_bytes = 0;
  };
  // The same with any schedules, one for each rank.
  Status run_parts(const std::vector<Part>& parts, const std::function<void(int rank, executor::Operation*)>& setup,
                   int repeats = 1) {
    results.assign(static_cast<std::size_t>(ranks_), {});
    std::vector<std::thread> threads;
    std::vector<int> driven;
    for (int r = 0; r < ranks_; ++r) {
      if (drive == Drive::kOneThread || (drive == Drive::kBoth && r % 2 == 0)) {
        driven.push_back(r);
        continue;
      }
      threads.emplace_back([&, r] { results[index(r)] = run_rank(parts[index(r)], setup, r, repeats); });
    }
    if (!driven.empty()) threads.emplace_back([&] { drive_ranks(driven, parts, setup, repeats); });
    for (std::thread& t : threads) t.join();
    Status first;
    for (const Status& s : results) {
      if (first.is_ok() || first.code() == Code::kRemoteError) first = s.is_ok() ? first : s;
    }
    return first;
  }

  // Which threads run the ranks: one for each; one for all; one for the ranks of even numbers, and one for each other.
  enum class Drive { kThreads, kOneThread, kBoth };
  Drive drive = Drive::kThreads;
  // run() reports what single ranks do differently.
  std::map<int, const algorithms::AlgorithmEntry*> other_algorithm;
  std::map<int, std::size_t> other_slice_chunk_bytes;
  // This rank calls something else, of the same size.
  int odd_rank = -1;
  // This one begins 100 ms later.
  int late_rank = -1;
  // Results of the last run, by rank.
  std::vector<Status> results;
  // How often an operation had work right after it had reported none, although no other rank had acted since. Counted
  // if watch_idle is set: for links that show arrived data at once, with one thread for all ranks.
  bool watch_idle = false;
  int idle_in_vain = 0;
  // In one advance() of a thread that drives several ranks.
  std::uint64_t most_sent_at_once = 0;
  // Thresholds low enough that small tests take every path.
  executor::CpuTuning tuning;
  // Without progress for this time, an operation fails.
  std::int64_t timeout_ms = 60'000;
  // Which ranks share a host, for algorithms that need it.
  algorithms::World world;
  // For links through shared memory (LinkOptions).
  bool own_processors = true;
  bool far = false;
  // Applied to each link before a rank uses it; called from the ranks' threads.
  std::function<std::unique_ptr<transport::Link>(std::unique_ptr<transport::Link>, int to)> decorate;

 private:
  explicit Rig(int ranks) : world{ranks, {}}, ranks_(ranks) {
    for (int r = 0; r < ranks; ++r) wakeup_fds_.push_back(std::move(transport::WakeupFd::create().value()));
  }
  void simulate(std::uint64_t seed, const transport::sim::Options& options) {
    sim_ = std::make_unique<transport::sim::Network>(seed, ranks_, options);
  }

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  // All state of one rank.
  struct Rank {
    FailureState failure;
    std::unique_ptr<executor::Waiter> waiter;
    std::map<int, std::unique_ptr<transport::Link>> links;
    std::unique_ptr<executor::Plan> plan;
    std::unique_ptr<executor::CpuExecutor> cpu;
    executor::Operation op;
    int rounds = 0;  // still to do
  };

  std::unique_ptr<Rank> make_rank(const Part& part, const std::function<void(int, executor::Operation*)>& setup,
                                  int rank) {
    auto made = std::make_unique<Rank>();
    made->waiter = std::make_unique<executor::Waiter>(wakeup_fds_[index(rank)], made->failure, true, timeout_ms);
    const auto link_to = [&](int peer) {
      auto& link = made->links[peer];
      if (link == nullptr) {
        link = make_link(rank, peer);
        if (decorate) link = decorate(std::move(link), peer);
        made->waiter->add_link(*link);
      }
      return link.get();
    };
    made->plan = executor::make_plan(part.algorithm, part.schedule, link_to, part.slice_chunk_bytes);
    made->cpu = std::make_unique<executor::CpuExecutor>(*made->waiter, tuning);
    made->op.plan = made->plan.get();
    setup(rank, &made->op);
    made->op.fingerprint = executor::with_plan(made->op.fingerprint, made->plan->identity.hash);
    if (rank == odd_rank) made->op.fingerprint.count_low += 1;
    return made;
  }

  Status run_rank(const Part& part, const std::function<void(int, executor::Operation*)>& setup, int rank,
                  int repeats) {
    const std::unique_ptr<Rank> own = make_rank(part, setup, rank);
    if (rank == late_rank) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Status status;
    for (int i = 0; i < repeats && status.is_ok(); ++i) {
      own->op.fingerprint.sequence += 1;
      status = own->cpu->run(own->op, own->op.fingerprint.sequence);
    }
    // A peer may still ring this rank's wakeup fd or read its memory until all have finished.
    leave(1);
    return status;
  }

  // In a different order each time. If nothing moves the thread sleeps until an event.
  void drive_ranks(const std::vector<int>& ranks, const std::vector<Part>& parts,
                   const std::function<void(int, executor::Operation*)>& setup, int repeats) {
    std::vector<std::unique_ptr<Rank>> all;
    for (const int r : ranks) all.push_back(make_rank(parts[index(r)], setup, r));
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<bool> begun(all.size(), false);
    std::mt19937 random(static_cast<unsigned>(repeats));
    std::vector<std::thread> reclaiming;
    int idle = 0;
    for (std::size_t left = all.size(); left > 0;) {
      std::shuffle(order.begin(), order.end(), random);
      bool moved = false;
      for (const std::size_t i : order) {
        Rank& rank = *all[i];
        if (rank.rounds == repeats) continue;
        auto progress = step(&rank, begun[i]);
        begun[i] = progress.is_ok() && *progress != executor::Progress::kDone;
        moved = moved || !progress.is_ok() || *progress != executor::Progress::kIdle;
        if (!progress.is_ok()) {
          results[index(ranks[i])] = rank.waiter->explain(progress.status());
          // Waits for the other ranks, which this thread drives.
          reclaiming.emplace_back([&rank] { rank.cpu->reclaim(rank.op); });
          rank.rounds = repeats;
        } else if (*progress == executor::Progress::kDone) {
          ++rank.rounds;
        }
        if (rank.rounds == repeats) --left;
      }
      idle = moved ? 0 : idle + 1;
      if (idle > 500) sleep_until_something_comes(all, repeats);
    }
    for (std::thread& t : reclaiming) t.join();
    leave(static_cast<int>(ranks.size()));
  }

  static std::uint64_t sent_bytes(const Rank& rank) {
    std::uint64_t bytes = 0;
    for (const auto& [peer, link] : rank.links) bytes += link->send().taken();
    return bytes;
  }

  Result<executor::Progress> step(Rank* rank, bool begun) {
    if (begun) {
      const std::uint64_t before = sent_bytes(*rank);
      const bool stalled = rank->waiter->stalled();
      auto progress = rank->cpu->advance(now_ns());
      if (watch_idle && stalled && progress.is_ok() && *progress == executor::Progress::kIdle) {
        progress = rank->cpu->advance(now_ns());
        if (progress.is_ok() && *progress != executor::Progress::kIdle) ++idle_in_vain;
      }
      most_sent_at_once = std::max(most_sent_at_once, sent_bytes(*rank) - before);
      return progress;
    }
    rank->op.fingerprint.sequence += 1;
    return rank->cpu->start(rank->op, rank->op.fingerprint.sequence);
  }

  void sleep_until_something_comes(const std::vector<std::unique_ptr<Rank>>& all, int repeats) {
    bool quiet = true;
    for (const bool again : {false, true}) {
      if (again) asymmetric_fence_heavy();
      for (const auto& rank : all) {
        if (rank->rounds == repeats) continue;
        quiet = rank->waiter->arm(sleep_) && quiet;
        if (!sleep_.add_wakeup(rank->waiter->wakeup_fd()).is_ok()) throw std::runtime_error("epoll_ctl");
      }
    }
    if (quiet) (void)sleep_.take(50);
    for (const auto& rank : all) {
      if (rank->rounds != repeats) rank->waiter->disarm();
    }
  }

  std::unique_ptr<transport::Link> make_link(int from, int to) {
    if (factory_) return factory_(from, to);
    if (sim_) return sim_->link(from, to);
    const std::lock_guard lock(mutex_);
    auto& segment = segments_[std::minmax(from, to)];
    transport::shm::LinkOptions options{to, own_processors};
    options.far = far;
    if (segment == nullptr) {
      segment = transport::shm::PrivateSegment::create(transport::shm::turns_of(options)).value();
    }
    return transport::shm::make_private_link(segment->link_memory(from > to ? 0 : 1),
                                             wakeup_fds_[static_cast<std::size_t>(to)].fd(), options);
  }

  void leave(int ranks) {
    std::unique_lock lock(mutex_);
    left_ += ranks;
    changed_.notify_all();
    changed_.wait(lock, [&] { return left_ >= ranks_; });
  }

  int ranks_;
  std::vector<transport::WakeupFd> wakeup_fds_;
  const transport::EventSet sleep_ =
      std::move(transport::EventSet::create().value());  // of the thread that drives all ranks
  std::unique_ptr<transport::sim::Network> sim_;
  LinkFactory factory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_ = 0;
  std::map<std::pair<int, int>, std::shared_ptr<transport::shm::PrivateSegment>> segments_;
};

}  // namespace tutti::internal::test

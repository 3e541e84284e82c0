#include "candidates.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "os/clock.h"
#include "selection/prediction.h"
#include "topology/detect.h"

namespace tutti::internal::tools {
namespace {

using algorithms::AlgorithmEntry;

// The time of a batch of calls. If ranks share processors, it is longer than the scheduler's time slice.
constexpr double kBatchUs = 400;
constexpr double kBatchOfTurnsUs = 4000;
constexpr int kMostCalls = 1000;          // of a batch
constexpr int kRounds = 31;               // at most; fewer where time runs short
constexpr double kHopeless = 2.5;         // times the best of the last size: not measured at the next ones
constexpr std::size_t kManyBytes = 8192;  // for each rank: with fewer, what counts is another matter than with more
constexpr int kLeastRounds = 3;
constexpr int kMostRanksToCompare = 16;  // of more, no two algorithms do the same

Status failed(tuttiResult_t result, const char* what, tuttiComm_t comm) {
  if (result == tuttiSuccess) return {};
  return Status(code_of(static_cast<int>(result)), fmt::format("{}: {}", what, tuttiGetLastError(comm)));
}

// A vector's worth of memory for each buffer of a call.
struct Memory {
  explicit Memory(std::size_t bytes) : input(bytes + 64), output(bytes + 64) {}
  std::vector<std::byte> input;
  std::vector<std::byte> output;
};

tuttiResult_t call(Collective collective, std::size_t bytes, int ranks, Memory& memory, tuttiComm_t comm) {
  void* const in = memory.input.data();
  void* const out = memory.output.data();
  const std::size_t all = bytes / sizeof(float);
  const std::size_t block = all / static_cast<std::size_t>(ranks);
  switch (collective) {
    case Collective::kAllReduce: return tuttiAllReduce(in, out, all, tuttiFloat32, tuttiSum, comm, nullptr);
    case Collective::kReduceScatter: return tuttiReduceScatter(in, out, block, tuttiFloat32, tuttiSum, comm, nullptr);
    case Collective::kAllGather: return tuttiAllGather(in, out, block, tuttiFloat32, comm, nullptr);
    case Collective::kBroadcast: return tuttiBroadcast(in, out, all, tuttiFloat32, 0, comm, nullptr);
    case Collective::kReduce: return tuttiReduce(in, out, all, tuttiFloat32, tuttiSum, 0, comm, nullptr);
    case Collective::kBarrier: return tuttiBarrier(comm, nullptr);
    case Collective::kGather: return tuttiGather(in, out, block, tuttiFloat32, 0, comm, nullptr);
    case Collective::kScatter: return tuttiScatter(in, out, block, tuttiFloat32, 0, comm, nullptr);
    case Collective::kAllToAll: return tuttiAlltoAll(in, out, block, tuttiFloat32, comm, nullptr);
    case Collective::kScan: return tuttiScan(in, out, all, tuttiFloat32, tuttiSum, comm, nullptr);
    case Collective::kExscan: return tuttiExscan(in, out, all, tuttiFloat32, tuttiSum, comm, nullptr);
    default: return tuttiInvalidArgument;
  }
}

// Of the running kernel: containers have that of their machine.
std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

class Measuring {
 public:
  Measuring(tuttiComm_t comm, const MeasureOptions& options) : comm_(comm), options_(options) {}
  ~Measuring() {
    for (tuttiComm_t one : comms_) (void)tuttiCommDestroy(one);
  }
  Measuring(const Measuring&) = delete;
  Measuring& operator=(const Measuring&) = delete;

  Result<Measurements> run() {
    begin_ns_ = now_ns();
    if (Status s = find_job(); !s.is_ok()) return s;
    if (Status s = make_comms(); !s.is_ok()) return s;
    Memory memory(options_.sizes.empty() ? 0 : options_.sizes.back());
    std::size_t done = 0;
    const std::size_t all = options_.collectives.size() * options_.sizes.size();
    for (const Collective collective : options_.collectives) {
      std::vector<std::size_t> left(candidates_[collective].size());
      for (std::size_t i = 0; i < left.size(); ++i) left[i] = i;
      for (const std::size_t bytes : options_.sizes) {
        ++done;
        if (bytes / sizeof(float) < static_cast<std::size_t>(world_.ranks) && collective != Collective::kBarrier)
          continue;
        if (Status s = measure(collective, bytes, left, memory, static_cast<double>(all - done + 1)); !s.is_ok())
          return s;
        if (rank_ == 0 && options_.progress) options_.progress(static_cast<int>(100 * done / all));
        if (collective == Collective::kBarrier) {
          done += options_.sizes.size() - 1;
          break;
        }
      }
    }
    return std::move(found_);
  }

 private:
  struct Candidate {
    const AlgorithmEntry* entry;
    std::vector<const AlgorithmEntry*> same;  // with the same schedules for these ranks
  };

  // Which ranks share a host, and how they are connected.
  Status find_job() {
    int ranks = 0;
    if (Status s = failed(tuttiCommCount(comm_, &ranks), "tuttiCommCount", comm_); !s.is_ok()) return s;
    if (Status s = failed(tuttiCommUserRank(comm_, &rank_), "tuttiCommUserRank", comm_); !s.is_ok()) return s;
    std::array<char, 256> text{};
    Status s = failed(tuttiCommExplain(comm_, tuttiCollectiveAllReduce, 8, text.data(), text.size()),
                      "tuttiCommExplain", comm_);
    if (!s.is_ok()) return s;
    const std::string over = text.data();
    const std::size_t at = over.find(" over ");
    const std::string transports = at == std::string::npos ? "" : over.substr(at + 6);
    struct Told {
      std::uint64_t host;
      std::uint64_t boot;
      std::array<std::uint64_t, topology::kMaxProcessors / 64> processors;  // that it may use, a bit for each
    };
    Told own{host_number(), std::hash<std::string>()(boot_id()), {}};
    const topology::ProcessorSet allowed = topology::allowed_processors();
    for (std::size_t i = 0; i < allowed.size(); ++i) {
      if (allowed[i]) own.processors[i / 64] |= std::uint64_t{1} << i % 64;
    }
    std::vector<Told> places(static_cast<std::size_t>(ranks));
    s = failed(tuttiAllGather(&own, places.data(), sizeof own, tuttiUint8, comm_, nullptr), "tuttiAllGather", comm_);
    if (!s.is_ok()) return s;
    const bool shares = transports.find("shm") != std::string::npos;
    algorithms::Hosts::Lists hosts;
    std::map<std::uint64_t, std::vector<int>> machines;  // by what shares memory
    std::map<std::uint64_t, std::vector<int>> boots;     // by what shares processors
    for (int r = 0; r < ranks; ++r) {
      machines[places[static_cast<std::size_t>(r)].host].push_back(r);
      boots[places[static_cast<std::size_t>(r)].boot].push_back(r);
    }
    // Of ranks together, as a launcher binds each to its own.
    const auto processors_of = [&](const std::vector<int>& members) {
      int processors = 0;
      for (std::size_t word = 0; word < own.processors.size(); ++word) {
        std::uint64_t any = 0;
        for (const int r : members) any |= places[static_cast<std::size_t>(r)].processors[word];
        processors += std::popcount(any);
      }
      return std::max(1, processors);
    };
    double ranks_per_cpu = 1;
    int cores = INT_MAX;
    for (const auto& [boot, members] : boots) {
      cores = std::min(cores, processors_of(members));
      ranks_per_cpu = std::max(ranks_per_cpu, static_cast<double>(members.size()) / processors_of(members));
    }
    for (const auto& [host, members] : machines) {
      if (shares) hosts.push_back(members);
      for (const int r : members) {
        if (!shares) hosts.push_back({r});
      }
    }
    std::sort(hosts.begin(), hosts.end());
    world_ = algorithms::World{ranks, std::move(hosts)};
    const std::string between =
        shares && transports.size() > 3 ? transports.substr(transports.find('+') + 1) : transports;
    found_.kind = selection::kind_of(world_, "shm", between, ranks_per_cpu);
    if (world_.hosts.size() == 1) world_.hosts = {};
    found_.world = world_;
    found_.sharing = {cores, boots.size() == 1 && world_.hosts.size() > 1};
    return {};
  }

  [[nodiscard]] bool is_wanted(const AlgorithmEntry& entry) const {
    const auto& only = options_.only;
    return entry.supports(world_) && (only.empty() || std::find(only.begin(), only.end(), entry.name) != only.end());
  }

  // Those of a collective, and which of them do the same as others: a chain of two ranks is a tree.
  Status find_candidates(Collective collective) {
    std::vector<std::vector<schedule::Schedule>> known;
    std::vector<Candidate>& all = candidates_[collective];
    for (const AlgorithmEntry* entry : algorithms::candidates(collective, world_, 0)) {
      if (!is_wanted(*entry)) continue;
      if (world_.ranks > kMostRanksToCompare) {
        all.push_back({entry, {}});
        continue;
      }
      auto schedules = selection::write_schedules(*entry, world_, 0);
      if (!schedules.is_ok()) return schedules.status();
      const auto at = static_cast<std::size_t>(std::find(known.begin(), known.end(), *schedules) - known.begin());
      if (at < known.size()) {
        all[at].same.push_back(entry);
      } else {
        all.push_back({entry, {}});
        known.push_back(std::move(*schedules));
      }
    }
    return {};
  }

  // One communicator for the first candidate of each collective, one for the second, and so on.
  Status make_comms() {
    for (const Collective collective : options_.collectives) {
      if (Status s = find_candidates(collective); !s.is_ok()) return s;
    }
    std::size_t most = 0;
    for (const Collective collective : options_.collectives) most = std::max(most, candidates_[collective].size());
    for (std::size_t i = 0; i < most; ++i) {
      std::string algorithm;
      for (const Collective collective : options_.collectives) {
        if (i >= candidates_[collective].size()) continue;
        algorithm += fmt::format("{}{}:{}", algorithm.empty() ? "" : ",", name_of(collective),
                                 candidates_[collective][i].entry->name);
      }
      tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
      config.algorithm = algorithm.c_str();
      tuttiComm_t made = nullptr;
      if (Status s = failed(tuttiCommSplit(comm_, 0, rank_, &made, &config), "tuttiCommSplit", comm_); !s.is_ok())
        return s;
      comms_.push_back(made);
    }
    return {};
  }

  // Microseconds of a call, of the slowest rank.
  Result<double> time(Collective collective, std::size_t bytes, std::size_t candidate, int calls, Memory& memory) {
    tuttiComm_t comm = comms_[candidate];
    if (Status s = failed(tuttiBarrier(comm_, nullptr), "tuttiBarrier", comm_); !s.is_ok()) return s;
    const std::int64_t begin_ns = now_ns();
    for (int i = 0; i < calls; ++i) {
      Status s = failed(call(collective, bytes, world_.ranks, memory, comm), name_of(collective), comm);
      if (!s.is_ok()) return s;
    }
    double us = static_cast<double>(now_ns() - begin_ns) / 1e3 / calls;
    Status s = failed(tuttiAllReduce(&us, &us, 1, tuttiFloat64, tuttiMax, comm_, nullptr), "tuttiAllReduce", comm_);
    if (!s.is_ok()) return s;
    return us;
  }

  [[nodiscard]] double batch_us() const { return found_.kind.ranks_per_cpu > 1 ? kBatchOfTurnsUs : kBatchUs; }
  // The least that a call took, of more and more in a row: the first one connects, and some meet what else the machine
  // does.
  Result<double> warm_up(Collective collective, std::size_t bytes, std::size_t candidate, Memory& memory) {
    double least = INFINITY;
    for (int calls = 1; calls <= kMostCalls; calls *= 4) {
      auto us = time(collective, bytes, candidate, calls, memory);
      if (!us.is_ok()) return us;
      least = std::min(least, *us);
      if (calls > 1 && *us * calls > batch_us() / 2) break;
    }
    return least;
  }

  // `left`: the candidates that are still worth a look; those that are not leave it.
  Status measure(Collective collective, std::size_t bytes, std::vector<std::size_t>& left, Memory& memory,
                 double cells) {
    std::vector<int> calls;
    std::vector<std::vector<double>> rounds(left.size());
    double all_us = 0;
    for (const std::size_t candidate : left) {
      auto us = warm_up(collective, bytes, candidate, memory);
      if (!us.is_ok()) return us.status();
      calls.push_back(std::clamp(static_cast<int>(batch_us() / std::max(0.05, *us)), 1, kMostCalls));
      all_us += *us * calls.back();
    }
    const double elapsed_us = static_cast<double>(now_ns() - begin_ns_) / 1e3;
    double share = std::max(0.0, (options_.seconds * 1e6 - elapsed_us) / cells / std::max(1.0, all_us));
    // All ranks do as many.
    Status s = failed(tuttiBroadcast(&share, &share, 1, tuttiFloat64, 0, comm_, nullptr), "tuttiBroadcast", comm_);
    if (!s.is_ok()) return s;
    const int count = std::clamp(static_cast<int>(share), kLeastRounds, kRounds);
    for (int round = 0; round < count; ++round) {
      for (std::size_t i = 0; i < left.size(); ++i) {
        auto us = time(collective, bytes, left[i], calls[i], memory);
        if (!us.is_ok()) return us.status();
        rounds[i].push_back(*us);
      }
    }
    double best = INFINITY;
    std::vector<double> medians;
    for (auto& one : rounds) {
      std::nth_element(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(one.size() / 2), one.end());
      medians.push_back(one[one.size() / 2]);
      best = std::min(best, medians.back());
    }
    std::vector<std::size_t> next;
    for (std::size_t i = 0; i < left.size(); ++i) {
      const Candidate& measured = candidates_[collective][left[i]];
      found_.times.push_back({collective, bytes, measured.entry, medians[i], calls[i]});
      for (const AlgorithmEntry* one : measured.same) {
        found_.times.push_back({collective, bytes, one, medians[i], calls[i]});
      }
      if (medians[i] <= kHopeless * best) next.push_back(left[i]);
    }
    if (bytes / static_cast<std::size_t>(world_.ranks) >= kManyBytes) left = std::move(next);
    return {};
  }

  tuttiComm_t comm_;
  const MeasureOptions& options_;
  int rank_ = 0;
  std::int64_t begin_ns_ = 0;
  algorithms::World world_;
  std::map<Collective, std::vector<Candidate>> candidates_;
  std::vector<tuttiComm_t> comms_;
  Measurements found_;
};

}  // namespace

std::uint64_t host_number() {
  char name[256] = {};
  (void)::gethostname(name, sizeof name - 1);
  const auto space = [](const char* path) {
    char link[64] = {};
    return ::readlink(path, link, sizeof link - 1) < 0 ? std::string() : std::string(link);
  };
  std::string id = boot_id() + name + space("/proc/self/ns/ipc");
  // With shm:netns, ranks share memory only within a network namespace.
  const char* const transports = std::getenv("TUTTI_TRANSPORTS");
  if (transports != nullptr && std::string_view(transports).find("shm:netns") != std::string_view::npos) {
    id += space("/proc/self/ns/net");
  }
  return std::hash<std::string>()(id);
}

Result<Measurements> measure_candidates(tuttiComm_t comm, const MeasureOptions& options) {
  return Measuring(comm, options).run();
}

}  // namespace tutti::internal::tools

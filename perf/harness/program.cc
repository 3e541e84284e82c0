#include "program.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "exit_status.h"
#include "measure.h"
#include "operation.h"
#include "options.h"
#include "os/standard_streams.h"
#include "problems.h"
#include "ranks.h"
#include "report.h"

namespace tutti::internal::perf {
namespace {

// The most memory that this process has had.
std::int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

// The place of each rank.
Result<std::vector<RankPlace>> describe_ranks(const Rank& rank) {
  struct Told {
    std::int32_t rank;
    std::int32_t pid;
    std::array<char, 65> host;
    std::array<char, 32> device;
  };
  Told mine{rank.rank, static_cast<std::int32_t>(getpid()), {}, {}};
  gethostname(mine.host.data(), mine.host.size() - 1);
  if (rank.device != nullptr) rank.device->name().copy(mine.device.data(), mine.device.size() - 1);
  std::vector<Told> all(static_cast<std::size_t>(rank.ranks));
  const tuttiResult_t result = tuttiAllGather(&mine, all.data(), sizeof(Told), tuttiUint8, rank.own_comm, nullptr);
  if (Status status = to_status(result, "gathering host names", rank.own_comm); !status.is_ok()) return status;
  std::vector<RankPlace> places;
  for (const Told& place : all) places.push_back({place.rank, place.pid, place.host.data(), place.device.data()});
  return places;
}

// One rank's run through all problems.
class Run {
 public:
  Run(const Options& options, const Rank& rank) : options_(options), rank_(rank) {}

  Status execute() {
    Result<std::vector<RankPlace>> places = describe_ranks(rank_);
    if (!places.is_ok()) return places.status();
    const Result<std::size_t> memory_bytes = memory_of_rank(*places);
    if (!memory_bytes.is_ok()) return memory_bytes.status();
    if (rank_.rank == 0) report_.emplace(options_, std::move(places).value());
    if (Status status = check_ranks(options_, rank_.ranks); !status.is_ok()) {
      refused_ = true;
      return status;
    }
    const Problems found = problems_of(options_, rank_.ranks, memory_bytes.value());
    const std::vector<Problem>& problems = found.of_cycle;
    if (problems.empty()) {
      refused_ = true;
      return nothing_to_measure(found);
    }
    if (Status status = begin_report(found.notes); !status.is_ok() || refused_) return status;
    Result<Buffers> buffers = make_buffers(problems);
    if (!buffers.is_ok()) return buffers.status();
    for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle) {
      for (const Problem& problem : problems) {
        if (Status status = measure_row(problem, *buffers); !status.is_ok()) return status;
      }
    }
    return finish();
  }

  // The command line asks for what is not here.
  Status refuse(const std::string& why) {
    refused_ = true;
    return Status::invalid_usage(why);
  }
  [[nodiscard]] bool is_refused() const { return refused_; }

  // Of this rank, whose run has ended with `status`: what it has found wrong by itself or heard of from the others.
  [[nodiscard]] int exit_status(const Status& status) const {
    if (refused_ && status.code() == Code::kInvalidUsage) return kUsageStatus;
    return !status.is_ok() || own_errors_ > 0 || errors_ > 0 || refused_ ? kFailureStatus : 0;
  }

 private:
  // The memory for buffers of the rank that has the least; also for buffers on devices, which have copies on the host.
  Result<std::size_t> memory_of_rank(const std::vector<RankPlace>& places) const {
    const std::string& host = places[static_cast<std::size_t>(rank_.rank)].host;
    const auto ranks_here = static_cast<std::size_t>(
        std::count_if(places.begin(), places.end(), [&](const RankPlace& place) { return place.host == host; }));
    // The rest is for the programs themselves, and for others.
    std::uint64_t least = available_memory_bytes() / 10 * 9 / ranks_here;
    const tuttiResult_t result = tuttiAllReduce(&least, &least, 1, tuttiUint64, tuttiMin, rank_.own_comm, nullptr);
    if (Status status = to_status(result, "gathering memory sizes", rank_.own_comm); !status.is_ok()) return status;
    return std::size_t{least};
  }

  // Rank 0 says it.
  [[nodiscard]] Status nothing_to_measure(const Problems& found) const {
    if (rank_.rank != 0) return Status::ok();
    std::string text = "there is nothing to measure";
    for (const std::string& note : found.notes) text += fmt::format("; {}", note);
    return Status::invalid_usage(text);
  }

  // Rank 0 may be unable to write anything down, or to draw it. All hear of it before they measure; it alone says why.
  Status begin_report(const std::vector<std::string>& notes) {
    Status status = report_ ? report_->begin(notes) : Status::ok();
    std::uint8_t refused = status.is_ok() ? 0 : 1;
    const tuttiResult_t result = tuttiBroadcast(&refused, &refused, 1, tuttiUint8, 0, rank_.own_comm, nullptr);
    refused_ = refused != 0;
    return status.is_ok() ? to_status(result, "hearing of rank 0's output files", rank_.own_comm) : status;
  }

  Status finish() {
    std::int64_t peak_bytes = peak_memory_bytes();
    const tuttiResult_t result =
        tuttiAllReduce(&peak_bytes, &peak_bytes, 1, tuttiInt64, tuttiMax, rank_.own_comm, nullptr);
    if (Status status = to_status(result, "gathering memory sizes", rank_.own_comm); !status.is_ok()) return status;
    return report_ ? report_->finish(errors_, peak_bytes) : Status::ok();
  }

  Result<Buffers> make_buffers(const std::vector<Problem>& problems) const {
    std::size_t bytes = 0;
    for (const Problem& problem : problems) {
      bytes = std::max(bytes, stride_bytes(problem) * static_cast<std::size_t>(options_.aggregate));
    }
    Result<Buffer> send = Buffer::make(options_.memory, rank_.device, bytes);
    if (!send.is_ok()) return send.status();
    Result<Buffer> recv = Buffer::make(options_.memory, rank_.device, bytes);
    if (!recv.is_ok()) return recv.status();
    return Buffers{std::move(send).value(), std::move(recv).value()};
  }

  Result<Measurement> measure_mode(const Problem& problem, const Buffers& buffers, bool in_place) {
    Result<Measurement> measured = measure(options_, problem, rank_, buffers, in_place, &own_errors_);
    if (measured.is_ok()) errors_ += std::max<std::int64_t>(0, measured->errors);
    return measured;
  }

  // Splits "ALGORITHM over TRANSPORTS", which serve the problem.
  Status explain(const Problem& problem, Row* row) const {
    std::array<char, 128> text{};
    // Of transfers no algorithm; the transports are those of the communicator.
    const Collective* const collective = problem.subject.collective();
    const auto asked = static_cast<tuttiCollective_t>(collective != nullptr ? *collective : Collective::kAllToAll);
    const tuttiResult_t result = tuttiCommExplain(rank_.comm, asked, problem.vector_bytes(), text.data(), text.size());
    Status status = to_status(result, "tuttiCommExplain", rank_.comm);
    // A forced algorithm that does not serve the collective asked for has no say in transfers.
    if (!status.is_ok() && collective != nullptr) return status;
    const std::string plan = text.data();
    const std::size_t over = plan.find(" over ");
    row->algorithm = collective != nullptr ? plan.substr(0, over) : "none";
    row->transport = over == std::string::npos ? "" : plan.substr(over + 6);
    return Status::ok();
  }

  Status measure_row(const Problem& problem, const Buffers& buffers) {
    if (report_) report_->progress(problem);
    Row row;
    row.problem = problem;
    if (Status status = explain(problem, &row); !status.is_ok()) return status;
    Result<Measurement> out_of_place = measure_mode(problem, buffers, false);
    if (!out_of_place.is_ok()) return out_of_place.status();
    row.out_of_place = *out_of_place;
    if (problem.subject.has_in_place()) {
      Result<Measurement> in_place = measure_mode(problem, buffers, true);
      if (!in_place.is_ok()) return in_place.status();
      row.in_place = *in_place;
    }
    return report_ ? report_->add(row) : Status::ok();
  }

  const Options& options_;
  const Rank& rank_;
  std::optional<Report> report_;
  std::int64_t errors_ = 0;
  std::int64_t own_errors_ = 0;
  bool refused_ = false;
};

// With a communicator of the same ranks whose buffers are on devices.
Status run_on_device(const Options& options, Rank& rank, Run& run) {
  auto device = Device::open(rank.rank);
  const std::string name = device.is_ok() ? (*device)->name() : "host";
  // Also of a rank that has none, so that the others do not wait for it: they hear of it then.
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.device = name.c_str();
  Status status =
      to_status(tuttiCommSplit(rank.own_comm, 0, rank.rank, &rank.comm, &config), "tuttiCommSplit", rank.own_comm);
  if (!device.is_ok()) {
    const std::string instead =
        launched_processes() > 1 ? "leave out -g" : fmt::format("use -p {} in place of -g", std::max(rank.ranks, 2));
    status = run.refuse(fmt::format("-g: {}. For buffers in host memory, {}", device.status().message(), instead));
  }
  if (status.is_ok()) {
    rank.device = device->get();
    rank.in_graphs = options.graph_launches > 0;
    status = run.execute();
  }
  const Status destroyed = to_status(tuttiCommDestroy(rank.comm), "tuttiCommDestroy", nullptr);
  rank.comm = rank.own_comm;
  rank.device = nullptr;
  return status.is_ok() ? destroyed : status;
}

Status run_on_stream(const Options& options, Rank& rank, Run& run) {
  if (options.devices > 0) return run_on_device(options, rank, run);
  if (options.blocking) return run.execute();
  if (Status status = to_status(tuttiStreamCreate(&rank.stream), "tuttiStreamCreate", nullptr); !status.is_ok()) {
    return status;
  }
  Status status = run.execute();
  const Status destroyed = to_status(tuttiStreamDestroy(rank.stream), "tuttiStreamDestroy", rank.comm);
  return status.is_ok() ? destroyed : status;
}

int rank_main(const Options& options, tuttiComm_t comm) {
  Rank rank;
  rank.comm = rank.own_comm = comm;
  Status status = to_status(tuttiCommCount(comm, &rank.ranks), "tuttiCommCount", comm);
  if (status.is_ok()) status = to_status(tuttiCommUserRank(comm, &rank.rank), "tuttiCommUserRank", comm);
  Run run(options, rank);
  if (status.is_ok()) status = run_on_stream(options, rank, run);
  // Ranks of one command line are refused for the same reason.
  const bool is_repeated = run.is_refused() && rank.rank > 0 && launched_processes() <= 1;
  if (!status.is_ok() && !is_repeated) {
    std::fprintf(stderr, "error: rank %d: %s\n", rank.rank, status.message().c_str());
  }
  return run.exit_status(status);
}

}  // namespace

int run_program(Subject subject, int argc, char** argv) {
  open_missing_standard_streams();
  const std::variant<Options, int> parsed = parse_options(subject, argc, argv);
  if (const int* status = std::get_if<int>(&parsed)) return *status;
  const Options& options = std::get<Options>(parsed);
  if (options.timeout_s > 0) setenv("TUTTI_TIMEOUT_MS", fmt::format("{}000", options.timeout_s).c_str(), 1);
  return run_ranks(options, [&options](tuttiComm_t comm) { return rank_main(options, comm); });
}

}  // namespace tutti::internal::perf

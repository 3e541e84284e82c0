#include "record.h"

#include <fmt/core.h>
#include <sys/utsname.h>
#include <tutti/tutti.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/config.h"
#include "topology/detect.h"

namespace tutti::internal::perf {
namespace {

constexpr int kSchema = 1;
const char* const kEndOfResults = "\n ],\n";

// Beside those that begin with TUTTI_: what launchers say of the job, and what chooses its devices.
const char* const kVariables[] = {
    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE",     "WORLD_SIZE",           "LOCAL_WORLD_SIZE",
    "SLURM_JOB_ID",         "SLURM_JOB_NODELIST",         "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_NNODES",
    "NCCL_TESTS_MIN_BW",    "CUDA_VISIBLE_DEVICES"};

nlohmann::json machine() {
  utsname names{};
  uname(&names);
  const topology::Machine& here = topology::this_machine();
  return {{"host", names.nodename},
          {"kernel", names.release},
          {"architecture", names.machine},
          {"cpu", here.processor_model.empty() ? "unknown" : here.processor_model},
          {"cores", here.processors.count()}};
}

nlohmann::json environment() {
  nlohmann::json found = nlohmann::json::object();
  for (const std::string& entry : given_variables()) {
    const std::size_t equals = entry.find('=');
    found[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  for (const char* name : kVariables) {
    if (const auto value = environment_variable(name)) found[name] = *value;
  }
  return found;
}

const char* name_of(Average average) {
  switch (average) {
    case Average::kRank0: return "rank 0";
    case Average::kMean: return "mean";
    case Average::kFastest: return "fastest";
    case Average::kSlowest: break;
  }
  return "slowest";
}

nlohmann::json places(const std::vector<RankPlace>& ranks) {
  nlohmann::json list = nlohmann::json::array();
  for (const RankPlace& place : ranks) {
    list.push_back({{"rank", place.rank}, {"host", place.host}, {"pid", place.pid}});
    if (!place.device.empty()) list.back()["device"] = place.device;
  }
  return list;
}

// Bytes that are not UTF-8, of an argument perhaps, are replaced.
std::string text_of(const nlohmann::json& object, int indent) {
  return object.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string library_version() {
  int code = 0;
  if (tuttiGetVersion(&code) != tuttiSuccess) return "unknown";
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

const char* name_of(Memory memory) {
  switch (memory) {
    case Memory::kTutti: return "tutti";
    case Memory::kCuda: return "cuda";
    case Memory::kMalloc: break;
  }
  return "malloc";
}

const char* name_of_calls(const Options& options) {
  if (options.graph_launches > 0) return "graphs";
  return options.blocking ? "blocking" : "stream";
}

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Record::Record(const Options& options, const std::vector<RankPlace>& ranks) : options_(options) {
  const nlohmann::json head = {{"format", "tutti measurement"},
                               {"schema", kSchema},
                               {"version", library_version()},
                               {"started", time_of_day()},
                               {"arguments", options.arguments},
                               {"environment", environment()},
                               {"machine", machine()},
                               {"job", places(ranks)},
                               {"memory", name_of(options.memory)},
                               {"calls", name_of_calls(options)},
                               {"warmup_iterations", options.warmup_iterations},
                               {"aggregate", options.aggregate},
                               {"average", name_of(options.average)}};
  head_ = text_of(head, 1);
  head_.resize(head_.rfind('\n'));  // without the brace at the end
  head_ += ",\n \"results\": [";
}

Status Record::begin() {
  if (!options_.json_path.empty()) {
    Result<OutputFile> opened = OutputFile::open_beside(options_.json_path);
    if (!opened.is_ok()) return opened.status();
    file_.emplace(std::move(opened).value());
  }
  return append(head_, fmt::format("{} \"finished\": null\n}}\n", kEndOfResults));
}

Status Record::add(const nlohmann::json& entry) {
  const char* const separator = std::exchange(has_entries_, true) ? "," : "";
  return append(fmt::format("{}\n  {}", separator, text_of(entry, -1)),
                fmt::format("{} \"finished\": null\n}}\n", kEndOfResults));
}

Status Record::finish(std::int64_t errors, double average_busbw_gbs) {
  const std::string end = text_of({{"errors", options_.checks > 0 ? nlohmann::json(errors) : nlohmann::json()},
                                   {"average_busbw_gbs", average_busbw_gbs},
                                   {"finished", time_of_day()}},
                                  1);
  const std::string rest = kEndOfResults + end.substr(end.find('\n') + 1) + '\n';
  if (Status status = append(rest, ""); !status.is_ok()) return status;
  return file_ ? file_->close() : Status::ok();
}

Status Record::append(const std::string& part, const std::string& end) {
  if (!options_.plot_path.empty()) text_ += part;
  return file_ ? file_->append(part, end) : Status::ok();
}

}  // namespace tutti::internal::perf

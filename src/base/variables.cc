#include "base/variables.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <type_traits>
#include <vector>

#include "base/similar.h"

namespace tutti::internal {
namespace {

constexpr std::int64_t kMaxMs = std::int64_t{1} << 40;

Status unreadable(const SettingValue& value, const std::string& wanted) {
  return Status::invalid_usage(value.name + "=\"" + value.text + "\" is not " + wanted);
}

using Value = SettingValue;

// "a, b or c".
template <std::size_t kCount>
std::string list_words(const std::string_view (&words)[kCount]) {
  std::string list(words[0]);
  for (std::size_t i = 1; i < kCount; ++i) list.append(i + 1 < kCount ? ", " : " or ").append(words[i]);
  return list;
}

template <class T>
Status read_integer(const Value& value, std::int64_t low, std::int64_t high, const std::string& wanted, T* out) {
  const auto number = parse_integer(value.text, low, high);
  if (!number) return unreadable(value, wanted);
  *out = static_cast<T>(*number);
  return {};
}

// Accesses to a field.
template <auto Field>
void copy_field(const Settings& from, Settings* to) {
  to->*Field = from.*Field;
}
template <auto Field>
constexpr Access kText = {[](const Value& value, Settings* s) {
                            s->*Field = value.text;
                            return Status();
                          },
                          [](const Settings& s) { return s.*Field; }, copy_field<Field>};
template <auto Field>
std::string write_number(const Settings& s) {
  return std::to_string(s.*Field);
}
template <auto Field, std::int64_t kLow, std::int64_t kHigh>
constexpr Access kNumber = {[](const Value& value, Settings* s) {
                              const std::string wanted = fmt::format("a number from {} to {}", kLow, kHigh);
                              return read_integer(value, kLow, kHigh, wanted, &(s->*Field));
                            },
                            write_number<Field>, copy_field<Field>};
template <auto Field, std::int64_t kLow>
constexpr Access kMilliseconds = {[](const Value& value, Settings* s) {
                                    const std::string wanted =
                                        fmt::format("a number of milliseconds, {} or more", kLow);
                                    return read_integer(value, kLow, kMaxMs, wanted, &(s->*Field));
                                  },
                                  write_number<Field>, copy_field<Field>};

// One of several words: a value of an enumeration by its number; true by the first of two words, false by the second.
template <class T>
constexpr T value_of_word(std::size_t index) {
  return std::is_same_v<T, bool> ? static_cast<T>(index == 0) : static_cast<T>(index);
}
template <auto Field, const auto& kWords>
constexpr Access kWord = {[](const Value& value, Settings* s) {
                            const auto* const word = std::find(std::begin(kWords), std::end(kWords), value.text);
                            if (word == std::end(kWords)) return unreadable(value, list_words(kWords));
                            using T = std::remove_reference_t<decltype(s->*Field)>;
                            s->*Field = value_of_word<T>(static_cast<std::size_t>(word - std::begin(kWords)));
                            return Status();
                          },
                          [](const Settings& s) {
                            using T = std::remove_cvref_t<decltype(s.*Field)>;
                            std::size_t index = 0;
                            while (value_of_word<T>(index) != s.*Field) ++index;
                            return std::string(kWords[index]);
                          },
                          copy_field<Field>};
constexpr std::string_view kCheckWords[] = {"strict", "off"};
constexpr std::string_view kOnOff[] = {"on", "off"};
constexpr std::string_view kMovesWords[] = {"keep", "own", "start", "move"};
constexpr std::string_view kCrossMemoryWords[] = {"never", "auto", "always"};
constexpr std::string_view kEncryptWords[] = {"off", "on", "wan"};
constexpr std::string_view kBindWords[] = {"none", "core", "numa"};

constexpr Access kPortRange = {
    [](const Value& value, Settings* s) {
      const auto dash = value.text.find('-');
      const auto low = parse_integer(value.text.substr(0, dash), 1, 65535);
      const auto high = dash == std::string::npos ? low : parse_integer(value.text.substr(dash + 1), 1, 65535);
      if (!low || !high || *low > *high) return unreadable(value, "low-high within 1-65535");
      s->port_low = static_cast<int>(*low);
      s->port_high = static_cast<int>(*high);
      return Status();
    },
    [](const Settings& s) { return fmt::format("{}-{}", s.port_low, s.port_high); },
    [](const Settings& from, Settings* to) {
      to->port_low = from.port_low;
      to->port_high = from.port_high;
    }};

constexpr std::string_view kLauncherNames[] = {"plain", "pmix", "pmi1", "torchrun", "slurm"};
constexpr Access kLauncher = {[](const Value& value, Settings* s) {
                                const auto* const end = std::end(kLauncherNames);
                                if (std::find(std::begin(kLauncherNames), end, value.text) == end) {
                                  return unreadable(value, list_words(kLauncherNames));
                                }
                                s->launcher = value.text;
                                return Status();
                              },
                              [](const Settings& s) { return s.launcher; }, copy_field<&Settings::launcher>};

constexpr Decides kEachRank = Decides::kEachRank;
constexpr Decides kRankZero = Decides::kRankZero;
constexpr Variable kVariables[] = {
    {"TUTTI_TRANSPORTS", "allowed transports", kRankZero, &tuttiConfig_t::transports, kText<&Settings::transports>},
    {"TUTTI_INTERFACE", "network interface: prefix eth, exactly =eth0, all but ^lo", kEachRank,
     &tuttiConfig_t::interface, kText<&Settings::interface>, "(by route)"},
    {"TUTTI_PORT_RANGE", "low-high for every listening socket", kEachRank, &tuttiConfig_t::port_range, kPortRange,
     "(any port)"},
    {"TUTTI_TCP_STREAMS", "sockets per pair of ranks, 1 to 16", kEachRank, &tuttiConfig_t::tcp_streams,
     kNumber<&Settings::tcp_streams, 1, 16>, "(1 within a machine, 2 between)"},
    {"TUTTI_VERBS", "RDMA devices and their settings", kEachRank, &tuttiConfig_t::verbs, kText<&Settings::verbs>,
     "(chosen)"},
    {"TUTTI_TIMEOUT_MS", "longest wait without progress in an operation, in milliseconds", kEachRank,
     &tuttiConfig_t::timeout_ms, kMilliseconds<&Settings::timeout_ms, 1>},
    {"TUTTI_INIT_TIMEOUT_MS", "longest time for the whole initialisation, in milliseconds", kEachRank,
     &tuttiConfig_t::init_timeout_ms, kMilliseconds<&Settings::init_timeout_ms, 1>},
    {"TUTTI_NETWORK_TIMEOUT_MS", "milliseconds after which a host that acknowledges nothing counts as gone", kEachRank,
     kNoField, kMilliseconds<&Settings::network_timeout_ms, 1>, "(the longer of both timeouts)"},
    {"TUTTI_RECONNECT_MS",
     "milliseconds in which a broken TCP connection of two ranks must be made anew; 0: it fails at once", kRankZero,
     kNoField, kMilliseconds<&Settings::reconnect_ms, 0>},
    {"TUTTI_WAIT_NOTICE_MS", "milliseconds after which a wait is logged; 0: never", kEachRank,
     &tuttiConfig_t::wait_notice_ms, kMilliseconds<&Settings::wait_notice_ms, 0>},
    {"TUTTI_ALGORITHM", "an algorithm, or COLLECTIVE:ALGORITHM,...", kRankZero, &tuttiConfig_t::algorithm,
     kText<&Settings::algorithm>, "(predicted to be fastest)"},
    {"TUTTI_SCHEDULES", "files of custom algorithms, separated by commas", kEachRank, kNoField,
     kText<&Settings::schedules>, "(none)"},
    {"TUTTI_TOPOLOGY", "a file of `tutti topo --json`: the machines and the ranks on them", kRankZero, kNoField,
     kText<&Settings::topology>, "(none)"},
    {"TUTTI_TUNING", "a file of `tutti tune`: the measured fastest algorithms", kRankZero, kNoField,
     kText<&Settings::tuning>, "(none)"},
    {"TUTTI_AFFINITY",
     "keep, own, start or move: which threads tutti places: none, its own, also callers at first, also callers always",
     kEachRank, &tuttiConfig_t::affinity, kWord<&Settings::moves, kMovesWords>},
    {"TUTTI_PROGRESS_THREADS", "threads of a process that run queued operations, 1 to 64", kEachRank,
     &tuttiConfig_t::progress_threads, kNumber<&Settings::progress_threads, 1, 64>},
    {"TUTTI_CROSS_MEMORY", "auto, always or never: whether ranks read each other's memory", kEachRank,
     &tuttiConfig_t::cross_memory, kWord<&Settings::cross_memory, kCrossMemoryWords>},
    {"TUTTI_CHECK", "strict or off: whether all ranks compare each call", kRankZero, &tuttiConfig_t::check,
     kWord<&Settings::strict, kCheckWords>},
    {"TUTTI_CHECKSUM", "1: each message carries a checksum, and the ranks compare results; 0: neither", kRankZero,
     kNoField, kNumber<&Settings::checksum, 0, 1>},
    {"TUTTI_ENCRYPT",
     "off, on or wan: which connections are encrypted: none, all, or those that leave the host's networks", kRankZero,
     &tuttiConfig_t::encrypt, kWord<&Settings::encrypt, kEncryptWords>},
    {"TUTTI_SURVIVORS", "on or off: whether collectives go on without ranks that die", kRankZero,
     &tuttiConfig_t::survivors, kWord<&Settings::survivors, kOnOff>},
    {"TUTTI_STRAGGLER_MS", "milliseconds after which survivor mode leaves out a late rank; 0: never", kRankZero,
     &tuttiConfig_t::straggler_ms, kMilliseconds<&Settings::straggler_ms, 0>},
    {"TUTTI_LOG", "error, warn, info or debug", kEachRank, kNoField, kNotASetting, "warn"},
    {"TUTTI_FLIGHT_RECORDER", "a folder in which the last events of each process stay if it fails or is killed",
     kEachRank, kNoField, kNotASetting, "(none)"},
    {"TUTTI_TRACE", "a folder in which each process writes all its operations with their times", kEachRank, kNoField,
     kNotASetting, "(none)"},
    {"TUTTI_RAS_ADDR", "host:port or unix:path where each process tells the status of the job", kEachRank, kNoField,
     kNotASetting, "(none)"},
    {"TUTTI_BIND", "none, core or numa: binds the thread that makes a communicator", kEachRank, kNoField,
     kWord<&Settings::bind, kBindWords>},
    {"TUTTI_LAUNCHER", "plain, pmix, pmi1, torchrun or slurm: the launcher whose job to join", kEachRank, kNoField,
     kLauncher, "(the one that started the process)"},
    {"TUTTI_LOCAL_RANK", "for TUTTI_BIND: local rank of this process on its machine", kEachRank, kNoField, kNotASetting,
     "(by launcher)"},
    {"TUTTI_LOCAL_SIZE", "for TUTTI_BIND: number of the job's processes on this machine", kEachRank, kNoField,
     kNotASetting, "(by launcher)"},
    {"TUTTI_METRICS", "prom:DIR, http:ADDRESS, json:DIR, unix:PATH: where metrics of the running job go", kEachRank,
     kNoField, kNotASetting, "(nowhere)"},
    {"TUTTI_METRICS_INTERVAL_MS", "milliseconds from one writing of metrics to the next", kEachRank, kNoField,
     kNotASetting, "10000"},
    {"TUTTI_LIBRARY", "Python module: path of libtutti.so", kEachRank, kNoField, kNotASetting, "(searched)"},
    {"TUTTI_RANK", "rank of this process, without a launcher", kEachRank, kNoField, kNotASetting, "(by launcher)"},
    {"TUTTI_WORLD_SIZE", "number of ranks, without a launcher", kEachRank, kNoField, kNotASetting, "(by launcher)"},
    {"TUTTI_ROOT", "host:port where rank 0 listens for the others, without a launcher", kEachRank, kNoField,
     kNotASetting, "(by launcher)"},
    {"TUTTI_SECRET", "a secret that a process must know to join", kEachRank, kNoField, kNotASetting, "(none)"},
    {"TUTTI_MPI", "MPI binding: off passes every call to the MPI library", kEachRank, kNoField, kNotASetting, "on"},
    {"TUTTI_MPI_AFTER", "MPI binding: number of collectives of a communicator that go to the MPI library first",
     kEachRank, kNoField, kNotASetting, "32"},
    {"TUTTI_MPI_NONBLOCKING", "MPI binding: size in bytes from which tutti takes nonblocking calls", kEachRank,
     kNoField, kNotASetting, "65536"},
    {"TUTTI_MPI_SUMMARY", "MPI binding: 1 prints at the end how many calls tutti took", kEachRank, kNoField,
     kNotASetting, "0"},
};

// Names of other libraries, or likely wrong names, that are not similar by their letters.
struct Alias {
  std::string_view name;
  std::string_view meant;
};
constexpr auto kAliases = std::to_array<Alias>({
    {"TUTTI_SOCKET_IFNAME", "TUTTI_INTERFACE"},
    {"TUTTI_IFNAME", "TUTTI_INTERFACE"},
    {"TUTTI_IB_HCA", "TUTTI_VERBS"},
    {"TUTTI_ALGO", "TUTTI_ALGORITHM"},
    {"TUTTI_DEBUG", "TUTTI_LOG"},
    {"TUTTI_LOG_LEVEL", "TUTTI_LOG"},
    {"TUTTI_RAS_ADDRESS", "TUTTI_RAS_ADDR"},
    {"TUTTI_SIZE", "TUTTI_WORLD_SIZE"},
    {"TUTTI_RANKS", "TUTTI_WORLD_SIZE"},
    {"TUTTI_NRANKS", "TUTTI_WORLD_SIZE"},
    {"TUTTI_NUM_RANKS", "TUTTI_WORLD_SIZE"},
    {"TUTTI_MASTER_ADDR", "TUTTI_ROOT"},
    {"TUTTI_ROOT_ADDR", "TUTTI_ROOT"},
    {"TUTTI_TOPO_FILE", "TUTTI_TOPOLOGY"},
    {"TUTTI_DUMP_DIR", "TUTTI_FLIGHT_RECORDER"},
});

}  // namespace

std::span<const Variable> variables() {
  return kVariables;
}

const Variable* find_variable(std::string_view name) {
  const Variable* const found =
      std::find_if(std::begin(kVariables), std::end(kVariables), [&](const Variable& v) { return v.name == name; });
  return found == std::end(kVariables) ? nullptr : found;
}

std::string fallback_of(const Variable& variable) {
  return variable.fallback.empty() ? variable.access.write(Settings()) : std::string(variable.fallback);
}

std::string tell_decided(const Settings& settings) {
  const Settings defaults;
  std::string told;
  for (const Variable& variable : kVariables) {
    if (variable.decides != kRankZero) continue;
    const std::string value = variable.access.write(settings);
    if (value != variable.access.write(defaults)) told.append(variable.name).append("=").append(value) += '\0';
  }
  return told;
}

Status hear_decided(std::string_view told, Settings* settings) {
  inherit_decided(Settings(), settings);
  while (!told.empty()) {
    const std::string_view entry = told.substr(0, told.find('\0'));
    const std::string_view name = entry.substr(0, entry.find('='));
    const Variable* const variable = find_variable(name);
    if (variable == nullptr || variable->decides != kRankZero || entry.size() == told.size() || name == entry) {
      return Status::remote("protocol error: rank 0's settings cannot be read");
    }
    const std::string text(entry.substr(name.size() + 1));
    if (Status s = variable->access.read({fmt::format("rank 0's {}", name), text}, settings); !s.is_ok()) {
      return s.with_code(Code::kRemoteError);
    }
    told.remove_prefix(entry.size() + 1);
  }
  return {};
}

void inherit_decided(const Settings& from, Settings* settings) {
  for (const Variable& variable : kVariables) {
    if (variable.decides == kRankZero) variable.access.copy(from, settings);
  }
}

std::string field_of(const Variable& variable) {
  std::string field(variable.name.substr(kVariablePrefix.size()));
  for (char& c : field) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return field;
}

std::string_view probably_meant(std::string_view name) {
  const auto* const alias =
      std::find_if(kAliases.begin(), kAliases.end(), [&](const Alias& each) { return each.name == name; });
  if (alias != kAliases.end()) return alias->meant;
  // All names share the prefix; in the short names after it, only few letters may be wrong.
  const auto behind = [&](std::string_view text) {
    return text.starts_with(kVariablePrefix) ? text.substr(kVariablePrefix.size()) : text;
  };
  std::vector<std::string_view> names;
  for (const Variable& each : kVariables) names.push_back(behind(each.name));
  const std::string_view similar = most_similar(behind(name), names);
  const Variable* const meant = std::find_if(std::begin(kVariables), std::end(kVariables),
                                             [&](const Variable& each) { return behind(each.name) == similar; });
  return meant == std::end(kVariables) ? std::string_view() : meant->name;
}

}  // namespace tutti::internal

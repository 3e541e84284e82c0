#include "base/variables.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <utility>
#include <vector>

#include "base/similar.h"

namespace tutti::internal {
namespace {

constexpr std::int64_t kMaxMs = std::int64_t{1} << 40;

Status unreadable(const SettingValue& value, const std::string& wanted) {
  return Status::invalid_usage(value.name + "=\"" + value.text + "\" is not " + wanted);
}

using Value = SettingValue;

constexpr std::array<std::string_view, 5> kLauncherNames = {"plain", "pmix", "pmi1", "torchrun", "slurm"};

Status read_launcher(const Value& value, Settings* s) {
  if (std::find(kLauncherNames.begin(), kLauncherNames.end(), value.text) == kLauncherNames.end()) {
    return unreadable(value, "plain, pmix, pmi1, torchrun or slurm");
  }
  s->launcher = value.text;
  return {};
}

template <class T>
Status read_integer(const Value& value, std::int64_t low, std::int64_t high, const char* wanted, T* out) {
  const auto number = parse_integer(value.text, low, high);
  if (!number) return unreadable(value, wanted);
  *out = static_cast<T>(*number);
  return {};
}

// One of two words.
Status read_choice(const Value& value, std::string_view yes, std::string_view no, bool* out) {
  if (value.text != yes && value.text != no) return unreadable(value, std::string(yes).append(" or ").append(no));
  *out = value.text == yes;
  return {};
}

// One of several, by T's values.
template <class T, std::size_t kWords>
Status read_choice(const Value& value, const std::string_view (&words)[kWords], T* out) {
  const auto* const word = std::find(std::begin(words), std::end(words), value.text);
  if (word == std::end(words)) {
    std::string known(words[0]);
    for (std::size_t i = 1; i < kWords; ++i) known.append(i + 1 < kWords ? ", " : " or ").append(words[i]);
    return unreadable(value, known);
  }
  *out = static_cast<T>(word - words);
  return {};
}

Status read_port_range(const Value& value, Settings* s) {
  const auto dash = value.text.find('-');
  const auto low = parse_integer(value.text.substr(0, dash), 1, 65535);
  const auto high = dash == std::string::npos ? low : parse_integer(value.text.substr(dash + 1), 1, 65535);
  if (!low || !high || *low > *high) return unreadable(value, "low-high within 1-65535");
  s->port_low = static_cast<int>(*low);
  s->port_high = static_cast<int>(*high);
  return {};
}

template <auto Field>
Status take_text(const Value& value, Settings* s) {
  s->*Field = value.text;
  return {};
}
template <auto Field>
void reset_field(const Settings& defaults, Settings* s) {
  s->*Field = defaults.*Field;
}
template <auto Field, std::int64_t kLow>
Status read_ms(const Value& value, Settings* s) {
  const char* const wanted = kLow == 0 ? "a number of milliseconds, 0 or more" : "a number of milliseconds, 1 or more";
  return read_integer(value, kLow, kMaxMs, wanted, &(s->*Field));
}

constexpr Variable kVariables[] = {
    {"TUTTI_TRANSPORTS", "shm,verbs,tcp", "allowed transports", Decides::kRankZero, &tuttiConfig_t::transports,
     take_text<&Settings::transports>, reset_field<&Settings::transports>},
    {"TUTTI_INTERFACE", "(by route)", "network interface: prefix eth, exactly =eth0, all but ^lo", Decides::kEachRank,
     &tuttiConfig_t::interface, take_text<&Settings::interface>, reset_field<&Settings::interface>},
    {"TUTTI_PORT_RANGE", "(any port)", "low-high for every listening socket", Decides::kEachRank,
     &tuttiConfig_t::port_range, read_port_range,
     [](const Settings& defaults, Settings* s) {
       s->port_low = defaults.port_low;
       s->port_high = defaults.port_high;
     }},
    {"TUTTI_TCP_STREAMS", "(1 within a machine, 2 between)", "sockets per pair of ranks, 1 to 16", Decides::kEachRank,
     &tuttiConfig_t::tcp_streams,
     [](const Value& v, Settings* s) { return read_integer(v, 1, 16, "a number from 1 to 16", &s->tcp_streams); },
     reset_field<&Settings::tcp_streams>},
    {"TUTTI_VERBS", "(chosen)", "RDMA devices and their settings", Decides::kEachRank, &tuttiConfig_t::verbs,
     take_text<&Settings::verbs>, reset_field<&Settings::verbs>},
    {"TUTTI_TIMEOUT_MS", "1800000", "longest wait without progress in an operation, in milliseconds",
     Decides::kEachRank, &tuttiConfig_t::timeout_ms, read_ms<&Settings::timeout_ms, 1>,
     reset_field<&Settings::timeout_ms>},
    {"TUTTI_INIT_TIMEOUT_MS", "300000", "longest time for the whole initialisation, in milliseconds",
     Decides::kEachRank, &tuttiConfig_t::init_timeout_ms, read_ms<&Settings::init_timeout_ms, 1>,
     reset_field<&Settings::init_timeout_ms>},
    {"TUTTI_NETWORK_TIMEOUT_MS",
     "(the longer of both timeouts)",
     "milliseconds after which a host that acknowledges nothing counts as gone",
     Decides::kEachRank,
     {},
     read_ms<&Settings::network_timeout_ms, 1>,
     reset_field<&Settings::network_timeout_ms>},
    {"TUTTI_WAIT_NOTICE_MS", "10000", "milliseconds after which a wait is logged; 0: never", Decides::kEachRank,
     &tuttiConfig_t::wait_notice_ms, read_ms<&Settings::wait_notice_ms, 0>, reset_field<&Settings::wait_notice_ms>},
    {"TUTTI_ALGORITHM", "(predicted to be fastest)", "an algorithm, or COLLECTIVE:ALGORITHM,...", Decides::kRankZero,
     &tuttiConfig_t::algorithm, take_text<&Settings::algorithm>, reset_field<&Settings::algorithm>},
    {"TUTTI_SCHEDULES",
     "(none)",
     "files of custom algorithms, separated by commas",
     Decides::kEachRank,
     {},
     take_text<&Settings::schedules>,
     reset_field<&Settings::schedules>},
    {"TUTTI_TOPOLOGY",
     "(none)",
     "a file of `tutti topo --json`: the machines and the ranks on them",
     Decides::kRankZero,
     {},
     take_text<&Settings::topology>,
     reset_field<&Settings::topology>},
    {"TUTTI_TUNING",
     "(none)",
     "a file of `tutti tune`: the measured fastest algorithms",
     Decides::kRankZero,
     {},
     take_text<&Settings::tuning>,
     reset_field<&Settings::tuning>},
    {"TUTTI_AFFINITY", "own",
     "keep, own, start or move: which threads tutti places: none, its own, also callers at first, also callers always",
     Decides::kEachRank, &tuttiConfig_t::affinity,
     [](const Value& v, Settings* s) {
       return read_choice(v, {"keep", "own", "start", "move"}, &s->moves);
     },
     reset_field<&Settings::moves>},
    {"TUTTI_PROGRESS_THREADS", "1", "threads of a process that run queued operations, 1 to 64", Decides::kEachRank,
     &tuttiConfig_t::progress_threads,
     [](const Value& v, Settings* s) { return read_integer(v, 1, 64, "a number from 1 to 64", &s->progress_threads); },
     reset_field<&Settings::progress_threads>},
    {"TUTTI_CROSS_MEMORY", "auto", "auto, always or never: whether ranks read each other's memory", Decides::kEachRank,
     &tuttiConfig_t::cross_memory,
     [](const Value& v, Settings* s) {
       return read_choice(v, {"never", "auto", "always"}, &s->cross_memory);
     },
     reset_field<&Settings::cross_memory>},
    {"TUTTI_CHECK", "off", "strict or off: whether all ranks compare each call", Decides::kRankZero,
     &tuttiConfig_t::check, [](const Value& v, Settings* s) { return read_choice(v, "strict", "off", &s->strict); },
     reset_field<&Settings::strict>},
    {"TUTTI_LOG", "warn", "error, warn, info or debug", Decides::kEachRank},
    {"TUTTI_BIND",
     "none",
     "none, core or numa: binds the thread that makes a communicator",
     Decides::kEachRank,
     {},
     [](const Value& v, Settings* s) {
       return read_choice(v, {"none", "core", "numa"}, &s->bind);
     },
     reset_field<&Settings::bind>},
    {"TUTTI_LAUNCHER",
     "(the one that started the process)",
     "plain, pmix, pmi1, torchrun or slurm: the launcher whose job to join",
     Decides::kEachRank,
     {},
     read_launcher,
     reset_field<&Settings::launcher>},
    {"TUTTI_LOCAL_RANK", "(by launcher)", "for TUTTI_BIND: local rank of this process on its machine",
     Decides::kEachRank},
    {"TUTTI_LOCAL_SIZE", "(by launcher)", "for TUTTI_BIND: number of the job's processes on this machine",
     Decides::kEachRank},
    {"TUTTI_LIBRARY", "(searched)", "Python module: path of libtutti.so", Decides::kEachRank},
    {"TUTTI_RANK", "(by launcher)", "rank of this process, without a launcher", Decides::kEachRank},
    {"TUTTI_WORLD_SIZE", "(by launcher)", "number of ranks, without a launcher", Decides::kEachRank},
    {"TUTTI_ROOT", "(by launcher)", "host:port where rank 0 listens for the others, without a launcher",
     Decides::kEachRank},
    {"TUTTI_SECRET", "(none)", "a secret that a process must know to join", Decides::kEachRank},
    {"TUTTI_MPI", "on", "MPI binding: off passes every call to the MPI library", Decides::kEachRank},
    {"TUTTI_MPI_AFTER", "32", "MPI binding: number of collectives of a communicator that go to the MPI library first",
     Decides::kEachRank},
    {"TUTTI_MPI_NONBLOCKING", "65536", "MPI binding: size in bytes from which tutti takes nonblocking calls",
     Decides::kEachRank},
    {"TUTTI_MPI_SUMMARY", "0", "MPI binding: 1 prints at the end how many calls tutti took", Decides::kEachRank},
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
    {"TUTTI_SIZE", "TUTTI_WORLD_SIZE"},
    {"TUTTI_RANKS", "TUTTI_WORLD_SIZE"},
    {"TUTTI_NRANKS", "TUTTI_WORLD_SIZE"},
    {"TUTTI_NUM_RANKS", "TUTTI_WORLD_SIZE"},
    {"TUTTI_MASTER_ADDR", "TUTTI_ROOT"},
    {"TUTTI_ROOT_ADDR", "TUTTI_ROOT"},
    {"TUTTI_TOPO_FILE", "TUTTI_TOPOLOGY"},
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

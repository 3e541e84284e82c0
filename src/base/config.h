// The environment, read in one place. Every variable that tutti knows is a field here or is read by the launcher
// detection (join/launch/environment.cc) through environment_variable(). base/variables.h has the names of all of
// tutti's variables.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tutti::internal {

// RDMA if both sides of a pair have it. Any other list with verbs requests it: then a rank that cannot use it logs a
// warning.
inline constexpr const char* kDefaultTransports = "shm,verbs,tcp";

// When a rank reads the memory of other processes of its machine, from less to more.
enum class MemoryReads : std::uint8_t { kNever, kAuto, kAlways };

// The processors to which a rank binds the joining thread: any, those of one core, or those of one NUMA node.
enum class Bind : std::uint8_t { kNone, kCore, kNuma };

// The threads that the library moves between processors: none; its own; also its callers, in the first second of a
// communicator; also its callers, at any time.
enum class Moves : std::uint8_t { kNone, kOwn, kStart, kAll };

// Which connections between processes are encrypted: none; all; those that leave the networks of the host.
enum class Encryption : std::uint8_t { kOff, kOn, kWan };

struct Settings {
  std::string transports = kDefaultTransports;  // TUTTI_TRANSPORTS: allowed transports, in any order
  std::string interface;  // TUTTI_INTERFACE: name prefix ("eth", "=eth0" exactly, "^lo" not), empty: by route
  int port_low = 0;       // TUTTI_PORT_RANGE=low-high: for every listening socket; 0: any port
  int port_high = 0;
  int tcp_streams = 0;       // TUTTI_TCP_STREAMS: sockets per pair of ranks; 0: depends on the route
  int progress_threads = 1;  // TUTTI_PROGRESS_THREADS: threads of the process that run queued operations
  std::int64_t timeout_ms = 30 * 60 * 1000;      // TUTTI_TIMEOUT_MS: of every wait in an operation
  std::int64_t init_timeout_ms = 5 * 60 * 1000;  // TUTTI_INIT_TIMEOUT_MS: of the whole initialisation
  std::int64_t network_timeout_ms = 0;           // TUTTI_NETWORK_TIMEOUT_MS: see silence_limit_ms(); 0: from the other
                                                 // timeouts
  std::int64_t reconnect_ms = 0;  // TUTTI_RECONNECT_MS: for making a broken TCP connection of two ranks anew; 0: never
  std::int64_t wait_notice_ms = 10 * 1000;  // TUTTI_WAIT_NOTICE_MS: then a wait is logged; 0: never
  std::string algorithm;                    // TUTTI_ALGORITHM: "ring", or "all_reduce:ring,broadcast:chain"
  std::string tuning;                       // TUTTI_TUNING: a file of `tutti tune`; rank 0's applies; empty: none
  std::string topology;       // TUTTI_TOPOLOGY: a file of `tutti topo --json`; rank 0's applies; empty: none
  std::string schedules;      // TUTTI_SCHEDULES: files of schedules, separated by commas; the same on every rank
  Moves moves = Moves::kOwn;  // TUTTI_AFFINITY: "keep", "own", "start" or "move"
  bool strict = false;     // TUTTI_CHECK: "strict" or "off": whether every call is compared on all ranks before it runs
  bool survivors = false;  // TUTTI_SURVIVORS: "on" or "off": whether collectives go on without ranks that die
  Encryption encrypt = Encryption::kOff;  // TUTTI_ENCRYPT: "off", "on" or "wan"
  // TUTTI_CHECKSUM: whether each message between two ranks carries a checksum, and results that are alike on all ranks
  // are compared
  bool checksum = false;
  // TUTTI_STRAGGLER_MS: then a late rank is left out, if `survivors`; 0: never
  std::int64_t straggler_ms = 0;
  MemoryReads cross_memory = MemoryReads::kAuto;  // TUTTI_CROSS_MEMORY: "never", "auto" (where it is fast), "always"
  Bind bind = Bind::kNone;                        // TUTTI_BIND: "none", "core" or "numa"
  std::string device;  // whose memory buffers are in, read by memory/device_name.h: the program's to say, no variable's
  std::string launcher;  // TUTTI_LAUNCHER: whose job tuttiCommInitEnv joins: "torchrun"; empty: the last that started
  std::string verbs;     // TUTTI_VERBS: key=value pairs for RDMA, read by transport/verbs/options.h
};

// A host that acknowledges nothing for this time counts as failed: TUTTI_NETWORK_TIMEOUT_MS, by default the longer of
// the two timeouts, so that an outage that operations survive does not end the job. A timeout of INT_MAX is ignored.
[[nodiscard]] std::int64_t silence_limit_ms(const Settings& settings);

// Defaults, overridden by the environment. An unreadable value is kInvalidUsage and names the variable. The first
// call of a process warns of unknown_variables().
Result<Settings> settings_from_environment();

// Sets the setting of the variable `variable` to `value`, or to its default if `value` is empty. An invalid value is
// kInvalidUsage (NAME="VALUE" is not ...) and changes nothing. `name`: the setting's name in the error. REQUIRES:
// Settings has a field for `variable`.
Status apply_setting(std::string_view variable, const std::string& name, const std::string& value, Settings* settings);

// The only other way to the environment. Empty values count as unset.
std::optional<std::string> environment_variable(const char* name);
inline bool environment_has(const char* name) {
  return environment_variable(name).has_value();
}

// A variable of the environment that begins with TUTTI_ and is unknown.
struct UnknownVariable {
  std::string name;
  std::string meant;  // the probably intended name; empty: no name is similar
};
std::vector<UnknownVariable> unknown_names();

// Whether the value of the variable is valid: kInvalidUsage has the reason. A variable without a field in Settings is
// valid, except TUTTI_LOG.
Status check_variable(std::string_view variable, const std::string& value);

// A sentence for each variable of the environment that begins with TUTTI_ and is unknown, probably misspelt, and for a
// TUTTI_LOG that is not a level: an invalid log level must not fail a job.
std::vector<std::string> unknown_variables();

// The variables of the environment that begin with TUTTI_, as "TUTTI_LOG=info", in the order of their names; without
// the value of a secret.
std::vector<std::string> given_variables();

// The whole of `text` as a decimal integer in [low, high], or nothing.
std::optional<std::int64_t> parse_integer(const std::string& text, std::int64_t low, std::int64_t high);

}  // namespace tutti::internal

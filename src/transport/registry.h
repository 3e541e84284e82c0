// The list of transports.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/ranks.h"

namespace tutti::internal {

// One line of the registry.
struct TransportEntry {
  std::string_view name;       // as TUTTI_TRANSPORTS has it; an option may follow behind a colon
  std::string_view spellings;  // all that may stand there, for messages: "shm, shm:netns"
  // Null: it has no such option. `asked`: the setting names it; it is not only part of the default.
  std::shared_ptr<Transport> (*make)(const std::optional<std::string>& option, bool asked);
};

// The library's transports, best first.
std::span<const TransportEntry> standard_transports();
// The transports that TUTTI_TRANSPORTS may name: the standard ones (registered.cc). A program that links another
// definition of this function can have more, as the tests do (tests/sim/registry.cc).
std::span<const TransportEntry> registered_transports();

// `text`: names from the registry, with commas between. kInvalidUsage quotes it after `name`, what the setting is
// called, and says what is wrong.
Result<Transports> parse_transports(const std::string& text, std::string_view name = "TUTTI_TRANSPORTS");

}  // namespace tutti::internal

#include "communicator/transports.h"

#include <array>
#include <sstream>

#include "base/config.h"

namespace tutti::internal {
namespace {

using Option = std::optional<std::string>;

bool allow_shm(const Option& option, Transports* transports) {
  transports->shm = true;
  if (option.has_value()) transports->shm_within_namespace_only = true;
  return option.value_or("netns") == "netns";
}

bool allow_verbs(const Option& option, Transports* transports) {
  transports->verbs = true;
  return !option.has_value();
}

bool allow_tcp(const Option& option, Transports* transports) {
  transports->tcp = true;
  return !option.has_value();
}

constexpr std::array<TransportEntry, 3> kStandard = {{
    {"shm", "shm, shm:netns", allow_shm},
    {"verbs", "verbs", allow_verbs},
    {"tcp", "tcp", allow_tcp},
}};

bool allow(const std::string& word, Transports* transports) {
  const std::size_t colon = word.find(':');
  const Option option = colon == std::string::npos ? Option() : word.substr(colon + 1);
  for (const TransportEntry& entry : registered_transports()) {
    if (word.substr(0, colon) == entry.name) return entry.allow(option, transports);
  }
  return false;
}

std::string all_spellings() {
  std::string text;
  for (const TransportEntry& entry : registered_transports()) {
    if (!text.empty()) text += ", ";
    text += entry.spellings;
  }
  return text;
}

}  // namespace

std::span<const TransportEntry> standard_transports() {
  return kStandard;
}

Result<Transports> parse_transports(const std::string& text) {
  const auto unusable = [&](const std::string& why) {
    return Status::invalid_usage("transports \"" + text + "\" (TUTTI_TRANSPORTS or the configuration): " + why);
  };
  Transports t;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    if (!allow(word, &t)) return unusable("\"" + word + "\" is none of " + all_spellings());
  }
  t.verbs_asked = t.verbs && text != kDefaultTransports;
  const bool some = t.shm || t.verbs || t.tcp;
  if (!some && t.network.empty()) return unusable("none is named");
  if (some && !t.network.empty()) return unusable(std::string(t.network) + " stands alone");
  return t;
}

}  // namespace tutti::internal

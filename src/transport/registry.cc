#include "transport/registry.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "transport/adapter.h"
#include "transport/shm/adapter.h"
#include "transport/tcp/adapter.h"
#include "transport/verbs/adapter.h"

namespace tutti::internal {
namespace {

constexpr std::array<TransportEntry, 3> kStandard = {{
    {"shm", "shm, shm:netns", make_shm_transport},
    {"verbs", "verbs", make_verbs_transport},
    {"tcp", "tcp", make_tcp_transport},
}};

// "shm:netns". Sets the entry's transport in *by_entry; false if there is no such thing.
bool allow(const std::string& word, bool asked, Transports* by_entry) {
  const std::size_t colon = word.find(':');
  const auto option = colon == std::string::npos ? std::optional<std::string>() : word.substr(colon + 1);
  const auto entries = registered_transports();
  const auto entry =
      std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.name == word.substr(0, colon); });
  if (entry == entries.end()) return false;
  auto& transport = (*by_entry)[static_cast<std::size_t>(entry - entries.begin())];
  transport = entry->make(option, asked);
  return transport != nullptr;
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

Result<Transports> parse_transports(const std::string& text, std::string_view name) {
  const auto unusable = [&](const std::string& why) {
    return Status::invalid_usage(fmt::format("{}=\"{}\": {}", name, text, why));
  };
  Transports transports(registered_transports().size());
  // An empty word follows a last comma, too.
  std::istringstream words(text.ends_with(',') ? text + ',' : text);
  for (std::string word; std::getline(words, word, ',');) {
    if (!allow(word, text != kDefaultTransports, &transports)) {
      return unusable(fmt::format("\"{}\" is not one of {}", word, all_spellings()));
    }
  }
  std::erase(transports, nullptr);
  if (transports.empty()) return unusable("the list is empty");
  for (const auto& transport : transports) {
    if (transports.size() > 1 && !transport->connects_by()) {
      return unusable(fmt::format("{} cannot be combined with other transports", transport->name()));
    }
  }
  return transports;
}

}  // namespace tutti::internal

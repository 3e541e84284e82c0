#include "names.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "algorithms/catalog.h"
#include "algorithms/loaded.h"
#include "base/collectives.h"
#include "base/config.h"
#include "base/similar.h"

namespace tutti::internal::tools {

namespace {

std::string first_collectives(int count) {
  std::string text;
  for (int c = 0; c < count; ++c) {
    if (c > 0) text += ", ";
    text += name_of(static_cast<Collective>(c));
  }
  return text;
}

}  // namespace

std::string all_collectives() {
  return first_collectives(kCollectives);
}

std::string uniform_collectives() {
  return first_collectives(kUniformCollectives);
}

Result<Collective> parse_collective(const std::string& name) {
  if (const auto collective = collective_named(name)) return *collective;
  std::vector<std::string_view> names;
  for (const CollectiveInfo& info : kCollectiveTable) names.emplace_back(info.name);
  const std::string meant = meant_text(name, names);
  return Status::invalid_argument(
      fmt::format("no collective \"{}\"{}", name, meant.empty() ? "; there are " + all_collectives() : meant));
}

Result<algorithms::Hosts> parse_hosts(const std::string& sizes, int ranks) {
  algorithms::Hosts::Lists hosts;
  if (sizes.empty()) return algorithms::Hosts();
  std::istringstream words(sizes);
  int next = 0;
  for (std::string word; std::getline(words, word, ',');) {
    const auto size = parse_integer(word, 1, ranks);
    if (!size.has_value()) {
      return Status::invalid_argument(fmt::format("--hosts: \"{}\" is not a number from 1 to {}", word, ranks));
    }
    hosts.emplace_back();
    for (int i = 0; i < *size; ++i) hosts.back().push_back(next++);
  }
  if (next != ranks || sizes.back() == ',') {
    return Status::invalid_argument(
        fmt::format("--hosts: the ranks of each host, {}, must add up to {}", sizes, ranks));
  }
  return algorithms::Hosts(std::move(hosts));
}

Result<algorithms::World> parse_world(const std::string& sizes, int most_ranks) {
  std::istringstream words(sizes);
  std::int64_t ranks = 0;
  for (std::string word; std::getline(words, word, ',');) {
    // parse_hosts() below reports a word that is not a number.
    ranks += parse_integer(word, 1, most_ranks).value_or(0);
    if (ranks > most_ranks) {
      return Status::invalid_argument(fmt::format("--hosts: {} are more than {} ranks", sizes, most_ranks));
    }
  }
  auto hosts = parse_hosts(sizes, ranks > 0 ? static_cast<int>(ranks) : most_ranks);
  if (!hosts.is_ok()) return hosts.status();
  return algorithms::World{static_cast<int>(ranks), std::move(*hosts)};
}

std::string known_algorithms(std::optional<Collective> collective) {
  return algorithms::known_names(
      [&](const algorithms::AlgorithmEntry& entry) { return !collective || entry.collective == *collective; });
}

Status fit_size(Collective collective, std::uint64_t* bytes) {
  if (*bytes > std::uint64_t{1} << 50) return Status::invalid_argument("--size: is more than 1P");
  if (!info_of(collective).has_data) *bytes = 0;
  return {};
}

bool names_file(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".json");
}

Result<const algorithms::AlgorithmEntry*> entry_of(const std::string& name_or_file, const std::string& collective) {
  if (names_file(name_or_file)) {
    auto program = algorithms::Program::read(name_or_file);
    if (!program.is_ok()) return program.status();
    const algorithms::AlgorithmEntry* entry = algorithms::keep(std::move(*program));
    if (entry == nullptr)
      return Status::invalid_argument(name_or_file +
                                      ": name: is already the name of an algorithm of the library or of another file");
    if (Status s = algorithms::prove_samples(*entry); !s.is_ok()) {
      return s.with_code(Code::kInvalidArgument).with_context(name_or_file);
    }
    return entry;
  }
  const Result<Collective> of = parse_collective(collective);
  if (!of.is_ok()) return of.status();
  const algorithms::AlgorithmEntry* entry = algorithms::find(of.value(), name_or_file);
  if (entry == nullptr) return no_algorithm(name_or_file, of.value());
  return entry;
}

Status no_algorithm(const std::string& name, std::optional<Collective> collective) {
  std::string others;
  for (const CollectiveInfo& info : kCollectiveTable) {
    if (algorithms::find(info.collective, name) == nullptr) continue;
    others += fmt::format("{}{}", others.empty() ? "" : ", ", info.name);
  }
  const auto serves = [&](const algorithms::AlgorithmEntry& e) { return !collective || e.collective == *collective; };
  const std::string meant = others.empty() ? algorithms::meant_name(name, serves) : "";
  return Status::invalid_argument(
      fmt::format("no algorithm \"{}\"{}{}{}{}", name, collective ? fmt::format(" for {}", name_of(*collective)) : "",
                  meant.empty() ? "; there are " : meant + " There are ", known_algorithms(collective),
                  others.empty() ? "" : fmt::format("; with --collective it is one of {}", others)));
}

}  // namespace tutti::internal::tools

#include "selection/select.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <sstream>
#include <vector>

#include "base/similar.h"

namespace tutti::internal::selection {
namespace {

using algorithms::AlgorithmEntry;
using schedule::Order;

bool keeps(const AlgorithmEntry& entry, const algorithms::World& world, Order order) {
  return order == Order::kAny || algorithms::order_of(entry, world) == order;
}

// Rank 0's value may come from the variable or from the configuration.
Status unusable(const std::string& forced, const std::string& why) {
  return Status::invalid_usage(
      fmt::format("TUTTI_ALGORITHM=\"{}\" (or the configuration's algorithm): {}", forced, why));
}

// A word of TUTTI_ALGORITHM: NAME or COLLECTIVE:NAME; NAME may have a parameter after a colon.
struct Word {
  std::string text;
  std::optional<std::string> collective;  // none: wherever it exists
  std::string name;
};

std::vector<Word> words_of(const std::string& forced) {
  std::vector<Word> words;
  // After a last comma there is an empty word.
  std::istringstream stream(forced.ends_with(',') ? forced + ',' : forced);
  for (std::string word; std::getline(stream, word, ',');) {
    const auto colon = word.find(':');
    const std::string first = word.substr(0, colon);
    if (colon == std::string::npos || algorithms::takes_parameter(first)) {
      words.push_back({word, std::nullopt, word});
    } else {
      words.push_back({word, first, word.substr(colon + 1)});
    }
  }
  return words;
}

bool exists(Collective collective, const std::string& name) {
  return algorithms::find(collective, name) != nullptr;
}

}  // namespace

const char* text_of(Because because) {
  switch (because) {
    case Because::kForced: return "forced: TUTTI_ALGORITHM, or the configuration's algorithm, asks for it";
    case Because::kMeasured: return "measured to be fastest: TUTTI_TUNING";
    case Because::kPredicted: return "predicted to be fastest";
    case Because::kNearly: return "predicted to be within 2 % of the fastest, and simpler";
  }
  return "";
}

Result<const AlgorithmEntry*> forced_entry(Collective collective, const algorithms::World& world,
                                           const std::string& forced, Order order) {
  if (Status s = check_forced(forced); !s.is_ok()) return s;
  for (const Word& word : words_of(forced)) {
    if (word.collective && collective_named(*word.collective) != collective) continue;
    const AlgorithmEntry* entry = algorithms::find(collective, word.name);
    const bool serves = entry != nullptr && entry->supports(world);
    if (serves && keeps(*entry, world, order)) return entry;
    if (!word.collective) continue;
    if (serves) {
      const std::string names = algorithms::known_names([&](const AlgorithmEntry& e) {
        return e.collective == collective && e.supports(world) && keeps(e, world, Order::kRanks);
      });
      return unusable(forced, fmt::format("algorithm \"{}\" does not combine in the order of ranks, which a "
                                          "non-commutative operator needs (choose one of {})",
                                          word.text, names));
    }
    return unusable(forced, fmt::format("algorithm \"{}\" does not support {} ranks on these hosts: it needs {}",
                                        word.text, world.ranks, entry->needs()));
  }
  return static_cast<const AlgorithmEntry*>(nullptr);
}

std::vector<std::string> idle_names(const algorithms::World& world, const std::string& forced) {
  std::vector<std::string> idle;
  for (const Word& word : words_of(forced)) {
    if (word.collective) continue;
    const AlgorithmEntry* found = nullptr;
    bool serves = false;
    for (const CollectiveInfo& info : kCollectiveTable) {
      const AlgorithmEntry* const entry = algorithms::find(info.collective, word.name);
      if (entry == nullptr) continue;
      found = entry;
      serves = serves || entry->supports(world);
    }
    if (found == nullptr || serves) continue;
    idle.push_back(fmt::format("{} does not support {} ranks on these hosts and is ignored: it needs {}", word.name,
                               world.ranks, found->needs()));
  }
  return idle;
}

Status check_forced(const std::string& forced, std::string_view name) {
  const auto unknown = [&](const std::string& why) {
    return Status::invalid_usage(fmt::format("{}=\"{}\": {}", name, forced, why));
  };
  for (const Word& word : words_of(forced)) {
    const auto known = std::find_if(kCollectiveTable.begin(), kCollectiveTable.end(), [&](const CollectiveInfo& c) {
      return word.collective ? collective_named(*word.collective) == c.collective : exists(c.collective, word.name);
    });
    const bool found = known != kCollectiveTable.end();
    if (!found && word.collective) {
      std::vector<std::string_view> names;
      std::string listed;
      for (const CollectiveInfo& info : kCollectiveTable) {
        names.emplace_back(info.name);
        listed += fmt::format("{}{}", listed.empty() ? "" : ", ", info.name);
      }
      return unknown(fmt::format("collective \"{}\" does not exist{} (choose one of {})", *word.collective,
                                 meant_text(*word.collective, names), listed));
    }
    if (found && exists(known->collective, word.name)) continue;
    const auto serves = [&](const AlgorithmEntry& e) { return !word.collective || e.collective == known->collective; };
    return unknown(fmt::format("algorithm \"{}\" does not exist{} (choose one of {})", word.text,
                               algorithms::meant_name(word.name, serves), algorithms::known_names(serves)));
  }
  return {};
}

namespace {

// A decision without prediction; without an entry if there is none.
struct Decided {
  const AlgorithmEntry* entry = nullptr;
  Because because = Because::kPredicted;
};

Result<Decided> decided(Collective collective, const algorithms::World& world, std::size_t bytes,
                        const std::string& forced, Order order, const TunedJob* tuned) {
  auto wanted = forced_entry(collective, world, forced, order);
  if (!wanted.is_ok()) return wanted.status();
  if (*wanted != nullptr) return Decided{*wanted, Because::kForced};
  const AlgorithmEntry* measured = tuned == nullptr ? nullptr : tuned->choose(collective, bytes);
  if (measured == nullptr || !measured->supports(world) || !keeps(*measured, world, order)) return Decided{};
  return Decided{measured, Because::kMeasured};
}

std::vector<const AlgorithmEntry*> candidates_of(Collective collective, const JobModel& job, Order order) {
  std::vector<const AlgorithmEntry*> all = algorithms::candidates(collective, job.world(), job.ports());
  std::erase_if(all, [&](const AlgorithmEntry* e) { return !keeps(*e, job.world(), order); });
  return all;
}

// Predictions cannot resolve smaller differences: then the first one in the catalog, which is simpler, is chosen.
constexpr double kAsFast = 0.98;

// Null: there is none.
const AlgorithmEntry* fastest(Collective collective, const JobModel& job, std::size_t bytes, Order order) {
  const AlgorithmEntry* best = nullptr;
  double least = 0;
  for (const AlgorithmEntry* e : candidates_of(collective, job, order)) {
    const double us = job.predict_us(*e, std::bit_floor(bytes));
    if (best != nullptr && us >= kAsFast * least) continue;
    best = e;
    least = us;
  }
  return best;
}

}  // namespace

Result<const AlgorithmEntry*> decided_entry(Collective collective, const algorithms::World& world, std::size_t bytes,
                                            const std::string& forced, Order order, const TunedJob* tuned) {
  auto before = decided(collective, world, bytes, forced, order, tuned);
  if (!before.is_ok()) return before.status();
  return (*before).entry;
}

Result<Explanation> explain(Collective collective, const JobModel& job, std::size_t bytes, const std::string& forced,
                            Order order, const TunedJob* tuned) {
  const algorithms::World& world = job.world();
  auto before = decided(collective, world, bytes, forced, order, tuned);
  if (!before.is_ok()) return before.status();
  Explanation found{(*before).entry, (*before).because, {}, job.costs().fitted_to};
  std::vector<const AlgorithmEntry*> all = candidates_of(collective, job, order);
  if (found.chosen != nullptr && std::find(all.begin(), all.end(), found.chosen) == all.end()) {
    all.push_back(found.chosen);
  }
  for (const AlgorithmEntry* e : all) found.candidates.push_back({e, job.predict_us(*e, std::bit_floor(bytes))});
  if (found.candidates.empty()) return Status::internal(fmt::format("no algorithm for {}", name_of(collective)));
  std::stable_sort(found.candidates.begin(), found.candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.predicted_us < b.predicted_us; });
  if (found.chosen == nullptr) {
    found.chosen = fastest(collective, job, bytes, order);
    const double least = found.candidates.front().predicted_us;
    const bool is_fastest = std::any_of(found.candidates.begin(), found.candidates.end(), [&](const Candidate& one) {
      return one.entry == found.chosen && one.predicted_us <= least;
    });
    if (!is_fastest) found.because = Because::kNearly;
  }
  return found;
}

Result<const AlgorithmEntry*> select(Collective collective, const JobModel& job, std::size_t bytes,
                                     const std::string& forced, Order order, const TunedJob* tuned) {
  auto before = decided(collective, job.world(), bytes, forced, order, tuned);
  if (!before.is_ok()) return before.status();
  if ((*before).entry != nullptr) return (*before).entry;
  const AlgorithmEntry* const entry = fastest(collective, job, bytes, order);
  if (entry == nullptr) return Status::internal(fmt::format("no algorithm for {}", name_of(collective)));
  return entry;
}

}  // namespace tutti::internal::selection

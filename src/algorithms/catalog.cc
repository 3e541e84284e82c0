#include "algorithms/catalog.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "algorithms/loaded.h"
#include "base/first_use.h"
#include "base/similar.h"
#include "os/fork.h"
#include "os/mutex.h"

namespace tutti::internal::algorithms {
namespace {

// The part before the colon.
std::string_view stem_of(std::string_view name) {
  return name.substr(0, name.find(':'));
}

// The parameter after the colon, in the catalog's form; 0 if it is invalid.
int value_of(std::string_view name) {
  const std::string_view digits = name.substr(std::min(name.size(), stem_of(name).size() + 1));
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size() && digits.front() != '0';
  return is_number ? value : 0;
}

const AlgorithmEntry* find_listed(Collective collective, std::string_view name) {
  const auto at = std::find_if(catalog().begin(), catalog().end(),
                               [&](const AlgorithmEntry& e) { return e.collective == collective && e.name == name; });
  return at == catalog().end() ? nullptr : &*at;
}

// Requested entries that the catalog does not list. Never freed: plans point to them.
class Unlisted {
 public:
  const AlgorithmEntry* entry(const AlgorithmEntry& family, std::string_view name, int value) TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto [at, is_new] = entries_.try_emplace(std::pair(family.collective, std::string(name)), family);
    if (is_new) at->second = with_parameter(family, at->first.second.c_str(), value);
    return &at->second;
  }

 private:
  ForkMutex mutex_;
  std::map<std::pair<Collective, std::string>, AlgorithmEntry> entries_ TUTTI_GUARDED_BY(mutex_);
};

const AlgorithmEntry* unlisted(const AlgorithmEntry& family, std::string_view name, int value) {
  static constinit FirstUse<Unlisted, Surplus::kKept> all;
  return all.get().entry(family, name, value);
}

Status check_world(const World& world) {
  if (world.ranks < 1) return Status::invalid_argument("the number of ranks must be at least 1");
  if (Status s = world.hosts.check(world.ranks); !s.is_ok()) return s;
  return world.hierarchy.check(world.ranks);
}

}  // namespace

const AlgorithmEntry* find(Collective collective, std::string_view name) {
  if (const AlgorithmEntry* listed = find_listed(collective, name); listed != nullptr) return listed;
  if (const AlgorithmEntry* loaded = find_loaded(collective, name); loaded != nullptr) return loaded;
  const int value = value_of(name);
  const auto family = std::find_if(catalog().begin(), catalog().end(), [&](const AlgorithmEntry& e) {
    return e.collective == collective && e.parameter.value != 0 && stem_of(e.name) == stem_of(name) &&
           value >= e.parameter.least && value <= e.parameter.most;
  });
  return family == catalog().end() ? nullptr : unlisted(*family, name, value);
}

std::string AlgorithmEntry::identity() const {
  if (write == nullptr) return name;
  // FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : program_of(*this)->text()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{} {:016x}", name, hash);
}

std::vector<const AlgorithmEntry*> candidates(Collective collective) {
  std::vector<const AlgorithmEntry*> all;
  for (const AlgorithmEntry& e : catalog()) {
    if (e.collective == collective) all.push_back(&e);
  }
  for (const AlgorithmEntry* e : loaded_entries()) {
    if (e->collective == collective) all.push_back(e);
  }
  return all;
}

std::vector<const AlgorithmEntry*> candidates(Collective collective, const World& world, int ports) {
  std::vector<const AlgorithmEntry*> all;
  const auto add = [&](const AlgorithmEntry* e) {
    if (e != nullptr && e->supports(world) && std::find(all.begin(), all.end(), e) == all.end()) all.push_back(e);
  };
  const auto divisions = static_cast<int>(world.groups().size());
  for (const AlgorithmEntry* e : candidates(collective)) {
    const Parameter& parameter = e->parameter;
    if (parameter.of == Parameter::Of::kDivisions && parameter.is_named() && parameter.value >= divisions) continue;
    if (parameter.of == Parameter::Of::kPorts && parameter.is_named() && ports != 0 && parameter.value > ports)
      continue;
    add(e);
    if (parameter.of == Parameter::Of::kPorts && !parameter.is_named() && ports > 1) {
      add(find(collective, fmt::format("{}:{}", e->name, ports)));
    }
  }
  return all;
}

std::string AlgorithmEntry::needs() const {
  if (write != nullptr) return "what its file demands (least_ranks, most_ranks, when)";
  if (parameter.of == Parameter::Of::kPorts) {
    return fmt::format("several hosts, one of which has {} ranks", std::max(2, parameter.value));
  }
  const bool equal = collective == Collective::kReduceScatter || collective == Collective::kAllGather;
  return fmt::format("groups (hosts, packages, NUMA nodes) of several ranks{}{}", equal ? ", of equal sizes" : "",
                     parameter.is_named() && parameter.value > 1 ? fmt::format(", in {} levels", parameter.value) : "");
}

bool is_listed(const AlgorithmEntry& entry) {
  return find_listed(entry.collective, entry.name) != nullptr;
}

bool takes_parameter(std::string_view name) {
  return std::any_of(catalog().begin(), catalog().end(),
                     [&](const AlgorithmEntry& e) { return e.parameter.value != 0 && stem_of(e.name) == name; });
}

std::string known_names(const std::function<bool(const AlgorithmEntry&)>& which) {
  std::string text;
  std::set<std::string_view> seen;
  std::map<std::string_view, Parameter> families;
  const auto add = [&](const AlgorithmEntry& e) {
    if (!which(e) || !seen.insert(e.name).second) return;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", e.name);
    if (e.write == nullptr && e.parameter.value != 0) families.try_emplace(stem_of(e.name), e.parameter);
  };
  for (const AlgorithmEntry& e : catalog()) add(e);
  for (const AlgorithmEntry* e : loaded_entries()) add(*e);
  for (const auto& [stem, parameter] : families) {
    text += fmt::format("; {}:K for any K from {} to {}", stem, parameter.least, parameter.most);
  }
  return text;
}

std::string meant_name(std::string_view name, const std::function<bool(const AlgorithmEntry&)>& which) {
  std::vector<std::string_view> names;
  for (const AlgorithmEntry& e : catalog()) {
    if (which(e)) names.emplace_back(e.name);
  }
  for (const AlgorithmEntry* e : loaded_entries()) {
    if (which(*e)) names.emplace_back(e->name);
  }
  return meant_text(name, names);
}

Result<schedule::Schedule> make_schedule(const AlgorithmEntry& entry, const World& world, int rank, int root_rank) {
  Status status = check_world(world);
  if (!status.is_ok()) return status;
  for (const auto& [of, r] : {std::pair("rank", rank), std::pair("root", root_rank)}) {
    if (r < 0 || r >= world.ranks)
      return Status::invalid_argument(fmt::format("{} {} is not from 0 to {}", of, r, world.ranks - 1));
  }
  const std::string what = fmt::format("{} {}", name_of(entry.collective), entry.name);
  if (!entry.supports(world))
    return Status::invalid_argument(fmt::format("{} does not support these ranks: it needs {}", what, entry.needs()));
  if (entry.write != nullptr) return entry.write(world, rank, root_rank, entry.parameter.value);
  Builder builder(entry.shape(world, root_rank), rank);
  entry.generate(builder, world, entry.parameter.value);
  Result<schedule::Schedule> schedule = builder.finish();
  if (!schedule.is_ok()) return schedule.status().with_context(what);
  return schedule;
}

}  // namespace tutti::internal::algorithms

#include "algorithms/loaded.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <sstream>
#include <utility>

#include "algorithms/prove.h"
#include "base/first_use.h"
#include "os/clock.h"
#include "os/fork.h"
#include "os/mutex.h"

namespace tutti::internal::algorithms {
namespace {

constexpr std::int64_t kMostProofMs = 10'000;
constexpr int kMostSampleRanks = 1024;

// Never freed, never moved: plans point to them.
class Loaded {
 public:
  const AlgorithmEntry* add(std::shared_ptr<const Program> program) TUTTI_EXCLUDES(mutex_);
  // Makes it a candidate. False: another algorithm with its name has become one.
  bool use(const AlgorithmEntry& entry) TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      const AlgorithmEntry& other = entries_[i];
      if (usable_[i] && &other != &entry && other.collective == entry.collective &&
          std::string_view(other.name) == entry.name) {
        return false;
      }
    }
    usable_[static_cast<std::size_t>(entry.parameter.value) - 1] = true;
    return true;
  }
  std::vector<const AlgorithmEntry*> all() TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::vector<const AlgorithmEntry*> entries;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (usable_[i]) entries.push_back(&entries_[i]);
    }
    return entries;
  }
  const Program& program(int number) TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return *programs_[static_cast<std::size_t>(number) - 1];
  }
  std::shared_ptr<const Program> shared(int number) TUTTI_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return programs_[static_cast<std::size_t>(number) - 1];
  }

 private:
  ForkMutex mutex_;
  std::deque<std::shared_ptr<const Program>> programs_ TUTTI_GUARDED_BY(mutex_);  // by parameter - 1
  std::deque<AlgorithmEntry> entries_ TUTTI_GUARDED_BY(mutex_);
  std::deque<bool> usable_ TUTTI_GUARDED_BY(mutex_);
};

Loaded& loaded() {
  static constinit FirstUse<Loaded, Surplus::kKept> all;
  return all.get();
}

// ---- Of an entry, by its parameter -----------------------------------------------------------------

bool serves(const World& world, int number) {
  return loaded().program(number).serves(world);
}
schedule::Shape no_shape(const World& /*world*/, int /*root*/, int /*number*/) {
  return {};
}
void no_steps(Builder& /*builder*/, const World& /*world*/, int /*number*/) {}
bool in_order(const World& /*world*/) {
  return true;
}
Result<schedule::Schedule> write(const World& world, int rank, int root, int number) {
  return loaded().program(number).write(world, rank, root);
}

const AlgorithmEntry* Loaded::add(std::shared_ptr<const Program> program) {
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < programs_.size(); ++i) {
    if (programs_[i]->collective() != program->collective() || programs_[i]->name() != program->name()) continue;
    if (programs_[i]->text() == program->text()) return &entries_[i];
    if (usable_[i]) return nullptr;
  }
  programs_.push_back(std::move(program));
  usable_.push_back(false);
  const Program& added = *programs_.back();
  const auto number = static_cast<int>(programs_.size());
  entries_.push_back({added.name().c_str(), added.collective(), serves, no_shape, no_steps,
                      added.order() == schedule::Order::kRanks ? in_order : nullptr, Parameter{number, 0, 0}, write});
  return &entries_.back();
}

bool taken_by_catalog(const Program& program) {
  const auto entries = catalog();
  return takes_parameter(program.name()) || std::any_of(entries.begin(), entries.end(), [&](const AlgorithmEntry& e) {
           return e.collective == program.collective() && e.name == program.name();
         });
}

}  // namespace

const AlgorithmEntry* keep(std::shared_ptr<const Program> program) {
  return taken_by_catalog(*program) ? nullptr : loaded().add(std::move(program));
}

std::vector<const AlgorithmEntry*> loaded_entries() {
  return loaded().all();
}

const AlgorithmEntry* find_loaded(Collective collective, std::string_view name) {
  for (const AlgorithmEntry* entry : loaded().all()) {
    if (entry->collective == collective && entry->name == name) return entry;
  }
  return nullptr;
}

std::shared_ptr<const Program> program_of(const AlgorithmEntry& entry) {
  return loaded().shared(entry.parameter.value);
}

std::vector<World> sample_worlds(const AlgorithmEntry& entry) {
  std::vector<World> worlds;
  const auto add = [&](int ranks) {
    for (World& world : worlds_to_prove(entry, ranks)) worlds.push_back(std::move(world));
  };
  for (const int n : {2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 64}) add(n);
  for (int n = 1; worlds.empty() && n <= kMostSampleRanks; ++n) add(n);
  return worlds;
}

Status prove_samples(const AlgorithmEntry& entry) {
  const std::vector<World> samples = sample_worlds(entry);
  // It may support only some divisions into hosts: its first use proves it.
  if (samples.empty() && !program_of(entry)->uses_hosts())
    return Status::invalid_argument(
        fmt::format("{} supports no number of ranks up to {}", entry.name, kMostSampleRanks));
  const Deadline deadline = Deadline::after_ms(kMostProofMs);
  for (const World& world : samples) {
    const auto interrupt = [&] {
      if (!deadline.passed()) return Status();
      return Status::invalid_argument(fmt::format("{} takes too long to prove: more than {} s for up to {} ranks",
                                                  entry.name, kMostProofMs / 1000, world.ranks));
    };
    for (const int root : roots_to_prove(entry, world)) {
      if (auto proof = prove(entry, world, root, interrupt); !proof.is_ok()) return proof.status();
    }
  }
  return {};
}

Status load_schedules(const std::string& files) {
  std::istringstream names(files);
  for (std::string word; std::getline(names, word, ',');) {
    const std::size_t from = word.find_first_not_of(' ');
    if (from == std::string::npos) continue;
    const std::string file = word.substr(from, word.find_last_not_of(' ') + 1 - from);
    auto program = Program::read(file);
    if (!program.is_ok()) return program.status().with_code(Code::kInvalidUsage);
    const AlgorithmEntry* const before = find_loaded((*program)->collective(), (*program)->name());
    if (before != nullptr && program_of(*before)->text() == (*program)->text()) continue;
    const std::string name = (*program)->name();
    const AlgorithmEntry* const entry = keep(std::move(*program));
    const auto taken = [&] {
      return Status::invalid_usage(fmt::format(
          "{}: name: \"{}\" is already the name of an algorithm of the library or of an earlier file", file, name));
    };
    if (entry == nullptr) return taken();
    if (Status s = prove_samples(*entry); !s.is_ok()) return s.with_code(Code::kInvalidUsage).with_context(file);
    if (!loaded().use(*entry)) return taken();
  }
  return {};
}

}  // namespace tutti::internal::algorithms

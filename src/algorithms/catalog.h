// All algorithms, by collective and name: the one place that proof, simulation, selection, tests and the
// command line read. A new algorithm is one pure file and one line in catalog_table.cc.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "algorithms/hierarchical.h"
#include "base/status.h"
#include "base/types.h"
#include "schedule/builder.h"
#include "schedule/schedule.h"

namespace tutti::internal::algorithms {

// The ranks that take part, and their hosts. hosts holds every rank exactly once; empty means that all are on one host.
struct World {
  int ranks = 1;
  Hosts hosts;
  // By which hierarchical algorithms go, where more than hosts is known. Empty: by the hosts alone. See groups().
  Hierarchy hierarchy{};

  [[nodiscard]] Hierarchy groups() const { return hierarchy.empty() ? Hierarchy({hosts}) : hierarchy; }
};

// What an algorithm leaves open: a tree its radix, a chain in how many pieces it is cut. It stands behind the name.
struct Parameter {
  int value = 0;  // 0: the algorithm has none
  int least = 0;  // that may be asked for
  int most = 0;
  // What it counts, so that selection leaves out what is of no use: more channels than hosts have network ports, as
  // many divisions as there are (that is the algorithm without parameter).
  enum class Of : std::uint8_t { kOther, kPorts, kDivisions };
  Of of = Of::kOther;

  // Whether the value is in the name. Else the algorithm has none, or one of its own.
  [[nodiscard]] constexpr bool is_named() const { return value != 0 && value >= least && value <= most; }
};

// A function of an entry, with the parameter's value as a last argument or without.
template <class Signature>
class EntryFunction;
template <class R, class... Args>
class EntryFunction<R(Args...)> {
 public:
  template <class F>
  requires std::is_convertible_v<F, R (*)(Args...)> || std::is_convertible_v<F, R (*)(Args..., int)>
  constexpr EntryFunction(F f) {
    if constexpr (std::is_convertible_v<F, R (*)(Args...)>) {
      plain_ = f;
    } else {
      with_parameter_ = f;
    }
  }
  R operator()(Args... args, int parameter) const {
    return plain_ != nullptr ? plain_(args...) : with_parameter_(args..., parameter);
  }

 private:
  R (*plain_)(Args...) = nullptr;
  R (*with_parameter_)(Args..., int) = nullptr;
};

struct AlgorithmEntry {
  const char* name;  // with the parameter, if it has one: "ring", "k_nomial:4"; a chain of one piece is "chain"
  Collective collective;
  EntryFunction<bool(const World&)> serves;                    // see supports()
  EntryFunction<schedule::Shape(const World&, int root)> cut;  // see shape()
  // Writes the steps of builder.rank(). REQUIRES: the builder has that shape.
  EntryFunction<void(Builder&, const World&)> generate;
  // Whether it combines in the order of ranks, whatever the root, so that the operator need not commute. Null: nowhere.
  // It may do so elsewhere too (two ranks are always in order).
  bool (*keeps_order)(const World&) = nullptr;
  Parameter parameter{};
  // Of an algorithm that was loaded (loaded.h): writes the schedule, in place of `generate`. Null: of none of the
  // catalog.
  Result<schedule::Schedule> (*write)(const World&, int rank, int root, int parameter) = nullptr;

  // What ranks that run it must have in common: its name, and of what was loaded the text of its file.
  [[nodiscard]] std::string identity() const;
  // What it needs of a job to serve it: "several hosts, ...".
  [[nodiscard]] std::string needs() const;
  [[nodiscard]] bool supports(const World& world) const { return serves(world, parameter.value); }
  // How the vector is cut. root matters where the collective has one. REQUIRES: supports(world).
  [[nodiscard]] schedule::Shape shape(const World& world, int root) const { return cut(world, root, parameter.value); }
};

// The same with another parameter. REQUIRES: name and value agree.
constexpr AlgorithmEntry with_parameter(AlgorithmEntry entry, const char* name, int value) {
  entry.name = name;
  entry.parameter.value = value;
  return entry;
}

inline schedule::Order order_of(const AlgorithmEntry& entry, const World& world) {
  const bool keeps = entry.keeps_order != nullptr && entry.keeps_order(world);
  return keeps ? schedule::Order::kRanks : schedule::Order::kAny;
}

// Static; entries of one collective stand together. Of algorithms with a parameter, those that selection considers and
// the tests prove. Any thread.
std::span<const AlgorithmEntry> catalog();
// All that may be chosen: the catalog's, then those that were loaded. For ever valid. Any thread.
std::vector<const AlgorithmEntry*> candidates(Collective collective);
// Of these, those that serve the job and differ there. `ports`: that each host has to the network, at least; unknown:
// 0, as many as anybody may want. Of those whose parameter is a number of ports, one for as many as there are.
std::vector<const AlgorithmEntry*> candidates(Collective collective, const World& world, int ports);
// nullptr if there is none. Also what was loaded. Of an algorithm with a parameter also what the catalog does not list,
// as its range allows; the same pointer each time, for ever. Any thread.
const AlgorithmEntry* find(Collective collective, std::string_view name);
// Whether it is in the catalog.
[[nodiscard]] bool is_listed(const AlgorithmEntry& entry);
// Whether `name` is that of an algorithm with a parameter, without that: "k_nomial".
[[nodiscard]] bool takes_parameter(std::string_view name);
// The names that find() knows, for the message that says that one is unknown: "direct, k_nomial:2, chain; chain:K for
// any K from 2 to 1024; k_nomial:K for any K from 2 to 1048576". Of the entries for which `which` holds, each name
// once.
[[nodiscard]] std::string known_names(const std::function<bool(const AlgorithmEntry&)>& which);
// For the same message: "; is ring meant?", of these entries; empty where no name of theirs is similar.
[[nodiscard]] std::string meant_name(std::string_view name, const std::function<bool(const AlgorithmEntry&)>& which);

// The schedule of `rank`. kInvalidArgument if the world is malformed, the algorithm does not serve it, or
// rank or root is outside it; kInternalError if the generator is defective.
Result<schedule::Schedule> make_schedule(const AlgorithmEntry& entry, const World& world, int rank, int root);

}  // namespace tutti::internal::algorithms

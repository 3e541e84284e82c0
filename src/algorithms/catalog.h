// All algorithms, by collective and name: the only list for proof, simulation, selection, tests and the command line. A
// new algorithm is one pure file and one line in catalog_table.cc.
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

// The participating ranks and their hosts. hosts contains every rank exactly once; empty means that all are on one
// host.
struct World {
  int ranks = 1;
  Hosts hosts;
  // The divisions for hierarchical algorithms, if more than the hosts is known. Empty: only the hosts. See groups().
  Hierarchy hierarchy{};

  [[nodiscard]] Hierarchy groups() const { return hierarchy.empty() ? Hierarchy({hosts}) : hierarchy; }
};

// The parameter of an algorithm: the radix of a tree, the number of pieces of a chain. It follows the name.
struct Parameter {
  int value = 0;  // 0: the algorithm has none
  int least = 0;  // smallest valid value
  int most = 0;
  // The meaning of the parameter, so that selection omits useless values: more channels than network ports of a host,
  // or all divisions (that is the algorithm without parameter).
  enum class Of : std::uint8_t { kOther, kPorts, kDivisions };
  Of of = Of::kOther;

  // Whether the value is part of the name. Otherwise the algorithm has no parameter, or an internal one.
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
  // Whether it combines in the order of ranks for every root, so that the operator need not commute. Null: for no
  // world. It may also do so for other worlds (two ranks are always in order).
  bool (*keeps_order)(const World&) = nullptr;
  Parameter parameter{};
  // For a loaded algorithm (loaded.h): writes the schedule instead of `generate`. Null for those of the catalog.
  Result<schedule::Schedule> (*write)(const World&, int rank, int root, int parameter) = nullptr;

  // The identity on which ranks must agree: its name, and for a loaded algorithm the text of its file.
  [[nodiscard]] std::string identity() const;
  // Its requirements on a job: "several hosts, ...".
  [[nodiscard]] std::string needs() const;
  [[nodiscard]] bool supports(const World& world) const { return serves(world, parameter.value); }
  // How the vector is cut. root is used if the collective has one. REQUIRES: supports(world).
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

// Static; entries of one collective are consecutive. For algorithms with a parameter, it has the values that selection
// considers and the tests prove. Any thread.
std::span<const AlgorithmEntry> catalog();
// All candidates: the catalog's, then the loaded ones. Valid until the process ends. Any thread.
std::vector<const AlgorithmEntry*> candidates(Collective collective);
// The candidates that support the job and differ in it. `ports`: the smallest number of network ports of a host; 0:
// unknown, treated as unlimited. Of algorithms whose parameter is a number of ports, only the one for `ports`.
std::vector<const AlgorithmEntry*> candidates(Collective collective, const World& world, int ports);
// nullptr if there is none. Includes loaded algorithms, and all valid values of a parameter, even if the catalog does
// not list them. Returns the same pointer each time, valid until the process ends. Any thread.
const AlgorithmEntry* find(Collective collective, std::string_view name);
// Whether it is in the catalog.
[[nodiscard]] bool is_listed(const AlgorithmEntry& entry);
// Whether `name` is the name of an algorithm with a parameter, without the parameter: "k_nomial".
[[nodiscard]] bool takes_parameter(std::string_view name);
// The names that find() knows, for the error about an unknown one: "direct, k_nomial:2, chain; chain:K for any K from 2
// to 1024; k_nomial:K for any K from 2 to 1048576". Each name once, of the entries for which `which` is true.
[[nodiscard]] std::string known_names(const std::function<bool(const AlgorithmEntry&)>& which);
// For the same error: "; is ring meant?", among these entries; empty if no name is similar.
[[nodiscard]] std::string meant_name(std::string_view name, const std::function<bool(const AlgorithmEntry&)>& which);

// The schedule of `rank`. kInvalidArgument if the world is malformed, the algorithm does not support it, or rank or
// root is outside it; kInternalError if the generator is defective.
Result<schedule::Schedule> make_schedule(const AlgorithmEntry& entry, const World& world, int rank, int root);

}  // namespace tutti::internal::algorithms

#include "epoch/plans.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "algorithms/prove.h"
#include "base/float_mode.h"
#include "base/log.h"
#include "os/look_again.h"
#include "selection/prediction.h"

namespace tutti::internal {
namespace {

// If some ranks share memory and others do not: a compromise between the sizes for both.
constexpr std::size_t kMixedSliceBytes = 128 * 1024;

// Limits for a proof during a call, when all ranks of a machine prove at once. A ring of 400 ranks takes 0.2 s and 51
// MiB, one of 1000 takes 1.1 s and 316 MiB; both grow with the square. For sizes beyond the limits, the tests have
// proven smaller and larger ones.
constexpr double kProofMs = 500;
constexpr double kProofMib = 64;
// For schedules that must be proven.
constexpr double kMostProofMib = 4096;
// For slow or busy processors.
constexpr std::int64_t kGiveUpMs = 2000;

// Sends a few bytes of each rank to all over few connections, for any number of ranks.
constexpr const char* kFewPeers = "bruck";

schedule::Order order_of(Demand demand) {
  return demand == Demand::kRankOrder ? schedule::Order::kRanks : schedule::Order::kAny;
}

// The model for selection; and the measurements of such jobs, or null.
std::shared_ptr<const selection::JobModel> model_of(const Membership& membership, const selection::TunedJob** tuned) {
  const auto name = [](const Transport* transport) {
    return transport == nullptr ? std::string() : std::string(transport->name());
  };
  const auto costs_of = [&](const Transport* transport) {
    return transport == nullptr ? TransportCosts() : transport->costs(membership);
  };
  const algorithms::World world = selection::world_of(*membership.graph);
  selection::JobCosts costs =
      selection::default_costs(world, costs_of(membership.within_hosts), costs_of(membership.between_hosts),
                               membership.ranks_per_cpu, membership.one_machine);
  if (membership.tuning != nullptr) {
    const selection::JobKind kind = selection::kind_of(world, name(membership.within_hosts),
                                                       name(membership.between_hosts), membership.ranks_per_cpu);
    *tuned = membership.tuning->find(kind);
    selection::use_fitted(membership.tuning->nearest_costs(kind), costs);
  }
  return selection::JobModel::of(*membership.graph, costs);
}

}  // namespace

Plans::Plans(const Membership& membership, LinkMaker* links, ControlTree* tree, const FailureState& failure,
             executor::Waiter& waiter, std::int64_t timeout_ms)
    : membership_(membership),
      link_maker_(links),
      failure_(failure),
      waiter_(waiter),
      timeout_ms_(timeout_ms),
      model_(model_of(membership, &tuned_)),
      decisions_(tree, failure, membership.rank, membership.ranks(), membership.ranks_per_cpu) {
  if (membership.rank != 0 || membership.settings.algorithm.empty() || !log::enabled(log::Level::kInfo)) return;
  for (const std::string& idle : selection::idle_names(world(), membership.settings.algorithm)) {
    log::info(fmt::format("TUTTI_ALGORITHM: {}", idle));
  }
}

Result<const algorithms::AlgorithmEntry*> Plans::select(Collective collective, std::size_t bytes,
                                                        schedule::Order order) const {
  const InFloatMode standard;  // ranks must come to the same
  return selection::select(collective, *model_, bytes, membership_.settings.algorithm, order, tuned_);
}

bool Plans::serves(const algorithms::AlgorithmEntry* entry, schedule::Order order) const {
  return entry != nullptr && entry->supports(world()) &&
         (order == schedule::Order::kAny || algorithms::order_of(*entry, world()) == order);
}

Result<const algorithms::AlgorithmEntry*> Plans::known(Collective collective, std::size_t bytes, Demand demand) const {
  const schedule::Order order = order_of(demand);
  const bool few_peers = demand == Demand::kFewPeers;
  auto entry = selection::decided_entry(collective, world(), bytes, membership_.settings.algorithm, order,
                                        few_peers ? nullptr : tuned_);
  if (!entry.is_ok() || *entry != nullptr) return entry;
  if (few_peers) return algorithms::find(collective, kFewPeers);
  const auto* const told = decisions_.selected({collective, order, static_cast<int>(std::bit_width(bytes))});
  return serves(told, order) ? told : nullptr;
}

Result<const algorithms::AlgorithmEntry*> Plans::agree(Collective collective, std::size_t bytes, Demand demand,
                                                       Deadline deadline) {
  auto entry = known(collective, bytes, demand);
  if (!entry.is_ok() || *entry != nullptr) return entry;
  const schedule::Order order = order_of(demand);
  const Decisions::CallKind kind{collective, order, static_cast<int>(std::bit_width(bytes))};
  const auto* const told = decisions_.await_selected(kind, deadline);
  if (failure_.failed()) return failure_.status();
  if (serves(told, order)) return told;
  entry = select(collective, bytes, order);
  if (entry.is_ok()) decisions_.tell_selected(kind, **entry);
  return entry;
}

Plans::~Plans() = default;

std::size_t Plans::slice_bytes(Collective collective) const {
  const InFloatMode standard;  // ranks must come to the same
  const bool shared_alone = membership_.hosts.size() == 1;
  const bool none_shared = membership_.hosts.size() == membership_.peers.size();
  const Transport* const only = shared_alone  ? membership_.within_hosts
                                : none_shared ? membership_.between_hosts
                                              : nullptr;
  return only != nullptr ? only->slice_bytes(membership_, collective) : kMixedSliceBytes;
}

void Plans::deliver(Deadline deadline) {
  // Calls it for all links each time, even after one returns false, so that the others continue to send.
  const auto all = [this](auto is) {
    return std::count_if(links_.begin(), links_.end(), is) == static_cast<std::ptrdiff_t>(links_.size());
  };
  const auto sent = [](const auto& entry) { return entry.second->sent(); };
  const auto flushed = [](const auto& entry) { return entry.second->flushed(); };
  LookAgain look;
  bool ended = false;
  while (!failure_.failed() && !deadline.passed()) {
    // Not while one peer takes no data: the others would detect the end of this rank before its leave notice.
    if (!ended && all(sent)) {
      ended = true;
      for (const auto& [peer, link] : links_) link->end_sending();
    }
    if (all(flushed)) break;
    look.pause();
  }
  for (auto& [peer, link] : links_) {
    if (!failure_.failed() && link->flushed()) {
      link->send_leave_notice();
    } else {
      link->revoke();  // otherwise the end of the link would wait again
    }
  }
}

std::vector<int> Plans::unconnected(const schedule::Schedule& schedule) const {
  std::set<int> missing;
  for (const schedule::Step& s : schedule.steps) {
    if (!schedule::is_local(s.kind) && !links_.contains(s.peer)) missing.insert(s.peer);
  }
  return {missing.begin(), missing.end()};
}

std::unique_ptr<MakingLinks> Plans::begin_making(const std::vector<int>& peers) const {
  const InFloatMode standard;
  return peers.empty() ? nullptr : link_maker_->begin(peers, failure_, Deadline::after_ms(timeout_ms_));
}

Status Plans::connect(Making& making) {
  if (making.links == nullptr) return {};
  const InFloatMode standard;  // transports compute the room of links
  auto made = finish(*making.links);
  if (made.is_ok()) add_links(making, std::move(*made));
  return made.status();
}

void Plans::add_links(Making& making, std::vector<std::unique_ptr<transport::Link>> links) {
  making.links = nullptr;
  // The links known to the waiter stay alive: nothing can fail in between.
  std::map<int, std::unique_ptr<transport::Link>> made;
  for (std::size_t i = 0; i < making.peers.size(); ++i) made[making.peers[i]] = std::move(links[i]);
  waiter_.expect_links(made.size());
  for (const auto& [peer, link] : made) waiter_.add_link(*link);
  links_.merge(made);
}

// Proves a schedule at first use if the test suite has not, within limits. The caller waits, and so does an abort.
Status Plans::prove(const algorithms::AlgorithmEntry& entry, int root, Deadline deadline) const {
  const std::string what =
      fmt::format("the schedule of {} {} for {} ranks", name_of(entry.collective), entry.name, world().ranks);
  const std::string instead =
      algorithms::is_listed(entry)
          ? fmt::format("; the tests have proven it for up to {} ranks", algorithms::ranks_to_prove(entry).back())
          : "; the tests have proven it with other parameters";
  const algorithms::ProofCost cost = algorithms::cost_to_prove(entry, world(), root);
  // User-defined algorithms never run without a proof.
  const bool must = entry.write != nullptr;
  if (must && cost.mib > kMostProofMib) {
    return Status::invalid_usage(
        fmt::format("{} cannot be proven: it would take about {} MiB", what, std::lround(cost.mib)));
  }
  if (!must && (cost.ms > kProofMs || cost.mib > kProofMib)) {
    log::info(fmt::format("{} is not proven in this job: it would take about {} ms and {} MiB{}", what,
                          std::lround(cost.ms), std::lround(cost.mib), instead));
    return {};
  }
  const Deadline give_up = Deadline::after_ms(kGiveUpMs);
  bool given_up = false;
  Status ended;
  const auto proof = algorithms::prove(entry, world(), root, [&]() -> Status {
    given_up = !must && give_up.passed();
    if (deadline.passed()) ended = Status::timeout("timed out while proving " + what);
    if (failure_.failed()) ended = failure_.status();
    return given_up ? Status::timeout("given up") : ended;
  });
  if (!ended.is_ok()) return ended;
  if (!given_up) return proof.status();
  log::info(fmt::format("{} is not proven in this job: it has taken more than {} ms{}", what, kGiveUpMs, instead));
  return {};
}

Status Plans::check(const algorithms::AlgorithmEntry& entry, int root, Deadline deadline) {
  if (algorithms::proven_by_tests(entry, world(), root)) return {};
  if (decisions_.await_checked(entry, root, deadline)) return {};
  if (failure_.failed()) return failure_.status();
  Status proven = prove(entry, root, deadline);
  if (proven.is_ok()) decisions_.tell_checked(entry, root);
  return proven;
}

Result<schedule::Schedule> Plans::write_schedule(const algorithms::AlgorithmEntry& entry, int root, Deadline deadline) {
  const InFloatMode standard;  // ranks must come to the same
  if (Status s = check(entry, root, deadline); !s.is_ok()) return s;
  return algorithms::make_schedule(entry, world(), membership_.rank, root);
}

bool Plans::takes_long(Collective collective, int root, std::size_t bytes, Demand demand) const {
  auto entry = known(collective, bytes, demand);
  if (entry.is_ok() && *entry == nullptr && !decisions_.are_told()) entry = select(collective, bytes, order_of(demand));
  if (!entry.is_ok()) return false;
  if (*entry == nullptr) return true;
  const auto known = plans_.find({*entry, root});
  return (known == plans_.end() || known->second.plan == nullptr) &&
         !algorithms::proven_by_tests(**entry, world(), root) && !decisions_.checked(**entry, root);
}

Result<std::unique_ptr<Plans::Making>> Plans::begin(Collective collective, int root, std::size_t bytes,
                                                    CallHistory* history, Demand demand) {
  const Deadline deadline = Deadline::after_ms(timeout_ms_);
  auto entry = agree(collective, bytes, demand, deadline);
  if (!entry.is_ok()) return entry.status();
  if (log::enabled(log::Level::kDebug)) {
    log::debug(fmt::format("{} of {} bytes: {}", name_of(collective), bytes, (*entry)->name));
  }
  auto making = std::make_unique<Making>(Making{*entry, collective, root, bytes, demand, {}, {}, nullptr});
  auto& [identity, plan] = plans_[{*entry, root}];
  if (plan != nullptr) return making;
  auto schedule = write_schedule(**entry, root, deadline);
  if (!schedule.is_ok()) return schedule.status();
  making->schedule = std::move(*schedule);
  // Set once: from now on readers of the history may use it.
  if (identity.hash == 0) {
    identity = executor::identify((*entry)->identity(), making->schedule, slice_bytes(collective));
  }
  if (history != nullptr) history->set_plan(identity);
  making->peers = unconnected(making->schedule);
  making->links = begin_making(making->peers);
  return making;
}

std::unique_ptr<Plans::Making> Plans::begin_links(std::vector<int> peers) {
  std::erase_if(peers, [&](int peer) { return is_connected(peer); });
  if (peers.empty()) return nullptr;
  auto making = std::make_unique<Making>();
  making->peers = std::move(peers);
  making->links = begin_making(making->peers);
  return making;
}

Result<MakingLinks::State> Plans::advance(Making& making) {
  if (making.links != nullptr) {
    const InFloatMode standard;  // as connect()
    auto state = making.links->advance();
    if (!state.is_ok() || *state != MakingLinks::State::kMade) return state;
    add_links(making, making.links->take());
  }
  if (making.entry != nullptr) keep(making);
  return MakingLinks::State::kMade;
}

Result<const executor::Plan*> Plans::make(Collective collective, int root, std::size_t bytes, CallHistory* history,
                                          Demand demand) {
  auto making = begin(collective, root, bytes, history, demand);
  if (!making.is_ok()) return making.status();
  if (Status s = connect(**making); !s.is_ok()) return s;
  return keep(**making);
}

const executor::Plan* Plans::keep(Making& making) {
  std::unique_ptr<executor::Plan>& plan = plans_.at({making.entry, making.root}).plan;
  if (plan == nullptr) {
    plan = executor::make_plan(
        making.entry->identity(), std::move(making.schedule), [&](int peer) { return links_.at(peer).get(); },
        slice_bytes(making.collective));
  }
  auto& rows = rows_[row_of(making.collective, making.demand)];
  if (rows.size() <= static_cast<std::size_t>(making.root)) rows.resize(static_cast<std::size_t>(making.root) + 1);
  auto& row = rows[static_cast<std::size_t>(making.root)];
  if (row == nullptr) row = std::make_unique<Row>();
  (*row)[static_cast<std::size_t>(std::bit_width(making.bytes))] = plan.get();
  return plan.get();
}

Status Plans::check_forced(Collective collective, schedule::Order order) const {
  if (membership_.settings.algorithm.empty()) return {};
  return selection::forced_entry(collective, world(), membership_.settings.algorithm, order).status();
}

Result<std::unique_ptr<executor::Plan>> Plans::plan_transfers(schedule::Schedule schedule) {
  if (const auto making = begin_links(unconnected(schedule)); making != nullptr) {
    if (Status s = connect(*making); !s.is_ok()) return s;
  }
  return executor::make_plan(
      "send and receive", std::move(schedule), [&](int peer) { return links_.at(peer).get(); },
      slice_bytes(Collective::kAllToAll));
}

Result<std::string> Plans::describe(Collective collective, std::size_t bytes) const {
  auto entry = select(collective, bytes, schedule::Order::kAny);
  if (!entry.is_ok()) return entry.status();
  const std::string transports = membership_.describe_transports();
  return fmt::format("{} over {}", (*entry)->name, transports.empty() ? "memory" : transports);
}

std::vector<std::string> Plans::describe_choice(Collective collective, std::size_t bytes) const {
  const auto found =
      selection::explain(collective, *model_, bytes, membership_.settings.algorithm, schedule::Order::kAny, tuned_);
  if (!found.is_ok()) return {};
  const selection::Explanation& choice = found.value();
  std::vector<std::string> lines{text_of(choice.because)};
  if (choice.fitted_to) {
    lines.front() += fmt::format("; predictions with the costs of {} (TUTTI_TUNING)", text_of(*choice.fitted_to));
  }
  for (const selection::Candidate& one : choice.candidates) {
    lines.push_back(std::isinf(one.predicted_us)
                        ? fmt::format("{}: not predicted", one.entry->name)
                        : fmt::format("{}: predicted {:.1f} us", one.entry->name, one.predicted_us));
  }
  return lines;
}

}  // namespace tutti::internal

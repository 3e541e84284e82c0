// Makes an epoch of some ranks of another one. It uses that epoch's address table, listeners, control tree and
// descriptions of transports.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "epoch/epoch.h"
#include "join/join.h"
#include "join/root_service.h"
#include "memory/device_name.h"
#include "net/frame.h"
#include "transport/adapter.h"
#include "transport/registry.h"

namespace tutti::internal {
namespace {

Transport* find(const Transports& transports, std::string_view name) {
  const auto at =
      std::find_if(transports.begin(), transports.end(), [&](const auto& entry) { return entry->name() == name; });
  return at == transports.end() ? nullptr : at->get();
}

struct ToldSettings {
  std::string transports;
  std::string of_rank;  // RankSettings
};

Result<ToldSettings> unpack_settings(const std::string& text) {
  net::Unpacker unpacker(text);
  ToldSettings told;
  told.transports = unpacker.text();
  told.of_rank = unpacker.text();
  if (!unpacker.complete()) return Status::remote("protocol error: the settings of a split cannot be read");
  return told;
}

}  // namespace

Status Epoch::check_split(const Settings& settings) const {
  const auto fixed = [](const char* field) {
    return Status::invalid_argument(fmt::format(
        "{} must equal that of the parent communicator, whose sockets and devices the new one uses", field));
  };
  if (settings.interface != settings_.interface) return fixed("config.interface");
  if (settings.port_low != settings_.port_low || settings.port_high != settings_.port_high) {
    return fixed("config.port_range");
  }
  if (settings.verbs != settings_.verbs) return fixed("config.verbs");
  auto transports = parse_transports(settings.transports);
  if (!transports.is_ok()) return transports.status();
  const bool by_network = thread_ranks_ != nullptr && thread_ranks_->network() != nullptr;
  bool any_network = false;
  for (const auto& transport : *transports) {
    if (find(membership_.transports, transport->name()) == nullptr) {
      return Status::invalid_argument(
          fmt::format("config.transports names {}, which is not a transport of the parent communicator ({})",
                      transport->name(), settings_.transports));
    }
    auto network = transport->make_thread_network(1);
    if (!network.is_ok()) return network.status();
    any_network = any_network || *network != nullptr;
  }
  if (by_network && !any_network) {
    return Status::invalid_argument(
        fmt::format("config.transports \"{}\" needs sockets, but the parent communicator has none: its ranks are "
                    "threads that share memory",
                    settings.transports));
  }
  return {};
}

std::string Epoch::pack_settings(const Settings& settings) const {
  RankSettings told = membership_.told[static_cast<std::size_t>(rank())];
  told.topology.clear();  // the contents of these files are inherited
  told.tuning.clear();
  told.algorithm = settings.algorithm;
  told.strict = settings.strict;
  told.reads_processes = reads_processes(settings);
  told.cuda_memory = memory::is_device_name(settings.device);
  net::Packer packer;
  packer.text(settings.transports).text(told.pack());
  return packer.bytes();
}

Epoch::Epoch(const Epoch& parent, SplitGroup group)
    : settings_(group.settings),
      family_(parent.family_),
      group_(std::move(group)),
      own_wakeup_fd_(parent.own_wakeup_fd_) {
  const auto self = std::find(group_.members.begin(), group_.members.end(), parent.rank());
  membership_.rank = static_cast<int>(self - group_.members.begin());
}

Status Epoch::join_tree(const Epoch& parent, ControlTree::GivesUp gives_up) {
  std::string id(sizeof group_.id, '\0');
  std::memcpy(id.data(), &group_.id, sizeof group_.id);
  auto secret = session_secret(parent.secret_, id);
  if (!secret.is_ok()) return secret.status();
  secret_ = *secret;
  if (group_.members.size() == 1) return {};
  auto tree = parent.tree_->split(group_.id, group_.members, std::move(gives_up));
  if (!tree.is_ok()) return tree.status();
  tree_ = std::move(*tree);
  return {};
}

Status Epoch::link(const Epoch& parent, const std::vector<std::string>& texts) {
  const std::size_t n = group_.members.size();
  // Rank 0's transports apply to all.
  std::string transports = parent.settings_.transports;
  auto membership = membership_from(parent, texts, &transports);
  if (!membership.is_ok()) return membership.status();
  membership_ = std::move(*membership);
  settings_.transports = transports;
  settings_.algorithm = membership_.algorithm;
  settings_.strict = membership_.strict;
  if (parent.thread_ranks_ != nullptr) {
    auto thread_ranks = parent.thread_ranks_->split(group_.id, group_.members, membership_.transports);
    if (!thread_ranks.is_ok()) return thread_ranks.status();
    thread_ranks_ = std::move(*thread_ranks);
  }
  if (Status s = make_wakeup_fd(); !s.is_ok()) return s;
  if (parent.connector_ != nullptr && n > 1) {
    int apart = 0;
    for (int peer = 0; peer < ranks(); ++peer) {
      Transport* const transport = membership_.connecting(rank(), peer);
      if (peer != rank() && (transport == nullptr || transport->shared_connections() == nullptr)) ++apart;
    }
    if (apart > 0) descriptors_ = reserve_descriptors(apart + 1, settings_);
    connector_ = parent.connector_->split(group_.id, group_.members, settings_);
    if (Status s = membership_.inform_transports(); !s.is_ok()) return s;
  }
  make_link_maker();
  complete();
  process_rank_.touch();
  return {};
}

Result<Membership> Epoch::membership_from(const Epoch& parent, const std::vector<std::string>& texts,
                                          std::string* transports) const {
  RankTable<RankSettings> settings = parent.membership_.told.part(group_.members);
  if (!texts.empty()) {
    std::vector<RankSettings> anew(settings.begin(), settings.end());
    for (std::size_t r = 0; r < group_.members.size(); ++r) {
      if (texts[r].empty()) continue;
      auto told = unpack_settings(texts[r]);
      if (!told.is_ok()) return told.status();
      auto of_rank = RankSettings::unpack(told->of_rank);
      if (!of_rank.is_ok()) return of_rank.status().with_context(fmt::format("rank {}", r));
      anew[r] = std::move(*of_rank);
      if (r == 0) *transports = std::move(told->transports);
    }
    settings = RankTable<RankSettings>(std::move(anew));
  }
  auto allowed = parse_transports(*transports);
  if (!allowed.is_ok()) return allowed.status();
  for (const auto& transport : *allowed) {
    const Transport* const before = find(parent.membership_.transports, transport->name());
    if (before == nullptr) return Status::remote("protocol error: rank 0 names a transport that its ranks do not have");
    transport->inherit(*before);
  }
  // What holds for all is inherited if rank 0 tells nothing else, and not what it had wanted before.
  const SplitFrom from{parent.membership_, group_.members, texts.empty() || texts.front().empty()};
  return make_membership(rank(), parent.membership_.peers.part(group_.members), std::move(settings),
                         std::move(*allowed), &from);
}

}  // namespace tutti::internal

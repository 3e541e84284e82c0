// Makes an epoch of some ranks of another one. It uses that epoch's address table, listeners, control tree and
// descriptions of transports.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/variables.h"
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
  std::string decided;  // tell_decided()
  std::string of_rank;  // RankSettings
};

Result<ToldSettings> unpack_settings(const std::string& text) {
  net::Unpacker unpacker(text);
  ToldSettings told;
  told.decided = unpacker.text();
  told.of_rank = unpacker.text();
  if (!unpacker.complete()) return Status::remote("protocol error: the settings of a split cannot be read");
  return told;
}

}  // namespace

Status Epoch::check_split(const Settings& wanted) const {
  const auto fixed = [](const char* field) {
    return Status::invalid_argument(fmt::format(
        "{} must equal that of the parent communicator, whose sockets and devices the new one uses", field));
  };
  if (wanted.interface != settings().interface) return fixed("config.interface");
  if (wanted.port_low != settings().port_low || wanted.port_high != settings().port_high) {
    return fixed("config.port_range");
  }
  if (wanted.verbs != settings().verbs) return fixed("config.verbs");
  auto transports = parse_transports(wanted.transports);
  if (!transports.is_ok()) return transports.status();
  const bool by_network = thread_ranks_ != nullptr && thread_ranks_->network() != nullptr;
  bool any_network = false;
  for (const auto& transport : *transports) {
    if (find(membership_.transports, transport->name()) == nullptr) {
      return Status::invalid_argument(
          fmt::format("config.transports names {}, which is not a transport of the parent communicator ({})",
                      transport->name(), settings().transports));
    }
    auto network = transport->make_thread_network(1);
    if (!network.is_ok()) return network.status();
    any_network = any_network || *network != nullptr;
  }
  if (by_network && !any_network) {
    return Status::invalid_argument(
        fmt::format("config.transports \"{}\" needs sockets, but the parent communicator has none: its ranks are "
                    "threads that share memory",
                    wanted.transports));
  }
  return {};
}

std::string Epoch::pack_settings(const Settings& settings) const {
  RankSettings told = membership_.told[static_cast<std::size_t>(rank())];
  told.topology.clear();  // the contents of these files are inherited
  told.tuning.clear();
  told.reads_processes = reads_processes(settings);
  told.cuda_memory = memory::is_device_name(settings.device);
  net::Packer packer;
  packer.text(tell_decided(settings)).text(told.pack());
  return packer.bytes();
}

Epoch::Epoch(const Epoch& parent, SplitGroup group)
    : family_(parent.family_), group_(std::move(group)), own_wakeup_fd_(parent.own_wakeup_fd_) {
  membership_.settings = group_.settings;
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
  auto membership = membership_from(parent, texts);
  if (!membership.is_ok()) return membership.status();
  membership_ = std::move(*membership);
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
    if (apart > 0) descriptors_ = reserve_descriptors(apart + 1, settings());
    connector_ = parent.connector_->split(group_.id, group_.members, settings());
    if (Status s = membership_.inform_transports(); !s.is_ok()) return s;
  }
  if (Status s = make_link_maker(); !s.is_ok()) return s;
  complete();
  process_rank_.touch();
  return {};
}

Result<Membership> Epoch::membership_from(const Epoch& parent, const std::vector<std::string>& texts) const {
  Settings settings = group_.settings;
  inherit_decided(parent.settings(), &settings);  // if rank 0 tells nothing else
  RankTable<RankSettings> of_ranks = parent.membership_.told.part(group_.members);
  if (!texts.empty()) {
    std::vector<RankSettings> anew(of_ranks.begin(), of_ranks.end());
    for (std::size_t r = 0; r < group_.members.size(); ++r) {
      if (texts[r].empty()) continue;
      auto told = unpack_settings(texts[r]);
      if (!told.is_ok()) return told.status();
      auto of_rank = RankSettings::unpack(told->of_rank);
      if (!of_rank.is_ok()) return of_rank.status().with_context(fmt::format("rank {}", r));
      anew[r] = std::move(*of_rank);
      if (r != 0) continue;
      if (Status s = hear_decided(told->decided, &settings); !s.is_ok()) return s;
    }
    of_ranks = RankTable<RankSettings>(std::move(anew));
  }
  auto allowed = parse_transports(settings.transports);
  if (!allowed.is_ok()) return allowed.status();
  for (const auto& transport : *allowed) {
    const Transport* const before = find(parent.membership_.transports, transport->name());
    if (before == nullptr) return Status::remote("protocol error: rank 0 names a transport that its ranks do not have");
    transport->inherit(*before);
  }
  const SplitFrom from{parent.membership_, group_.members};
  return make_membership(rank(), std::move(settings), parent.membership_.peers.part(group_.members),
                         std::move(of_ranks), std::move(*allowed), &from);
}

}  // namespace tutti::internal

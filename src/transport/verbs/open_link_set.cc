#include "transport/verbs/open_link_set.h"

#include <fmt/core.h>

#include <cstdint>
#include <utility>

#include "transport/verbs/connection_manager.h"
#include "transport/verbs/link.h"

namespace tutti::internal::transport::verbs {

Result<std::unique_ptr<Connection>> OpenLinkSet::make_connection(const PeerPorts& peer,
                                                                 const std::vector<std::size_t>& own) {
  auto inbox = PinnedPages<Inbox>::create();
  if (!inbox.is_ok()) return inbox.status();
  auto outbox = PinnedPages<Outbox>::create();
  if (!outbox.is_ok()) return outbox.status();
  auto connection = std::make_unique<Connection>(peer.peer, std::move(*inbox), std::move(*outbox), completions_);
  for (const std::size_t index : own) {
    auto opened = context_->device(index);
    if (!opened.is_ok()) return opened.status();
    if (Status s = connection->add_rail(**opened, index, peer.queue_pairs); !s.is_ok()) return s;
  }
  connection->create_pairs(peer.queue_pairs, context_->options());
  return connection;
}

Status OpenLinkSet::probe() {
  PeerPorts nobody;
  auto connection = make_connection(nobody, {0});
  if (!connection.is_ok()) return connection.status();
  return context_->through_manager(context_->ports()[0]) ? Status() : (*connection)->pairs()[0].create();
}

void OpenLinkSet::note_rails(Connection& connection, const ConnectionInfo& peer) {
  for (std::size_t r = 0; r < connection.rails().size(); ++r) {
    connection.rails()[r].peer_inbox = peer.rail[r].inbox;
    connection.rails()[r].peer_rkey = peer.rail[r].rkey;
  }
}

Status OpenLinkSet::connect_by_exchange(Connection& connection, const ConnectionInfo& peer) {
  for (std::size_t i = 0; i < connection.pairs().size(); ++i) {
    if (Status s = connection.pairs()[i].connect(peer.endpoint[i]); !s.is_ok()) return s;
  }
  return {};
}

Result<std::unique_ptr<Link>> OpenLinkSet::connect(UniqueFd socket, bool lower, const PeerPorts& peer,
                                                   Deadline deadline) {
  const std::vector<Port>& ports = context_->ports();
  const auto rails = lower ? pair_ports(ports, peer.own_local, peer.ports, peer.peer_local, peer.rails)
                           : pair_ports(peer.ports, peer.peer_local, ports, peer.own_local, peer.rails);
  if (rails.empty()) {
    return Status(Code::kSystemError, fmt::format("no RDMA port here reaches one of rank {}", peer.peer));
  }
  std::vector<std::size_t> own;
  std::vector<Port> theirs;
  for (const Rail& rail : rails) {
    own.push_back(static_cast<std::size_t>(lower ? rail.a : rail.b));
    theirs.push_back(peer.ports[static_cast<std::size_t>(lower ? rail.b : rail.a)]);
  }
  auto made = make_connection(peer, own);
  if (!made.is_ok()) return made.status();
  Connection& connection = **made;

  // All rails are of one fabric, on both sides.
  const bool managed = context_->through_manager(ports[own[0]]);
  ConnectionInfo info;
  info.managed = managed ? 1 : 0;
  info.rails = static_cast<std::uint16_t>(connection.rails().size());
  info.pairs = static_cast<std::uint16_t>(connection.pairs().size());
  for (std::size_t r = 0; r < connection.rails().size(); ++r) {
    info.rail[r].inbox = reinterpret_cast<std::uintptr_t>(&connection.inbox());
    info.rail[r].rkey = connection.rails()[r].inbox->rkey;
  }
  std::shared_ptr<ManagedPairs> manager;
  if (managed) {
    auto created = ManagedPairs::create();
    if (!created.is_ok()) return created.status();
    manager = std::move(*created);
    if (Status s = lower ? manager->listen(connection, &info) : Status(); !s.is_ok()) return s;
  } else {
    for (std::size_t i = 0; i < connection.pairs().size(); ++i) {
      if (Status s = connection.pairs()[i].create(); !s.is_ok()) return s;
      info.endpoint[i] = connection.pairs()[i].endpoint();
    }
  }
  const Exchange exchange(socket.get(), peer.peer, peer.failure, deadline);
  auto answer = exchange.swap(info);
  if (!answer.is_ok()) return answer.status();
  note_rails(connection, *answer);
  Status connected = managed ? manager->connect(connection, lower, theirs, *answer, exchange)
                             : connect_by_exchange(connection, *answer);
  if (!connected.is_ok()) return connected;
  // A queue pair that is not ready drops messages.
  if (Status s = exchange.meet(1); !s.is_ok()) return s;
  if (Status s = connection.keep(std::move(socket), shared_from_this(), std::move(manager)); !s.is_ok()) return s;
  return make_link(std::move(*made), registrations_, context_->registers_any_memory());
}

}  // namespace tutti::internal::transport::verbs

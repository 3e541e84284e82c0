// Lets ranks of one machine in several network namespaces share memory: while all join, each opens the Unix sockets by
// path of the ranks that it will dial. Then the files are removed. If a rank dies in that time, its file may stay
// (docs/security.md).
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/log.h"
#include "epoch/epoch.h"
#include "join/join.h"
#include "net/socket.h"

namespace tutti::internal {
namespace {

bool are_apart(const PeerInfo& a, const PeerInfo& b) {
  return a.same_machine(b) && a.network_namespace != b.network_namespace;
}

// Whether any two ranks of one machine are in different namespaces.
bool any_apart(const std::vector<PeerInfo>& peers) {
  std::map<decltype(PeerInfo::boot), const PeerInfo*> first_of_machine;
  return std::any_of(peers.begin(), peers.end(), [&](const PeerInfo& peer) {
    return are_apart(*first_of_machine.try_emplace(peer.boot, &peer).first->second, peer);
  });
}

}  // namespace

// All ranks have the same transports and the same address table, so all take part in the exchanges or none does.
Result<std::vector<PeerInfo>> Epoch::meet_across_namespaces(std::vector<PeerInfo> known, const Transports& transports,
                                                            PeerInfo* self, Deadline deadline) {
  bool wanted = false;
  bool has_tcp = false;
  for (const auto& transport : transports) {
    const auto spec = transport->connects_by();
    wanted = wanted || (spec && spec->across_namespaces);
    has_tcp = has_tcp || (spec && spec->kind == ConnectionKind::kTcp);
  }
  if (!wanted || !any_apart(known)) return known;
  if (std::any_of(known.begin(), known.end(), [&](const PeerInfo& peer) { return are_apart(*self, peer); })) {
    const Status s = connector_->listen_on_path(self).with_context(
        "a socket for the ranks of this machine in other network namespaces");
    if (!s.is_ok() && !has_tcp) {
      return Status(
          s.code(),
          s.message() + ". Set TMPDIR to a folder that this rank can write to, or add tcp to TUTTI_TRANSPORTS");
    }
    if (!s.is_ok())
      log::warn(fmt::format("rank {} reaches some ranks of its machine over TCP: {}", rank(), s.message()));
  }
  auto peers = exchange(*self, deadline);
  if (!peers.is_ok()) return peers;
  connector_->open_paths(*peers);
  auto all_have = tree_->all_gather(std::string(), deadline);
  connector_->remove_path();
  if (all_have.is_ok()) return peers;
  for (const PeerInfo& peer : *peers) {
    if (are_apart(*self, peer) && !peer.unix_path.empty()) net::remove_own_socket(peer.unix_path);
  }
  return all_have.status();
}

}  // namespace tutti::internal

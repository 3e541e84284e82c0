#include "epoch/epoch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "join/join.h"
#include "join/root_service.h"
#include "transport/adapter.h"
#include "transport/registry.h"
#include "transport/shm/arena.h"

namespace tutti::internal {
namespace {

bool any_connects_by(const Transports& transports, ConnectionKind kind) {
  return std::any_of(transports.begin(), transports.end(), [&](const auto& transport) {
    const auto spec = transport->connects_by();
    return spec && spec->kind == kind;
  });
}

}  // namespace

Epoch::Epoch(Job job, Settings settings, std::shared_ptr<ThreadRanks> thread_ranks)
    : secret_(job.secret),
      address_(std::move(job.address)),
      tree_(std::move(job.tree)),
      descriptors_(std::move(job.descriptors)),
      thread_ranks_(std::move(thread_ranks)) {
  membership_.rank = job.rank;
  membership_.settings = std::move(settings);
}

Epoch::~Epoch() {
  if (tree_ != nullptr) tree_->leave();
}

Status Epoch::join(Deadline deadline) {
  family_ = std::make_shared<Family>(rank());
  if (Status s = make_wakeup_fd(); !s.is_ok()) return s;
  if (Status s = connect(deadline); !s.is_ok()) return s;
  complete();
  return {};
}

Status Epoch::make_wakeup_fd() {
  if (thread_ranks_ != nullptr || own_wakeup_fd_) return {};
  auto own = transport::WakeupFd::create();
  if (!own.is_ok()) return own.status();
  own_wakeup_fd_ = std::move(*own);
  return {};
}

std::uint64_t Epoch::public_id() const {
  std::uint64_t id = 0;
  auto derived = guarded_result([&] { return session_secret(secret_, "public id"); });
  if (derived.is_ok()) std::memcpy(&id, derived->data(), sizeof id);
  return std::max<std::uint64_t>(id, 1);
}

Result<std::vector<std::string>> Epoch::all_gather(const std::string& own, Deadline deadline) const {
  if (tree_ == nullptr) return std::vector<std::string>{own};
  return tree_->all_gather(own, deadline);
}

Result<std::vector<PeerInfo>> Epoch::exchange(const PeerInfo& mine, Deadline deadline) {
  if (tree_ == nullptr) return std::vector<PeerInfo>{mine};
  auto texts = tree_->all_gather(mine.serialize(), deadline);
  if (!texts.is_ok()) return texts.status();
  std::vector<PeerInfo> peers;
  for (const std::string& text : *texts) {
    auto peer = PeerInfo::parse(text);
    if (!peer.is_ok()) return peer.status();
    if (peer->rank != static_cast<int>(peers.size())) return Status::remote("protocol error: a rank's number is wrong");
    peers.push_back(std::move(*peer));
  }
  return peers;
}

Status Epoch::connect(Deadline deadline) {
  auto transports = parse_transports(settings().transports);
  if (!transports.is_ok()) return transports.status().with_context("rank 0");
  const bool in_process = thread_ranks_ != nullptr && thread_ranks_->network() != nullptr;
  if (const auto& first = transports->front(); !first->connects_by() && !in_process && tree_ != nullptr) {
    return Status::invalid_usage(
        fmt::format("the transport {} serves only ranks that are threads of one process", first->name()));
  }
  const int rank = membership_.rank;
  // Threads that were made together share the memory of their process.
  const std::string memory_trouble = in_process ? "" : transport::shm::probe_shared_memory().message();
  auto described = describe_self(rank, settings(), memory_trouble);
  if (!described.is_ok()) return described.status();
  PeerInfo& self = *described;
  if (tree_ != nullptr && !in_process) {
    auto listening =
        Connector::listen(settings(), any_connects_by(*transports, ConnectionKind::kUnix),
                          any_connects_by(*transports, ConnectionKind::kTcp), rank, secret_, address_, &self);
    if (!listening.is_ok()) return listening.status();
    connector_ = std::move(*listening);
  }
  auto peers = exchange(self, deadline);
  if (!peers.is_ok()) return peers.status();
  if (connector_ != nullptr && thread_ranks_ != nullptr) {
    descriptors_ = reserve_descriptors(static_cast<int>(peers->size()), settings());
  }
  if (connector_ != nullptr) {
    peers = meet_across_namespaces(std::move(*peers), *transports, &self, deadline);
    if (!peers.is_ok()) return peers.status();
  }
  auto membership = make_membership(rank, settings(), std::move(*peers), std::move(*transports));
  if (!membership.is_ok()) return membership.status();
  membership_ = std::move(*membership);
  if (Status s = membership_.check_shared_memory(); !s.is_ok()) return s;
  if (connector_ != nullptr) {
    if (Status s = tell_transports(&self, deadline); !s.is_ok()) return s;
  }
  return make_link_maker();
}

Status Epoch::tell_transports(PeerInfo* self, Deadline deadline) {
  auto own = RankSettings::unpack(self->settings);
  if (!own.is_ok()) return own.status();
  for (const auto& transport : membership_.transports) {
    auto told = transport->tell(membership_);
    if (!told.is_ok()) return told.status();
    if (told->has_value()) own->by_transport.emplace(transport->name(), std::move(**told));
  }
  if (own->by_transport.empty()) return {};
  self->settings = own->pack();
  auto peers = exchange(*self, deadline);
  return peers.is_ok() ? membership_.hear(std::move(*peers)) : peers.status();
}

Status Epoch::make_link_maker() {
  // Ranks that were made together have no thread of a control tree that would do it.
  if (thread_ranks_ != nullptr) membership_.settings.reconnect_ms = 0;
  if (thread_ranks_ != nullptr && thread_ranks_->network() != nullptr) {
    link_maker_ = make_thread_links(thread_ranks_, membership_);
  } else if (connector_ != nullptr) {
    std::vector<ConnectionSpec> specs;
    for (int other = 0; other < ranks(); ++other) {
      const Transport* const transport = membership_.connecting(rank(), other);
      specs.push_back(transport != nullptr ? transport->connects_by().value_or(ConnectionSpec()) : ConnectionSpec());
    }
    connector_->set_peers(membership_.peers, std::move(specs));
    link_maker_ = make_connected_links(*connector_, membership_, wakeup_fd());
    if (membership_.settings.reconnect_ms > 0) return connector_->reconnector().begin();
  }
  return {};
}

void Epoch::complete() {
  const Membership& m = membership_;
  const PeerInfo& self = m.peers[static_cast<std::size_t>(rank())];
  shares_process_ = std::count_if(m.peers.begin(), m.peers.end(),
                                  [&](const PeerInfo& peer) { return peer.process == self.process; }) > 1;
  process_rank_.enter(secret_);
  // Ranks that are made together are made by threads that end afterwards.
  if (thread_ranks_ == nullptr) process_rank_.touch();
  waiter_ = std::make_unique<executor::Waiter>(
      wakeup_fd(), *failure_, m.oversubscribed, settings().timeout_ms, settings().moves,
      executor::PreferredProcessor{m.preferred_processor, m.preferred_processor_step_bytes});
  plans_ = std::make_unique<Plans>(m, link_maker_.get(), tree_.get(), *failure_, *waiter_, settings().timeout_ms);
}

}  // namespace tutti::internal

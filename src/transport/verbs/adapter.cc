#include "transport/verbs/adapter.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/log.h"
#include "net/frame.h"
#include "transport/verbs/costs.h"
#include "transport/verbs/rdma_context.h"

namespace tutti::internal {
namespace {

namespace verbs = transport::verbs;

// RDMA goes to memory, whatever the size: 5 to 10 % faster than 128 KiB over soft-RoCE.
constexpr std::size_t kVerbsSliceBytes = 512 * 1024;

// By rank: its position among the ranks of its machine.
std::vector<verbs::LocalPosition> local_positions(const RankTable<PeerInfo>& peers) {
  std::vector<verbs::LocalPosition> positions;
  std::map<decltype(PeerInfo::boot), int> ranks_of;
  for (const PeerInfo& p : peers) positions.push_back({p.same_machine(p) ? ranks_of[p.boot]++ : 0, 1});
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const PeerInfo& p = peers[rank];
    if (p.same_machine(p)) positions[rank].local_ranks = ranks_of[p.boot];
  }
  return positions;
}

class VerbsTransport final : public PlainTransport {
 public:
  explicit VerbsTransport(bool asked) : asked_(asked) {}

  [[nodiscard]] std::string_view name() const override { return "verbs"; }
  [[nodiscard]] TransportCosts costs(const Ranks&) const override { return verbs::costs(); }
  [[nodiscard]] std::size_t slice_bytes(const Ranks&, Collective) const override { return kVerbsSliceBytes; }
  Result<std::optional<std::string>> tell(const Ranks& ranks) override;
  Status hear(const std::vector<std::string>& told, const Ranks& ranks) override;
  // The family shares the devices. If the user asked for RDMA, the parent has logged the warning.
  void inherit(const Transport& parent) override {
    use(static_cast<const VerbsTransport&>(parent).context_);
    asked_ = false;
  }
  [[nodiscard]] bool connects(const Ranks& ranks, int a, int b) const override {
    return !told_.empty() && !ranks.same_host(a, b) && trouble_between(ranks, std::min(a, b), std::max(a, b)).empty();
  }
  // The connection stays open to detect the death of the peer.
  [[nodiscard]] std::optional<ConnectionSpec> connects_by() const override {
    return ConnectionSpec{ConnectionKind::kTcp, 1};
  }
  [[nodiscard]] bool waits_for_peer() const override { return true; }
  Result<std::unique_ptr<transport::Link>> make_link(PeerConnection channel, const LinkOwner& owner,
                                                     Deadline deadline) override;

 private:
  void use(std::shared_ptr<verbs::RdmaContext> context) {
    context_ = std::move(context);
    if (context_ != nullptr) links_ = context_->make_link_set();
  }
  // Why ranks a < b cannot use RDMA; empty: they can.
  [[nodiscard]] std::string trouble_between(const Ranks& ranks, int a, int b) const;
  [[nodiscard]] const RdmaTold& told(int rank) const { return told_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] verbs::LocalPosition position(int rank) const { return positions_[static_cast<std::size_t>(rank)]; }

  bool asked_;
  std::shared_ptr<verbs::RdmaContext> context_;  // the family's; null: this rank has none
  std::shared_ptr<verbs::LinkSet> links_;        // this communicator's
  std::vector<RdmaTold> told_;                   // by rank; empty until all have
  std::vector<verbs::LocalPosition> positions_;  // by rank
};

// Ranks that can all share memory need no RDMA.
Result<std::optional<std::string>> VerbsTransport::tell(const Ranks& ranks) {
  if (ranks.hosts.size() <= 1) return std::optional<std::string>();
  auto options = verbs::parse_options(ranks.settings.verbs);
  if (!options.is_ok()) return options.status();
  RdmaTold own;
  own.rails = options->rails;
  own.queue_pairs = options->queue_pairs;
  if (ranks.settings.encrypt == Encryption::kOn) {
    own.trouble = "it does not encrypt, and TUTTI_ENCRYPT=on";
    return std::optional(own.pack());
  }
  auto opened = verbs::RdmaContext::open(*options, ranks.far_nodes);
  if (opened.is_ok()) {
    use(std::move(*opened));
    own.ports = context_->ports();
  } else if (opened.status().code() == Code::kInvalidUsage) {
    return opened.status();
  } else {
    own.trouble = opened.status().message();
  }
  return std::optional(own.pack());
}

// kSystemError if this rank must use RDMA and cannot.
Status VerbsTransport::hear(const std::vector<std::string>& told, const Ranks& ranks) {
  for (const std::string& bytes : told) {
    auto one = RdmaTold::unpack(bytes);
    if (!one.is_ok()) return one.status().with_context(fmt::format("rank {}", told_.size()));
    told_.push_back(std::move(*one));
  }
  positions_ = local_positions(ranks.peers);
  const int rank = ranks.rank;
  bool logged = false;
  for (int other = 0; other < ranks.ranks(); ++other) {
    if (ranks.same_host(rank, other)) continue;
    const std::string trouble = trouble_between(ranks, std::min(rank, other), std::max(rank, other));
    if (trouble.empty()) continue;
    const Transport* const instead = ranks.connecting(rank, other);
    if (instead == nullptr) {
      return Status(Code::kSystemError, trouble + " (TUTTI_TRANSPORTS names verbs, but not tcp)");
    }
    if (std::exchange(logged, true)) continue;
    const std::string line = fmt::format("rank {}: {} instead of RDMA: {}", rank, instead->name(), trouble);
    asked_ ? log::warn(line) : log::info(line);
  }
  return {};
}

std::string VerbsTransport::trouble_between(const Ranks& ranks, int a, int b) const {
  for (const int other : {a, b}) {
    if (!told(other).ports.empty()) continue;
    return fmt::format("rank {} (host {}) cannot use RDMA: {}", other,
                       ranks.peers[static_cast<std::size_t>(other)].hostname, told(other).trouble);
  }
  if (!verbs::pair_ports(told(a).ports, position(a), told(b).ports, position(b), told(0).rails).empty()) return {};
  return fmt::format("no RDMA port of rank {} reaches one of rank {} (another fabric)", a, b);
}

Result<std::unique_ptr<transport::Link>> VerbsTransport::make_link(PeerConnection channel, const LinkOwner& owner,
                                                                   Deadline deadline) {
  const int rank = owner.ranks.rank;
  const int peer = channel.peer;
  if (channel.streams[0].encrypted()) {
    return Status::invalid_usage(
        fmt::format("the route to rank {} is to be encrypted (TUTTI_ENCRYPT=wan), which RDMA cannot do. Set "
                    "TUTTI_TRANSPORTS=shm,tcp",
                    peer));
  }
  const verbs::PeerPorts ports{peer,          told(peer).ports,    position(rank), position(peer),
                               told(0).rails, told(0).queue_pairs, &owner.failure};
  auto link = links_->connect(channel.streams[0].release(), rank < peer, ports, deadline);
  if (link.is_ok()) return link;
  return link.status().with_context(fmt::format("RDMA with rank {}", peer));
}

}  // namespace

std::string RdmaTold::pack() const {
  net::Packer packer;
  packer.text(trouble).number(rails).number(queue_pairs);
  verbs::pack(&packer, ports);
  return packer.bytes();
}

Result<RdmaTold> RdmaTold::unpack(const std::string& bytes) {
  net::Unpacker unpacker(bytes);
  RdmaTold told;
  told.trouble = unpacker.text();
  told.rails = unpacker.number<std::int32_t>();
  told.queue_pairs = unpacker.number<std::int32_t>();
  constexpr int kMost = verbs::kMaxRails;
  const bool read = verbs::unpack(&unpacker, &told.ports) && unpacker.complete();
  if (!read || told.rails < 0 || told.rails > kMost || told.queue_pairs < 1 || told.queue_pairs > kMost) {
    return Status::remote("protocol error: its RDMA ports cannot be read");
  }
  return told;
}

std::shared_ptr<Transport> make_verbs_transport(const std::optional<std::string>& option, bool asked) {
  return option ? nullptr : std::make_shared<VerbsTransport>(asked);
}

}  // namespace tutti::internal

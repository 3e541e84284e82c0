#include "transport/verbs/rdma_context.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "memory/registration.h"
#include "transport/verbs/connection.h"
#include "transport/verbs/connection_manager.h"
#include "transport/verbs/device.h"
#include "transport/verbs/exchange.h"
#include "transport/verbs/link.h"
#include "transport/verbs/ports/devices.h"

namespace tutti::internal::transport::verbs {
namespace {

// User memory that stays registered between operations.
constexpr std::size_t kMostRegisteredBytes = std::size_t{64} << 30;

class OpenRdmaContext final : public RdmaContext,
                              public memory::Registrar,
                              public std::enable_shared_from_this<OpenRdmaContext> {
 public:
  explicit OpenRdmaContext(const Options& options, std::vector<Port> ports)
      : options_(options), ports_(std::move(ports)) {
    devices_.resize(ports_.size());
    std::string why;
    watch_ = options_.cache ? memory::MemoryMonitor::instance(&why) : nullptr;
    if (options_.cache && watch_ == nullptr) {
      log::warn(
          "RDMA copies through its slots, but for memory of tuttiMemAlloc, as nothing tells when memory is unmapped: " +
          why);
    }
    cache_ = std::make_unique<memory::RegistrationCache>(*this, watch_, kMostRegisteredBytes);
  }

  Status probe();
  [[nodiscard]] std::shared_ptr<RdmaContext> duplicate() const override {
    return std::make_shared<OpenRdmaContext>(options_, ports_);
  }
  [[nodiscard]] const std::vector<Port>& ports() const override { return ports_; }
  Result<std::unique_ptr<Link>> connect(UniqueFd socket, bool lower, const PeerPorts& peer, Deadline deadline) override;

 private:
  // Memory registered with all devices in use.
  struct Registration {
    std::array<Owned<ibv_mr>, kMaxRails> by_device;
  };

  Status register_memory(const std::byte* begin, std::size_t bytes, memory::RdmaKeys* keys,
                         std::uint64_t* handle) override;
  void deregister(std::uint64_t handle) override { registrations_.erase(handle); }

  [[nodiscard]] bool through_manager(const Port& port) const {
    return options_.connect == Connect::kManager ||
           (options_.connect == Connect::kAuto && port.fabric == Fabric::kIwarp);
  }
  Result<Device*> device(std::size_t index);
  Result<std::unique_ptr<Connection>> make_connection(const PeerPorts& peer, const std::vector<std::size_t>& own);
  static Status connect_by_exchange(Connection& connection, const ConnectionInfo& peer);
  static void note_rails(Connection& connection, const ConnectionInfo& peer);

  const Options options_;
  const std::vector<Port> ports_;
  std::vector<std::unique_ptr<Device>> devices_;  // by port; null until used
  memory::MemoryMonitor* watch_ = nullptr;
  std::map<std::uint64_t, Registration> registrations_;
  std::uint64_t next_handle_ = 1;
  std::unique_ptr<memory::RegistrationCache> cache_;
};

Result<Device*> OpenRdmaContext::device(std::size_t index) {
  if (devices_[index] == nullptr) {
    auto device = Device::open(ports_[index], through_manager(ports_[index]));
    if (!device.is_ok()) return device.status();
    // What is registered so far is not with this device.
    cache_->clear();
    devices_[index] = std::move(*device);
  }
  return devices_[index].get();
}

Status OpenRdmaContext::register_memory(const std::byte* begin, std::size_t bytes, memory::RdmaKeys* keys,
                                        std::uint64_t* handle) {
  Registration registration;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i] == nullptr) continue;
    auto memory = devices_[i]->register_memory(begin, bytes);
    if (!memory.is_ok()) return memory.status();
    keys->lkeys[i] = (*memory)->lkey;
    keys->rkeys[i] = (*memory)->rkey;
    registration.by_device[i] = std::move(*memory);
  }
  *handle = next_handle_++;
  registrations_.emplace(*handle, std::move(registration));
  return {};
}

Result<std::unique_ptr<Connection>> OpenRdmaContext::make_connection(const PeerPorts& peer,
                                                                     const std::vector<std::size_t>& own) {
  auto inbox = PinnedPages<Inbox>::create();
  if (!inbox.is_ok()) return inbox.status();
  auto outbox = PinnedPages<Outbox>::create();
  if (!outbox.is_ok()) return outbox.status();
  auto connection = std::make_unique<Connection>(peer.peer, std::move(*inbox), std::move(*outbox));
  for (const std::size_t index : own) {
    auto opened = device(index);
    if (!opened.is_ok()) return opened.status();
    if (Status s = connection->add_rail(**opened, index, peer.queue_pairs); !s.is_ok()) return s;
  }
  connection->create_pairs(peer.queue_pairs, options_);
  return connection;
}

// Everything that a link to some peer will need, on the port that is used first.
Status OpenRdmaContext::probe() {
  PeerPorts nobody;
  auto connection = make_connection(nobody, {0});
  if (!connection.is_ok()) return connection.status();
  return through_manager(ports_[0]) ? Status() : (*connection)->pairs()[0].create();
}

void OpenRdmaContext::note_rails(Connection& connection, const ConnectionInfo& peer) {
  for (std::size_t r = 0; r < connection.rails().size(); ++r) {
    connection.rails()[r].peer_inbox = peer.rail[r].inbox;
    connection.rails()[r].peer_rkey = peer.rail[r].rkey;
  }
}

Status OpenRdmaContext::connect_by_exchange(Connection& connection, const ConnectionInfo& peer) {
  for (std::size_t i = 0; i < connection.pairs().size(); ++i) {
    if (Status s = connection.pairs()[i].connect(peer.endpoint[i]); !s.is_ok()) return s;
  }
  return {};
}

Result<std::unique_ptr<Link>> OpenRdmaContext::connect(UniqueFd socket, bool lower, const PeerPorts& peer,
                                                       Deadline deadline) {
  const auto rails = lower ? pair_ports(ports_, peer.own_local, peer.ports, peer.peer_local, peer.rails)
                           : pair_ports(peer.ports, peer.peer_local, ports_, peer.own_local, peer.rails);
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
  const bool managed = through_manager(ports_[own[0]]);
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
  // A queue pair that is not ready drops what it is sent.
  if (Status s = exchange.meet(1); !s.is_ok()) return s;
  if (Status s = connection.keep(std::move(socket), shared_from_this(), std::move(manager)); !s.is_ok()) return s;
  return make_link(std::move(*made), *cache_, watch_ != nullptr);
}

}  // namespace

Result<std::shared_ptr<RdmaContext>> RdmaContext::open(const Options& options, const std::vector<int>& far_nodes) {
  auto ports = choose_ports(options, far_nodes);
  if (!ports.is_ok()) return ports.status();
  if (ports->size() > kMaxRails) ports->resize(kMaxRails);
  auto rdma_context = std::make_shared<OpenRdmaContext>(options, std::move(*ports));
  if (Status s = rdma_context->probe(); !s.is_ok()) return s;
  return std::shared_ptr<RdmaContext>(std::move(rdma_context));
}

}  // namespace tutti::internal::transport::verbs

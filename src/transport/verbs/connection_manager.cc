#include "transport/verbs/connection_manager.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "base/first_use.h"
#include "base/log.h"
#include "base/symbol.h"
#include "net/address.h"
#include "net/auth.h"
#include "os/held_signal.h"

namespace tutti::internal::transport::verbs {
namespace {

constexpr const char* kLibraryName = "librdmacm.so.1";
constexpr int kResolveMs = 5000;
constexpr int kBacklog = 64;
constexpr int kMostPorts = 32;
constexpr int kMostFirstCredits = 3;  // see kReceives
constexpr int kAnswerMs = 200;

struct ManagerLibrary {
  decltype(&::rdma_get_devices) get_devices = nullptr;
  decltype(&::rdma_free_devices) free_devices = nullptr;
  decltype(&::rdma_create_event_channel) create_event_channel = nullptr;
  decltype(&::rdma_destroy_event_channel) destroy_event_channel = nullptr;
  decltype(&::rdma_create_id) create_id = nullptr;
  decltype(&::rdma_destroy_id) destroy_id = nullptr;
  decltype(&::rdma_bind_addr) bind_addr = nullptr;
  decltype(&::rdma_listen) listen = nullptr;
  decltype(&::rdma_get_src_port) get_src_port = nullptr;
  decltype(&::rdma_resolve_addr) resolve_addr = nullptr;
  decltype(&::rdma_resolve_route) resolve_route = nullptr;
  decltype(&::rdma_connect) connect = nullptr;
  decltype(&::rdma_accept) accept = nullptr;
  decltype(&::rdma_reject) reject = nullptr;
  decltype(&::rdma_disconnect) disconnect = nullptr;
  decltype(&::rdma_create_qp) create_qp = nullptr;
  decltype(&::rdma_destroy_qp) destroy_qp = nullptr;
  decltype(&::rdma_set_option) set_option = nullptr;
  decltype(&::rdma_get_cm_event) get_event = nullptr;
  decltype(&::rdma_ack_cm_event) ack_event = nullptr;
  decltype(&::rdma_event_str) event_text = nullptr;

  static Result<const ManagerLibrary*> load();
};

Result<ManagerLibrary> open_library() {
  void* handle = ::dlopen(kLibraryName, RTLD_NOW | RTLD_LOCAL);
  ManagerLibrary l;
  const bool all =
      handle != nullptr && find_symbol(handle, "rdma_get_devices", &l.get_devices) &&
      find_symbol(handle, "rdma_free_devices", &l.free_devices) &&
      find_symbol(handle, "rdma_create_event_channel", &l.create_event_channel) &&
      find_symbol(handle, "rdma_destroy_event_channel", &l.destroy_event_channel) &&
      find_symbol(handle, "rdma_create_id", &l.create_id) && find_symbol(handle, "rdma_destroy_id", &l.destroy_id) &&
      find_symbol(handle, "rdma_bind_addr", &l.bind_addr) && find_symbol(handle, "rdma_listen", &l.listen) &&
      find_symbol(handle, "rdma_get_src_port", &l.get_src_port) &&
      find_symbol(handle, "rdma_resolve_addr", &l.resolve_addr) &&
      find_symbol(handle, "rdma_resolve_route", &l.resolve_route) && find_symbol(handle, "rdma_connect", &l.connect) &&
      find_symbol(handle, "rdma_accept", &l.accept) && find_symbol(handle, "rdma_reject", &l.reject) &&
      find_symbol(handle, "rdma_disconnect", &l.disconnect) && find_symbol(handle, "rdma_create_qp", &l.create_qp) &&
      find_symbol(handle, "rdma_destroy_qp", &l.destroy_qp) && find_symbol(handle, "rdma_set_option", &l.set_option) &&
      find_symbol(handle, "rdma_get_cm_event", &l.get_event) &&
      find_symbol(handle, "rdma_ack_cm_event", &l.ack_event) && find_symbol(handle, "rdma_event_str", &l.event_text);
  if (all) return l;
  const char* const why = ::dlerror();
  return Status(
      Code::kSystemError,
      fmt::format(
          "this RDMA device is connected by librdmacm, which cannot be used ({}): install the package librdmacm1",
          why != nullptr ? why : kLibraryName));
}

Result<const ManagerLibrary*> ManagerLibrary::load() {
  static constinit FirstUse<const Result<ManagerLibrary>> first_use;
  const Result<ManagerLibrary>& library = first_use.get(open_library);
  if (!library.is_ok()) return library.status();
  return &library.value();
}

// Sent by the connecting side: proves that it is the peer, and says which queue pair this is.
struct Ticket {
  std::array<std::uint8_t, 16> token{};
  std::uint32_t pair = 0;
};

class ConnectionManager final : public ManagedPairs {
 public:
  explicit ConnectionManager(const ManagerLibrary& library) : library_(library) {}
  ~ConnectionManager() override;
  Status open();
  Status listen(Connection& connection, ConnectionInfo* own) override;
  Status connect(Connection& connection, bool lower, const std::vector<Port>& peer_ports, const ConnectionInfo& peer,
                 const Exchange& exchange) override;

 private:
  // Gives ids_ one more.
  Status prepare(Connection& connection, std::size_t pair, const net::Address& to, const Exchange& exchange);
  Status connect_one(Connection& connection, std::size_t pair, const Port& to, const ConnectionInfo& peer,
                     const Exchange& exchange);
  void destroy(rdma_cm_id* id) const;
  static Status speak_first(Connection& connection, const Exchange& exchange);
  Status accept_all(Connection& connection, const Exchange& exchange);
  // True if it was the peer who asked.
  Result<bool> accept_one(Connection& connection, rdma_cm_event* event);
  Status make_pair(Connection& connection, std::size_t pair, rdma_cm_id* id);
  // Waits for the next event; the caller acknowledges it.
  Result<rdma_cm_event*> next_event(const Exchange& exchange);
  // Waits for one event of `id`.
  Status expect(rdma_cm_id* id, rdma_cm_event_type wanted, const Exchange& exchange);
  static Result<net::Address> address_of(const Port& port, std::uint16_t number);
  static Status failed(const std::string& what) { return Status::system("RDMA connection manager: " + what, errno); }

  const ManagerLibrary& library_;
  rdma_event_channel* channel_ = nullptr;
  std::vector<rdma_cm_id*> listeners_;
  std::vector<rdma_cm_id*> ids_;  // with a queue pair each, once made
  std::array<std::uint8_t, 16> token_{};
  std::array<bool, kMaxPairs> taken_{};  // pairs that the peer has asked for
};

Status ConnectionManager::open() {
  channel_ = library_.create_event_channel();
  if (channel_ == nullptr) return failed("event channel");
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) return failed("event channel");
  return {};
}

ConnectionManager::~ConnectionManager() {
  const HeldSignal peer_gone(SIGPIPE);  // soft-iWARP sends messages of its own
  for (rdma_cm_id* id : ids_) {
    if (id->qp != nullptr) (void)library_.disconnect(id);
    destroy(id);
  }
  for (rdma_cm_id* id : listeners_) (void)library_.destroy_id(id);
  if (channel_ != nullptr) library_.destroy_event_channel(channel_);
}

void ConnectionManager::destroy(rdma_cm_id* id) const {
  if (id->qp != nullptr) library_.destroy_qp(id);
  (void)library_.destroy_id(id);
}

Result<net::Address> ConnectionManager::address_of(const Port& port, std::uint16_t number) {
  if (port.address.empty()) {
    return Status(
        Code::kSystemError,
        fmt::format("RDMA device {} port {} has no IP address, which its connections need", port.device, port.port));
  }
  const bool ipv6 = port.address.find(':') != std::string::npos;
  return net::parse_address((ipv6 ? fmt::format("[{}]:", port.address) : port.address + ":") + std::to_string(number));
}

Status ConnectionManager::listen(Connection& connection, ConnectionInfo* own) {
  if (Status s = net::random_bytes(token_.data(), token_.size()); !s.is_ok()) return s;
  own->token = token_;
  for (std::size_t r = 0; r < connection.rails().size(); ++r) {
    auto address = address_of(connection.rails()[r].device->port(), 0);
    if (!address.is_ok()) return address.status();
    // The kernel chooses a port in the RDMA port space, but iWARP also uses TCP's ports. A conflict shows when it
    // listens.
    int tries = 0;
    do {
      rdma_cm_id* id = nullptr;
      if (library_.create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) return failed("creating an identifier");
      listeners_.push_back(id);
      if (library_.bind_addr(id, const_cast<sockaddr*>(address->get())) != 0)
        return failed("binding to " + address->text());
      own->rail[r].manager_port = 0;
      if (library_.listen(id, kBacklog) == 0) {
        own->rail[r].manager_port = ntohs(library_.get_src_port(id));
      } else if (errno != EADDRINUSE || ++tries == kMostPorts) {
        return failed("listening on " + address->text());
      }
    } while (own->rail[r].manager_port == 0);
  }
  return {};
}

Result<rdma_cm_event*> ConnectionManager::next_event(const Exchange& exchange) {
  for (;;) {
    rdma_cm_event* event = nullptr;
    if (library_.get_event(channel_, &event) == 0) return event;
    if (errno != EAGAIN && errno != EINTR) return failed("waiting for events");
    if (Status s = exchange.pause(channel_->fd, POLLIN); !s.is_ok()) return s;
  }
}

Status ConnectionManager::expect(rdma_cm_id* id, rdma_cm_event_type wanted, const Exchange& exchange) {
  auto event = next_event(exchange);
  if (!event.is_ok()) return event.status();
  const bool right = (*event)->id == id && (*event)->event == wanted;
  const int status = (*event)->status;
  const std::string name = library_.event_text((*event)->event);
  library_.ack_event(*event);
  if (right) return {};
  return Status::remote(
      fmt::format("RDMA connection manager: {} ({}), expected {}", name, status, library_.event_text(wanted)));
}

Status ConnectionManager::make_pair(Connection& connection, std::size_t pair, rdma_cm_id* id) {
  Device& device = *connection.rails()[connection.rail_of(pair)].device;
  if (id->verbs != device.context()) {
    return Status::internal("RDMA connection manager: the route does not use the device " + device.name());
  }
  for (const std::uint32_t inline_bytes : kInlineBytes) {
    ibv_qp_init_attr attributes = connection.pairs()[pair].attributes();
    attributes.cap.max_inline_data = inline_bytes;
    if (library_.create_qp(id, device.domain(), &attributes) != 0) continue;
    return connection.pairs()[pair].adopt(id->qp, attributes.cap.max_inline_data);
  }
  const int error = errno;
  const Status why = Status::system("queue pair on " + device.name(), error);
  return Status(why.code(), why.message() + locked_memory_hint(error));
}

Status ConnectionManager::prepare(Connection& connection, std::size_t pair, const net::Address& to,
                                  const Exchange& exchange) {
  auto source = address_of(connection.rails()[connection.rail_of(pair)].device->port(), 0);
  if (!source.is_ok()) return source.status();
  rdma_cm_id* id = nullptr;
  if (library_.create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) return failed("creating an identifier");
  ids_.push_back(id);
  const Options& options = connection.pairs()[pair].options();
  if (auto tos = static_cast<std::uint8_t>(options.traffic_class); tos != 0) {
    (void)library_.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof tos);
  }
  {
    auto timeout = static_cast<std::uint8_t>(options.timeout);
    (void)library_.set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
  }
  if (library_.resolve_addr(id, const_cast<sockaddr*>(source->get()), const_cast<sockaddr*>(to.get()), kResolveMs) != 0)
    return failed("resolving " + to.text());
  if (Status s = expect(id, RDMA_CM_EVENT_ADDR_RESOLVED, exchange); !s.is_ok()) return s;
  if (library_.resolve_route(id, kResolveMs) != 0) return failed("route to " + to.text());
  if (Status s = expect(id, RDMA_CM_EVENT_ROUTE_RESOLVED, exchange); !s.is_ok()) return s;
  return make_pair(connection, pair, id);
}

// The kernel chooses a port for an identifier in the RDMA port space, but iWARP also uses TCP's ports. A conflict shows
// before anything is sent, and the next identifier gets another port.
Status ConnectionManager::connect_one(Connection& connection, std::size_t pair, const Port& to,
                                      const ConnectionInfo& peer, const Exchange& exchange) {
  auto target = address_of(to, peer.rail[connection.rail_of(pair)].manager_port);
  if (!target.is_ok()) return target.status();
  const Options& options = connection.pairs()[pair].options();
  const Ticket ticket{peer.token, static_cast<std::uint32_t>(pair)};
  rdma_conn_param parameters{};
  parameters.private_data = &ticket;
  parameters.private_data_len = sizeof ticket;
  parameters.responder_resources = parameters.initiator_depth = 1;
  parameters.retry_count = static_cast<std::uint8_t>(options.retries);
  parameters.rnr_retry_count = kReceiverNotReadyForEver;
  for (int tries = 1;; ++tries) {
    if (Status s = prepare(connection, pair, *target, exchange); !s.is_ok()) return s;
    rdma_cm_id* const id = ids_.back();
    if (library_.connect(id, &parameters) == 0) {
      return expect(id, RDMA_CM_EVENT_ESTABLISHED, exchange).with_context("connecting to " + target->text());
    }
    if (errno != EADDRINUSE || tries == kMostPorts) return failed("connecting to " + target->text());
    ids_.pop_back();
    destroy(id);
  }
}

Result<bool> ConnectionManager::accept_one(Connection& connection, rdma_cm_event* event) {
  Ticket ticket;
  const auto& request = event->param.conn;
  if (request.private_data == nullptr || request.private_data_len < sizeof ticket) return false;
  std::memcpy(&ticket, request.private_data, sizeof ticket);
  if (ticket.token != token_ || ticket.pair >= connection.pairs().size() || taken_[ticket.pair]) return false;
  taken_[ticket.pair] = true;
  ids_.push_back(event->id);
  if (Status s = make_pair(connection, ticket.pair, event->id); !s.is_ok()) return s;
  rdma_conn_param parameters{};
  parameters.responder_resources = parameters.initiator_depth = 1;
  parameters.rnr_retry_count = kReceiverNotReadyForEver;
  if (library_.accept(event->id, &parameters) != 0) return failed("accepting");
  return true;
}

Status ConnectionManager::accept_all(Connection& connection, const Exchange& exchange) {
  for (std::size_t established = 0; established < connection.pairs().size();) {
    auto event = next_event(exchange);
    if (!event.is_ok()) {
      return event.status().with_context(
          fmt::format("{} of {} queue pairs are connected", established, connection.pairs().size()));
    }
    const rdma_cm_event_type type = (*event)->event;
    Status status;
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      auto accepted = accept_one(connection, *event);
      status = accepted.status();
      if (accepted.is_ok() && !*accepted) {
        rdma_cm_id* const stranger = (*event)->id;
        (void)library_.reject(stranger, nullptr, 0);
        library_.ack_event(*event);
        (void)library_.destroy_id(stranger);
        continue;
      }
    } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
      ++established;
    } else {
      status = Status::remote(fmt::format("RDMA connection manager: {}", library_.event_text(type)));
    }
    library_.ack_event(*event);
    if (!status.is_ok()) return status;
  }
  return {};
}

// If a message arrives while the accepting side makes a queue pair ready, soft-iWARP (Linux 6.1) may deliver it only
// when another message arrives. So this side resends the credits until the peer confirms them, as often as the peer has
// posted receives for them.
Status ConnectionManager::speak_first(Connection& connection, const Exchange& exchange) {
  connection.send_first_credits();
  for (int said = 1; said < kMostFirstCredits; ++said) {
    auto answered = exchange.hears_within(kAnswerMs);
    if (!answered.is_ok()) return answered.status();
    if (*answered) break;
    log::debug("the peer has not answered this rank's first credits over RDMA: they are sent again");
    connection.send_first_credits();
  }
  return connection.status();
}

// In iWARP the connecting side sends first (RFC 5044, 7.1.2): the other side waits for its first credits.
Status ConnectionManager::connect(Connection& connection, bool lower, const std::vector<Port>& peer_ports,
                                  const ConnectionInfo& peer, const Exchange& exchange) {
  const HeldSignal peer_gone(SIGPIPE);  // soft-iWARP sends messages of its own
  if (!lower) {
    for (std::size_t pair = 0; pair < connection.pairs().size(); ++pair) {
      const Port& to = peer_ports[connection.rail_of(pair)];
      if (Status s = connect_one(connection, pair, to, peer, exchange); !s.is_ok()) return s;
    }
    return speak_first(connection, exchange);
  }
  if (Status s = accept_all(connection, exchange); !s.is_ok()) return s;
  // No further connection is expected.
  for (rdma_cm_id* id : listeners_) (void)library_.destroy_id(id);
  listeners_.clear();
  while (!connection.has_heard_all_pairs()) {
    connection.poll();
    if (!connection.status().is_ok()) return connection.status();
    if (Status s = exchange.pause(-1, 0); !s.is_ok()) return s.with_context("waiting for its first credits");
  }
  return {};
}

}  // namespace

Result<ibv_context*> manager_context(const std::string& device) {
  auto library = ManagerLibrary::load();
  if (!library.is_ok()) return library.status();
  auto verbs = Library::load();
  if (!verbs.is_ok()) return verbs.status();
  int count = 0;
  ibv_context** const list = (*library)->get_devices(&count);
  if (list == nullptr) return Status::system("opening RDMA devices through librdmacm", errno);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (device == (*verbs)->get_device_name(list[i]->device)) context = list[i];
  }
  // Frees only the list: contexts stay open.
  (*library)->free_devices(list);
  if (context == nullptr) return Status(Code::kSystemError, "librdmacm does not know RDMA device " + device);
  return context;
}

Result<std::unique_ptr<ManagedPairs>> ManagedPairs::create() {
  auto library = ManagerLibrary::load();
  if (!library.is_ok()) return library.status();
  auto manager = std::make_unique<ConnectionManager>(**library);
  if (Status s = manager->open(); !s.is_ok()) return s;
  return std::unique_ptr<ManagedPairs>(std::move(manager));
}

}  // namespace tutti::internal::transport::verbs

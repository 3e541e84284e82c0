#include "join/join.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/log.h"
#include "base/variables.h"
#include "join/root_search.h"
#include "join/root_service.h"
#include "join/running_root.h"
#include "join/tree_builder.h"
#include "join/unique_id.h"
#include "net/frame.h"
#include "net/socket.h"
#include "os/clock.h"
#include "os/kernel.h"

namespace tutti::internal {
namespace {

constexpr std::size_t kOwnDescriptors = 24;  // the tree, listeners, sleeping threads
// A failed root service reports its error to late ranks for this time; the next job may need its port. The service of a
// unique id stays longer.
constexpr std::int64_t kAfterFailureMs = 10'000;
// If a rank fails and its process runs the root service, it stays for this time, because other ranks may not have
// reached the service yet.
constexpr std::int64_t kLingerMs = 800;

Status check_rank(int rank, int ranks) {
  if (ranks < 1 || ranks > kMaxRanks) {
    return Status::invalid_argument(fmt::format("the number of ranks is {}; it must be from 1 to 1048576", ranks));
  }
  if (rank < 0 || rank >= ranks) {
    return Status::invalid_argument(fmt::format("rank is {}; it must be from 0 to {}", rank, ranks - 1));
  }
  return {};
}

Result<std::vector<net::Address>> addresses_with_port_of(int listener, const Settings& settings) {
  Result<net::Address> bound = net::local_address(listener);
  if (!bound.is_ok()) return bound.status();
  Result<std::vector<net::Address>> addresses = net::interface_addresses(settings.interface);
  if (!addresses.is_ok()) return addresses;
  for (net::Address& address : *addresses) address = address.with_port(bound->port());
  return addresses;
}

// This rank's registration: its description, or the reason why it cannot take part.
Registration registration_of(const Member& member, const std::vector<net::Address>& listening, const Status& trouble) {
  Registration registration;
  registration.rank = member.rank;
  registration.ranks = member.ranks;
  registration.pid = static_cast<std::int32_t>(os::kernel().getpid());
  registration.patience_ms = member.deadline.left_ms(INT_MAX);
  registration.host = host_name();
  registration.trouble = trouble.message();
  if (member.rank == 0) registration.decided = tell_decided(member.settings);
  if (const auto process = process_token(); process.is_ok()) registration.process = process.value();
  for (const net::Address& address : listening) registration.addresses.push_back(address.text());
  return registration;
}

// Waits until the root service has answered. If this rank gives up before, all others get its reason. But the answer
// may be the cause, and arrive a little later.
Status await_answer(net::ByteStream* root, const Member& member) {
  if (!member.gives_up) return {};
  net::PollSet set;
  Status why;
  while (!member.deadline.passed()) {
    set.clear(kFailureCheckMs);
    const std::size_t answer = set.add(*root, POLLIN);
    if (Status s = set.wait(); !s.is_ok()) return s;
    if (set.ready(answer) != 0) return {};
    if (!why.is_ok()) {
      static_cast<void>(net::send_frame(root, Report{as_told_to_peers(why)}.serialize(), member.deadline));
      return why;
    }
    why = member.gives_up();
  }
  return {};
}

// See kLingerMs. A rank that has given up has no reason to stay.
void linger(const Secret& secret, const Member& member) {
  if (member.gives_up && !member.gives_up().is_ok()) return;
  if (const auto root = find_running_root(secret)) root->await_end(Deadline::after_ms(kLingerMs));
}

// Waits for this rank's position in the tree.
Result<Placement> await_placement(net::ByteStream* root, const Member& member) {
  if (Status s = await_answer(root, member); !s.is_ok()) return s;
  Result<std::string> answer = net::recv_frame(root, kMaxPlacementBytes, member.deadline);
  if (!answer.is_ok() && answer.status().code() == Code::kRemoteError) {
    return Status::remote(
        fmt::format("{} ended before all ranks had joined: {}", kRootService, answer.status().message()));
  }
  if (!answer.is_ok()) {
    return answer.status().with_context("while waiting for the root service to register all ranks");
  }
  Result<Placement> placement = Placement::parse(*answer);
  if (placement.is_ok() && !placement->status.is_ok()) return placement->status;
  return placement;
}

// The listener for children, for ranks that have lost their parents, and for ranks that check whether this one is
// alive. `root`: the connection to the root service. The local address of that connection comes first, because the
// others can most probably reach it.
Status open_listener(const Member& member, int root, UniqueFd* listener, std::vector<net::Address>* listening) {
  Result<UniqueFd> opened = net::listen_tcp(member.settings.port_low, member.settings.port_high);
  if (!opened.is_ok()) return opened.status();
  Result<std::vector<net::Address>> addresses = addresses_with_port_of(opened->get(), member.settings);
  if (!addresses.is_ok()) return addresses.status();
  *listener = std::move(opened).value();
  *listening = std::move(addresses).value();
  if (auto here = net::local_address(root); here.is_ok()) net::put_first(listening, *here);
  net::limit_addresses(listening, net::kMaxAddresses, fmt::format("rank {}", member.rank));
  return {};
}

Result<net::ByteStream> connect_to_root(const RootPlace& root, const Secret& secret, RootKind kind,
                                        const Member& member) {
  Result<net::ByteStream> connection = find_root(root, secret, kind, member);
  if (connection.is_ok()) net::watch_silence(connection->get(), silence_limit_ms(member.settings));
  return connection;
}

// What rank 0 has decided. A rank that has asked for more does not join.
Result<Encryption> decided_encryption(const Member& member, const std::string& decided) {
  Settings settings;
  if (Status s = hear_decided(decided, &settings); !s.is_ok()) return s;
  const Encryption asked = member.settings.encrypt;
  const bool enough = asked == Encryption::kOff || settings.encrypt == Encryption::kOn || settings.encrypt == asked;
  if (enough) return settings.encrypt;
  const auto text = [](const Settings& of) { return find_variable("TUTTI_ENCRYPT")->access.write(of); };
  return Status::invalid_usage(
      fmt::format("TUTTI_ENCRYPT={} on rank {}, but {} on rank 0, whose value counts: set it there",
                  text(member.settings), member.rank, text(settings)));
}

// Joins, once the root's address is known.
Result<Job> join_through(const RootPlace& root, const Secret& secret, RootKind kind, const Member& member) {
  Job job;
  job.descriptors = reserve_descriptors(member.ranks, member.settings);
  Result<net::ByteStream> connection = connect_to_root(root, secret, kind, member);
  if (!connection.is_ok()) return connection.status();
  UniqueFd listener;
  std::vector<net::Address> listening;
  const Status trouble = open_listener(member, connection->get(), &listener, &listening);
  Registration registration = registration_of(member, listening, trouble);
  const Status registered =
      net::send_frame(&connection.value(), registration.serialize(), member.deadline).with_context(kRootService);
  if (!trouble.is_ok()) return trouble;
  if (!registered.is_ok()) return registered;
  Result<Placement> placement = await_placement(&connection.value(), member);
  if (!placement.is_ok()) return placement.status();
  job.rank = member.rank;
  job.ranks = member.ranks;
  job.decided = std::move(placement->decided);
  registration.addresses = placement->addresses;
  if (!registration.addresses.empty()) job.address = registration.addresses.front();
  Result<Secret> session = session_secret(secret, placement->nonce);
  if (!session.is_ok()) return session.status();
  job.secret = *session;
  Result<Encryption> encryption = decided_encryption(member, job.decided);
  if (!encryption.is_ok()) {
    static_cast<void>(net::send_frame(&connection.value(), Report{as_told_to_peers(encryption.status())}.serialize(),
                                      member.deadline));
    return encryption.status();
  }
  Status s = connect_tree(member, *session, *encryption, registration, *placement, std::move(listener),
                          std::move(connection).value(), &job);
  if (!s.is_ok()) return s;
  return job;
}

Result<Job> join_or_linger(const RootPlace& root, const Secret& secret, RootKind kind, const Member& member) {
  Result<Job> job = join_through(root, secret, kind, member);
  if (!job.is_ok()) linger(secret, member);
  return job;
}

void decline_through(const RootPlace& root, const Secret& secret, RootKind kind, const Member& member,
                     const Status& why) {
  Result<net::ByteStream> connection = connect_to_root(root, secret, kind, member);
  if (connection.is_ok()) {
    const std::string registration = registration_of(member, {}, why).serialize();
    static_cast<void>(net::send_frame(&connection.value(), registration, member.deadline));
  }
  linger(secret, member);
}

// With TUTTI_SECRET, only processes that know it can join; without it, any process that knows the job's name.
Result<Secret> derive_secret(const std::string& job) {
  const std::string key = "tutti job secret, version 1:" + environment_variable("TUTTI_SECRET").value_or("");
  return net::hmac_sha256(key.data(), key.size(), job);
}

// Rank 0 has opened the root before it looks for it.
RootKind kind_of(const KnownRoot& root, int rank) {
  return {rank == 0, root.ports.size() == 1};
}

constexpr RootKind kKindOfId{true, true};

// Rank 0 opens the root service on the first free port. Returns addresses at which it can reach itself.
Result<std::vector<net::Address>> open_known_root(const KnownRoot& root, const Secret& secret, const Member& member) {
  Status why = Status::invalid_argument("no port is given for the job's root service");
  for (const std::uint16_t port : root.ports) {
    Result<UniqueFd> listener = net::listen_tcp(port, port, "TUTTI_ROOT or the launcher's variables");
    if (!listener.is_ok()) {
      why = listener.status();
      continue;
    }
    Status s = start_root_service(std::move(listener).value(), secret, member.settings.encrypt, member.deadline,
                                  kAfterFailureMs, member.settings.wait_notice_ms);
    if (!s.is_ok()) return s;
    std::vector<net::Address> self;
    for (const char* text : {"127.0.0.1:0", "[::1]:0"}) {
      Result<net::Address> address = net::parse_address(text);
      if (address.is_ok()) self.push_back(address->with_port(port));
    }
    return self;
  }
  return why.with_context("rank 0 cannot open the job's root service (is another process also rank 0?)");
}

// The address of the root service; rank 0 opens the service.
Result<RootPlace> place_of(const KnownRoot& root, const Secret& secret, const Member& member) {
  RootPlace place;
  if (member.rank > 0) {
    place.host = root.host;
    place.ports = root.ports;
    return place;
  }
  auto own = open_known_root(root, secret, member);
  if (!own.is_ok()) return own.status();
  place.addresses = std::move(*own);
  return place;
}

RootPlace place_of(RootContact contact) {
  RootPlace place;
  place.addresses = std::move(contact.addresses);
  return place;
}

}  // namespace

Status as_told_to_peers(const Status& status) {
  const Code code = status.code();
  const bool shared = status.is_ok() || code == Code::kRemoteError || code == Code::kTimeout ||
                      code == Code::kAborted || code == Code::kMismatch;
  return shared ? status : status.with_code(Code::kRemoteError);
}

// A link has a socket per stream, and more while it is set up. Ranks that share memory have four for
// each other: a socket, the peer's wakeup fd, and an arena each way.
std::size_t descriptors_of_rank(int ranks, const Settings& settings) {
  const auto per_link = static_cast<std::size_t>(std::max(2, settings.tcp_streams) + 2);
  return kOwnDescriptors + static_cast<std::size_t>(ranks - 1) * per_link;
}

DescriptorReservation reserve_descriptors(int ranks, const Settings& settings) {
  return DescriptorReservation(descriptors_of_rank(ranks, settings));
}

Result<UniqueIdBytes> create_unique_id(const Settings& settings) {
  RootContact contact;
  if (Status s = net::random_bytes(contact.secret.data(), contact.secret.size()); !s.is_ok()) return s;
  Result<UniqueFd> listener = net::listen_tcp(settings.port_low, settings.port_high);
  if (!listener.is_ok()) return listener.status();
  Result<std::vector<net::Address>> addresses = addresses_with_port_of(listener->get(), settings);
  if (!addresses.is_ok()) return addresses.status();
  contact.addresses = std::move(addresses).value();
  net::limit_addresses(&contact.addresses, fitting_addresses(contact.addresses),
                       "the process that makes the unique id");
  Status s = start_root_service(std::move(listener).value(), contact.secret, settings.encrypt,
                                Deadline::after_ms(settings.init_timeout_ms),
                                std::max(kAfterFailureMs, settings.init_timeout_ms), settings.wait_notice_ms);
  if (!s.is_ok()) return s;
  return encode_unique_id(contact);
}

Result<Job> join(const UniqueIdBytes& id, int rank, int ranks, const Settings& settings, Deadline deadline,
                 ControlTree::GivesUp gives_up) {
  Result<RootContact> contact = decode_unique_id(id);
  if (!contact.is_ok()) return contact.status();
  if (Status s = check_rank(rank, ranks); !s.is_ok()) return s;
  const Secret secret = contact->secret;
  return join_or_linger(place_of(std::move(*contact)), secret, kKindOfId,
                        Member{rank, ranks, settings, deadline, std::move(gives_up)});
}

Result<Job> join(const KnownRoot& root, int rank, int ranks, const Settings& settings, Deadline deadline) {
  if (Status s = check_rank(rank, ranks); !s.is_ok()) return s;
  Result<Secret> secret = derive_secret(root.job);
  if (!secret.is_ok()) return secret.status();
  if (ranks == 1) {
    Job job;
    // Shared with no other rank, and unlike those of other jobs: the communicator's public id comes from it.
    if (Status s = net::random_bytes(job.secret.data(), job.secret.size()); !s.is_ok()) return s;
    job.decided = tell_decided(settings);
    return job;
  }
  const Member member{rank, ranks, settings, deadline};
  Result<RootPlace> where = place_of(root, *secret, member);
  if (!where.is_ok()) return where.status();
  return join_or_linger(*where, *secret, kind_of(root, rank), member);
}

void decline(const UniqueIdBytes& id, int rank, int ranks, const Status& why, Deadline deadline,
             ControlTree::GivesUp gives_up) {
  Result<RootContact> contact = decode_unique_id(id);
  if (!contact.is_ok() || !check_rank(rank, ranks).is_ok()) return;
  const Settings settings;
  const Secret secret = contact->secret;
  decline_through(place_of(std::move(*contact)), secret, kKindOfId,
                  {rank, ranks, settings, deadline, std::move(gives_up)}, why);
}

void decline(const KnownRoot& root, int rank, int ranks, const Status& why, Deadline deadline) {
  if (!check_rank(rank, ranks).is_ok() || ranks == 1) return;
  Result<Secret> secret = derive_secret(root.job);
  if (!secret.is_ok()) return;
  const Settings settings;
  const Member member{rank, ranks, settings, deadline};
  Result<RootPlace> where = place_of(root, *secret, member);
  if (where.is_ok()) decline_through(*where, *secret, kind_of(root, rank), member, why);
}

}  // namespace tutti::internal

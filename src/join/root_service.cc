#include "join/root_service.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "base/descriptors.h"
#include "base/lasting_thread.h"
#include "base/log.h"
#include "base/rank_list.h"
#include "control/control_tree.h"
#include "join/root_search.h"
#include "join/running_root.h"
#include "net/acceptor.h"
#include "net/auth.h"
#include "net/frame.h"
#include "net/socket.h"
#include "net/watch_set.h"
#include "os/kernel.h"

namespace tutti::internal {
namespace {

constexpr std::size_t kMaxRegistrationBytes = 64 << 10;
constexpr std::int64_t kAnswerMs = 5'000;  // longer than the last rank waits, so that no rank takes the end for a death
// Only the init timeout judges a machine that is silent while the ranks join.
constexpr std::int64_t kAskMs = 60'000;
constexpr std::size_t kSpareDescriptors = 64;
constexpr std::size_t kNonceBytes = 16;

// The error for a rank whose library differs from that of this process.
std::string other_version(const Registration& rank) {
  return fmt::format(
      "{} has loaded {}, but the process of the job's root service (rank 0, or the caller of tuttiGetUniqueId; host "
      "{}, pid {}) has loaded {}. Load the same library on all ranks (see LD_LIBRARY_PATH and container images)",
      rank.who(), rank.library(), host_name(), os::kernel().getpid(), Registration().library());
}

class RootService {
 public:
  RootService(UniqueFd listener, std::shared_ptr<RunningRoot> running, const Secret& secret, Encryption encryption,
              Deadline deadline, std::int64_t after_failure_ms, std::int64_t notice_ms)
      : running_(std::move(running)),
        acceptor_(secret, net::Claim{net::Purpose::kRoot, -1, 0, 1, 0, encryption}),
        deadline_(deadline),
        after_failure_ms_(after_failure_ms),
        notice_ms_(notice_ms) {
    acceptor_.add_listener(std::move(listener), false);
  }
  // Runs until all ranks are served, or stop_fd is readable.
  Status run(int stop_fd);

 private:
  struct Client {
    explicit Client(net::Authenticated connection)
        : rank(connection.peer.rank), stream(std::move(connection.stream)), reader(kMaxRegistrationBytes) {
      net::watch_silence(stream.get(), kAskMs);
    }
    int rank;
    net::ByteStream stream;
    net::FrameReader reader;
    net::FrameWriter writer;
    bool unsent = false;  // something is in the writer: nothing is read meanwhile
    bool registered = false;
    bool done = false;  // its report has arrived
    bool told_failure = false;
    std::list<Client>::iterator self;
  };
  [[nodiscard]] bool finished() const;
  void prepare(net::PollSet* set);
  Status serve_ready();
  bool serve(Client* client);
  bool heard(Client* client, const std::string& frame);
  bool flush(Client* client);
  Status add(net::Authenticated connection);
  void drop(Client* client);
  void set_registered(Client* client, bool registered);
  void give_up_waiting();
  void enroll(Client* client, Registration registration);
  void hear(Client* client, const std::string& report);
  void lost(const Client& client);
  void fail(Status why);
  void place_everyone();
  void order_addresses();
  void answer(Client* client, const Placement& placement);
  [[nodiscard]] std::vector<int> missing() const;
  [[nodiscard]] bool may_tell() const { return notice_ms_ > 0 && ranks_ > 0 && failure_.is_ok(); }
  void tell_a_person();

  const std::shared_ptr<RunningRoot> running_;
  net::Acceptor acceptor_;
  Deadline deadline_;
  const std::int64_t after_failure_ms_;
  const std::int64_t notice_ms_;
  std::int64_t begin_ns_ = 0;  // when the first rank arrived
  Deadline next_notice_ = Deadline::after_ms(0);
  Deadline last_patience_ = Deadline::after_ms(0);
  std::list<Client> clients_;
  net::WatchSet watched_;  // their connections: each event costs O(1)
  int registered_ = 0;     // clients that are,
  int unsent_ = 0;         // and that are to be sent something
  std::map<int, Registration> registrations_;
  Status failure_;
  DescriptorReservation descriptors_;  // the ranks' connections stay open until all have arrived
  int ranks_ = 0;                      // as the first one said
  bool placed_ = false;
};

Status RootService::run(int stop_fd) {
  if (Status s = watched_.open(); !s.is_ok()) return s;
  net::PollSet set;
  while (!finished()) {
    prepare(&set);
    const std::size_t stop = set.add(stop_fd, POLLIN);
    const std::size_t clients = set.add(watched_.fd(), POLLIN);
    if (Status s = set.wait(); !s.is_ok()) return s;
    if (set.ready(stop) != 0) return {};
    acceptor_.process(set);
    if (set.ready(clients) != 0) {
      if (Status s = serve_ready(); !s.is_ok()) return s;
    }
    for (net::Authenticated& connection : acceptor_.take()) {
      if (Status s = add(std::move(connection)); !s.is_ok()) return s;
    }
    give_up_waiting();
    if (may_tell() && next_notice_.passed()) tell_a_person();
  }
  return {};
}

// A failing rank sends the reason before its connection closes, and the others fail with that reason: so messages are
// handled before closed connections.
Status RootService::serve_ready() {
  auto ready = watched_.ready();
  if (!ready.is_ok()) return ready.status();
  std::vector<Client*> closed;
  for (const epoll_event& event : *ready) {
    auto* const client = static_cast<Client*>(event.data.ptr);
    if (!serve(client)) closed.push_back(client);
  }
  for (Client* const client : closed) drop(client);
  return {};
}

Status RootService::add(net::Authenticated connection) {
  Client& client = clients_.emplace_back(std::move(connection));
  client.self = std::prev(clients_.end());
  return watched_.add(client.stream.get(), POLLIN, &client);
}

void RootService::drop(Client* client) {
  lost(*client);
  set_registered(client, false);
  unsent_ -= static_cast<int>(client->unsent);
  watched_.remove(client->stream.get());
  clients_.erase(client->self);
}

void RootService::set_registered(Client* client, bool registered) {
  registered_ += static_cast<int>(registered) - static_cast<int>(client->registered);
  client->registered = registered;
}

void RootService::give_up_waiting() {
  if (placed_ || !failure_.is_ok()) return;
  if (!acceptor_.shortage().is_ok()) {
    running_->fail(acceptor_.shortage());
    return fail(acceptor_.shortage().with_code(Code::kRemoteError).with_context(kRootService));
  }
  if (!deadline_.passed()) return;
  if (ranks_ == 0) {
    return fail(
        Status::timeout("this job's time to join is over: the init timeout begins when the unique id is made, "
                        "and no rank has joined. Make another id"));
  }
  const std::vector<int> absent = missing();
  const bool one = absent.size() == 1;
  fail(Status::timeout(fmt::format(
      "timed out while waiting for all ranks to join: {} of {} {} not joined. Check that {}, can reach this host, "
      "and {} this job's address or unique id (of one tuttiGetUniqueId, which one rank calls). See {}",
      list_ranks(absent), ranks_, one ? "has" : "have", one ? "its process runs" : "their processes run",
      one ? "has" : "have", one ? "its log" : "their logs")));
}

// Before all ranks are placed: those that have not come. After: those whose part of the tree is not complete.
std::vector<int> RootService::missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < ranks_ && !placed_; ++rank) {
    if (!registrations_.contains(rank)) missing.push_back(rank);
  }
  for (const Client& client : clients_) {
    if (placed_ && client.registered) missing.push_back(client.rank);
  }
  std::sort(missing.begin(), missing.end());
  return missing;
}

void RootService::tell_a_person() {
  constexpr std::int64_t kAgainMs = 60'000;  // frequent enough for a reader, without flooding the log
  next_notice_ = Deadline::after_ms(kAgainMs);
  const std::vector<int> ranks = missing();
  if (ranks.empty()) return;
  const std::int64_t ms = (now_ns() - begin_ns_) / 1'000'000;
  const std::string waited = ms < 1000 ? fmt::format("{} ms", ms) : fmt::format("{} s", ms / 1000);
  log::warn(fmt::format("tuttiCommInitRank has waited {} for {} of {}{}", waited, list_ranks(ranks), ranks_,
                        placed_ ? " to connect to the other ranks" : " to join"));
}

// Success: all parts of the tree are connected. Failure: all ranks have been notified, or the time for late ranks is
// over.
bool RootService::finished() const {
  if (deadline_.passed()) return placed_ || !failure_.is_ok() || ranks_ == 0;
  if (!failure_.is_ok()) {
    return unsent_ == 0 && ranks_ > 0 && static_cast<int>(registrations_.size()) >= ranks_;
  }
  return placed_ && registered_ == 0;
}

void RootService::prepare(net::PollSet* set) {
  set->clear(60'000);
  set->wake_at(deadline_);
  if (may_tell()) set->wake_at(next_notice_);
  acceptor_.prepare(set);
}

// False when the connection has broken.
bool RootService::flush(Client* client) {
  if (!client->writer.flush(&client->stream).is_ok()) return false;
  const bool unsent = !client->writer.empty();
  if (unsent == client->unsent) return true;
  client->unsent = unsent;
  unsent_ += unsent ? 1 : -1;
  return watched_.change(client->stream.get(), unsent ? POLLOUT : POLLIN, client).is_ok();
}

// False when the client is to be dropped.
bool RootService::serve(Client* client) {
  if (client->unsent) return flush(client);
  while (!client->unsent) {
    Result<net::FrameReader::Progress> progress = client->reader.read(&client->stream);
    if (!progress.is_ok() || *progress == net::FrameReader::Progress::kClosed) return false;
    if (*progress == net::FrameReader::Progress::kBlocked) return true;
    if (!heard(client, client->reader.take())) return false;
  }
  return true;
}

// False when the client is to be dropped.
bool RootService::heard(Client* client, const std::string& frame) {
  if (client->registered) {
    hear(client, frame);
    return client->registered;
  }
  Result<Registration> registration = Registration::parse(frame);
  if (!registration.is_ok() || registration->rank != client->rank) return false;
  enroll(client, std::move(registration).value());
  return true;
}

// The last message of a rank: after it, the end of the connection is expected.
void RootService::hear(Client* client, const std::string& report) {
  Result<Report> heard = Report::parse(report);
  if (!heard.is_ok()) return;
  set_registered(client, false);
  client->done = true;
  if (heard->status.is_ok() || !failure_.is_ok()) return;
  fail(Status(heard->status.code(), fmt::format("rank {}: {}", client->rank, heard->status.message())));
}

// The end of an authenticated connection is an error, even if the rank has not registered yet.
void RootService::lost(const Client& client) {
  if (client.done || !failure_.is_ok()) return;
  if (!client.registered) {
    return fail(Status::remote(list_ranks({client.rank}) + " left or died before it had registered"));
  }
  fail(Status::remote(registrations_[client.rank].who() + " left or died while " +
                      (placed_ ? "the ranks were being connected" : "the other ranks were joining")));
}

void RootService::enroll(Client* client, Registration registration) {
  set_registered(client, true);
  const auto known = registrations_.find(client->rank);
  if (!failure_.is_ok()) {
    if (ranks_ == 0) ranks_ = registration.ranks;
    registrations_.emplace(client->rank, std::move(registration));
    Placement refusal;
    refusal.status = failure_;
    client->told_failure = true;
    return answer(client, refusal);
  }
  if (known != registrations_.end()) {
    return fail(Status::invalid_usage(
        fmt::format("two processes joined as the same rank: {} and {}. Pass a different rank to each; if the rank "
                    "comes from the environment, check TUTTI_RANK or the launcher's variables",
                    known->second.who(), registration.who())));
  }
  if (ranks_ == 0) {
    ranks_ = registration.ranks;
    begin_ns_ = now_ns();
    next_notice_ = Deadline::after_ms(notice_ms_);
    descriptors_ = DescriptorReservation(descriptors_of_root(ranks_));
  }
  const std::string who = registration.who();
  const int ranks = registration.ranks;
  // The answer must be sent before the first waiting rank gives up.
  const std::int64_t patience_ms = registration.patience_ms - std::min<std::int64_t>(500, registration.patience_ms / 8);
  const Deadline gives_up = Deadline::after_ms(patience_ms);
  if (gives_up.at_ns() < deadline_.at_ns()) deadline_ = gives_up;
  const Deadline stays = Deadline::after_ms(registration.patience_ms);
  if (stays.at_ns() > last_patience_.at_ns()) last_patience_ = stays;
  const std::string trouble = registration.trouble;
  const std::string difference = registration.same_version() ? "" : other_version(registration);
  registrations_.emplace(client->rank, std::move(registration));
  if (!difference.empty()) return fail(Status::invalid_usage(difference));
  if (!trouble.empty()) {
    set_registered(client, false);  // it knows
    client->done = true;
    return fail(Status::remote(who + ": " + trouble));
  }
  if (ranks != ranks_) {
    const Registration& other = registrations_.begin()->second;
    const Registration& first = other.ranks == ranks_ ? other : registrations_.rbegin()->second;
    return fail(Status::invalid_usage(
        fmt::format("{} joined a job of {} ranks, but {} joined one of {}. Pass the same number of ranks everywhere",
                    who, ranks, first.ranks == ranks_ ? first.who() : "another", ranks_)));
  }
  if (client->rank < 0 || client->rank >= ranks_) {
    return fail(Status::invalid_usage(fmt::format("{} is not one of the job's {} ranks", who, ranks_)));
  }
  if (static_cast<int>(registrations_.size()) == ranks_) place_everyone();
}

void RootService::fail(Status why) {
  failure_ = std::move(why);
  deadline_ = Deadline::after_ms(after_failure_ms_);
  Placement refusal;
  refusal.status = failure_;
  // Rank 0 last: this service usually runs in its process, which may end when it is notified.
  for (const bool rank0 : {false, true}) {
    for (Client& client : clients_) {
      if ((client.rank == 0) != rank0 || !client.registered) continue;
      if (!std::exchange(client.told_failure, true)) answer(&client, refusal);
    }
  }
}

// A rank of this host may have reached the root by an address that no other host can reach. Other ranks reach such a
// rank by the address by which they have reached the root.
void RootService::order_addresses() {
  std::vector<net::Address> outside;
  std::vector<int> here;
  for (const Client& client : clients_) {
    if (!client.registered) continue;
    auto own = net::local_address(client.stream.get());
    auto peer = net::peer_address(client.stream.get());
    if (!own.is_ok() || !peer.is_ok()) continue;
    if (own->with_port(0) == peer->with_port(0)) {
      here.push_back(client.rank);
    } else if (std::find(outside.begin(), outside.end(), *own) == outside.end()) {
      outside.push_back(*own);
    }
  }
  for (const int rank : here) {
    std::vector<net::Address> addresses;
    std::vector<std::string>& texts = registrations_[rank].addresses;
    for (const std::string& text : texts) {
      if (auto address = net::parse_address(text); address.is_ok()) addresses.push_back(*address);
    }
    if (addresses.size() != texts.size()) continue;
    for (auto each = outside.rbegin(); each != outside.rend(); ++each) net::put_first(&addresses, *each);
    texts.clear();
    for (const net::Address& address : addresses) texts.push_back(address.text());
  }
}

void RootService::place_everyone() {
  acceptor_.close_listeners();
  order_addresses();
  std::string nonce(kNonceBytes, '\0');
  if (Status s = net::random_bytes(nonce.data(), nonce.size()); !s.is_ok()) return fail(as_told_to_peers(s));
  std::string root_who;
  const Result<std::array<std::uint8_t, 16>> own = process_token();
  for (const auto& [rank, registration] : registrations_) {
    if (own.is_ok() && root_who.empty() && registration.process == own.value()) root_who = registration.who();
  }
  for (Client& client : clients_) {
    if (!client.registered) continue;
    Placement placement;
    placement.root_who = root_who;
    placement.nonce = nonce;
    placement.decided = registrations_[0].decided;
    placement.addresses = registrations_[client.rank].addresses;
    if (client.rank > 0) {
      const Registration& parent = registrations_[tree_parent(client.rank)];
      placement.parent_addresses = parent.addresses;
      placement.parent = {parent.host, parent.pid};
    }
    for (const int child : tree_children(client.rank, ranks_)) {
      placement.children.push_back({registrations_[child].host, registrations_[child].pid});
    }
    answer(&client, placement);
  }
  placed_ = true;
  deadline_ = Deadline::after_ms(last_patience_.left_ms(INT_MAX) + kAnswerMs);
}

void RootService::answer(Client* client, const Placement& placement) {
  client->writer.queue(placement.serialize());
  // What does not leave now leaves from the loop, and a broken connection is noticed there.
  if (!flush(client)) log::debug(fmt::format("root service: the connection of rank {} has broken", client->rank));
}

}  // namespace

std::size_t descriptors_of_root(int ranks) {
  return static_cast<std::size_t>(ranks) + kSpareDescriptors;
}

Result<Secret> session_secret(const Secret& root_secret, const std::string& nonce) {
  return net::hmac_sha256(root_secret.data(), root_secret.size(), "tutti session, version 1:" + nonce);
}

Status start_root_service(UniqueFd listener, const Secret& secret, Encryption encryption, Deadline deadline,
                          std::int64_t after_failure_ms, std::int64_t notice_ms) {
  auto running = add_running_root(secret);
  auto service = std::make_shared<RootService>(std::move(listener), running, secret, encryption, deadline,
                                               after_failure_ms, notice_ms);
  Status started = start_lasting_thread([service, running](int stop_fd) {
    if (Status s = guarded([&] { return service->run(stop_fd); }); !s.is_ok()) {
      running->fail(s);
      static_cast<void>(
          guarded([&] { return log::warn("the job's root service has ended: " + s.message()), Status(); }));
    }
    running->end();
  });
  if (!started.is_ok()) running->end();
  return started;
}

}  // namespace tutti::internal

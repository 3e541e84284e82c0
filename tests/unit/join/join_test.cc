#include "join/join.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "base/rank_list.h"
#include "catch_compat.h"
#include "control/control_messages.h"
#include "join/root_service.h"
#include "join/unique_id.h"
#include "net/frame.h"
#include "net/socket.h"
#include "ranks.h"

using namespace tutti::internal;
using tutti::internal::test::Child;
using tutti::internal::test::on_threads;
using tutti::internal::test::Watcher;

namespace {

constexpr std::int64_t kLongMs = 60'000;

Settings loopback() {
  Settings settings;
  settings.interface = "lo";
  return settings;
}

std::string described(const Status& status) {
  return std::string(code_name(status.code())) + ": " + status.message();
}

// The result of each rank's join() with these ranks and sizes.
std::vector<Status> join_as(const std::vector<std::pair<int, int>>& rank_and_size, std::int64_t timeout_ms) {
  const Settings settings = loopback();
  Result<UniqueIdBytes> id = create_unique_id(settings);
  REQUIRE(id.is_ok());
  std::vector<Status> statuses(rank_and_size.size());
  on_threads(static_cast<int>(rank_and_size.size()), [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    const auto [rank, size] = rank_and_size[at];
    statuses[at] = join(*id, rank, size, settings, Deadline::after_ms(timeout_ms)).status();
  });
  return statuses;
}

Status keep(Result<Job> joined, Job* job) {
  if (joined.is_ok()) *job = std::move(joined).value();
  return joined.status();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("lists of ranks are short") {
  CHECK(list_ranks({3}) == "rank 3");
  CHECK(list_ranks({1, 4, 5, 6, 9, 10}) == "ranks 1, 4-6, 9, 10");
  std::vector<int> odd;
  for (int i = 0; i < 100; ++i) odd.push_back(2 * i + 1);
  CHECK(contains(list_ranks(odd), " and 88 more"));
}

TEST_CASE("an encoded unique id is decoded unchanged, and damage is detected") {
  RootContact contact;
  contact.secret.fill(7);
  contact.addresses = {net::parse_address("10.1.2.3:4567").value(), net::parse_address("[2001:db8::5]:4567").value()};
  UniqueIdBytes id = encode_unique_id(contact);
  Result<RootContact> back = decode_unique_id(id);
  REQUIRE(back.is_ok());
  CHECK(back->secret == contact.secret);
  REQUIRE(back->addresses.size() == 2);
  CHECK(back->addresses[0].text() == "10.1.2.3:4567");
  CHECK(back->addresses[1].text() == "[2001:db8::5]:4567");
  Result<UniqueIdBytes> from_hex = unique_id_from_hex(unique_id_to_hex(id));
  REQUIRE(from_hex.is_ok());
  CHECK(from_hex.value() == id);
  CHECK(unique_id_from_hex("zz").status().code() == Code::kInvalidArgument);
  id[0] ^= 1;
  CHECK(decode_unique_id(id).status().code() == Code::kInvalidArgument);
}

TEST_CASE("ranks join and gather, for many sizes") {
  const int ranks = GENERATE(1, 2, 3, 5, 6, 21, 40);
  std::vector<Watcher> watchers(static_cast<std::size_t>(ranks));
  const Settings settings = loopback();
  Result<UniqueIdBytes> id = create_unique_id(settings);
  REQUIRE(id.is_ok());
  std::vector<std::string> problems(static_cast<std::size_t>(ranks));
  on_threads(ranks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const Deadline deadline = Deadline::after_ms(kLongMs);
    Result<Job> job = join(*id, rank, ranks, settings, deadline);
    if (!job.is_ok()) {
      problems[r] = described(job.status());
      return;
    }
    watchers[r].job = std::move(job).value();
    for (int round = 0; ranks > 1 && round < 3; ++round) {
      const std::string mine(static_cast<std::size_t>(rank + round), static_cast<char>('a' + rank % 26));
      Result<std::vector<std::string>> all = watchers[r].job.tree->all_gather(mine, deadline);
      if (!all.is_ok()) {
        problems[r] = described(all.status());
        return;
      }
      for (int peer = 0; peer < ranks; ++peer) {
        const std::string want(static_cast<std::size_t>(peer + round), static_cast<char>('a' + peer % 26));
        if (all.value()[static_cast<std::size_t>(peer)] != want) problems[r] = "wrong part";
      }
    }
  });
  for (const std::string& problem : problems) CHECK(problem.empty());
  CHECK(watchers[0].job.secret == watchers.back().job.secret);
}

TEST_CASE("waiting ranks' errors name the missing ranks") {
  const std::vector<Status> statuses = join_as({{0, 6}, {1, 6}, {4, 6}}, 400);
  for (const Status& status : statuses) {
    INFO(described(status));
    CHECK(status.code() == Code::kTimeout);
    CHECK(contains(status.message(), "ranks 2, 3, 5 of 6"));
  }
}

TEST_CASE("a rank that joins twice is an error for all that names both") {
  for (const Status& status : join_as({{0, 3}, {1, 3}, {1, 3}}, kLongMs)) {
    INFO(described(status));
    CHECK(status.code() == Code::kInvalidUsage);
    CHECK(contains(status.message(), "same rank: rank 1 (host "));
  }
}

TEST_CASE("a rank that joins a failed job gets the reason, for any rank number") {
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  std::vector<Status> statuses(2);
  on_threads(2, [&](int rank) {
    statuses[static_cast<std::size_t>(rank)] = join(*id, 1, 4, loopback(), Deadline::after_ms(kLongMs)).status();
  });
  statuses.push_back(join(*id, 0, 4, loopback(), Deadline::after_ms(kLongMs)).status());
  statuses.push_back(join(*id, 5, 6, loopback(), Deadline::after_ms(kLongMs)).status());
  for (const Status& status : statuses) {
    INFO(described(status));
    CHECK(status.code() == Code::kInvalidUsage);
    CHECK(contains(status.message(), "same rank: rank 1 (host "));
  }
}

TEST_CASE("different numbers of ranks are an error for all") {
  for (const Status& status : join_as({{0, 3}, {1, 4}, {2, 3}}, kLongMs)) {
    INFO(described(status));
    CHECK(status.code() == Code::kInvalidUsage);
    CHECK(contains(status.message(), " of 4"));
    CHECK(contains(status.message(), " of 3"));
  }
}

TEST_CASE("ranks outside of the job are refused before anything is connected") {
  CHECK(join(UniqueIdBytes{}, 0, 1, loopback(), Deadline::after_ms(kLongMs)).status().code() == Code::kInvalidArgument);
  const std::vector<Status> statuses = join_as({{3, 3}, {-1, 3}, {0, 0}}, kLongMs);
  for (const Status& status : statuses) CHECK(status.code() == Code::kInvalidArgument);
}

TEST_CASE("a rank that dies while others are still to come ends the wait of all", "[fork]") {
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  Child victim([&] {
    static_cast<void>(join(*id, 1, 3, loopback(), Deadline::after_ms(kLongMs)).is_ok());
    return 0;
  });
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    victim.kill(SIGKILL);
  });
  const Status status = join(*id, 0, 3, loopback(), Deadline::after_ms(20'000)).status();
  killer.join();
  INFO(described(status));
  CHECK((status.code() == Code::kRemoteError || status.code() == Code::kTimeout));
  CHECK((contains(status.message(), "rank 1 (host ") || contains(status.message(), "ranks 1, 2")));
}

TEST_CASE("a wrong secret is distinguished from a right one") {
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  UniqueIdBytes forged = *id;
  forged[20] = static_cast<std::uint8_t>(forged[20] + 1);
  const Status status = join(forged, 0, 2, loopback(), Deadline::after_ms(300)).status();
  INFO(described(status));
  CHECK(status.code() == Code::kTimeout);
  CHECK(contains(status.message(), "does not know this job's secret"));
}

namespace {

// The text written to standard error during its life.
class StandardError {
 public:
  StandardError() : saved_(::dup(STDERR_FILENO)), file_(std::tmpfile()) { ::dup2(::fileno(file_), STDERR_FILENO); }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;
  ~StandardError() {
    ::dup2(saved_.get(), STDERR_FILENO);
    std::fclose(file_);
  }
  [[nodiscard]] std::string text() const {
    std::string text(1 << 16, '\0');
    const ssize_t got = ::pread(::fileno(file_), text.data(), text.size(), 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return text;
  }

 private:
  UniqueFd saved_;
  std::FILE* file_;
};

}  // namespace

TEST_CASE("a wrong secret ends the wait of its rank, and the refusing rank warns now and then") {
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  UniqueIdBytes forged = *id;
  forged[20] = static_cast<std::uint8_t>(forged[20] + 1);
  Status status;
  std::string log;
  {
    const StandardError error;
    status = join(forged, 0, 2, loopback(), Deadline::after_ms(600'000)).status();
    REQUIRE(tutti::internal::test::eventually([&] { return contains(error.text(), "with a different secret"); }));
    log = error.text();
  }
  INFO(described(status) << "\n" << log);
  CHECK(status.code() == Code::kInvalidUsage);
  CHECK(contains(status.message(), "has a different secret"));
  CHECK(contains(status.message(), "TUTTI_SECRET"));
  CHECK(contains(log, "the job's root refused"));
  CHECK(contains(log, "127.0.0.1"));
  CHECK(std::count(log.begin(), log.end(), '\n') < 10);  // about a hundred attempts
}

TEST_CASE("a root that is gone is an error long before the deadline") {
  RootContact contact;
  {
    Result<UniqueFd> listener = net::listen_tcp(0, 0);
    REQUIRE(listener.is_ok());
    const std::uint16_t port = net::local_address(listener->get()).value().port();
    contact.addresses = {net::parse_address("127.0.0.1:1").value().with_port(port)};
  }
  const Status status = join(encode_unique_id(contact), 1, 2, loopback(), Deadline::after_ms(600'000)).status();
  CHECK(status.code() == Code::kRemoteError);
}

TEST_CASE("unauthenticated peers at the root neither join nor delay other ranks") {
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  const net::Address root = decode_unique_id(*id)->addresses.front();
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 600; ++i) {
    Result<UniqueFd> stranger = net::start_connect(root);
    REQUIRE(stranger.is_ok());
    const std::string garbage = i % 3 == 0 ? "" : i % 3 == 1 ? "tutti\r\n" : std::string(5000, '\xff');
    ::send(stranger->get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    strangers.push_back(std::move(stranger).value());
  }
  std::vector<Status> statuses(6);
  std::vector<Job> jobs(6);  // a rank that drops its job is dead to those that still join
  on_threads(6, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    statuses[r] = keep(join(*id, rank, 6, loopback(), Deadline::after_ms(kLongMs)), &jobs[r]);
  });
  for (const Status& status : statuses) {
    INFO(described(status));
    CHECK(status.is_ok());
  }
}

namespace {

// Ports that were free a moment ago. Below the kernel's range for outgoing connections, which tests that run at the
// same time might take first.
std::vector<std::uint16_t> free_ports(std::size_t count) {
  constexpr unsigned kFirst = 10'000;
  constexpr unsigned kPorts = 20'000;
  static std::atomic<unsigned> next = static_cast<unsigned>(::getpid()) * 64;
  std::vector<UniqueFd> listeners;
  std::vector<std::uint16_t> ports;
  for (unsigned tried = 0; ports.size() < count; ++tried) {
    REQUIRE(tried < kPorts);
    const auto port = static_cast<std::uint16_t>(kFirst + next++ % kPorts);
    Result<UniqueFd> listener = net::listen_tcp(port, port);
    if (!listener.is_ok()) continue;
    ports.push_back(port);
    listeners.push_back(std::move(listener).value());
  }
  return ports;
}

std::vector<Status> join_known(const KnownRoot& root, int ranks, std::int64_t timeout_ms) {
  std::vector<Status> statuses(static_cast<std::size_t>(ranks));
  std::vector<Job> jobs(statuses.size());
  on_threads(ranks, [&](int rank) {
    // The root is last.
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto r = static_cast<std::size_t>(rank);
    statuses[r] = keep(join(root, rank, ranks, loopback(), Deadline::after_ms(timeout_ms)), &jobs[r]);
  });
  return statuses;
}

}  // namespace

TEST_CASE("a known root is found although other programs have its first ports") {
  const std::vector<std::uint16_t> ports = free_ports(4);
  // One accepts and stays silent, one accepts and closes, on ports that the root would have used.
  Result<UniqueFd> silent = net::listen_tcp(ports[0], ports[0]);
  Result<UniqueFd> closing = net::listen_tcp(ports[1], ports[1]);
  REQUIRE(silent.is_ok());
  REQUIRE(closing.is_ok());
  std::atomic<bool> over = false;
  std::thread closer([&] {
    while (!over) {
      static_cast<void>(net::accept_one(closing->get()).is_ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const std::vector<Status> statuses = join_known({"127.0.0.1", ports, "job 1"}, 5, kLongMs);
  over = true;
  closer.join();
  for (const Status& status : statuses) {
    INFO(described(status));
    CHECK(status.is_ok());
  }
}

TEST_CASE("rank 0 must get the one port that a known root has") {
  const std::vector<std::uint16_t> ports = free_ports(1);
  Result<UniqueFd> taken = net::listen_tcp(ports[0], ports[0]);
  REQUIRE(taken.is_ok());
  const std::vector<Status> statuses = join_known({"127.0.0.1", ports, "job 1"}, 2, 1000);
  CHECK(statuses[0].code() == Code::kSystemError);
  CHECK(contains(statuses[0].message(), std::to_string(ports[0])));
  CHECK(contains(statuses[0].message(), "TUTTI_ROOT"));
  CHECK(statuses[1].code() == Code::kTimeout);
}

TEST_CASE("jobs with the same secret for the root have different secrets afterwards") {
  std::vector<Secret> secrets;
  for (int round = 0; round < 2; ++round) {
    const KnownRoot root{"127.0.0.1", free_ports(1), "job 1"};
    std::vector<Job> jobs(2);
    std::vector<Status> joined(2);
    on_threads(2, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      joined[r] = keep(join(root, rank, 2, loopback(), Deadline::after_ms(kLongMs)), &jobs[r]);
    });
    for (const Status& status : joined) CHECK(status.is_ok());
    CHECK(jobs[0].secret == jobs[1].secret);
    secrets.push_back(jobs[0].secret);
  }
  CHECK(secrets[0] != secrets[1]);
  // Also jobs of one rank: the ids of their communicators come from it.
  const KnownRoot alone{"127.0.0.1", free_ports(1), "job 1"};
  std::vector<Job> jobs(2);
  for (Job& job : jobs) CHECK(keep(join(alone, 0, 1, loopback(), Deadline::after_ms(kLongMs)), &job).is_ok());
  CHECK(jobs[0].secret != jobs[1].secret);
}

TEST_CASE("two jobs share their candidate ports") {
  const std::vector<std::uint16_t> ports = free_ports(6);
  std::vector<Status> first;
  std::vector<Status> second;
  std::thread other([&] { second = join_known({"127.0.0.1", ports, "job 2"}, 4, kLongMs); });
  first = join_known({"127.0.0.1", ports, "job 1"}, 4, kLongMs);
  other.join();
  for (const Status& status : first) CHECK(status.is_ok());
  for (const Status& status : second) CHECK(status.is_ok());
}

TEST_CASE("64 processes join", "[fork]") {
  constexpr int kRanks = 64;
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  std::vector<Child> children;
  children.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    children.emplace_back([&, rank] {
      const Deadline deadline = Deadline::after_ms(kLongMs);
      Result<Job> job = join(*id, rank, kRanks, loopback(), deadline);
      if (!job.is_ok()) return 1;
      Result<std::vector<std::string>> all = job->tree->all_gather(std::to_string(rank), deadline);
      if (!all.is_ok() || all->at(63) != "63") return 2;
      auto failure = std::make_shared<FailureState>();
      if (!job->tree->watch(failure, {}).is_ok()) return 3;
      job->tree->leave();
      return failure->failed() ? 4 : 0;
    });
  }
  for (Child& child : children) CHECK(child.wait() == 0);
}

TEST_CASE("an unknown error code is a defect of its sender") {
  net::Packer packer;
  packer.number(std::int32_t{1234}).text("whatever");
  auto report = Report::parse(packer.bytes());
  REQUIRE(report.is_ok());
  CHECK(report->status.code() == Code::kInternalError);
  Placement placement;
  placement.status = Status(static_cast<Code>(-7), "whatever");
  CHECK(Placement::parse(placement.serialize())->status.code() == Code::kInternalError);
  const std::string frame = control::pack_notice(0, {static_cast<Code>(99), "whatever"});
  net::Unpacker unpacker(frame);
  control::Header header;
  REQUIRE(control::unpack_header(&unpacker, &header));
  control::Notice notice;
  REQUIRE(control::unpack_notice(&unpacker, &notice));
  CHECK(notice.code == Code::kInternalError);
}

TEST_CASE("an encoded description of a peer is decoded unchanged, and damage is detected") {
  Result<PeerInfo> info = PeerInfo::local(3);
  REQUIRE(info.is_ok());
  info->tcp_addresses = {"1.2.3.4:5", "[::1]:6"};
  info->unix_address = "name";
  info->unix_path = "/tmp/" + random_socket_name().value();
  info->settings = std::string("\0a\n", 3);
  const std::string bytes = info->serialize();
  Result<PeerInfo> back = PeerInfo::parse(bytes);
  REQUIRE(back.is_ok());
  CHECK(back->serialize() == bytes);
  CHECK(back->same_machine(*info));
  CHECK(back->settings == info->settings);
  CHECK(back->tcp_addresses == info->tcp_addresses);
  for (std::size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(PeerInfo::parse(bytes.substr(0, size)).is_ok());
}

TEST_CASE("a peer's description is refused if it names a file that is not a socket of tutti") {
  Result<PeerInfo> info = PeerInfo::local(0);
  REQUIRE(info.is_ok());
  const std::string name = random_socket_name().value();
  const auto accepted = [&](std::string path) {
    info->unix_path = std::move(path);
    return PeerInfo::parse(info->serialize()).is_ok();
  };
  CHECK(accepted(""));
  CHECK(accepted("/" + name));
  CHECK(accepted("/a folder/of tests/" + name));
  CHECK_FALSE(accepted("/home/user/data"));
  CHECK_FALSE(accepted(name));
  CHECK_FALSE(accepted("folder/" + name));
  CHECK_FALSE(accepted("/tmp/" + name + "/data"));
  CHECK_FALSE(accepted("/tmp/" + name + "/"));
  CHECK_FALSE(accepted("/tmp/" + name + "0"));
  CHECK_FALSE(accepted("/tmp/" + name.substr(0, name.size() - 1)));
  CHECK_FALSE(accepted("/tmp/" + name.substr(0, name.size() - 1) + "G"));
  CHECK_FALSE(accepted(std::string("/etc/passwd\0/", 13) + name));
}

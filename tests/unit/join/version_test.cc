// Ranks with different libraries.
#include "base/version.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/config.h"
#include "catch_compat.h"
#include "join/join.h"
#include "join/peer_info.h"
#include "join/root_service.h"
#include "join/unique_id.h"
#include "net/dial.h"
#include "net/frame.h"
#include "net/socket.h"
#include "ranks.h"

using namespace tutti::internal;
using tutti::internal::test::on_threads;

namespace {

constexpr std::int64_t kLongMs = 60'000;
// The handshake's first bytes; the last one is its version.
const std::string kGreetingOfAnother = "tutti\r\n\xc8";

Settings loopback() {
  Settings settings;
  settings.interface = "lo";
  return settings;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A rank that sends what a library of another version would, up to the part that all versions share. Returns the
// answer.
Status join_with(const UniqueIdBytes& id, int rank, int ranks, std::uint32_t protocol, const std::string& version) {
  const RootContact contact = decode_unique_id(id).value();
  net::Dial dial(contact.addresses, contact.secret, {net::Purpose::kRoot, rank, 0, 1}, -1);
  net::PollSet set;
  while (!dial.done()) {
    set.clear(1000);
    dial.prepare(&set);
    if (Status s = set.wait(); !s.is_ok()) return s;
    dial.process(set);
  }
  net::ByteStream root = dial.take();
  net::Packer packer;
  packer.number(protocol).text(version).number(std::int32_t{rank}).number(std::int32_t{ranks});
  packer.number(std::int32_t{4711}).text("elsewhere");
  if (protocol == kProtocol) {
    const std::string process(16, 'p');
    packer.number(kLongMs).raw(process.data(), process.size()).text("").text("tcp").number(std::uint8_t{0});
  } else {
    packer.text("what this version does not know");
  }
  const Deadline deadline = Deadline::after_ms(kLongMs);
  if (Status s = net::send_frame(&root, packer.bytes(), deadline); !s.is_ok()) return s;
  Result<std::string> answer = net::recv_frame(&root, 1 << 16, deadline);
  if (!answer.is_ok()) return answer.status();
  Result<Placement> placement = Placement::parse(*answer);
  return placement.is_ok() ? placement->status : placement.status();
}

// Three ranks, of which `other` has another version.
std::vector<Status> join_three(int other, std::uint32_t protocol, const std::string& version) {
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  std::vector<Status> statuses(3);
  on_threads(3, [&](int rank) {
    statuses[static_cast<std::size_t>(rank)] =
        rank == other ? join_with(*id, rank, 3, protocol, version)
                      : join(*id, rank, 3, loopback(), Deadline::after_ms(kLongMs)).status();
  });
  return statuses;
}

}  // namespace

TEST_CASE("a rank of another version is an error for all that names both versions, ranks and hosts") {
  const int other = GENERATE(0, 1, 2);
  const auto [protocol, version] = GENERATE(std::pair<std::uint32_t, std::string>{kProtocol, "9.8.7"},
                                            std::pair<std::uint32_t, std::string>{kProtocol + 7, "9.8.7"},
                                            std::pair<std::uint32_t, std::string>{kProtocol + 7, library_version()});
  for (const Status& status : join_three(other, protocol, version)) {
    INFO(status.message());
    CHECK(status.code() == Code::kInvalidUsage);
    CHECK(contains(status.message(), fmt::format("rank {} (host elsewhere, pid 4711) has loaded tutti {} (protocol {})",
                                                 other, version, protocol)));
    CHECK(contains(status.message(), fmt::format("host {}, pid {}", host_name(), ::getpid())));
    CHECK(contains(status.message(), Registration().library() + ". Load the same library on all ranks"));
  }
}

TEST_CASE("the common part of all versions' registrations and refusals is read, and damage is detected") {
  Registration registration;
  registration.rank = 3;
  registration.ranks = 5;
  registration.host = "a";
  registration.pid = 77;
  CHECK(Registration::parse(registration.serialize())->same_version());
  registration.version = "9.8.7";
  CHECK_FALSE(Registration::parse(registration.serialize())->same_version());
  registration.protocol = kProtocol + 1;
  const std::string bytes = registration.serialize();
  Result<Registration> other = Registration::parse(bytes);
  REQUIRE(other.is_ok());
  CHECK(other->who() == "rank 3 (host a, pid 77)");
  CHECK(other->library() == fmt::format("tutti 9.8.7 (protocol {})", kProtocol + 1));
  CHECK_FALSE(Registration::parse(bytes.substr(0, 20)).is_ok());
  Placement refusal;
  refusal.status = Status::invalid_usage("why");
  CHECK(Placement::parse(refusal.serialize() + "more")->status.message() == "why");
  CHECK_FALSE(Placement::parse(Placement().serialize() + "more").is_ok());
}

TEST_CASE("a dialler whose handshake has another version learns the version here") {
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  Result<UniqueFd> socket = net::start_connect(decode_unique_id(*id)->addresses.front());
  REQUIRE(socket.is_ok());
  const std::string hello = kGreetingOfAnother + std::string(200, 'x');
  const Deadline deadline = Deadline::after_ms(kLongMs);
  REQUIRE(net::send_all(socket->get(), std::as_bytes(std::span(hello)), deadline).is_ok());
  std::string got(64, '\0');
  pollfd entry{socket->get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, static_cast<int>(kLongMs)) == 1);
  got.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::recv(socket->get(), got.data(), got.size(), 0))));
  REQUIRE(got.size() == kGreetingOfAnother.size());
  CHECK(got.substr(0, 7) == kGreetingOfAnother.substr(0, 7));
  CHECK(got.back() != kGreetingOfAnother.back());
}

TEST_CASE("a root whose handshake has another version ends the wait of ranks that look for it") {
  Result<UniqueFd> listener = net::listen_tcp(0, 0);
  REQUIRE(listener.is_ok());
  RootContact contact;
  contact.addresses = {net::parse_address("127.0.0.1:0")->with_port(net::local_address(listener->get())->port())};
  std::atomic<bool> stop{false};
  std::thread root([&] {
    while (!stop) {
      Result<UniqueFd> accepted = net::accept_one(listener->get());
      if (accepted.is_ok() && accepted->valid()) {
        (void)net::send_all(accepted->get(), std::as_bytes(std::span(kGreetingOfAnother)), Deadline::after_ms(kLongMs));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // so that it arrives before the end
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const Status status = join(encode_unique_id(contact), 0, 2, loopback(), Deadline::after_ms(10 * kLongMs)).status();
  stop = true;
  root.join();
  INFO(status.message());
  CHECK(status.code() == Code::kInvalidUsage);
  CHECK(contains(status.message(), "has another version of tutti. Load the same library on all ranks"));
  CHECK(contains(status.message(), "handshake 200, here "));
}

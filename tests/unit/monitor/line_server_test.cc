// Where a process listens for those that ask about it, and the server of lines.
#include "monitor/line_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/event_fd.h"
#include "catch_compat.h"
#include "monitor/listener.h"
#include "net/socket.h"
#include "os/clock.h"
#include "temporary_folder.h"

namespace tutti::internal::test {
namespace {

using monitor::Conversation;
using monitor::LineServer;
using monitor::Listener;
using monitor::parse_listen_address;

constexpr std::int64_t kLongMs = 100'000;

// Answers each line with the line, "flood" with many bytes, "busy" with nothing, and ends after "end".
class Echo final : public Conversation {
 public:
  void hear(std::string_view line) override {
    if (line == "flood") return say(std::string(1 << 20, 'x'));
    if (line == "stay") set_lasting();
    say(std::string(line) + "\n");
    if (line == "end") end();
  }
};

// A server in a thread.
class Served {
 public:
  explicit Served(const std::string& address) {
    auto listener = Listener::open(address, "hello\n");
    INFO(listener.status().message());
    REQUIRE(listener.is_ok());
    server_ = std::make_unique<LineServer>(std::move(*listener), [] { return std::make_unique<Echo>(); });
    auto stop = EventFd::create();
    REQUIRE(stop.is_ok());
    stop_ = std::move(*stop);
    thread_ = std::thread([this] { serve(); });
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() {
    stop_.ring();
    thread_.join();
  }
  [[nodiscard]] std::size_t clients() const { return clients_; }

 private:
  void serve() {
    net::PollSet set;
    for (;;) {
      set.clear(60'000);
      const std::size_t stop = set.add(stop_.fd(), POLLIN);
      server_->prepare(&set);
      if (!set.wait().is_ok() || set.ready(stop) != 0) break;
      server_->advance(set);
      clients_ = server_->clients();
    }
    server_.reset();
  }

  std::unique_ptr<LineServer> server_;
  EventFd stop_;
  std::atomic<std::size_t> clients_{0};
  std::thread thread_;
};

UniqueFd connected(const std::string& path) {
  auto address = net::Address::unix_path(path);
  REQUIRE(address.is_ok());
  auto fd = net::start_connect(*address);
  INFO(fd.status().message());
  REQUIRE(fd.is_ok());
  return std::move(*fd);
}

void send_text(const UniqueFd& fd, const std::string& text) {
  REQUIRE(net::send_all(fd.get(), std::as_bytes(std::span(text)), Deadline::after_ms(kLongMs)).is_ok());
}

// What comes until that many bytes, or the end of the connection.
std::string receive_text(const UniqueFd& fd, std::size_t most) {
  std::string text;
  std::array<char, 4096> bytes{};
  while (text.size() < most) {
    pollfd entry{fd.get(), POLLIN, 0};
    REQUIRE(::poll(&entry, 1, static_cast<int>(kLongMs)) == 1);
    const ssize_t got = ::recv(fd.get(), bytes.data(), std::min(bytes.size(), most - text.size()), 0);
    if (got <= 0) break;
    text.append(bytes.data(), static_cast<std::size_t>(got));
  }
  return text;
}

TEST_CASE("monitor: addresses to listen at") {
  const auto numeric = parse_listen_address("10.0.0.1:28028");
  REQUIRE(numeric.is_ok());
  CHECK((numeric.value().host == "10.0.0.1" && numeric.value().port == 28028 && numeric.value().path.empty()));
  CHECK(parse_listen_address(":5").value().host == "localhost");
  CHECK(parse_listen_address("[::1]:5").value().host == "::1");
  CHECK(parse_listen_address("node7:5").value().host == "node7");
  CHECK(parse_listen_address("unix:/tmp/x").value().path == "/tmp/x");
  for (const char* const bad : {"", "28028", "localhost", "localhost:", "localhost:0", "localhost:65536", "localhost:x",
                                "::1:5", "unix:", ":", "tcp:localhost:5"}) {
    INFO(bad);
    const auto refused = parse_listen_address(bad);
    REQUIRE(!refused.is_ok());
    CHECK(refused.status().code() == Code::kInvalidUsage);
    CHECK(refused.status().message().find(std::string("\"") + bad + "\"") != std::string::npos);
  }
  CHECK(!parse_listen_address("unix:/" + std::string(200, 'x')).is_ok());
  // localhost is not looked up.
  const auto both = monitor::addresses_of(parse_listen_address(":77").value());
  REQUIRE(both.is_ok());
  CHECK(net::list_addresses(both.value()) == "127.0.0.1:77, [::1]:77");
}

TEST_CASE("monitor: a path that another file has, and folders that do not exist, are refused") {
  const TemporaryFolder folder;
  std::ofstream(folder.file("data")) << "precious";
  CHECK(!Listener::open("unix:" + folder.file("data"), "hello\n").is_ok());
  CHECK(std::filesystem::file_size(folder.file("data")) == 8);
  CHECK(!Listener::open("unix:" + folder.file("none/socket"), "hello\n").is_ok());
}

TEST_CASE("monitor: one process has the path, and another takes it when it is gone") {
  const TemporaryFolder folder;
  const std::string path = folder.file("socket");
  auto first = std::make_unique<Served>("unix:" + path);
  const Served second("unix:" + path);
  CHECK(std::filesystem::status(path).permissions() ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  UniqueFd client = connected(path);
  send_text(client, "end\n");
  CHECK(receive_text(client, 100) == "end\n");
  first.reset();
  for (const Deadline limit = Deadline::after_ms(kLongMs); !std::filesystem::exists(path) && !limit.passed();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  client = connected(path);
  send_text(client, "end\n");
  CHECK(receive_text(client, 100) == "end\n");
  // A file of a process that was killed.
  const std::string old = folder.file("old");
  auto address = net::Address::unix_path(old);
  REQUIRE(address.is_ok());
  { auto left = net::listen_unix(*address); }
  REQUIRE(std::filesystem::exists(old));
  const Served third("unix:" + old);
  client = connected(old);
  send_text(client, "end\n");
  CHECK(receive_text(client, 100) == "end\n");
}

TEST_CASE("monitor: the path of another program stays") {
  const TemporaryFolder folder;
  for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
    const std::string path = folder.file(std::to_string(type));
    auto address = net::Address::unix_path(path);
    REQUIRE(address.is_ok());
    const UniqueFd other(::socket(AF_UNIX, type, 0));
    REQUIRE(::bind(other.get(), address->get(), address->length()) == 0);
    if (type == SOCK_STREAM) {
      REQUIRE(::listen(other.get(), 10) == 0);
    } else {
      CHECK(!Listener::open("unix:" + path, "hello\n").is_ok());
      continue;
    }
    auto listener = Listener::open("unix:" + path, "hello\n");
    REQUIRE(listener.is_ok());
    // It closes each connection, so that nothing is to be waited for.
    { const UniqueFd greeted(::accept(other.get(), nullptr, nullptr)); }
    struct stat before {};
    REQUIRE(::stat(path.c_str(), &before) == 0);
    for (int i = 0; i < 3; ++i) {
      net::PollSet set;
      set.clear(20);
      listener->prepare(&set);
      REQUIRE(set.wait().is_ok());
      CHECK(listener->accept(set).empty());
    }
    struct stat after {};
    REQUIRE(::stat(path.c_str(), &after) == 0);
    CHECK(before.st_ino == after.st_ino);
  }
}

TEST_CASE("monitor: lines in pieces, together, without an end, and too long") {
  const TemporaryFolder folder;
  const std::string path = folder.file("socket");
  const Served served("unix:" + path);
  const UniqueFd client = connected(path);
  send_text(client, "o");
  send_text(client, "ne\r\ntwo\n\nth");
  CHECK(receive_text(client, 9) == "one\ntwo\n\n");
  send_text(client, "ree\nend\nnot heard\n");
  CHECK(receive_text(client, 100) == "three\nend\n");
  // A client that sends nothing more still gets its answers.
  const UniqueFd half = connected(path);
  send_text(half, "a\nb\nc");
  REQUIRE(::shutdown(half.get(), SHUT_WR) == 0);
  CHECK(receive_text(half, 100) == "a\nb\n");
  const UniqueFd longest = connected(path);
  send_text(longest, std::string(Conversation::kMostLineBytes, 'l') + "\n");
  CHECK(receive_text(longest, 1025).size() == 1025);
  send_text(longest, std::string(Conversation::kMostLineBytes + 2, 'l'));
  CHECK(receive_text(longest, 100).empty());
}

TEST_CASE("monitor: a client that does not read is not heard further") {
  const TemporaryFolder folder;
  const std::string path = folder.file("socket");
  const Served served("unix:" + path);
  const UniqueFd client = connected(path);
  constexpr std::size_t kFloods = 40;
  std::string text;
  for (std::size_t i = 0; i < kFloods; ++i) text += "flood\n";
  send_text(client, text + "end\n");
  // Others are served meanwhile.
  const UniqueFd other = connected(path);
  send_text(other, "end\n");
  CHECK(receive_text(other, 100) == "end\n");
  CHECK(receive_text(client, std::size_t{1} << 30).size() == (kFloods << 20) + 4);
}

TEST_CASE("monitor: many clients that say nothing do not keep others out") {
  const TemporaryFolder folder;
  const std::string path = folder.file("socket");
  const Served served("unix:" + path);
  const UniqueFd watcher = connected(path);
  send_text(watcher, "stay\n");
  CHECK(receive_text(watcher, 5) == "stay\n");
  std::vector<UniqueFd> silent;
  for (std::size_t i = 0; i < 2 * LineServer::kMostClients; ++i) {
    silent.push_back(connected(path));
    // The server is not too busy to replace clients, which must have some age.
    if (i % 16 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2 * LineServer::kLeastAgeMs));
  }
  std::string answer;
  for (const Deadline limit = Deadline::after_ms(kLongMs); answer.empty() && !limit.passed();) {
    const UniqueFd client = connected(path);
    if (net::send_all(client.get(), std::as_bytes(std::span("end\n", 4)), limit).is_ok()) {
      answer = receive_text(client, 100);
    }
  }
  CHECK(answer == "end\n");
  CHECK(served.clients() <= LineServer::kMostClients);
  // A client that waits for news stays.
  send_text(watcher, "still\n");
  CHECK(receive_text(watcher, 6) == "still\n");
}

}  // namespace
}  // namespace tutti::internal::test

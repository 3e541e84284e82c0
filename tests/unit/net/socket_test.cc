#include "net/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "catch_compat.h"
#include "net/frame.h"
#include "receive_all.h"

using namespace tutti::internal;
using namespace tutti::internal::net;

namespace {

struct Pair {
  ByteStream a;
  ByteStream b;
};

Pair make_pair() {
  int fds[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
  return {ByteStream(UniqueFd(fds[0])), ByteStream(UniqueFd(fds[1]))};
}

Deadline soon() {
  return Deadline::after_ms(20'000);
}

}  // namespace

TEST_CASE("a listener stays inside of its port range and says when it is full") {
  Result<UniqueFd> first = listen_tcp(0, 0);
  REQUIRE(first.is_ok());
  const int port = local_address(first->get())->port();
  CHECK((::fcntl(first->get(), F_GETFD) & FD_CLOEXEC) != 0);
  const Status full = listen_tcp(port, port).status();
  CHECK(full.code() == Code::kSystemError);
  CHECK(full.message().find(std::to_string(port)) != std::string::npos);
  CHECK(full.message().find("TUTTI_PORT_RANGE") != std::string::npos);
}

TEST_CASE("frames of all sizes arrive complete, in order, and no later byte is read") {
  Pair pair = make_pair();
  const std::array<std::size_t, 6> sizes = {0, 1, 3, 4096, 3'000'000, 2};
  std::thread sender([&] {
    for (const std::size_t size : sizes) {
      const Status s = send_frame(&pair.a, std::string(size, static_cast<char>('a' + size % 26)), soon());
      if (!s.is_ok()) return;
    }
    static_cast<void>(send_all(pair.a.get(), std::as_bytes(std::span("raw", 3)), soon()).is_ok());
  });
  for (const std::size_t size : sizes) {
    Result<std::string> frame = recv_frame(&pair.b, 4'000'000, soon());
    CHECK(frame.is_ok());
    if (frame.is_ok()) CHECK(*frame == std::string(size, static_cast<char>('a' + size % 26)));
  }
  std::array<std::byte, 3> raw{};
  CHECK(test::receive_all(pair.b.get(), raw, soon()));
  sender.join();
  CHECK(std::memcmp(raw.data(), "raw", 3) == 0);
}

TEST_CASE("frames that are too long, cut short or late are errors") {
  Pair pair = make_pair();
  REQUIRE(send_frame(&pair.a, std::string(100, 'x'), soon()).is_ok());
  CHECK(recv_frame(&pair.b, 99, soon()).status().code() == Code::kRemoteError);
  Pair cut = make_pair();
  REQUIRE(send_all(cut.a.get(), std::as_bytes(std::span("\x0a\0\0\0abc", 7)), soon()).is_ok());
  CHECK(recv_frame(&cut.b, 99, Deadline::after_ms(20)).status().code() == Code::kTimeout);
  cut.a.reset();
  CHECK(recv_frame(&cut.b, 99, soon()).status().code() == Code::kRemoteError);
}

TEST_CASE("a socket's file is removed, and no other file") {
  char folder[] = "/tmp/tutti_socket_XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string socket = std::string(folder) + "/socket";
  const std::string file = std::string(folder) + "/file";
  const std::string link = std::string(folder) + "/link";
  const UniqueFd listener = listen_unix(Address::unix_path(socket).value()).value();
  const UniqueFd made(::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  REQUIRE(made.valid());
  REQUIRE(::symlink(socket.c_str(), link.c_str()) == 0);
  remove_own_socket(file);
  remove_own_socket(link);
  CHECK(::unlink(file.c_str()) == 0);  // were still there
  CHECK(::unlink(link.c_str()) == 0);
  remove_own_socket(socket);
  CHECK(::access(socket.c_str(), F_OK) != 0);
  CHECK(::rmdir(folder) == 0);
}

TEST_CASE("a TCP connection that is about to be closed gives lost bytes up in an hour") {
  const UniqueFd listener = listen_tcp(0, 0).value();
  const std::string own = "127.0.0.1:" + std::to_string(local_address(listener.get())->port());
  const UniqueFd fd = start_connect(parse_address(own).value()).value();
  const auto limit_ms = [&] {
    unsigned ms = 0;
    socklen_t size = sizeof ms;
    REQUIRE(::getsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &size) == 0);
    return ms;
  };
  // A stopped process that does not read is not an error.
  watch_silence(fd.get(), 1000);
  CHECK(limit_ms() > 7 * 24 * 3600 * 1000U);
  end_silence_watch(fd.get());
  CHECK(limit_ms() > 7 * 24 * 3600 * 1000U);
  limit_lost_bytes(fd.get());
  CHECK(limit_ms() > 0);
  CHECK(limit_ms() <= 3'600'000);
}

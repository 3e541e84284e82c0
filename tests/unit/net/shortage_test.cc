// No descriptors left: unauthenticated peers are closed first; if that is not enough, the error belongs to this side.
#include "net/shortage.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <vector>

#include "catch_compat.h"
#include "net/acceptor.h"
#include "net/dial.h"

using namespace tutti::internal;
using namespace tutti::internal::net;

namespace {

constexpr std::int64_t kSoonMs = 5000;

Secret some_secret() {
  Secret secret;
  secret.fill(9);
  return secret;
}

// Lets this process open `more` more files.
void leave_room_for(int more) {
  const int lowest = ::dup(0);
  rlimit limit{};
  if (lowest < 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) std::abort();
  int highest = lowest;
  for (int fd = 0; fd < 1024; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) highest = fd;
  }
  ::close(lowest);
  // Unused numbers below would also be available.
  while (::dup(0) <= highest) {
  }
  limit.rlim_cur = static_cast<rlim_t>(highest + 2 + more);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) std::abort();
}

// In a separate process, whose limits may be changed permanently. 0 is success.
int in_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Address loopback_of(int listener) {
  return parse_address("127.0.0.1:1").value().with_port(local_address(listener)->port());
}

// Runs the loop of both until `done` or too late.
bool turn(Acceptor* acceptor, Dial* dial, const std::function<bool()>& done) {
  const Deadline deadline = Deadline::after_ms(kSoonMs);
  PollSet set;
  while (!done() && !deadline.passed()) {
    set.clear(50);
    if (acceptor != nullptr) acceptor->prepare(&set);
    if (dial != nullptr) dial->prepare(&set);
    if (!set.wait().is_ok()) return false;
    if (acceptor != nullptr) acceptor->process(set);
    if (dial != nullptr) dial->process(set);
  }
  return done();
}

bool names_the_limit(const Status& status) {
  return status.code() == Code::kSystemError && status.is_exhaustion() &&
         status.message().find("RLIMIT_NOFILE") != std::string::npos &&
         status.message().find("ulimit -n") != std::string::npos;
}

}  // namespace

TEST_CASE("a dial without a descriptor reports that, and does not count its peer as dead or out of reach") {
  CHECK(in_child([] {
          Result<UniqueFd> listener = listen_tcp(0, 0);
          Dial dial({loopback_of(listener->get())}, some_secret(), Claim{}, -1);
          leave_room_for(0);
          if (!turn(nullptr, &dial, [&] { return !dial.shortage().is_ok(); })) return 1;
          if (dial.refused_for(1) || dial.unreachable()) return 2;
          return names_the_limit(dial.shortage()) ? 0 : 3;
        }) == 0);
}

TEST_CASE("an acceptor without a descriptor and without unauthenticated peers reports that") {
  CHECK(in_child([] {
          Result<UniqueFd> listener = listen_tcp(0, 0);
          const Address address = loopback_of(listener->get());
          Acceptor acceptor(some_secret(), Claim{});
          acceptor.add_listener(std::move(listener).value(), false);
          Result<UniqueFd> waiting = start_connect(address);
          leave_room_for(0);
          if (!turn(&acceptor, nullptr, [&] { return !acceptor.shortage().is_ok(); })) return 1;
          return names_the_limit(acceptor.shortage()) ? 0 : 2;
        }) == 0);
}

TEST_CASE("unauthenticated peers that have all descriptors are closed in favour of the job's ranks") {
  // The acceptor's peer connects from the same process, so that both sides need the unauthenticated peers' descriptors.
  CHECK(
      in_child([] {
        Result<UniqueFd> listener = listen_tcp(0, 0);
        const Address address = loopback_of(listener->get());
        Acceptor acceptor(some_secret(), Claim{});
        acceptor.add_listener(std::move(listener).value(), false);
        // The unauthenticated peers are in another process.
        const pid_t strangers = ::fork();
        if (strangers == 0) {
          std::vector<UniqueFd> all;
          for (int i = 0; i < 100; ++i) {
            Result<UniqueFd> one = start_connect(address);
            if (one.is_ok()) all.push_back(std::move(one).value());
          }
          ::sleep(60);
          ::_exit(0);
        }
        leave_room_for(12);
        const Deadline full = Deadline::after_ms(400);
        static_cast<void>(turn(&acceptor, nullptr, [&] { return full.passed(); }));
        Claim mine;
        mine.rank = 3;
        Dial dial({address}, some_secret(), mine, -1);
        bool arrived = false;
        const bool met = turn(&acceptor, &dial, [&] {
          for (const Authenticated& one : acceptor.take()) arrived = arrived || one.peer.rank == 3;
          return (arrived && dial.done()) || !dial.shortage().is_ok() || !acceptor.shortage().is_ok();
        });
        ::kill(strangers, SIGKILL);
        ::waitpid(strangers, nullptr, 0);
        return met && dial.done() && arrived ? 0 : !dial.shortage().is_ok() ? 1 : !acceptor.shortage().is_ok() ? 2 : 3;
      }) == 0);
}

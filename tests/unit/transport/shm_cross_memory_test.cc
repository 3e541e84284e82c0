// Data that a peer's process reads itself: conformance, permission, revocation, and a peer that ends.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "conformance.h"
#include "os/clock.h"
#include "shm_pairs.h"
#include "transport/shm/cross_memory.h"
#include "transport/shm/link.h"
#include "transport/shm/link_state.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;
using namespace tutti::internal::transport::shm;

namespace {

constexpr Fingerprint kFingerprint{1, 2, 3};
constexpr std::size_t kBytes = 200'000;
static_assert(kBytes >= kCrossMemoryBytes && kBytes <= kMostZcopyBytes);
constexpr std::byte kRight{0x5a};
constexpr std::byte kVoid{0xee};

// Both sides know that they can read each other.
conformance::Pair reading_pair() {
  conformance::Pair pair = conformance::processes_pair();
  for (int i = 0; i < 2; ++i) {
    pair.a->begin_operation({.reading = Reading::kAlways, .only_moves = true});
    pair.b->begin_operation({.reading = Reading::kAlways, .only_moves = true});
  }
  REQUIRE(pair.b->recv().traits().pulls);
  REQUIRE(pair.a->send().traits().zcopy_any_bytes == kCrossMemoryBytes);
  return pair;
}

std::size_t push(Link& link, const std::vector<std::byte>& bytes) {
  return link.send().push(kFingerprint, {bytes.data(), bytes.size(), 0, 0}, 0, bytes.size());
}

// Both ends of a link; the test sees the memory that `a` writes.
struct Seen {
  explicit Seen(LinkOptions options = {}) {
    auto [memory_a, memory_b] = ends.open(1, turns_of(options));
    side_a = &memory_a->own();
    options.peer = 1;
    a = make_link(std::move(memory_a), false, options);
    options.peer = 0;
    b = make_link(std::move(memory_b), false, options);
  }
  void begin(MemoryUse use) const {
    for (int i = 0; i < 2; ++i) {
      a->begin_operation(use);
      b->begin_operation(use);
    }
  }
  void begin(bool only_moves) const {
    begin({.reading = only_moves ? Reading::kAlways : Reading::kNever, .only_moves = only_moves});
  }
  [[nodiscard]] Payload first_payload() const {
    return static_cast<Payload>(side_a->eager[0].length_and_payload >> kLengthBits);
  }
  // Its first message says that the following ones are in the extension.
  [[nodiscard]] bool extended() const {
    return side_a->eager[0].sequence == 1 && side_a->eager[0].length_and_payload == 0;
  }

  conformance::SharedEnds ends;
  SideMemory* side_a = nullptr;
  std::unique_ptr<Link> a;
  std::unique_ptr<Link> b;
};

// A listening socket of this process, and a connection from another one.
struct Listener {
  Listener() : fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address.sun_family = AF_UNIX;
    const std::string name = "tutti-test-" + std::to_string(::getpid());
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(fd.get(), 1) == 0);
  }
  UniqueFd fd;
  sockaddr_un address{};
  socklen_t size = 0;
};

// Another process that sends one message from its own memory, and then waits for its end.
[[noreturn]] void send_and_wait(const Listener& listener) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto wakeup_fd = WakeupFd::create();
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&listener.address), listener.size) != 0 ||
      !wakeup_fd.is_ok()) {
    std::_Exit(1);
  }
  const auto ends = shm::Pair::create(std::move(socket), *wakeup_fd, 0, {1, shm::Placing::kFirst}).value();
  auto memory = std::move(ends->open(1, Turns::kNone).value());
  while (!memory->connect().value()) ::usleep(1000);
  const auto link = make_link(std::move(memory), false, {0, true});
  const std::vector<std::byte> bytes(kBytes, kRight);
  const Deadline deadline = Deadline::after_ms(60'000);
  do {
    link->begin_operation({.reading = Reading::kAlways, .only_moves = true});
    ::usleep(1000);
  } while (link->send().traits().zcopy_any_bytes == SIZE_MAX && !deadline.passed());
  (void)push(*link, bytes);
  for (;;) ::pause();
}

template <class F>
bool eventually(F&& f) {
  const Deadline deadline = Deadline::after_ms(60'000);
  while (!f()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

TEST_CASE("shared memory is a transport: processes that read each other") {
  conformance::check({"shm/cross-memory", [](std::uint64_t) { return reading_pair(); }, true});
}

TEST_CASE("which senders let the peer read which memory") {
  struct Case {
    const char* what;
    LinkOptions options;
    MemoryUse use;
    std::size_t from;
  };
  const LinkOptions near{};
  const LinkOptions far{.far = true};
  const LinkOptions in_turns{.own_processor = false};
  const auto with = [](LinkOptions options, MemoryReads reads) {
    options.reads = reads;
    return options;
  };
  const MemoryUse combines{};
  const MemoryUse exchanges{.reading = Reading::kAlways, .only_moves = true};
  const MemoryUse flows{.reading = Reading::kFromAfar, .only_moves = true};
  const MemoryUse scatters{.reading = Reading::kFromAfar, .only_moves = true, .read_in_turns = true};
  const MemoryUse long_one{.only_moves = true};
  const Case c = GENERATE_REF(values<Case>({
      {"near, exchanges", near, exchanges, kCrossMemoryBytes},
      {"near, flows", near, flows, SIZE_MAX},
      {"far, exchanges", far, exchanges, kFarCrossMemoryBytes},
      {"far, flows", far, flows, kFarCrossMemoryBytes},
      {"far, combines", far, combines, SIZE_MAX},
      {"far, too long", far, long_one, SIZE_MAX},
      {"in turns, exchanges", in_turns, exchanges, SIZE_MAX},
      {"in turns, scatters", in_turns, scatters, kFarCrossMemoryBytes},
      {"never", with(far, MemoryReads::kNever), exchanges, SIZE_MAX},
      {"always, flows", with(near, MemoryReads::kAlways), flows, kFarCrossMemoryBytes},
      {"always, in turns", with(in_turns, MemoryReads::kAlways), exchanges, kFarCrossMemoryBytes},
      {"always, combines", with(in_turns, MemoryReads::kAlways), combines, SIZE_MAX},
  }));
  CAPTURE(c.what);
  const Seen seen(c.options);
  seen.begin(c.use);
  CHECK(seen.a->send().traits().zcopy_any_bytes == c.from);
  // Its own sends do not matter.
  CHECK(seen.b->recv().traits().pulls == (c.use.only_moves && c.options.reads != MemoryReads::kNever));
  if (c.from != SIZE_MAX) {
    // Until the peer has let it read something, a receiver need not be prepared.
    CHECK(seen.b->recv().traits().zcopy_any_bytes == SIZE_MAX);
    std::vector<std::byte> bytes(kBytes, kRight);
    REQUIRE(push(*seen.a, bytes) == kBytes);
    CHECK(seen.first_payload() == Payload::kLent);
    std::vector<std::byte> target(kBytes);
    Fingerprint fingerprint;
    CHECK(seen.b->recv().pull(target.data(), kBytes, &fingerprint) == kBytes);
    CHECK(target == bytes);
    seen.begin(c.use);
    CHECK(seen.b->recv().traits().zcopy_any_bytes == kFarCrossMemoryBytes);
  }
}

TEST_CASE("only operations that only move data let the peer read it") {
  const Seen seen;
  const std::vector<std::byte> bytes(kBytes, kRight);
  SECTION("they do") {
    seen.begin(true);
    REQUIRE(push(*seen.a, bytes) == kBytes);
    CHECK(seen.first_payload() == Payload::kLent);
  }
  SECTION("one that combines does not, also after one that moves") {
    seen.begin(true);
    seen.begin(false);
    CHECK(seen.a->send().traits().zcopy_any_bytes == SIZE_MAX);
    CHECK_FALSE(seen.b->recv().traits().pulls);
    REQUIRE(push(*seen.a, bytes) == kSlotBytes);
    CHECK(seen.extended());
  }
  SECTION("short messages do not") {
    seen.begin(true);
    REQUIRE(push(*seen.a, std::vector<std::byte>(kCrossMemoryBytes - 1)) == kSlotBytes);
    CHECK(seen.extended());
  }
  SECTION("nor does memory that cannot be read so") {
    seen.begin(true);
    const std::size_t page = static_cast<std::size_t>(::getpagesize());
    const std::size_t size = (kBytes / page + 2) * page;
    void* const memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    auto* const base = static_cast<std::byte*>(memory);
    CHECK(CrossMemory::readable(base, size));
    REQUIRE(::mprotect(base + size - page, page, PROT_NONE) == 0);
    CHECK_FALSE(CrossMemory::readable(base, size));
    CHECK(seen.a->send().push(kFingerprint, {base, size, 0, 0}, 0, kBytes) == kSlotBytes);
    CHECK(seen.extended());
    ::munmap(memory, size);
  }
}

TEST_CASE("a rank that cannot read its peer's memory receives everything through slots") {
  const Seen seen;
  IdentityLine& identity = seen.ends.a->memory().identity;
  SECTION("another word lies there") {
    identity.word ^= 1;
  }
  SECTION("nothing lies there") {
    identity.address = 64;
  }
  SECTION("the peer has not said who it is") {
    identity.named = 0;
  }
  seen.begin(true);
  CHECK_FALSE(seen.b->recv().traits().pulls);
  CHECK(seen.a->send().traits().zcopy_any_bytes == SIZE_MAX);
  // The other direction is independent.
  CHECK(seen.a->recv().traits().pulls);
  CHECK(seen.b->send().traits().zcopy_any_bytes == kCrossMemoryBytes);
  const std::vector<std::byte> bytes(kBytes, kRight);
  REQUIRE(push(*seen.a, bytes) == kSlotBytes);
  CHECK(seen.extended());
  std::vector<std::byte> target(kBytes);
  Fingerprint fingerprint;
  CHECK(seen.b->recv().pull(target.data(), target.size(), &fingerprint) == 0);
  CHECK(seen.b->recv().peek(kBytes).size == kSlotBytes);
  CHECK(seen.b->recv().status().is_ok());
}

TEST_CASE("a message is read into the receiver's buffer, and belongs to the sender until then") {
  const conformance::Pair pair = reading_pair();
  std::vector<std::byte> bytes(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251);
  REQUIRE(push(*pair.a, bytes) == kBytes);
  CHECK(pair.a->send().completed() == 0);
  std::vector<std::byte> target(kBytes);
  Fingerprint fingerprint;
  std::size_t done = 0;
  SECTION("at once") {
    done = pair.b->recv().pull(target.data(), kBytes, &fingerprint);
    CHECK(fingerprint == kFingerprint);
  }
  SECTION("in parts, by either way") {
    for (int i = 0; done < kBytes; ++i) {
      const std::size_t n = std::min<std::size_t>(kBytes - done, 7001);
      if (i % 2 == 0) {
        REQUIRE(pair.b->recv().pull(target.data() + done, n, &fingerprint) == n);
        done += n;
      } else {
        const RecvLane::View view = pair.b->recv().peek(n);
        REQUIRE(view.size >= std::min(kBytes - done, kLeastRoomBytes));
        const std::size_t used = std::min(n, view.size);
        std::memcpy(target.data() + done, view.data, used);
        REQUIRE(pair.b->recv().consume(used));
        done += used;
      }
      REQUIRE(pair.a->send().completed() == (done < kBytes ? 0 : kBytes));
    }
  }
  CHECK(done == kBytes);
  CHECK(target == bytes);
  CHECK(pair.a->send().completed() == kBytes);
}

TEST_CASE("memory that the peer reads itself is revoked") {
  conformance::Pair pair = reading_pair();
  const std::vector<std::byte> bytes(kBytes, kRight);
  std::vector<std::byte> target(kBytes);
  Fingerprint fingerprint;
  REQUIRE(push(*pair.a, bytes) == kBytes);
  SECTION("before it is read") {
    pair.a->revoke();
    CHECK(pair.a->revoked());
    CHECK(pair.b->recv().pull(target.data(), kBytes, &fingerprint) == 0);
    CHECK(pair.b->recv().peek(kBytes).size == 0);
    CHECK(std::all_of(target.begin(), target.end(), [](std::byte b) { return b == std::byte{}; }));
  }
  SECTION("what has been read in time is good") {
    const RecvLane::View view = pair.b->recv().peek(kBytes);
    REQUIRE(view.size > 0);
    pair.a->revoke();
    CHECK(pair.a->revoked());
    CHECK(view.data[view.size - 1] == kRight);
    CHECK(pair.b->recv().consume(view.size));
    CHECK(pair.b->recv().peek(kBytes).size == 0);
  }
  CHECK(pair.a->revoked());
  CHECK(eventually([&] { return pair.b->recv().status().code() == Code::kRemoteError; }));
}

TEST_CASE("data read after its revocation does not count as received") {
  for (int round = 0; round < 100; ++round) {
    const conformance::Pair pair = reading_pair();
    std::vector<std::byte> bytes(kBytes, kRight);
    REQUIRE(push(*pair.a, bytes) == kBytes);
    std::atomic<bool> reading = false;
    std::vector<std::byte> target(kBytes);
    std::size_t done = 0;
    std::thread reader([&] {
      Fingerprint fingerprint;
      reading = true;
      for (std::size_t n = 1; n > 0 && done < kBytes; done += n) {
        n = pair.b->recv().pull(target.data() + done, std::min<std::size_t>(kBytes - done, 5000), &fingerprint);
      }
    });
    while (!reading) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(round));
    pair.a->revoke();
    while (!pair.a->revoked()) std::this_thread::yield();
    std::fill(bytes.begin(), bytes.end(), kVoid);
    reader.join();
    REQUIRE(std::count(target.begin(), target.begin() + static_cast<std::ptrdiff_t>(done), kRight) ==
            static_cast<std::ptrdiff_t>(done));
  }
}

TEST_CASE("a process that has ended is read no more") {
  const Listener listener;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) send_and_wait(listener);
  const WakeupFd wakeup_fd = std::move(WakeupFd::create().value());
  UniqueFd socket(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const auto ends = shm::Pair::create(std::move(socket), wakeup_fd, 1, {0, shm::Placing::kFirst}).value();
  auto memory = std::move(ends->open(1, Turns::kNone).value());
  REQUIRE(eventually([&] { return memory->connect().value(); }));
  const HeaderLine& first = memory->theirs().eager[0];
  const auto link = make_link(std::move(memory), false, {1, true});
  const bool sent = eventually([&] {
    link->begin_operation({.reading = Reading::kAlways, .only_moves = true});
    return first.sequence == 1;
  });
  CHECK(sent);
  CHECK(first.length_and_payload >> kLengthBits == static_cast<std::uint32_t>(Payload::kLent));
  std::vector<std::byte> target(kBytes);
  Fingerprint fingerprint;
  const std::size_t half = link->recv().pull(target.data(), kBytes / 2, &fingerprint);
  CHECK(half == kBytes / 2);
  CHECK(target[half - 1] == kRight);
  REQUIRE(::kill(child, SIGKILL) == 0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(link->recv().pull(target.data() + half, kBytes - half, &fingerprint) == 0);
  CHECK(link->recv().peek(kBytes).size == 0);
  CHECK(eventually([&] { return !link->recv().status().is_ok(); }));
  CHECK(link->recv().status().code() == Code::kRemoteError);
  CHECK(link->recv().status().message().find("rank 1") != std::string::npos);
}

TEST_CASE("a message in unmapped memory is a failure of the peer") {
  const Seen seen;
  seen.begin(true);
  const std::vector<std::byte> bytes(kBytes, kRight);
  REQUIRE(push(*seen.a, bytes) == kBytes);
  HeaderLine& h = seen.side_a->eager[0];
  ZcopyDescriptor descriptor{};
  std::memcpy(&descriptor, h.inline_bytes, sizeof descriptor);
  const char* expected = nullptr;
  SECTION("at no address") {
    descriptor.offset = 64;
    expected = "can no longer be read";
  }
  SECTION("longer than it says") {
    descriptor.bytes = kBytes - 1;
    expected = "protocol error";
  }
  std::memcpy(h.inline_bytes, &descriptor, sizeof descriptor);
  std::vector<std::byte> target(kBytes);
  Fingerprint fingerprint;
  if (GENERATE(true, false)) {
    CHECK(seen.b->recv().pull(target.data(), kBytes, &fingerprint) == 0);
  }
  CHECK(seen.b->recv().peek(kBytes).size == 0);
  // Later reads get none of it either.
  CHECK(seen.b->recv().peek(kBytes).size == 0);
  const Status status = seen.b->recv().status();
  INFO(status.message());
  CHECK(status.code() == Code::kRemoteError);
  CHECK(status.message().find("rank 0") != std::string::npos);
  CHECK(status.message().find(expected) != std::string::npos);
}

TEST_CASE("if the kernel cannot write to the receiver's memory, it writes to another buffer") {
  const Seen seen;
  seen.begin(true);
  const std::vector<std::byte> bytes(kBytes, kRight);
  REQUIRE(push(*seen.a, bytes) == kBytes);
  // Like an application that opens its pages when they fault.
  void* const closed = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(closed != MAP_FAILED);
  Fingerprint fingerprint;
  std::size_t received = 0;
  while (received < kBytes) {
    REQUIRE(seen.b->recv().pull(static_cast<std::byte*>(closed) + received, kBytes - received, &fingerprint) == 0);
    const RecvLane::View view = seen.b->recv().peek(kBytes - received);
    REQUIRE(view.size > 0);
    REQUIRE(std::all_of(view.data, view.data + view.size, [](std::byte b) { return b == kRight; }));
    REQUIRE(seen.b->recv().consume(view.size));
    received += view.size;
  }
  CHECK(seen.b->recv().status().is_ok());
  CHECK(::munmap(closed, kBytes) == 0);
}

TEST_CASE("a message for a receiver that cannot read it is a protocol error") {
  const Seen seen;
  seen.begin(true);
  const std::vector<std::byte> bytes(kBytes, kRight);
  REQUIRE(push(*seen.a, bytes) == kBytes);
  // As received by a link that has not checked yet whether it can.
  const Seen other;
  other.side_a->eager[0].length_and_payload = seen.side_a->eager[0].length_and_payload;
  other.side_a->eager[0].sequence = 1;
  CHECK(other.b->recv().peek(kBytes).size == 0);
  CHECK(other.b->recv().status().message().find("protocol error") != std::string::npos);
}

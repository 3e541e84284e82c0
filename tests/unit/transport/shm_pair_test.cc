// The shared state of two processes for all their links: when links are connected, and what remains of them.
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "os/numa.h"
#include "shm_pairs.h"
#include "socket_pairs.h"
#include "transport/shm/arena.h"
#include "transport/shm/link.h"
#include "transport/shm/pair.h"
#include "transport/shm/private_memory.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;
using namespace tutti::internal::transport::shm;

namespace {

constexpr Fingerprint kFingerprint{1, 2, 3};
constexpr Turns kTurns = Turns::kNone;

bool push(Link& link, std::size_t size) {
  const std::vector<std::byte> bytes(size, std::byte{0x5a});
  return link.send().push(kFingerprint, {bytes.data(), bytes.size(), 0, 0}, 0, size) == size;
}

bool receive(Link& link, std::size_t size) {
  const RecvLane::View view = link.recv().peek(size);
  return view.size == size && view.data[size - 1] == std::byte{0x5a} && link.recv().consume(size);
}

struct Links {
  explicit Links(const conformance::SharedEnds& ends, std::uint64_t id) {
    auto [memory_a, memory_b] = ends.open(id, kTurns);
    a = make_link(std::move(memory_a), false, {1, true});
    b = make_link(std::move(memory_b), false, {0, true});
  }
  std::unique_ptr<Link> a;
  std::unique_ptr<Link> b;
};

// While it exists, this process can map only `bytes` bytes more.
class LittleAddressSpace {
 public:
  explicit LittleAddressSpace(std::size_t bytes) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    REQUIRE(getrlimit(RLIMIT_AS, &before_) == 0);
    const rlimit little{pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &little) == 0);
  }
  ~LittleAddressSpace() { setrlimit(RLIMIT_AS, &before_); }
  LittleAddressSpace(const LittleAddressSpace&) = delete;
  LittleAddressSpace& operator=(const LittleAddressSpace&) = delete;

 private:
  rlimit before_{};
};

// The address of side `a` of the next link with that number.
std::uintptr_t place_of_next(const conformance::SharedEnds& ends, std::uint64_t id) {
  const auto [a, b] = ends.open(id, kTurns);
  return reinterpret_cast<std::uintptr_t>(&a->own());
}

}  // namespace

TEST_CASE("a link begins without waiting, and is connected when both sides have begun") {
  const conformance::SharedEnds ends;
  const auto a = std::move(ends.a->open(5, kTurns).value());
  CHECK_FALSE(a->connect().value());
  const auto other = std::move(ends.b->open(6, kTurns).value());
  CHECK_FALSE(a->connect().value());
  CHECK_FALSE(other->connect().value());
  const auto b = std::move(ends.b->open(5, kTurns).value());
  CHECK(a->connect().value());
  CHECK(b->connect().value());
  CHECK(&a->theirs() != &b->own());  // mapped a second time
  b->own().consumed.value = 77;
  CHECK(a->theirs().consumed.value == 77);
}

TEST_CASE("links of a pair carry their own bytes, some of them first in one page, and end independently") {
  const conformance::SharedEnds ends;
  std::vector<Links> links;
  for (std::uint64_t id = 1; id <= 100; ++id) links.emplace_back(ends, id);
  for (const std::size_t size : {std::size_t{8}, std::size_t{5000}}) {
    for (const Links& each : links) REQUIRE(push(*each.a, size));
    for (const Links& each : links) REQUIRE(push(*each.b, size));
    for (auto each = links.rbegin(); each != links.rend(); ++each) {
      REQUIRE(receive(*each->b, size));
      REQUIRE(receive(*each->a, size));
    }
  }
  links.erase(links.begin() + 10, links.begin() + 20);
  for (const Links& each : links) {
    REQUIRE(push(*each.a, 5000));
    REQUIRE(receive(*each.b, 5000));
  }
}

TEST_CASE("a link's memory is freed when both sides have ended, and is zero then") {
  const conformance::SharedEnds ends;
  const std::uintptr_t first = place_of_next(ends, 1);
  for (std::uint64_t id = 2; id < 2000; ++id) {
    Links links(ends, id);
    for (const std::size_t size : {std::size_t{8}, std::size_t{20'000}}) {
      REQUIRE(push(*links.a, size));
      REQUIRE(receive(*links.b, size));
    }
    if (id % 2 == 0) links.a.reset();
  }
  CHECK(place_of_next(ends, 2000) == first);
  SECTION("not while the peer may still read it") {
    Links links(ends, 3000);
    REQUIRE(push(*links.a, 20'000));
    links.a.reset();
    CHECK(place_of_next(ends, 3001) != first);
    CHECK(receive(*links.b, 20'000));
    links.b.reset();
    std::set<std::uintptr_t> places;
    for (std::uint64_t id = 3002; id < 3006; ++id) places.insert(place_of_next(ends, id));
    CHECK(places.contains(first));
  }
  SECTION("also if the peer never makes its side") {
    { const auto alone = std::move(ends.a->open(3000, kTurns).value()); }
    ends.b->tidy();
    CHECK(place_of_next(ends, 3001) == first);
  }
  SECTION("also if the peer gives up before it has made its side") {
    auto alone = std::move(ends.a->open(3000, kTurns).value());
    ends.b->forget(3000);
    alone.reset();
    CHECK(place_of_next(ends, 3001) == first);
  }
}

TEST_CASE("links that wait for an ended peer, and later ones, report its end") {
  conformance::SharedEnds ends;
  Links links(ends, 1);
  auto late = std::move(ends.a->open(2, kTurns).value());
  REQUIRE(push(*links.b, 8));
  links.b.reset();
  SECTION("the link alone") {
    CHECK_FALSE(late->connect().value());
  }
  SECTION("the process") {
    ends.b.reset();
    CHECK(late->connect().status().code() == Code::kRemoteError);
  }
  // Its earlier messages can still be received.
  CHECK(receive(*links.a, 8));
  const Deadline deadline = Deadline::after_ms(60'000);
  while (links.a->recv().status().is_ok() && !deadline.passed()) {
  }
  CHECK(links.a->recv().status().message().find("rank 1 has closed its connection") != std::string::npos);
}

TEST_CASE("a peer whose socket is full hears of links in the end") {
  const conformance::SharedEnds ends;
  std::vector<std::unique_ptr<PairLinkMemory>> many;
  for (std::uint64_t id = 1; id <= 3000; ++id) many.push_back(std::move(ends.a->open(id, kTurns).value()));
  const auto last = std::move(ends.b->open(3000, kTurns).value());
  bool a = false;
  bool b = false;
  for (int looks = 0; looks < 1000 && !(a && b); ++looks) {
    a = a || many.back()->connect().value();
    b = b || last->connect().value();
  }
  CHECK(a);
  CHECK(b);
}

TEST_CASE("a link does not wait until the peer has read messages about others") {
  const conformance::SharedEnds ends;
  const auto a = std::move(ends.a->open(1, kTurns).value());
  const auto b = std::move(ends.b->open(1, kTurns).value());
  CHECK(b->connect().value());
  std::vector<std::unique_ptr<PairLinkMemory>> many;
  for (std::uint64_t id = 2; id <= 3000; ++id) many.push_back(std::move(ends.a->open(id, kTurns).value()));
  CHECK(a->connect().value());
}

TEST_CASE("a pair that has lost its peer is unusable, and so is the peer's") {
  conformance::SharedEnds ends;
  (void)ends.open(1, kTurns);
  CHECK(ends.a->is_usable());
  CHECK(ends.b->is_usable());
  SECTION("the peer has ended") {
    ends.b.reset();
  }
  SECTION("the peer could not receive what it needs") {
    const PairMessage message{PairMessageKind::kArena, kTurns, 0, 0};
    REQUIRE(::send(ends.a->socket(), &message, sizeof message, 0) == sizeof message);
    (void)ends.b->open(2, kTurns);
    CHECK_FALSE(ends.b->is_usable());
  }
  CHECK_FALSE(ends.a->is_usable());
}

TEST_CASE("the end of a pair's socket does not end the access of a thread of this process") {
  const bool same_process = GENERATE(false, true);
  const conformance::SharedEnds ends;
  auto [a, b] = ends.open(1, kTurns);
  PairLinkMemory& peer = *b;
  const std::unique_ptr<Link> link = make_link(std::move(a), same_process, {1, true});
  peer.own().in_access.value.store(1);
  REQUIRE(::shutdown(ends.a->socket(), SHUT_RDWR) == 0);
  link->revoke();
  CHECK(link->revoked() == !same_process);
  peer.own().in_access.value.store(0);
  CHECK(link->revoked());
}

TEST_CASE("a link whose memory this process cannot map fails alone") {
  const conformance::SharedEnds ends;
  Links links(ends, 1);
  const auto a = std::move(ends.a->open(2, kTurns).value());
  // More links than one extent has room for.
  std::vector<std::unique_ptr<PairLinkMemory>> many;
  for (std::uint64_t id = 3; many.size() * sizeof(SideMemory) < kExtentBytes + kExtentBytes / 16; ++id) {
    many.push_back(std::move(ends.a->open(id, kTurns).value()));
  }
  {
    const LittleAddressSpace little(kExtentBytes - kExtentBytes / 8);
    for (int looks = 0; looks < 1000; ++looks) {
      ends.b->tidy();
      static_cast<void>(many.back()->connect());
    }
  }
  CHECK(ends.a->is_usable());
  CHECK(ends.b->is_usable());
  REQUIRE(push(*links.a, 5000));
  CHECK(receive(*links.b, 5000));
  const auto b = std::move(ends.b->open(2, kTurns).value());
  CHECK(b->connect().value());
  const auto failed = std::move(ends.b->open(many.size() + 2, kTurns).value());
  CHECK(failed->connect().status().code() == Code::kSystemError);
}

TEST_CASE("an arena allocates zeros, and reuses memory") {
  Arena arena = std::move(Arena::create().value());
  for (const std::size_t bytes : {sizeof(SideMemory), std::size_t{4096}, std::size_t{1} << 20, kExtentBytes}) {
    std::vector<Arena::Block> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(arena.allocate(bytes).value());
    for (const Arena::Block& block : blocks) {
      for (std::size_t i = 0; i < bytes; i += 64) REQUIRE(block.memory[i] == std::byte{});
      std::memset(block.memory, 0xee, bytes);
    }
    for (const Arena::Block& block : blocks) arena.free(block, bytes);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const Arena::Block block = arena.allocate(bytes).value();
      REQUIRE(block.offset == blocks[blocks.size() - 1 - i].offset);
      for (std::size_t at = 0; at < bytes; at += 64) REQUIRE(block.memory[at] == std::byte{});
    }
  }
}

TEST_CASE("an arena returns only its own memory to the system, for every page size") {
  constexpr std::size_t kPage = std::size_t{64} << 10;
  constexpr std::size_t kLong = Extension::placed_bytes(kTurns);
  static_assert(kLong % kPage != 0);
  Arena arena = std::move(Arena::create(kPage).value());
  struct Taken {
    std::uint64_t begin;
    std::uint64_t end;
    bool own_pages;
  };
  std::vector<Taken> all;
  for (int i = 0; i < 40; ++i) {  // over more than one extent
    for (const std::size_t bytes : {sizeof(PairMemory), kLong, sizeof(SideMemory), std::size_t{4096}}) {
      const std::uint64_t begin = arena.allocate(bytes).value().offset;
      all.push_back({begin, begin + bytes, bytes % 4096 == 0});
    }
  }
  for (const Taken& one : all) {
    if (!one.own_pages) continue;
    CHECK(one.begin % kPage == 0);
    const std::uint64_t end = (one.end + kPage - 1) / kPage * kPage;
    CHECK(std::none_of(all.begin(), all.end(), [&](const Taken& other) {
      return &other != &one && other.begin < end && other.end > one.begin;
    }));
  }
}

TEST_CASE("the same lines of the two sides have different positions in their pages") {
  constexpr std::uintptr_t kPage = 4096;
  const auto apart = [](const void* a, const void* b) {
    return (reinterpret_cast<std::uintptr_t>(a) - reinterpret_cast<std::uintptr_t>(b)) % kPage;
  };
  const auto check = [&](LinkMemory& a, LinkMemory& b) {
    CHECK(apart(a.own().eager, b.own().eager) != 0);
    CHECK(apart(&a.extend().value().slots()[0], &b.extend().value().slots()[0]) == kPage / 2);
  };
  const conformance::SharedEnds ends;
  std::vector<std::pair<std::unique_ptr<PairLinkMemory>, std::unique_ptr<PairLinkMemory>>> links;
  for (std::uint64_t id = 1; id <= 20; ++id) {
    links.push_back(ends.open(id, kTurns));
    check(*links.back().first, *links.back().second);
  }
  const auto segment = PrivateSegment::create(kTurns).value();
  const auto a = segment->link_memory(0);
  const auto b = segment->link_memory(1);
  check(*a, *b);
}

TEST_CASE("slots are on the NUMA node of their reader") {
  const auto node_of = [](const conformance::SharedEnds& ends, bool of_a) {
    const auto [a, b] = ends.open(1, kTurns);
    const shm::Extension extension = (of_a ? a : b)->extend().value();
    // The kernel's own answer, whichever node has free pages.
    int mode = -1;
    unsigned long nodes = 0;
    const long asked = ::syscall(SYS_get_mempolicy, &mode, &nodes, 8 * sizeof nodes + 1,
                                 reinterpret_cast<const std::byte*>(&extension.slots()[0]), MPOL_F_ADDR);
    REQUIRE(asked == 0);
    return mode == MPOL_PREFERRED && nodes != 0 ? std::countr_zero(nodes) : -1;
  };
  const conformance::SharedEnds anywhere;
  CHECK(node_of(anywhere, true) == -1);
  const conformance::SharedEnds on_first(0);
  CHECK(node_of(on_first, true) == 0);
  CHECK(node_of(on_first, false) == -1);
  // A node that the machine does not have changes nothing.
  const conformance::SharedEnds on_none(kMostNodes - 1);
  CHECK(node_of(on_none, true) == -1);
}

TEST_CASE("positions outside the arena are refused") {
  Arena arena = std::move(Arena::create().value());
  const Arena::Block block = arena.allocate(4096).value();
  ArenaView view = std::move(ArenaView::open(UniqueFd(::dup(arena.fd()))).value());
  CHECK(view.at(block.offset, 4096).is_ok());
  for (const std::uint64_t offset :
       {block.offset + 1, block.offset + 4096, std::uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 4095}) {
    CHECK(view.at(offset, 4096).status().code() == Code::kRemoteError);
  }
}

TEST_CASE("invalid messages are errors of links that are made later") {
  auto [own, theirs] = conformance::connected(conformance::Family::kUnix, 1);
  const WakeupFd wakeup_fd = std::move(WakeupFd::create().value());
  const auto pair = shm::Pair::create(own[0].release(), wakeup_fd, 7, {0, shm::Placing::kFirst}).value();
  PairMessage message{PairMessageKind::kOpen, kTurns, 1, 0};
  SECTION("a link before there is an arena") {}
  SECTION("an invalid arena") {
    message.kind = PairMessageKind::kArena;
  }
  SECTION("of an unknown kind") {
    message.kind = static_cast<PairMessageKind>(17);
  }
  REQUIRE(::send(theirs[0].get(), &message, sizeof message, 0) == sizeof message);
  const auto link = std::move(pair->open(1, kTurns).value());
  const Status status = link->connect().status();
  INFO(status.message());
  CHECK(status.code() == Code::kRemoteError);
  CHECK(status.message().find("protocol error") != std::string::npos);
}

TEST_CASE("a descriptor that the system refuses to pass is an error of the pair, with the cause") {
  const WakeupFd wakeup_fd = std::move(WakeupFd::create().value());
  UniqueFd unconnected(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  REQUIRE(unconnected.valid());
  const Status status = shm::Pair::create(std::move(unconnected), wakeup_fd, 7, {0, shm::Placing::kFirst}).status();
  CHECK(status.code() == Code::kSystemError);
  CHECK(status.message().find("passing a descriptor to the peer by sendmsg(2): ") == 0);
}

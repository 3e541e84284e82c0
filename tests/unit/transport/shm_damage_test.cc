// A peer that writes invalid data into the shared segment: the error names it, and this side accesses nothing outside.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "memory/region.h"
#include "shm_pairs.h"
#include "transport/shm/link.h"
#include "transport/shm/link_regions.h"
#include "transport/shm/link_state.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;
using namespace tutti::internal::transport::shm;

namespace {

constexpr int kPeer = 7;
constexpr std::size_t kRegionBytes = 64 * 1024;
const std::vector<std::byte> kBytes(8);

// A link like between processes, whose other side is the test.
struct Victim {
  explicit Victim(Turns turns) {
    auto [own, theirs] = ends.open(1, turns);
    link = make_link(std::move(own), false, {kPeer, turns == Turns::kNone});
    peer_side = std::move(theirs);
    region_address = memory::RegionRegistry::instance().allocate(kRegionBytes).value();
    region = memory::RegionRegistry::instance().find(region_address, kRegionBytes).region;
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;
  ~Victim() { REQUIRE(memory::RegionRegistry::instance().free(region_address).is_ok()); }

  // The part that the peer writes.
  [[nodiscard]] SideMemory& memory() const { return peer_side->own(); }
  bool announce() const { return ends.b->announce(region); }

  // The next message of the peer, which uses an extension from its second one on.
  void send(std::uint32_t length, Payload payload, const ZcopyDescriptor& descriptor = {},
            std::uint32_t acknowledged = 0) {
    HeaderLine& h = extension ? extension.slots()[sent] : memory().eager[sent];
    h.length_and_payload = length | static_cast<std::uint32_t>(payload) << kLengthBits;
    h.acknowledged = acknowledged;
    std::memcpy(h.inline_bytes, &descriptor, sizeof descriptor);
    h.sequence.store(++sent);
  }
  // A message to the peer.
  bool push() const { return link->send().push({}, {kBytes.data(), kBytes.size(), 0, 0}, 0, kBytes.size()) != 0; }
  bool push_short() const { return link->send().push_short({}, kBytes.data(), kBytes.size()); }
  void extend() {
    const Extension made = peer_side->extend().value();
    send(0, Payload::kInline);
    REQUIRE(link->recv().peek(1).size == 0);
    REQUIRE(link->recv().status().is_ok());
    extension = made;
  }
  void advertise(std::uint32_t line, std::uint32_t sequence, std::uint64_t position,
                 const ZcopyDescriptor& descriptor) const {
    AdvertisementLine& l = peer_side->extend().value().advertisements()[line];
    l.position = position;
    l.region = descriptor.region;
    l.offset = descriptor.offset;
    l.bytes = descriptor.bytes;
    l.sequence = sequence;
  }
  void check_failed() const {
    const Status status = link->recv().status();
    CHECK(status.code() == Code::kRemoteError);
    INFO(status.message());
    CHECK(status.message().find("rank " + std::to_string(kPeer)) != std::string::npos);
    CHECK(status.message().find("protocol error") != std::string::npos);
    CHECK(link->send().status().code() == Code::kRemoteError);
  }

  conformance::SharedEnds ends;
  std::unique_ptr<PairLinkMemory> peer_side;
  Extension extension;
  std::uint32_t sent = 0;
  std::unique_ptr<Link> link;
  void* region_address = nullptr;
  std::uint64_t region = 0;
};

std::pair<void*, std::uint64_t> allocate() {
  void* const address = memory::RegionRegistry::instance().allocate(kRegionBytes).value();
  return {address, memory::RegionRegistry::instance().find(address, kRegionBytes).region};
}

// During its life this process can open no descriptor; open ones stay open.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit_) == 0);
    rlimit none = limit_;
    none.rlim_cur = 0;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;
  ~NoMoreDescriptors() { ::setrlimit(RLIMIT_NOFILE, &limit_); }

 private:
  rlimit limit_{};
};

}  // namespace

TEST_CASE("a message that is longer than its place is an error") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  if (GENERATE(true, false)) v.extend();
  SECTION("in the header line") {
    v.send(kLineBytes + 1, Payload::kInline);
  }
  SECTION("in the slot or the long buffer") {
    v.send(kSlotBytes + 1, Payload::kRing);
  }
  SECTION("of no bytes") {
    v.send(0, Payload::kRing);
  }
  SECTION("in memory of a zero-copy send") {
    REQUIRE(v.announce());
    v.send(4097, Payload::kLent, {v.region, 0, 4096});
  }
  SECTION("in an advertised buffer") {
    const auto at = memory::RegionRegistry::instance().find(v.region_address, kRegionBytes);
    v.link->recv().advertise(0, {static_cast<std::byte*>(v.region_address), kRegionBytes, at.region, at.offset}, 0,
                             1000);
    v.send(1001, Payload::kPut);
  }
  CHECK(v.link->recv().peek(SIZE_MAX).size == 0);
  v.check_failed();
}

TEST_CASE("a message that fits is not an error") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  v.extend();
  SECTION("in the header line") {
    v.send(kLineBytes, Payload::kInline);
    CHECK(v.link->recv().peek(SIZE_MAX).size == kLineBytes);
  }
  SECTION("in the slot") {
    v.send(kSlotBytes, Payload::kRing);
    CHECK(v.link->recv().peek(SIZE_MAX).size == kSlotBytes);
  }
  SECTION("in memory of a zero-copy send") {
    REQUIRE(v.announce());
    v.send(4096, Payload::kLent, {v.region, kRegionBytes - 4096, 4096});
    CHECK(v.link->recv().peek(SIZE_MAX).size == 4096);
  }
  CHECK(v.link->recv().status().is_ok());
}

TEST_CASE("an eager slot holds no payload") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  v.send(GENERATE(1U, 64U), Payload::kRing);
  CHECK(v.link->recv().peek(SIZE_MAX).size == 0);
  v.check_failed();
}

TEST_CASE("the length of a payload determines its position: its slot, or its long buffer") {
  const Turns turns = GENERATE(Turns::kNone, Turns::kTaken);
  Victim v(turns);
  v.extend();
  const RingSizes sizes = sizes_of(turns);
  for (const std::size_t n : {std::size_t{1}, std::size_t{kShortMessageBytes}, kShortMessageBytes + 1, kSlotBytes}) {
    INFO(n << " bytes");
    const bool in_slot = n <= sizes.payload_bytes;
    const std::byte* const expected =
        in_slot ? payload_behind(&v.extension.slots()[v.sent]) : v.extension.long_buffers()[v.sent];
    const_cast<std::byte&>(*expected) = std::byte{0x5a};
    v.send(static_cast<std::uint32_t>(n), Payload::kRing);
    const RecvLane::View view = v.link->recv().peek(SIZE_MAX);
    REQUIRE(view.size == n);
    CHECK(view.data[0] == std::byte{0x5a});
    REQUIRE(v.link->recv().consume(n));
    const_cast<std::byte&>(*expected) = std::byte{};
  }
}

TEST_CASE("a zero-copy descriptor outside the sender's memory is an error") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  REQUIRE(v.announce());
  const std::array<ZcopyDescriptor, 4> descriptors{
      ZcopyDescriptor{v.region, kRegionBytes - 99, 100}, ZcopyDescriptor{v.region, kRegionBytes + 1, 100},
      ZcopyDescriptor{v.region, UINT64_MAX - 10, 100}, ZcopyDescriptor{v.region + 1000, 0, 100}};
  v.send(100, Payload::kLent, descriptors[GENERATE(0U, 1U, 2U, 3U)]);
  CHECK(v.link->recv().peek(SIZE_MAX).size == 0);
  v.check_failed();
}

TEST_CASE("a put without an advertisement is an error") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  v.send(100, Payload::kPut);
  CHECK(v.link->recv().peek(SIZE_MAX).size == 0);
  v.check_failed();
}

TEST_CASE("consuming more than was sent is an error") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  std::string counts;
  SECTION("as told beside a message") {
    REQUIRE(v.push());
    v.send(8, Payload::kInline, {}, 2);
    (void)v.link->recv().peek(SIZE_MAX);
    counts = "has consumed 2 messages, more than the 1 sent to it (before: 0)";
  }
  SECTION("as told by itself") {
    v.memory().consumed.value = 0x7fffffff;
    for (std::uint32_t i = 0; i <= kShortSlots; ++i) (void)v.push();
    counts = "has consumed 2147483647 messages, more than the 7 sent to it (before: 0)";
  }
  v.check_failed();
  INFO(v.link->recv().status().message());
  CHECK(v.link->recv().status().message().find(counts) != std::string::npos);
}

// The counts in messages and the counter are read at different times.
TEST_CASE("a peer's smaller count of consumed messages is ignored, without an error") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  const bool in_line = GENERATE(true, false);
  std::uint32_t sent = 0;
  while (v.push_short()) ++sent;
  REQUIRE(sent == kEagerAhead);
  v.memory().consumed.value = 2;
  REQUIRE(v.push());
  v.send(8, Payload::kInline, {}, 1);
  REQUIRE(v.link->recv().line_arrived());
  if (in_line) {
    REQUIRE(v.link->recv().peek_short({}, 8) != nullptr);
    v.link->recv().consume_short(8);
  } else {
    REQUIRE(v.link->recv().peek(8).size == 8);
    REQUIRE(v.link->recv().consume(8));
  }
  CHECK(v.link->recv().status().is_ok());
  // The second of the two consumed messages.
  CHECK(v.push_short());
  CHECK_FALSE(v.push_short());
}

TEST_CASE("a short message is shown without a verb only if it is a whole one of the operation") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  const bool extended = GENERATE(true, false);
  if (extended) v.extend();
  RecvLane& lane = v.link->recv();
  const auto shown = [&](std::size_t n) { return lane.line_arrived() && lane.peek_short({}, n) != nullptr; };
  const auto shown_at_all = [&] {
    for (std::size_t n = 1; n <= kShortMessageBytes; ++n) {
      if (shown(n)) return true;
    }
    return false;
  };
  CHECK_FALSE(lane.line_arrived());
  SECTION("which it is") {
    for (const std::size_t n : {std::size_t{1}, std::size_t{8}, kLineBytes}) {
      v.send(static_cast<std::uint32_t>(n), Payload::kInline);
      REQUIRE(shown(n));
      lane.consume_short(n);
      CHECK_FALSE(lane.line_arrived());
    }
    CHECK(lane.consumed() == 9 + kLineBytes);
  }
  SECTION("of another length") {
    v.send(8, Payload::kInline);
    for (const std::size_t n : {std::size_t{7}, std::size_t{9}, kLineBytes}) CHECK_FALSE(shown(n));
    CHECK(shown(8));
  }
  SECTION("of another operation") {
    v.send(8, Payload::kInline);
    for (const Fingerprint& other : {Fingerprint{1}, Fingerprint{0, 1}, Fingerprint{0, 0, 1}, Fingerprint{0, 0, 0, 1},
                                     Fingerprint{0, 0, 0, 0, 1}}) {
      CHECK(lane.peek_short(other, 8) == nullptr);
    }
    CHECK(shown(8));
  }
  SECTION("of which a part has been consumed") {
    v.send(8, Payload::kInline);
    REQUIRE(lane.peek(8).size == 8);
    REQUIRE(lane.consume(3));
    CHECK_FALSE(shown_at_all());
    REQUIRE(lane.peek(8).size == 5);
    REQUIRE(lane.consume(5));
    v.send(5, Payload::kInline);
    CHECK(shown(5));
  }
  SECTION("that is in a slot") {
    if (!extended) v.extend();
    v.send(8, Payload::kRing);
    CHECK_FALSE(shown_at_all());
    CHECK(lane.peek(8).size == 8);
  }
  SECTION("that is in memory of a zero-copy send") {
    REQUIRE(v.announce());
    v.send(8, Payload::kLent, {v.region, 0, 8});
    CHECK_FALSE(shown_at_all());
    CHECK(lane.peek(8).size == 8);
  }
  CHECK(lane.status().is_ok());
}

TEST_CASE("a short message in its slot is shown without a verb, and a longer one in a long buffer is not") {
  const Turns turns = GENERATE(Turns::kNone, Turns::kTaken);
  Victim v(turns);
  v.extend();
  RecvLane& lane = v.link->recv();
  std::uint64_t consumed = 0;
  for (const std::size_t n : {kLineBytes + 1, std::size_t{256}, kShortMessageBytes}) {
    v.send(static_cast<std::uint32_t>(n), Payload::kRing);
    REQUIRE(lane.line_arrived());
    CHECK(lane.peek_short({}, n - 1) == nullptr);
    CHECK(lane.peek_short({1}, n) == nullptr);
    REQUIRE(lane.peek_short({}, n) != nullptr);
    lane.consume_short(n);
    CHECK_FALSE(lane.line_arrived());
    CHECK(lane.consumed() == (consumed += n));
  }
  if (turns == Turns::kNone) return;
  v.send(kShortMessageBytes + 1, Payload::kRing);
  REQUIRE(lane.line_arrived());
  CHECK(lane.peek_short({}, kShortMessageBytes + 1) == nullptr);
  CHECK(lane.peek(SIZE_MAX).size == kShortMessageBytes + 1);
}

TEST_CASE("a wrong short message is not shown without a verb, and is an error of the verbs") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  const bool extended = GENERATE(true, false);
  if (extended) v.extend();
  RecvLane& lane = v.link->recv();
  REQUIRE(v.push_short());
  std::uint32_t length = 8;
  SECTION("longer than a line") {
    v.send(length = kLineBytes + 1, Payload::kInline);
  }
  SECTION("longer than what any slot holds") {
    v.send(length = kSlotBytes + 1, Payload::kRing);
  }
  SECTION("of no bytes") {
    v.send(0, Payload::kInline);
  }
  SECTION("in a buffer that was not advertised") {
    v.send(length, Payload::kPut);
  }
  SECTION("more consumed than sent") {
    v.send(length, Payload::kInline, {}, GENERATE(2U, 0x7fffffffU));
  }
  REQUIRE(lane.line_arrived());
  CHECK(lane.peek_short({}, length) == nullptr);
  CHECK(lane.status().is_ok());
  (void)lane.peek(SIZE_MAX);
  v.check_failed();
}

TEST_CASE("an advertisement outside the memory of the receiver is an error") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  REQUIRE(v.announce());
  const std::array<ZcopyDescriptor, 3> descriptors{ZcopyDescriptor{v.region, kRegionBytes - 99, 100},
                                                   ZcopyDescriptor{v.region, UINT64_MAX - 10, 100},
                                                   ZcopyDescriptor{v.region + 1000, 0, 100}};
  v.advertise(0, 1, 0, descriptors[GENERATE(0U, 1U, 2U)]);
  CHECK(v.link->send().reserve_remote(100).empty());
  v.check_failed();
}

TEST_CASE("advertisements with any numbers end the search for one") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  REQUIRE(v.announce());
  const ZcopyDescriptor descriptor{v.region, 0, 100};
  SECTION("that do not belong to their lines") {
    for (std::uint32_t line = 0; line < kAdvertisements; ++line) v.advertise(line, 1000 + line * line, 0, descriptor);
    CHECK(v.link->send().reserve_remote(100).empty());
    v.check_failed();
  }
  SECTION("each far ahead of the other") {
    for (std::uint32_t line = 0; line < kAdvertisements; ++line)
      v.advertise(line, (line << 29) + line + 1, 0, descriptor);
    (void)v.link->send().reserve_remote(100);
  }
  SECTION("all of them long past") {
    for (std::uint32_t line = 0; line < kAdvertisements; ++line)
      v.advertise(line, line + 1, UINT64_MAX - 50, descriptor);
    CHECK(v.link->send().reserve_remote(100).empty());
  }
}

TEST_CASE("a region that is gone is not read through the number 0") {
  const conformance::SharedEnds ends;
  LinkRegions regions(ends.b.get());
  const auto [address, region] = allocate();
  REQUIRE(ends.a->announce(region));
  REQUIRE(regions.resolve({region, 0, 100}).is_ok());
  REQUIRE(memory::RegionRegistry::instance().free(address).is_ok());
  ends.a->tidy();
  ends.b->tidy();
  regions.tidy();
  const Status gone = regions.resolve({GENERATE(std::uint64_t{0}, std::uint64_t{1} << 40), 0, 100}).status();
  CHECK(gone.code() == Code::kRemoteError);
  CHECK(gone.message().find("protocol error") != std::string::npos);
}

TEST_CASE("a lack of descriptors is named as such, and costs one region") {
  const conformance::SharedEnds ends;
  (void)ends.open(1, Turns::kNone);
  LinkRegions regions(ends.b.get());
  const auto [lost_address, lost] = allocate();
  const auto [address, region] = allocate();
  REQUIRE(ends.a->announce(lost));
  {
    const NoMoreDescriptors none;
    ends.b->tidy();
  }
  REQUIRE(ends.a->announce(region));
  const Status status = regions.resolve({lost, 0, 100}).status();
  INFO(status.message());
  CHECK(status.code() == Code::kSystemError);
  CHECK(status.message().find("receiving the peer's memory: ") == 0);
  CHECK(status.message().find("RLIMIT_NOFILE") != std::string::npos);
  CHECK(regions.resolve({region, 0, 100}).is_ok());
  // It does not prevent later links either.
  (void)ends.open(2, Turns::kNone);
  for (void* const memory : {lost_address, address}) REQUIRE(memory::RegionRegistry::instance().free(memory).is_ok());
}

TEST_CASE("memory that could shrink is not mapped") {
  UniqueFd fd(::memfd_create("damage", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(fd.get(), 4096) == 0);
  CHECK(ArenaView::open(std::move(fd)).status().code() == Code::kRemoteError);
}

TEST_CASE("an extension that is not there is an error") {
  Victim v(GENERATE(Turns::kNone, Turns::kTaken));
  SECTION("nowhere") {
    v.memory().end.extension = 0;
  }
  SECTION("beyond the end") {
    v.memory().end.extension = std::uint64_t{1} << 40;
  }
  SECTION("at an odd place") {
    v.memory().end.extension = 4097;
  }
  SECTION("in part beyond the end") {
    v.memory().end.extension = 4096;
  }
  SECTION("a second time") {
    v.extend();
  }
  v.send(0, Payload::kInline);
  CHECK(v.link->recv().peek(SIZE_MAX).size == 0);
  v.check_failed();
}

// Frames of the control tree with messages of many ranks: short if the messages are alike, and refused if damaged.
#include "control/control_messages.h"

#include <random>

#include "catch_compat.h"
#include "net/frame.h"

using namespace tutti::internal;
using namespace tutti::internal::control;

namespace {

Parts unpacked(const std::string& frame, int ranks) {
  net::Unpacker unpacker(frame);
  Header header;
  Parts parts;
  REQUIRE(unpack_header(&unpacker, &header));
  REQUIRE(header.kind == FrameKind::kParts);
  REQUIRE(unpack_parts(&unpacker, ranks, ranks, &parts));
  return parts;
}

}  // namespace

TEST_CASE("control messages: parts of any lengths come out as they went in") {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 7);
    Parts parts{7, ranks - 1, RankSet(0, ranks), {}};
    std::string bytes;
    for (int rank = 0; rank < ranks; ++rank) {
      // With different lengths, or with some changes.
      if (random() % 2 == 0) bytes.assign(random() % 1000, static_cast<char>(random() % 3));
      for (auto changes = random() % 5; changes > 0 && !bytes.empty(); --changes) {
        bytes[random() % bytes.size()] = static_cast<char>(random() % 3);
      }
      parts.bytes.push_back(bytes);
    }
    const Parts same = unpacked(pack_parts({}, parts), ranks);
    REQUIRE(same.round == 7);
    REQUIRE(same.from == ranks - 1);
    REQUIRE(same.places == parts.places);
    REQUIRE(same.bytes == parts.bytes);
  }
}

TEST_CASE("control messages: of parts that are alike only the differences are sent") {
  constexpr int kRanks = 100;
  Parts parts{0, 0, RankSet(0, kRanks), {}};
  for (int rank = 0; rank < kRanks; ++rank) {
    parts.bytes.push_back(std::string(200, 'a') + std::to_string(1000 + rank) + std::string(200, 'b'));
  }
  CHECK(pack_parts({}, parts).size() < 600 + 16 * kRanks);
}

TEST_CASE("control messages: parts that are cut off, too long or of ranks that are not there are refused") {
  const Parts parts{0, 1, RankSet(1, 3), {std::string(300, 'x'), std::string(300, 'x') + "y"}};
  const std::string whole = pack_parts({}, parts);
  const auto is_refused = [](const std::string& frame, int ranks) {
    net::Unpacker unpacker(frame);
    Header header;
    Parts taken;
    return !unpack_header(&unpacker, &header) || !unpack_parts(&unpacker, ranks, ranks, &taken);
  };
  CHECK_FALSE(is_refused(whole, 3));
  CHECK(is_refused(whole, 2));
  CHECK(is_refused(whole + "z", 3));
  for (std::size_t length = 0; length < whole.size(); ++length) CHECK(is_refused(whole.substr(0, length), 3));
  // With every byte changed: the frame is refused, or decoded differently, but never read beyond its end.
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const char value : {'\0', '\xff', '\x7f'}) {
      std::string damaged = whole;
      damaged[at] = value;
      (void)is_refused(damaged, 3);
    }
  }
}

TEST_CASE("control messages: contacts come out as they went in") {
  std::vector<Contact> contacts;
  for (int rank = 0; rank < 5; ++rank) {
    contacts.push_back({rank, rank < 3 ? "host a" : "host bb", 100 + rank, {"127.0.0.1:" + std::to_string(rank)}});
  }
  const std::string frame = pack_contacts(contacts);
  net::Unpacker unpacker(frame);
  Header header;
  std::vector<Contact> taken;
  REQUIRE(unpack_header(&unpacker, &header));
  REQUIRE(unpack_contacts(&unpacker, 5, &taken));
  REQUIRE(taken.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(taken[i].rank == contacts[i].rank);
    CHECK(taken[i].host == contacts[i].host);
    CHECK(taken[i].pid == contacts[i].pid);
    CHECK(taken[i].addresses == contacts[i].addresses);
  }
  net::Unpacker again(frame);
  taken.clear();
  REQUIRE(unpack_header(&again, &header));
  CHECK_FALSE(unpack_contacts(&again, 4, &taken));
}

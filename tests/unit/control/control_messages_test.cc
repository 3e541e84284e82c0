// Frames of the control tree with messages of many ranks: short if the messages are alike, and refused if damaged.
#include "control/control_messages.h"

#include <functional>
#include <random>

#include "catch_compat.h"
#include "control/agreement_messages.h"
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

AgreementName agreement_name() {
  return {{77, member_bits({1, 2, 4, 6})}, RankSet(2, 3), 5};
}

Proposals proposals() {
  Proposals made{agreement_name(), 1, {}, RankSet(6, 7), 30'000, {}};
  made.tally = {RankSet(4, 5), 0xf0f0, {4, "an id"}, {4, "tuttiCommAgree"}, {6, "tuttiCommShrink"}};
  made.decision =
      Decision{Outcome::kLate,        7, {1, std::string(kMaxOfferBytes, 'x')}, RankSet(1, 3), {4, "tuttiCommAgree"},
               {6, "tuttiCommShrink"}};
  return made;
}

// Whether a job of `ranks` ranks refuses the frame of an agreement.
bool is_refused_frame(const std::string& frame, int ranks) {
  net::Unpacker unpacker(frame);
  Header header;
  if (!unpack_header(&unpacker, &header)) return true;
  Proposals taken_proposals;
  Agreed taken_agreed;
  if (header.kind == FrameKind::kProposals) return !unpack_proposals(header, &unpacker, ranks, &taken_proposals);
  return header.kind != FrameKind::kAgreed || !unpack_agreed(header, &unpacker, ranks, &taken_agreed);
}

bool is_same(const Tally& a, const Tally& b) {
  return a.given == b.given && a.flags == b.flags && a.offer == b.offer && a.caller.rank == b.caller.rank &&
         a.caller.call == b.caller.call && a.other.rank == b.other.rank && a.other.call == b.other.call;
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

TEST_CASE("control messages: contributions to an agreement and its result come out as they went in") {
  const Proposals whole = proposals();
  const std::string frame = pack_proposals(whole);
  net::Unpacker unpacker(frame);
  Header header;
  Proposals taken;
  REQUIRE(unpack_header(&unpacker, &header));
  REQUIRE(header.kind == FrameKind::kProposals);
  REQUIRE(unpack_proposals(header, &unpacker, 7, &taken));
  CHECK(taken.name.key() == whole.name.key());
  CHECK(taken.name.members(7) == whole.name.members(7));
  CHECK(taken.ballot == 1);
  CHECK(is_same(taken.tally, whole.tally));
  CHECK(taken.left == whole.left);
  CHECK(taken.wait_ms == 30'000);
  REQUIRE(taken.decision.has_value());
  CHECK(*taken.decision == *whole.decision);
  CHECK(taken.decision->other.call == "tuttiCommShrink");

  const std::string answer = pack_agreed({whole.name, 3, *whole.decision});
  net::Unpacker again(answer);
  Agreed agreed;
  REQUIRE(unpack_header(&again, &header));
  REQUIRE(header.kind == FrameKind::kAgreed);
  REQUIRE(unpack_agreed(header, &again, 7, &agreed));
  CHECK(agreed.name.key() == whole.name.key());
  CHECK(agreed.ballot == 3);
  CHECK(agreed.decision == *whole.decision);
}

TEST_CASE("control messages: frames of agreements that are damaged are refused, and read within their bounds") {
  for (const std::string& whole : {pack_proposals(proposals()), pack_agreed({agreement_name(), 3, Decision{}})}) {
    CHECK_FALSE(is_refused_frame(whole, 7));
    CHECK(is_refused_frame(whole + "z", 7));
    CHECK(is_refused_frame(whole, 2));
    for (std::size_t length = 0; length < whole.size(); ++length) {
      CHECK(is_refused_frame(whole.substr(0, length), 7));
    }
    std::mt19937 random(3);
    for (int round = 0; round < 20'000; ++round) {
      std::string damaged = whole;
      for (auto changes = 1 + random() % 3; changes > 0; --changes) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      (void)is_refused_frame(damaged, 7);
    }
  }
}

TEST_CASE("control messages: contents of agreements that no rank sends are refused") {
  const std::vector<std::function<void(Proposals*)>> wrong = {
      [](Proposals* p) { p->ballot = 7; },
      [](Proposals* p) { p->ballot = -1; },
      [](Proposals* p) { p->wait_ms = -1; },
      [](Proposals* p) { p->wait_ms = std::int64_t{1} << 41; },
      [](Proposals* p) { p->left = RankSet(6, 8); },
      [](Proposals* p) { p->name.excluded = RankSet(6, 8); },
      [](Proposals* p) { p->tally.given = RankSet(6, 8); },
      [](Proposals* p) { p->tally.given = {}; },
      [](Proposals* p) { p->tally.caller.rank = -1; },
      [](Proposals* p) { p->tally.caller.rank = 7; },
      [](Proposals* p) { p->tally.other.rank = -2; },
      [](Proposals* p) { p->tally.caller.call = std::string(5000, 'x'); },
      [](Proposals* p) { p->decision->outcome = static_cast<Outcome>(4); },
      [](Proposals* p) { p->decision->ranks = RankSet(6, 8); },
      [](Proposals* p) {
        p->decision->outcome = Outcome::kMismatch;
        p->decision->other = {};
      },
  };
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    INFO("change " << i);
    Proposals changed = proposals();
    wrong[i](&changed);
    CHECK(is_refused_frame(pack_proposals(changed), 7));
  }
}

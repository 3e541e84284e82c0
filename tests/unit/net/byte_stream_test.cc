// Encrypted connections: what arrives is what was sent, whatever the kernel takes and gives at a time; and what
// somebody between the two changes is an error.
#include "net/byte_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "net/frame.h"
#include "net/record_stream.h"
#include "net/socket.h"
#include "os/clock.h"

using namespace tutti::internal;
using namespace tutti::internal::net;

namespace {

struct Ends {
  UniqueFd a;
  UniqueFd b;
};

// With the smallest buffers of the kernel, or its default.
Ends socket_pair(bool small) {
  int fds[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
  const int least = 1;
  for (const int fd : fds) {
    if (small) REQUIRE(::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) == 0);
  }
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

TrafficSecrets secrets_of(bool first) {
  TrafficSecrets secrets;
  secrets.sending.fill(first ? 1 : 2);
  secrets.receiving.fill(first ? 2 : 1);
  return secrets;
}

struct Pair {
  ByteStream a;
  ByteStream b;
};

Pair encrypted_pair(bool small) {
  Ends ends = socket_pair(small);
  Pair pair{ByteStream(std::move(ends.a)), ByteStream(std::move(ends.b))};
  REQUIRE(pair.a.encrypt(secrets_of(true)).is_ok());
  REQUIRE(pair.b.encrypt(secrets_of(false)).is_ok());
  return pair;
}

std::vector<std::byte> pattern(std::size_t n) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251);
  return bytes;
}

const std::byte* at(const std::vector<std::byte>& bytes, std::size_t i) {
  return bytes.data() + i;
}

}  // namespace

TEST_CASE("an encrypted stream carries any sizes, in any portions, through any buffers") {
  const bool small = GENERATE(true, false);
  Pair pair = encrypted_pair(small);
  const std::vector<std::byte> sent = pattern(3'000'000);
  std::vector<std::byte> got(sent.size());
  std::mt19937 random(small ? 7 : 8);
  const auto size = [&](std::size_t most) {
    const std::array<std::size_t, 6> limits{1, 24, 1000, 16'384, 70'000, 300'000};
    return std::min<std::size_t>(most, 1 + random() % limits[random() % limits.size()]);
  };
  std::size_t out = 0;
  std::size_t in = 0;
  int idle = 0;
  while (in < sent.size() && idle < 1000) {
    ++idle;
    if (out < sent.size() && random() % 2 == 0) {
      const std::size_t wanted = size(sent.size() - out);
      const std::size_t head = std::min<std::size_t>(random() % 25, wanted);
      const ssize_t took = head == 0 ? pair.a.send(at(sent, out), wanted)
                                     : pair.a.send(at(sent, out), head, at(sent, out + head), wanted - head);
      REQUIRE((took >= 0 || errno == EAGAIN));
      REQUIRE(took <= static_cast<ssize_t>(wanted));
      if (took > 0) out += static_cast<std::size_t>(took), idle = 0;
    } else {
      const std::size_t first = size(got.size() - in);
      const std::size_t second = std::min<std::size_t>(random() % 25, got.size() - in - first);
      const ssize_t came = second == 0 ? pair.b.recv(got.data() + in, first)
                                       : pair.b.recv(got.data() + in, first, got.data() + in + first, second);
      REQUIRE((came > 0 || (came < 0 && errno == EAGAIN)));
      if (came > 0) in += static_cast<std::size_t>(came), idle = 0;
      // What the sender has reported, less one record, has arrived or is on its way.
      REQUIRE(in <= out + 1);
    }
  }
  CHECK(in == sent.size());
  CHECK(out == sent.size());
  CHECK(std::memcmp(got.data(), sent.data(), sent.size()) == 0);
  CHECK(pair.a.undelivered() == 0);
}

TEST_CASE("what send() has reported as a whole arrives without another call") {
  Pair pair = encrypted_pair(true);
  const std::vector<std::byte> sent = pattern(200'000);
  std::vector<std::byte> got(sent.size());
  std::size_t out = 0;
  std::size_t in = 0;
  for (int i = 0; i < 100'000 && out < sent.size(); ++i) {
    const ssize_t took = pair.a.send(at(sent, out), sent.size() - out);
    if (took > 0) out += static_cast<std::size_t>(took);
    if (out == sent.size()) break;
    const ssize_t came = pair.b.recv(got.data() + in, 5000);
    if (came > 0) in += static_cast<std::size_t>(came);
  }
  REQUIRE(out == sent.size());
  for (ssize_t came = 1; came > 0; in += static_cast<std::size_t>(std::max<ssize_t>(came, 0)))
    came = pair.b.recv(got.data() + in, got.size() - in + 1);
  CHECK(in == sent.size());
  CHECK(std::memcmp(got.data(), sent.data(), sent.size()) == 0);
}

TEST_CASE("a poll does not wait for bytes that the stream holds") {
  Pair pair = encrypted_pair(false);
  FrameWriter writer;
  for (const char* text : {"one", "two", "three"}) writer.queue(text);
  REQUIRE(writer.flush(&pair.a).is_ok());
  REQUIRE(writer.empty());
  FrameReader reader(100);
  for (const char* text : {"one", "two", "three"}) {
    PollSet set;
    set.clear(10'000);
    const std::size_t entry = set.add(pair.b, POLLIN);
    REQUIRE(set.wait().is_ok());
    REQUIRE((set.ready(entry) & POLLIN) != 0);
    auto progress = reader.read(&pair.b);
    REQUIRE(progress.is_ok());
    REQUIRE(*progress == FrameReader::Progress::kFrame);
    CHECK(reader.take() == text);
  }
  CHECK_FALSE(pair.b.holds());
  PollSet set;
  set.clear(1);
  const std::size_t entry = set.add(pair.b, POLLIN);
  REQUIRE(set.wait().is_ok());
  CHECK(set.ready(entry) == 0);
}

TEST_CASE("records that were changed, left out, repeated or swapped are an error, and give no byte") {
  Ends wire = socket_pair(false);
  ByteStream sender(std::move(wire.a));
  REQUIRE(sender.encrypt(secrets_of(true)).is_ok());
  std::vector<std::string> records;
  for (const char* text : {"first", "second", "third"}) {
    REQUIRE(sender.send(text, std::strlen(text)) == static_cast<ssize_t>(std::strlen(text)));
    std::array<char, 100> bytes{};
    const ssize_t got = ::recv(wire.b.get(), bytes.data(), bytes.size(), 0);
    REQUIRE(got > 0);
    records.emplace_back(bytes.data(), static_cast<std::size_t>(got));
    CHECK(records.back().find(text) == std::string::npos);
  }
  // What a receiver gets from these bytes, and its error; 0: none.
  const auto received = [](const std::string& bytes, int* error) {
    Ends ends = socket_pair(false);
    ByteStream receiver(std::move(ends.b));
    REQUIRE(receiver.encrypt(secrets_of(false)).is_ok());
    REQUIRE(::send(ends.a.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    ends.a.reset();
    std::string all;
    std::array<char, 64> part{};
    ssize_t got = 0;
    while ((got = receiver.recv(part.data(), part.size())) > 0) all.append(part.data(), static_cast<std::size_t>(got));
    *error = got < 0 ? errno : 0;
    if (*error != 0) CHECK(receiver.recv(part.data(), part.size()) < 0);
    return all;
  };
  int error = -1;
  CHECK(received(records[0] + records[1] + records[2], &error) == "firstsecondthird");
  CHECK(error == 0);
  CHECK(received(records[0] + records[2], &error) == "first");
  CHECK(error == EBADMSG);
  CHECK(received(records[1], &error).empty());
  CHECK(error == EBADMSG);
  CHECK(received(records[0] + records[0], &error) == "first");
  CHECK(error == EBADMSG);
  for (std::size_t bit = 0; bit < 8 * records[0].size(); ++bit) {
    std::string changed = records[0];
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    INFO("bit " << bit);
    const std::string got = received(changed + records[1], &error);
    CHECK(got.empty());
    // A length that grew waits for bytes that never come.
    const bool longer = bit / 8 == 3 || bit / 8 == 4;
    CHECK((error == EBADMSG || (longer && error == 0)));
  }
  // A stream that is cut within a record ends as if it were cut before it.
  for (std::size_t size = 0; size < records[0].size(); ++size) {
    CHECK(received(records[0].substr(0, size), &error).empty());
  }
  CHECK(received("GET / HTTP/1.1\r\n\r\n", &error).empty());
  CHECK(error == EBADMSG);
}

TEST_CASE("the key is changed before it is used up, and the other side follows") {
  constexpr std::uint64_t kMost = 3;
  auto sealer = RecordSealer::make(secrets_of(true).sending, kMost);
  auto opener = RecordOpener::make(secrets_of(false).receiving);
  REQUIRE(sealer.is_ok());
  REQUIRE(opener.is_ok());
  int updates = 0;
  for (int i = 0; i < 20; ++i) {
    const std::array<std::byte, 2> payload{static_cast<std::byte>(i), std::byte{7}};
    std::array<std::byte, 2 + kRecordOverhead + kKeyUpdateBytes> out{};
    auto made = sealer->seal({}, payload, out.data());
    REQUIRE(made.is_ok());
    std::span<const std::byte> rest(out.data(), *made);
    std::vector<std::byte> got;
    while (!rest.empty()) {
      auto whole = RecordOpener::record_bytes(rest.data());
      REQUIRE(whole.is_ok());
      std::array<std::byte, 64> plain{};
      auto size = opener->open(rest.first(*whole), plain.data());
      REQUIRE(size.is_ok());
      if (*size == 0) ++updates;
      got.insert(got.end(), plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(*size));
      rest = rest.subspan(*whole);
    }
    CHECK(std::equal(got.begin(), got.end(), payload.begin(), payload.end()));
  }
  CHECK(updates == 6);
}

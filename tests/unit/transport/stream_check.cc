#include "stream_check.h"

#include <algorithm>
#include <cstring>

#include "catch_compat.h"

namespace tutti::internal::transport::conformance {

Fingerprint fingerprint_of(std::uint32_t sequence) {
  return {sequence, sequence * 7919u, sequence * 104729u + 1u};
}

Script make_script(std::uint64_t seed, int messages, std::size_t longest_bytes) {
  std::mt19937_64 random(seed);
  Script script;
  std::size_t total = 0;
  for (int i = 0; i < messages; ++i) {
    const std::size_t bound = random() % 4 == 0 ? longest_bytes : std::min<std::size_t>(longest_bytes, 200);
    const std::size_t size = 1 + random() % bound;
    script.messages.push_back({fingerprint_of(static_cast<std::uint32_t>(i)), total, size});
    total += size;
  }
  script.bytes.resize(total);
  for (std::byte& b : script.bytes) b = static_cast<std::byte>(random() >> 56);
  return script;
}

bool Feeder::step() {
  if (finished()) return false;
  const Message& message = script_.messages[message_];
  const std::size_t offset = sent_ - message.begin;
  const std::size_t left = message.size - offset;
  const std::size_t n = random_() % 2 == 0 ? left : 1 + random_() % left;
  std::size_t took = 0;
  if (write_line(message, offset, n)) {
    took = n;
  } else if (lane_.traits().slots && random_() % 2 == 0) {
    took = write_in_place(message, offset, n);
  } else {
    const Source source{script_.bytes.data() + message.begin, message.size, 0, 0};
    took = lane_.push(message.fingerprint, source, offset, n);
  }
  if (took > n) FAIL("took more than offered");
  sent_ += took;
  if (took == left) ++message_;
  if (lane_.taken() != sent_) FAIL("taken() is " << lane_.taken() << " after " << sent_ << " bytes");
  lane_.progress();
  const std::uint64_t completed = lane_.completed();
  if (completed < completed_ || completed > sent_) FAIL("completed() went from " << completed_ << " to " << completed);
  completed_ = completed;
  return took > 0;
}

bool Feeder::released() {
  lane_.progress();
  return lane_.completed() == lane_.taken();
}

std::size_t Feeder::write_in_place(const Message& message, std::size_t offset, std::size_t n) {
  const std::span<std::byte> first = lane_.reserve(n);
  if (first.empty()) return 0;
  const std::span<std::byte> room = lane_.reserve(n);
  if (first.size() < std::min(n, kLeastViewBytes)) {
    if (room.size() < first.size()) FAIL("a second reserve() gave less room");
  } else if (room.data() != first.data() || room.size() != first.size()) {
    FAIL("a second reserve() gave other room");
  }
  if (room.size() > n) FAIL("more room than asked for");
  const std::size_t used = random_() % 2 == 0 ? room.size() : 1 + random_() % room.size();
  std::memcpy(room.data(), script_.bytes.data() + message.begin + offset, used);
  lane_.commit(message.fingerprint, used);
  return used;
}

bool Feeder::write_line(const Message& message, std::size_t offset, std::size_t n) {
  if (!lane_.has_lines() || n > kShortMessageBytes || random_() % 2 == 0) return false;
  if (!lane_.push_short(message.fingerprint, script_.bytes.data() + message.begin + offset, n)) return false;
  ++in_lines_;
  return true;
}

bool Checker::step() {
  if (finished()) return false;
  const Message& message = script_.messages[message_];
  const std::size_t left = message.begin + message.size - received_;
  const bool pull = reading_ == Reading::kPull || (reading_ == Reading::kBoth && random_() % 2 == 0);
  // A transport without a faster path always pulls nothing.
  return step_line(message, left) || (pull && step_pull(message, left)) || step_peek(message, left);
}

bool Checker::step_peek(const Message& message, std::size_t left) {
  const std::size_t want = random_() % 2 == 0 ? left : 1 + random_() % left;
  const RecvLane::View view = lane_.peek(want);
  if (view.size == 0) return false;
  if (view.size > left) FAIL("a view of " << view.size << " bytes spans two operations, " << left << " were left");
  compare(view.data, view.size, view.fingerprint, message);
  const std::size_t used = random_() % 2 == 0 ? view.size : random_() % (view.size + 1);
  if (!lane_.consume(used)) FAIL("the lane has lost what it showed");
  received_ += used;
  if (used == left) ++message_;
  return true;
}

// All of a short message, or nothing: only the sender knows its length.
bool Checker::step_line(const Message& message, std::size_t left) {
  if (!lane_.has_lines() || random_() % 2 == 0 || !lane_.line_arrived()) return false;
  const Fingerprint other = fingerprint_of(message.fingerprint.sequence + 1);
  for (std::size_t n = 1; n <= std::min(left, kShortMessageBytes); ++n) {
    if (lane_.peek_short(other, n) != nullptr) FAIL("a short message was shown to another operation");
    const std::byte* const data = lane_.peek_short(message.fingerprint, n);
    if (data == nullptr) continue;
    compare(data, n, message.fingerprint, message);
    lane_.consume_short(n);
    ++in_lines_;
    received_ += n;
    if (n == left) ++message_;
    if (lane_.consumed() != received_) FAIL("consumed() is " << lane_.consumed() << " after " << received_ << " bytes");
    return true;
  }
  return false;
}

bool Checker::step_pull(const Message& message, std::size_t left) {
  const std::size_t wanted = random_() % 2 == 0 ? left : 1 + random_() % left;
  const std::size_t n = std::min(wanted, target_.size() - 1);
  target_[n] = std::byte{0x5c};
  Fingerprint fingerprint;
  const std::size_t got = lane_.pull(target_.data(), n, &fingerprint);
  if (got == 0) return false;
  if (got > n || target_[n] != std::byte{0x5c}) FAIL("pull() wrote more than asked for");
  compare(target_.data(), got, fingerprint, message);
  received_ += got;
  if (got == left) ++message_;
  return true;
}

void Checker::compare(const std::byte* data, std::size_t n, const Fingerprint& fingerprint, const Message& message) {
  if (fingerprint != message.fingerprint) {
    FAIL("at byte " << received_ << " the fingerprint is of operation " << fingerprint.sequence << ", not "
                    << message.fingerprint.sequence);
  }
  if (std::memcmp(data, script_.bytes.data() + received_, n) != 0) FAIL("wrong bytes after " << received_);
}

}  // namespace tutti::internal::transport::conformance

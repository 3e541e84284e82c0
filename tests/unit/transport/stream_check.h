// Sends and checks a stream of operations over one lane in small random steps, from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "transport/transport.h"

namespace tutti::internal::transport::conformance {

struct Message {
  Fingerprint fingerprint;
  std::size_t begin = 0;  // in the stream
  std::size_t size = 0;
};

// The contents of a whole stream, cut into messages.
struct Script {
  std::vector<std::byte> bytes;
  std::vector<Message> messages;
};

// `messages` messages, most of them short, none above longest_bytes.
Script make_script(std::uint64_t seed, int messages, std::size_t longest_bytes);
Fingerprint fingerprint_of(std::uint32_t sequence);

// The actions of a sender: pushes, or writes in place if the lane supports it, or through a line of memory if it has
// lines.
class Feeder {
 public:
  Feeder(SendLane& lane, const Script& script, std::uint64_t seed) : lane_(lane), script_(script), random_(seed) {}
  // One step; true if bytes moved. Checks taken() and completed().
  bool step();
  [[nodiscard]] bool finished() const { return sent_ == script_.bytes.size(); }
  // Everything sent may be reused.
  bool released();
  // Messages that were sent without a verb.
  [[nodiscard]] int in_lines() const { return in_lines_; }

 private:
  std::size_t write_in_place(const Message& message, std::size_t offset, std::size_t n);
  bool write_line(const Message& message, std::size_t offset, std::size_t n);

  SendLane& lane_;
  const Script& script_;
  std::mt19937_64 random_;
  int in_lines_ = 0;
  std::size_t message_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t completed_ = 0;
};

enum class Reading { kPeek, kPull, kBoth };

// The actions of a receiver: compares every byte and fingerprint with the script.
class Checker {
 public:
  Checker(RecvLane& lane, const Script& script, Reading reading, std::uint64_t seed)
      : lane_(lane), script_(script), reading_(reading), random_(seed), target_(1 << 20) {}
  bool step();
  [[nodiscard]] bool finished() const { return received_ == script_.bytes.size(); }
  // Messages that were received without a verb.
  [[nodiscard]] int in_lines() const { return in_lines_; }

 private:
  bool step_peek(const Message& message, std::size_t left);
  bool step_pull(const Message& message, std::size_t left);
  bool step_line(const Message& message, std::size_t left);
  void compare(const std::byte* data, std::size_t n, const Fingerprint& fingerprint, const Message& message);

  RecvLane& lane_;
  const Script& script_;
  Reading reading_;
  std::mt19937_64 random_;
  std::vector<std::byte> target_;
  int in_lines_ = 0;
  std::size_t message_ = 0;
  std::uint64_t received_ = 0;
};

}  // namespace tutti::internal::transport::conformance

// Messages with tags: those of one rank to another that have a tag other than 0.
//
// Each goes behind a header that holds its tag, count and type. The receiver takes messages in the order in which they
// were sent, and keeps those whose tag no receive has asked for yet, up to a limit. Messages without a tag have a
// channel of their own, and no header.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "channel.h"

namespace tutti_torch {

struct MessageHeader {
  std::int64_t tag = 0;
  std::int64_t count = 0;
  std::int64_t type = 0;  // a tuttiDataType_t
};

// A share of the bytes that TORCH_TUTTI_KEPT_MIB allows, as long as it lives. Any thread.
class KeptBytes {
 public:
  KeptBytes() = default;
  KeptBytes(KeptBytes&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  KeptBytes& operator=(KeptBytes&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~KeptBytes() { held_ -= bytes_; }
  // False: they would exceed the limit, and nothing is taken. Called once.
  bool take(std::size_t bytes);

  // In all groups of this process: at most, and now.
  static std::size_t limit();
  static std::size_t in_use() { return held_; }

 private:
  static std::atomic<std::size_t> held_;
  std::size_t bytes_ = 0;
};

// Sends a message behind its header, which stays until then.
Call send_with_header(const std::shared_ptr<MessageHeader>& header, Call message);

// The receives of one channel. Any thread.
class TaggedReceives : public std::enable_shared_from_this<TaggedReceives> {
 public:
  struct Wanted {
    MessageHeader header;
    void* data = nullptr;
    std::shared_ptr<Flight> flight;
  };
  // before: of a channel in whose place this one comes, or null: what that has kept is found here. timeout: of a
  // receive, see fail_late().
  TaggedReceives(const std::shared_ptr<Channel>& channel, int sender, std::chrono::milliseconds timeout,
                 const std::shared_ptr<TaggedReceives>& before);
  ~TaggedReceives();
  TaggedReceives(const TaggedReceives&) = delete;
  TaggedReceives& operator=(const TaggedReceives&) = delete;

  // Those of one tag get its messages in the order in which these were sent.
  void begin(Wanted wanted);
  // The channel has its communicator.
  void start();
  // It gets none, or has none any more.
  void fail(tuttiResult_t result);
  // Fails the receives that have had no message for the timeout, and leaves their messages to later receives. Called
  // periodically, because the communicator's timeout restarts with each message of another tag.
  void fail_late();

 private:
  struct Kept {
    MessageHeader header;
    at::Tensor bytes;
    KeptBytes share;
  };
  void call_thread();
  void receive_all();
  // False: the channel has failed, or no receive waits.
  bool receive_one(tuttiComm_t comm);
  std::optional<Kept> take_kept(std::int64_t tag);
  std::optional<Wanted> take_wanted(std::int64_t tag);
  void keep(Kept kept);
  // Without the lock: to settle a receive may take Python's, whose holder may want this one.
  void hand_over(const Wanted& wanted, const Kept& kept) const;
  // Memory for the message, or why there is none: the channel has been ended.
  tuttiResult_t make_room(const MessageHeader& header, const std::optional<Wanted>& wanted, Kept* room);
  tuttiResult_t end_channel(const std::string& why);
  [[nodiscard]] std::string why_not_received(const std::exception& e) const;
  std::string told_of_waiting(const std::optional<Wanted>& wanted);

  const std::shared_ptr<Channel> channel_;
  const int sender_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::list<Wanted> wanted_;
  std::deque<Kept> kept_;
  bool running_ = false;  // a thread receives
};

}  // namespace tutti_torch

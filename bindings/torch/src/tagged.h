// Messages with tags: those of one rank to another that have a tag other than 0.
//
// Each goes behind a header that holds its tag, count and type. The receiver takes messages in the order in which they
// were sent, and keeps those whose tag no receive has asked for yet, up to a limit. Messages without a tag have a
// channel of their own, and no header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "channel.h"

namespace tutti_torch {

struct MessageHeader {
  std::int64_t tag = 0;
  std::int64_t count = 0;
  std::int64_t type = 0;  // a tuttiDataType_t
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
  // before: of a channel in whose place this one comes, or null: what that has kept is found here.
  TaggedReceives(const std::shared_ptr<Channel>& channel, int sender, const std::shared_ptr<TaggedReceives>& before);
  ~TaggedReceives();
  TaggedReceives(const TaggedReceives&) = delete;
  TaggedReceives& operator=(const TaggedReceives&) = delete;

  // Those of one tag get its messages in the order in which these were sent.
  void begin(Wanted wanted);
  // The channel has its communicator.
  void start();
  // It gets none, or has none any more.
  void fail(tuttiResult_t result);
  // How many bytes are kept at most, in all groups of this process.
  static std::size_t most_kept_bytes();

 private:
  struct Kept {
    MessageHeader header;
    at::Tensor bytes;
  };
  void call_thread();
  void receive_all();
  // Nothing: the channel has failed, or nobody wants anything.
  bool receive_one(tuttiComm_t comm);
  std::optional<Kept> take_kept(std::int64_t tag);
  std::optional<Wanted> take_wanted(std::int64_t tag);
  void keep(Kept kept);
  // Without the lock: to settle a receive may take Python's, whose holder may want this one.
  void hand_over(const Wanted& wanted, const Kept& kept) const;
  tuttiResult_t overflow(const MessageHeader& header, std::size_t bytes);

  const std::shared_ptr<Channel> channel_;
  const int sender_;
  std::mutex mutex_;
  std::list<Wanted> wanted_;
  std::deque<Kept> kept_;
  bool running_ = false;  // a thread receives
};

}  // namespace tutti_torch

// What is called between tuttiGroupStart and tuttiGroupEnd: checked at once, started together at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "api/thread_record.h"
#include "base/status.h"
#include "communicator/communicator.h"
#include "streams/stream.h"
#include "tutti/tutti.h"

namespace tutti::internal::api {

// Of one thread. Keeps its memory from group to group.
class GroupCalls {
 public:
  // What the group has for one communicator.
  struct CommunicatorCalls {
    std::uint64_t comm = 0;
    std::shared_ptr<Batch> batch;
    std::vector<std::shared_ptr<Stream>> streams;  // each once
    std::vector<void*> cuda_streams;               // the same, of a communicator on a device
    bool waits = false;                            // some of it was called without a stream
    std::shared_ptr<Completion> completion;        // of what is queued
  };

  void start() { ++depth_; }
  // Whether the group is whole.
  bool end() { return --depth_ == 0; }
  // Valid until the next call. Communicators come in the order of their first calls.
  CommunicatorCalls& part_of(std::uint64_t comm) {
    return used_ != 0 && parts_[last_].comm == comm ? parts_[last_] : find_or_add(comm);
  }
  // How many calls of the communicator are in it.
  [[nodiscard]] std::size_t calls_of(std::uint64_t comm) const;
  // An argument that was refused: then nothing of the group is started.
  void refuse(const Status& status) {
    if (refused_.is_ok()) refused_ = status;
  }
  [[nodiscard]] const Status& refused() const { return refused_; }
  [[nodiscard]] std::span<CommunicatorCalls> parts() { return std::span(parts_).first(used_); }
  // Nothing is in it then; what is queued is not concerned.
  void clear();

 private:
  CommunicatorCalls& find_or_add(std::uint64_t comm);

  int depth_ = 0;
  std::vector<CommunicatorCalls> parts_;  // those from used_ on are empty
  std::size_t used_ = 0;
  std::size_t last_ = 0;                        // the part that was asked for last
  std::map<std::uint64_t, std::size_t> index_;  // of all parts by communicator, where there are several
  Status refused_;
};

// Refuses to end a communicator of which the calling thread's group, which it has not ended, has calls.
[[nodiscard]] Status check_no_group(std::uint64_t comm);

// The calling thread's, or null.
inline GroupCalls* current_group() noexcept {
  const ThreadRecord* const record = this_thread();
  return record == nullptr ? nullptr : record->group;
}

}  // namespace tutti::internal::api

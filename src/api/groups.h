// The calls between tuttiGroupStart and tuttiGroupEnd: checked at once, started together at the end.
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

// The group of one thread. Reuses its memory for later groups.
class GroupCalls {
 public:
  // The group's calls for one communicator.
  struct CommunicatorCalls {
    std::uint64_t comm = 0;
    std::shared_ptr<Batch> batch;
    std::vector<std::shared_ptr<Stream>> streams;  // each once
    std::vector<void*> cuda_streams;               // the same, for a communicator on a device
    bool waits = false;                            // some call has no stream
    std::shared_ptr<Completion> completion;        // of the queued calls
  };

  void start() { ++depth_; }
  // True at the end of the outermost group.
  bool end() { return --depth_ == 0; }
  // Valid until the next call. Communicators come in the order of their first calls.
  CommunicatorCalls& part_of(std::uint64_t comm) {
    return used_ != 0 && parts_[last_].comm == comm ? parts_[last_] : find_or_add(comm);
  }
  // The number of the communicator's calls in it.
  [[nodiscard]] std::size_t calls_of(std::uint64_t comm) const;
  // Stores the error of a refused argument: then nothing of the group is started.
  void refuse(const Status& status) {
    if (refused_.is_ok()) refused_ = status;
  }
  [[nodiscard]] const Status& refused() const { return refused_; }
  [[nodiscard]] std::span<CommunicatorCalls> parts() { return std::span(parts_).first(used_); }
  // Empties the group; queued calls are not affected.
  void clear();

 private:
  CommunicatorCalls& find_or_add(std::uint64_t comm);

  int depth_ = 0;
  std::vector<CommunicatorCalls> parts_;  // those from used_ on are empty
  std::size_t used_ = 0;
  std::size_t last_ = 0;                        // the part that was asked for last
  std::map<std::uint64_t, std::size_t> index_;  // all parts by communicator, if there are several
  Status refused_;
};

// Refuses to end a communicator that has calls in the calling thread's open group.
[[nodiscard]] Status check_no_group(std::uint64_t comm);

// The calling thread's, or null.
inline GroupCalls* current_group() noexcept {
  const ThreadRecord* const record = this_thread();
  return record == nullptr ? nullptr : record->group;
}

}  // namespace tutti::internal::api

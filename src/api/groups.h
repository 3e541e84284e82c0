// What is called between tuttiGroupStart and tuttiGroupEnd: checked at once, started together at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "api/thread_record.h"
#include "base/status.h"
#include "communicator/communicator.h"
#include "communicator/stream.h"
#include "tutti/tutti.h"

namespace tutti::internal::api {

// Of one thread.
class Group {
 public:
  struct Member {
    std::uint64_t comm = 0;
    std::optional<Call> call;  // else the transfer
    Transfer transfer;
    // What the call refers to, if it does.
    std::shared_ptr<const VaryingCopy> counts;
    std::shared_ptr<const CustomOperator> custom;
    std::shared_ptr<Stream> stream;  // null: the group returns when it is complete
  };

  void start() { ++depth_; }
  // Whether the group is whole.
  bool end() { return --depth_ == 0; }
  void add(Member member) { members_.push_back(std::move(member)); }
  // An argument that was refused: then nothing of the group is started.
  void refuse(const Status& status) {
    if (refused_.is_ok()) refused_ = status;
  }
  [[nodiscard]] const Status& refused() const { return refused_; }
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }

 private:
  int depth_ = 0;
  std::vector<Member> members_;
  Status refused_;
};

// The calling thread's, or null.
inline Group* current_group() noexcept {
  const ThreadRecord* const record = this_thread();
  return record == nullptr ? nullptr : record->group;
}

}  // namespace tutti::internal::api

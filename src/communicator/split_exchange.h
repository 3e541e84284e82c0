// What ranks tell each other while they make a communicator of some of them.
//
// In a split all ranks of a communicator tell what they ask for, by all-gathers that are numbered as all operations
// are. From that each derives the group that it belongs to. Before anybody returns, all have said that theirs stands:
// so no rank ever dials another that does not know of the new communicator yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "calls/call.h"
#include "communicator/failures.h"
#include "communicator/split.h"
#include "epoch/epoch.h"

namespace tutti::internal {

// One split. Threads: the one that makes the communicator's calls.
class SplitExchange {
 public:
  using Run = std::function<Status(const Call&)>;
  // Of the communicator that is split: `run` runs a collective on it.
  SplitExchange(const Epoch& epoch, Failures& failures, Run run)
      : epoch_(epoch), failures_(failures), run_(std::move(run)) {}

  // By rank.
  struct Answer {
    std::vector<SplitRequest> requests;
    std::vector<std::string> texts;  // or none at all
  };
  // The first exchange. An error of all ranks if one of them refuses.
  Result<Answer> ask(const SplitWish& wish);
  // The group that this rank belongs to, of which it then makes its part. *texts: see Epoch::link(). REQUIRES: it names
  // a color.
  [[nodiscard]] SplitGroup group_of(const SplitWish& wish, Answer answer, std::vector<std::string>* texts) const;
  // The second: whether all ranks have `own` ok; an error that names one that has not.
  Status agree(Status own);

 private:
  // `count` elements of each rank, by rank.
  Status all_gather(const void* own, void* all, std::size_t count, DataType type);
  // By rank. `bytes`: of each text, as all ranks know.
  Result<std::vector<std::string>> exchange_texts(const std::string& own, std::span<const std::uint32_t> bytes);

  const Epoch& epoch_;
  Failures& failures_;
  const Run run_;
};

// By the members of a group, whose part of the control tree `child` has joined: the settings of those that have given
// some, by rank, as Epoch::link() takes them. Tells also whether all list the same members.
Result<std::vector<std::string>> exchange_settings(const Epoch& parent, const Epoch& child, const GroupWish& wish,
                                                   Deadline deadline);

}  // namespace tutti::internal

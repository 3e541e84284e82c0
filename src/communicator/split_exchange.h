// The messages that ranks exchange while they make a communicator of some of them.
//
// In a split all ranks of a communicator exchange their requests by all-gathers, which are numbered like all
// operations. Each rank derives its group from them. Before any rank returns, all have reported success: so no rank
// ever connects to another that does not know the new communicator yet.
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
  // For the communicator that is split; `run` runs a collective on it.
  SplitExchange(const Epoch& epoch, Failures& failures, Run run)
      : epoch_(epoch), failures_(failures), run_(std::move(run)) {}

  // By rank.
  struct Answer {
    std::vector<SplitRequest> requests;
    std::vector<std::string> texts;  // empty if no rank has a text
  };
  // The first exchange. All ranks return an error if one of them refuses.
  Result<Answer> ask(const SplitWish& wish);
  // The group of this rank, from which it then makes its part. *texts: see Epoch::link(). REQUIRES: it names a color.
  [[nodiscard]] SplitGroup group_of(const SplitWish& wish, Answer answer, std::vector<std::string>* texts) const;
  // The second exchange: ok if `own` is ok on all ranks; else an error that names a rank that failed.
  Status agree(Status own);

 private:
  // `count` elements of each rank, by rank.
  Status all_gather(const void* own, void* all, std::size_t count, DataType type);
  // By rank. `bytes`: the length of each text, which all ranks know.
  Result<std::vector<std::string>> exchange_texts(const std::string& own, std::span<const std::uint32_t> bytes);

  const Epoch& epoch_;
  Failures& failures_;
  const Run run_;
};

// For the members of a group, whose part of the control tree `child` has joined: the settings of the members that gave
// some, by rank, as Epoch::link() takes them. Also checks that all list the same members.
Result<std::vector<std::string>> exchange_settings(const Epoch& parent, const Epoch& child, const GroupWish& wish,
                                                   Deadline deadline);

}  // namespace tutti::internal

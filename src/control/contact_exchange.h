// Tells every rank where all the others run and listen. Contacts are merged on their way as parts are
// (all_gather.h): upwards when all below this rank are known, downwards when all are, or after a while without the
// rest. All ranks have them before the first all-gather ends.
//
// Threads: the tree's alone.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "control/job_view.h"
#include "control/neighbours.h"
#include "control/rank_set.h"

namespace tutti::internal::control {

class ContactExchange {
 public:
  // Both outlive it.
  ContactExchange(JobView* view, Neighbours* neighbours) : view_(*view), neighbours_(*neighbours) {}

  void hear(std::vector<Contact> contacts, const Neighbour& from);
  // To the neighbours those that are due by the tree's shape, or `at_once` all.
  void pass_on(bool at_once);
  // A rank has become a neighbour. It has all contacts, if this rank has.
  void meet(int rank);
  // When those that wait to be merged with others go on; 0: none wait.
  [[nodiscard]] std::int64_t due_ns() const { return due_ns_; }
  void advance(std::int64_t now_ns);

 private:
  static constexpr std::int64_t kFirstMs = 50;
  static constexpr std::int64_t kLongestMs = 400;

  JobView& view_;
  Neighbours& neighbours_;
  std::map<int, RankSet> told_;  // whose contacts each neighbour has
  std::int64_t due_ns_ = 0;
  std::int64_t wait_ms_ = kFirstMs;
};

}  // namespace tutti::internal::control

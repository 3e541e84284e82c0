// Tells every rank where all the others run and listen. Contacts are merged on their way like parts (all_gather.h):
// forwarded up when all below this rank are known, down when all are known, or after a while without the rest. All
// ranks have them before the first all-gather ends.
//
// Threads: the tree's only.
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
  // Sends the neighbours the contacts that are due by the tree's shape, or all if `at_once`.
  void pass_on(bool at_once);
  // A rank has become a neighbour. It gets all contacts that this rank has.
  void meet(int rank);
  // When contacts that wait to be merged are forwarded; 0: none waits.
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

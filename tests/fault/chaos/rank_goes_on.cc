// How the ranks that live go on at the end of a round.
#include <cstdio>

#include "rank.h"

namespace tutti::internal::test::chaos {

// As a program would: until an agreement shows that all have had the result of an operation.
void RankRun::go_on() {
  if (states_[0] != State::kGood && states_[0] != State::kFailed) return;
  mine_.company.wanted = true;
  tuttiComm_t comm = handles_[0].comm;
  const std::string error = go_on_from(&comm);
  std::snprintf(mine_.company.error, sizeof mine_.company.error, "%s", error.c_str());
  if (comm != handles_[0].comm) {
    (void)in_library("tuttiCommDestroy after going on", [&] { return tuttiCommDestroy(comm); });
  }
}

std::string RankRun::go_on_from(tuttiComm_t* comm) {
  for (int death = 0; death <= kMaxMishaps; ++death) {
    tuttiComm_t next = nullptr;
    tuttiResult_t result = in_library(
        "tuttiCommShrink", [&] { return tuttiCommShrink(*comm, nullptr, 0, &next, nullptr, TUTTI_SHRINK_DEFAULT); });
    if (result != tuttiSuccess) return std::string("tuttiCommShrink: ") + tuttiGetLastError(nullptr);
    if (*comm != handles_[0].comm) {
      (void)in_library("tuttiCommDestroy after going on", [&] { return tuttiCommDestroy(*comm); });
    }
    *comm = next;
    std::uint32_t ranks = 1U << rank_;
    result = in_library("all-reduce after going on",
                        [&] { return tuttiAllReduce(&ranks, &ranks, 1, tuttiUint32, tuttiSum, next, nullptr); });
    if (result != tuttiSuccess && result != tuttiRemoteError) {
      return std::string("an all-reduce after tuttiCommShrink: ") + tuttiGetLastError(next);
    }
    std::uint64_t all = result == tuttiSuccess ? 1 : 0;
    result = in_library("tuttiCommAgree", [&] { return tuttiCommAgree(next, &all); });
    if (result != tuttiSuccess) return std::string("tuttiCommAgree: ") + tuttiGetLastError(nullptr);
    if (all != 0) {
      mine_.company.ranks = ranks;
      return {};
    }
  }
  return "ranks go on failing without more deaths";
}

}  // namespace tutti::internal::test::chaos

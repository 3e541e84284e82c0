// Going on after a failure: what the ranks that live agree on, and communicators of them.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "api/groups.h"
#include "api/handles.h"
#include "api/new_comm.h"

namespace tutti::internal::api {
namespace {

// Also sorts the list.
Status check_excluded(const Communicator& comm, std::vector<int>* list, int flags, const tuttiComm_t* newcomm) {
  if (newcomm == nullptr) return Status::invalid_argument("newcomm is NULL");
  if (flags != TUTTI_SHRINK_DEFAULT && flags != TUTTI_SHRINK_ABORT) {
    return Status::invalid_argument(
        fmt::format("shrinkFlags is {}. Pass TUTTI_SHRINK_DEFAULT (0) or TUTTI_SHRINK_ABORT (1)", flags));
  }
  for (const int rank : *list) {
    if (rank < 0 || rank >= comm.ranks()) {
      return Status::invalid_argument(
          fmt::format("excludeRanksList contains {}, but the ranks are 0 to {}", rank, comm.ranks() - 1));
    }
    if (rank == comm.rank()) {
      return Status::invalid_argument(
          fmt::format("excludeRanksList contains the calling rank {}. Excluded ranks do not call", rank));
    }
  }
  std::sort(list->begin(), list->end());
  list->erase(std::unique(list->begin(), list->end()), list->end());
  return {};
}

Status shrink(Communicator& comm, std::vector<int> excluded, tuttiComm_t* newcomm, const tuttiConfig_t* config,
              int flags) {
  if (Status s = check_excluded(comm, &excluded, flags, newcomm); !s.is_ok()) return s;
  if (flags == TUTTI_SHRINK_ABORT) comm.revoke();
  return make_new(
      comm, ShrinkWish{std::move(excluded), nullptr, {}}, newcomm, config,
      [&](const Settings& settings) { return comm.epoch().check_split(settings); },
      [&](const ShrinkWish& wish) { return comm.shrink(wish); });
}

// This rank takes part in any case: the new ranks, which may be waiting already, get its reason.
Status grow(Communicator& comm, int ranks, const tuttiUniqueId* id, int rank, tuttiComm_t* newcomm,
            const tuttiConfig_t* config) {
  GrowWish wish{ranks, {}, nullptr, {}};
  if (id != nullptr) {
    static_assert(sizeof(UniqueIdBytes) == sizeof id->internal);
    std::memcpy(wish.id.emplace().data(), id->internal, sizeof id->internal);
  }
  if (newcomm == nullptr) {
    wish.refused = Status::invalid_argument("newcomm is NULL");
  } else if (rank != -1) {
    wish.refused = Status::invalid_argument(fmt::format(
        "rank is {}, but a rank of `comm` keeps its rank. Pass -1, or NULL for comm if this is a new rank", rank));
  }
  return make_new(
      comm, std::move(wish), newcomm, config, [](const Settings&) { return Status(); },
      [&](const GrowWish& own) { return comm.survivors().grow(own); });
}

// Writes what list(communicator) returns.
template <class List>
tuttiResult_t list_ranks(tuttiComm_t comm, const char* name, int* ranks, int capacity, int* count, List list) {
  return look(comm, [&](Communicator* c) {
    Status refused;
    if (count == nullptr) {
      refused = Status::invalid_argument("count is NULL");
    } else if (capacity < 0) {
      refused = Status::invalid_argument(fmt::format("capacity is {}. Pass 0 or more", capacity));
    } else if (ranks == nullptr && capacity != 0) {
      refused = Status::invalid_argument(fmt::format("capacity is {}, but ranks is NULL", capacity));
    }
    if (!refused.is_ok()) return report(refused.with_context(name), c);
    const std::vector<int> listed = list(*c);
    *count = static_cast<int>(listed.size());
    std::copy_n(listed.begin(), std::min(capacity, *count), ranks);
    return tuttiSuccess;
  });
}

}  // namespace
}  // namespace tutti::internal::api

using namespace tutti::internal::api;  // NOLINT: this file is the C face of that namespace

tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int* excludeRanksList, int excludeRanksCount, tuttiComm_t* newcomm,
                              const tuttiConfig_t* config, int shrinkFlags) {
  return look(comm, [&](tutti::internal::Communicator* c) {
    using tutti::internal::Status;
    Status status;
    if (excludeRanksCount < 0) {
      status = Status::invalid_argument(fmt::format("excludeRanksCount is {}. Pass 0 or more", excludeRanksCount));
    } else if (excludeRanksList == nullptr && excludeRanksCount != 0) {
      status = Status::invalid_argument(
          fmt::format("excludeRanksCount is {}, but excludeRanksList is NULL", excludeRanksCount));
    } else {
      status = shrink(*c, {excludeRanksList, excludeRanksList + excludeRanksCount}, newcomm, config, shrinkFlags);
    }
    return report(status.with_context("tuttiCommShrink"), status.is_ok() ? nullptr : c);
  });
}

tuttiResult_t tuttiCommAgree(tuttiComm_t comm, uint64_t* flag) {
  return look(comm, [&](tutti::internal::Communicator* c) {
    using tutti::internal::Status;
    Status status;
    if (flag == nullptr) {
      status = Status::invalid_argument("flag is NULL");
    } else if (current_group() != nullptr) {
      status = Status::invalid_usage("this thread has an open group. Call tuttiGroupEnd first");
    } else {
      const auto agreed = c->survivors().agree({"tuttiCommAgree", {}, *flag},
                                               tutti::internal::Deadline::after_ms(c->settings().timeout_ms));
      status = agreed.status();
      if (agreed.is_ok()) *flag = agreed.value().flags;
    }
    return report(status.with_context("tuttiCommAgree"), status.is_ok() ? nullptr : c);
  });
}

tuttiResult_t tuttiCommGetFailed(tuttiComm_t comm, int* ranks, int capacity, int* count) {
  return list_ranks(comm, "tuttiCommGetFailed", ranks, capacity, count,
                    [](tutti::internal::Communicator& c) { return c.survivors().failed(); });
}

tuttiResult_t tuttiCommGetContributors(tuttiComm_t comm, int* ranks, int capacity, int* count) {
  return list_ranks(comm, "tuttiCommGetContributors", ranks, capacity, count,
                    [](tutti::internal::Communicator& c) { return c.contributors(); });
}

tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int nRanks, const tuttiUniqueId* id, int rank, tuttiComm_t* newcomm,
                            const tuttiConfig_t* config) {
  using tutti::internal::Status;
  constexpr const char* kName = "tuttiCommGrow";
  if (comm == nullptr) {
    return entry([&] {
      if (id == nullptr) {
        return report(
            Status::invalid_argument("id is NULL. A new rank passes the id that a rank of `comm` has made; a rank of "
                                     "`comm` passes `comm`")
                .with_context(kName));
      }
      if (newcomm == nullptr) return report(Status::invalid_argument("newcomm is NULL").with_context(kName));
      return report(init_rank(newcomm, nRanks, *id, rank, config).with_context(kName));
    });
  }
  return look(comm, [&](tutti::internal::Communicator* c) {
    const Status status = grow(*c, nRanks, id, rank, newcomm, config).with_context(kName);
    return report(status, status.is_ok() ? nullptr : c);
  });
}

// Communicators made from others.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "api/configuration.h"
#include "api/groups.h"
#include "api/handles.h"

namespace tutti::internal::api {
namespace {

// This rank's request. *settings: its settings, if it has any.
SplitWish wish_of(const Communicator& comm, int color, int key, const tuttiComm_t* newcomm, const tuttiConfig_t* config,
                  std::optional<Settings>* settings) {
  SplitWish wish{color, key, nullptr, {}};
  wish.refused = guarded([&] {
    if (current_group() != nullptr)
      return Status::invalid_usage("this thread has an open group. Call tuttiGroupEnd first");
    if (newcomm == nullptr) return Status::invalid_argument("newcomm is NULL");
    if (color < 0 && color != TUTTI_SPLIT_NOCOLOR) {
      return Status::invalid_argument(fmt::format("color is {}. Pass 0 or more, or TUTTI_SPLIT_NOCOLOR", color));
    }
    if (config == nullptr) return Status();
    auto changed = changed_settings(comm.settings(), config);
    if (!changed.is_ok()) return changed.status();
    *settings = std::move(*changed);
    wish.settings = &**settings;
    return comm.epoch().check_split(**settings);
  });
  return wish;
}

// Takes part in any case, so that no rank waits for this one.
Status split(Communicator& comm, int color, int key, tuttiComm_t* newcomm, const tuttiConfig_t* config) {
  CommTable& table = CommTable::instance();
  std::optional<Settings> settings;
  SplitWish wish = wish_of(comm, color, key, newcomm, config, &settings);
  std::uint64_t handle = 0;
  if (wish.refused.is_ok()) {
    wish.refused = guarded([&] {
      auto reserved = table.reserve();
      if (reserved.is_ok()) handle = *reserved;
      return reserved.status();
    });
  }
  auto made = comm.split(wish);
  const bool joins = made.is_ok() && *made != nullptr;
  if (joins) {
    table.open(handle, std::move(*made));
  } else if (handle != 0) {
    table.cancel(handle);
  }
  if (made.is_ok()) *newcomm = joins ? reinterpret_cast<tuttiComm_t>(handle) : nullptr;
  return made.status();
}

Status check_members(const Communicator& comm, std::uint64_t id, int nranks, const int* ranks,
                     const tuttiComm_t* newcomm) {
  if (newcomm == nullptr) return Status::invalid_argument("newcomm is NULL");
  if (id == 0) return Status::invalid_argument("id is 0. Get an id from tuttiCommGetGroupId");
  if (ranks == nullptr || nranks < 1 || nranks > comm.ranks()) {
    return Status::invalid_argument(fmt::format("a list of {} ranks, of a communicator of {}: pass 1 to {}",
                                                ranks == nullptr ? 0 : nranks, comm.ranks(), comm.ranks()));
  }
  std::vector<bool> listed(static_cast<std::size_t>(comm.ranks()));
  for (int i = 0; i < nranks; ++i) {
    if (ranks[i] < 0 || ranks[i] >= comm.ranks()) {
      return Status::invalid_argument(
          fmt::format("ranks[{}] is {}, which is not a rank of {}", i, ranks[i], comm.ranks()));
    }
    if (listed[static_cast<std::size_t>(ranks[i])]) {
      return Status::invalid_argument(fmt::format("ranks lists rank {} twice", ranks[i]));
    }
    listed[static_cast<std::size_t>(ranks[i])] = true;
  }
  if (listed[static_cast<std::size_t>(comm.rank())]) return {};
  return Status::invalid_argument(fmt::format("ranks does not list the calling rank {}", comm.rank()));
}

// Makes a communicator by make(wish), which takes part in any case, so that no rank waits for this one.
template <class Wish, class Make>
Status make_new(const Communicator& comm, Wish wish, tuttiComm_t* newcomm, const tuttiConfig_t* config, Make make) {
  std::optional<Settings> settings;
  std::uint64_t handle = 0;
  CommTable& table = CommTable::instance();
  wish.refused = guarded([&] {
    if (current_group() != nullptr)
      return Status::invalid_usage("this thread has an open group. Call tuttiGroupEnd first");
    auto reserved = table.reserve();
    if (!reserved.is_ok()) return reserved.status();
    handle = *reserved;
    if (config == nullptr) return Status();
    auto changed = changed_settings(comm.settings(), config);
    if (!changed.is_ok()) return changed.status();
    settings = std::move(*changed);
    wish.settings = &*settings;
    return comm.epoch().check_split(*settings);
  });
  auto made = make(wish);
  if (made.is_ok()) {
    table.open(handle, std::move(*made));
    *newcomm = reinterpret_cast<tuttiComm_t>(handle);
  } else if (handle != 0) {
    table.cancel(handle);
  }
  return made.status();
}

// Also sorts the list.
Status check_left_out(const Communicator& comm, std::vector<int>* list, int flags, const tuttiComm_t* newcomm) {
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

Status shrink(Communicator& comm, std::vector<int> left_out, tuttiComm_t* newcomm, const tuttiConfig_t* config,
              int flags) {
  if (Status s = check_left_out(comm, &left_out, flags, newcomm); !s.is_ok()) return s;
  if (flags == TUTTI_SHRINK_ABORT) comm.failures().revoke();
  return make_new(comm, ShrinkWish{std::move(left_out), nullptr, {}}, newcomm, config,
                  [&](const ShrinkWish& wish) { return comm.shrink(wish); });
}

}  // namespace
}  // namespace tutti::internal::api

using namespace tutti::internal::api;  // NOLINT: this file is the C face of that namespace

tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* newcomm, const tuttiConfig_t* config) {
  return entry([&] {
    const Operating operating(number_of(comm));
    if (!operating.status().is_ok()) return report_refused(operating.status().with_context("tuttiCommSplit"), comm);
    const tutti::internal::Status status = split(*operating, color, key, newcomm, config);
    if (status.is_ok()) return tuttiSuccess;
    // The error that failed `comm` already names the operation.
    if (operating->async_error().is_ok()) return report(status.with_context("tuttiCommSplit"), &*operating);
    operating->failures().state().set_told();
    return report(status);
  });
}

tuttiResult_t tuttiCommCreateGroup(tuttiComm_t comm, uint64_t id, int nranks, const int* ranks, tuttiComm_t* newcomm,
                                   const tuttiConfig_t* config) {
  return look(comm, [&](tutti::internal::Communicator* c) {
    tutti::internal::Status status = check_members(*c, id, nranks, ranks, newcomm);
    if (status.is_ok()) {
      status = make_new(*c, tutti::internal::GroupWish{id, {ranks, ranks + nranks}, nullptr, {}}, newcomm, config,
                        [c](const tutti::internal::GroupWish& wish) { return c->make_group(wish); });
    }
    return report(status.with_context("tuttiCommCreateGroup"), status.is_ok() ? nullptr : c);
  });
}

tuttiResult_t tuttiCommGetGroupId(tuttiComm_t comm, uint64_t* id) {
  return look(comm, [&](tutti::internal::Communicator* c) {
    if (id == nullptr) {
      return report(tutti::internal::Status::invalid_argument("id is NULL").with_context("tuttiCommGetGroupId"), c);
    }
    *id = c->epoch().draw_id();
    return tuttiSuccess;
  });
}

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
      const auto agreed = c->survivors().agree({"tuttiCommAgree", {}, *flag, 0},
                                               tutti::internal::Deadline::after_ms(c->settings().timeout_ms));
      status = agreed.status();
      if (agreed.is_ok()) *flag = agreed.value().flags;
    }
    return report(status.with_context("tuttiCommAgree"), status.is_ok() ? nullptr : c);
  });
}

tuttiResult_t tuttiCommGetFailed(tuttiComm_t comm, int* ranks, int capacity, int* count) {
  return look(comm, [&](tutti::internal::Communicator* c) {
    using tutti::internal::Status;
    Status refused;
    if (count == nullptr) {
      refused = Status::invalid_argument("count is NULL");
    } else if (capacity < 0) {
      refused = Status::invalid_argument(fmt::format("capacity is {}. Pass 0 or more", capacity));
    } else if (ranks == nullptr && capacity != 0) {
      refused = Status::invalid_argument(fmt::format("capacity is {}, but ranks is NULL", capacity));
    }
    if (!refused.is_ok()) return report(refused.with_context("tuttiCommGetFailed"), c);
    const std::vector<int> failed = c->survivors().failed();
    *count = static_cast<int>(failed.size());
    std::copy_n(failed.begin(), std::min(capacity, *count), ranks);
    return tuttiSuccess;
  });
}

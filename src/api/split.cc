// Communicators of some ranks of another.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "api/configuration.h"
#include "api/groups.h"
#include "api/handles.h"
#include "api/new_comm.h"

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
      status = make_new(
          *c, tutti::internal::GroupWish{id, {ranks, ranks + nranks}, nullptr, {}}, newcomm, config,
          [c](const tutti::internal::Settings& settings) { return c->epoch().check_split(settings); },
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

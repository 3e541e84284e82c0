// Makes communicators: of a new job, or from another one.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "api/configuration.h"
#include "api/groups.h"
#include "api/handles.h"

namespace tutti::internal::api {

// This rank's communicator of the job of that id: see tuttiCommInitRankConfig.
Status init_rank(tuttiComm_t* comm, int nranks, const tuttiUniqueId& id, int rank, const tuttiConfig_t* config);

// Makes a communicator by make(wish), which takes part in any case, so that no rank waits for this one.
// check(settings): whether `comm` allows them.
template <class Wish, class Check, class Make>
Status make_new(const Communicator& comm, Wish wish, tuttiComm_t* newcomm, const tuttiConfig_t* config, Check check,
                Make make) {
  std::optional<Settings> settings;
  std::uint64_t handle = 0;
  CommTable& table = CommTable::instance();
  if (wish.refused.is_ok())
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
      return check(*settings);
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

}  // namespace tutti::internal::api

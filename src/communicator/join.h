// How communicators are made: with a unique id, as the launcher's environment says, or all ranks of a job at once as
// threads of this process.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "communicator/communicator.h"
#include "join/join.h"

namespace tutti::internal {

// The settings that the environment holds, checked as far as they can be without a peer, on a machine without RDMA as
// well.
Result<Settings> checked_settings();
// What a caller sets itself, checked in the same way. Errors call the setting by this name.
Status check_transports(const Settings& settings, std::string_view name);
Status check_algorithm(const Settings& settings, std::string_view name);
Status check_verbs(const Settings& settings, std::string_view name);
Status check_device(const Settings& settings);

// Both collective: they return when all ranks have come, or at the init timeout at the latest. Any thread.
Result<std::unique_ptr<Communicator>> join_with_id(const UniqueIdBytes& id, int rank, int ranks,
                                                   const Settings& settings);
Result<std::unique_ptr<Communicator>> join_launched(const Settings& settings);

// In their place, by a rank that cannot take part, so that the others do not wait for it. Any thread.
void decline_with_id(const UniqueIdBytes& id, int rank, int ranks, const Status& why);
void decline_launched(const Status& why);

// One communicator for each rank, or the error of the rank that the others' errors are about. `devices`: by rank, CUDA
// devices or memory::kHost; none: the settings' for all, as this thread sees it. Any thread.
Result<std::vector<std::unique_ptr<Communicator>>> make_in_process(int ranks, std::span<const int> devices,
                                                                   const Settings& settings);

}  // namespace tutti::internal

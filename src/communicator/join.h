// Creates communicators: with a unique id, from the launcher's environment, or for all ranks of a job at once as
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

// The settings of the environment, checked as far as possible without a peer, also on a machine without RDMA.
Result<Settings> checked_settings();
// Checks in the same way what a caller sets. Errors use `name` for the setting.
Status check_transports(const Settings& settings, std::string_view name);
Status check_algorithm(const Settings& settings, std::string_view name);
Status check_verbs(const Settings& settings, std::string_view name);
Status check_device(const Settings& settings);

// Both are collective: they return when all ranks have joined, or at the init timeout at the latest. Any thread.
// `gives_up`: see Member. `call`: the program's, for those who look at the job meanwhile.
Result<std::unique_ptr<Communicator>> join_with_id(const UniqueIdBytes& id, int rank, int ranks,
                                                   const Settings& settings, ControlTree::GivesUp gives_up = {},
                                                   std::string_view call = "tuttiCommInitRank");
Result<std::unique_ptr<Communicator>> join_launched(const Settings& settings);

// Called instead of the two above by a rank that cannot take part, so that the others do not wait for it. Any thread.
void decline_with_id(const UniqueIdBytes& id, int rank, int ranks, const Status& why,
                     ControlTree::GivesUp gives_up = {});
void decline_launched(const Status& why);

// One communicator for each rank, or the original error of the rank that failed first. `devices`: by rank, CUDA devices
// or memory::kHost; empty: the settings' device for all, as this thread sees it. Any thread.
Result<std::vector<std::unique_ptr<Communicator>>> make_in_process(int ranks, std::span<const int> devices,
                                                                   const Settings& settings);

}  // namespace tutti::internal

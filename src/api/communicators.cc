// Library, communicators and memory of the C API.
#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/configuration.h"
#include "api/groups.h"
#include "api/handles.h"
#include "api/new_comm.h"
#include "base/log.h"
#include "calls/descriptions.h"
#include "communicator/binding.h"
#include "communicator/join.h"
#include "memory/region.h"
#include "streams/host_functions.h"

namespace tutti::internal::api {
namespace {

Status check_rank(tuttiComm_t* comm, int nranks, int rank) {
  if (comm == nullptr) return Status::invalid_argument("comm is NULL");
  if (nranks < 1) return Status::invalid_argument(fmt::format("nranks is {}; it must be at least 1", nranks));
  if (rank < 0 || rank >= nranks) {
    return Status::invalid_argument(
        fmt::format("rank {} of {}: ranks are numbered from 0 to nranks - 1", rank, nranks));
  }
  return {};
}

// *comm is written only on success. join(settings) makes the communicator together with the peers. If the call is
// refused before that, decline(why) sends the reason to the peers. `ranks`: 0 if join finds them.
template <class Join, class Decline>
Status make_comm(tuttiComm_t* comm, int ranks, const tuttiConfig_t* config, Join&& join, Decline&& decline) {
  CommTable& table = CommTable::instance();
  auto settings = settings_from(config);
  auto handle = settings.is_ok() ? table.reserve() : settings.status();
  const Status ready =
      handle.is_ok() ? guarded([&] { return bind_calling_thread(settings->bind, ranks); }) : handle.status();
  if (!ready.is_ok()) {
    if (handle.is_ok()) table.cancel(*handle);
    decline(ready);
    return ready;
  }
  std::unique_ptr<Communicator> communicator;
  Status made = guarded([&] {
    auto joined = join(*settings);
    if (joined.is_ok()) communicator = std::move(*joined);
    return joined.status();
  });
  if (!made.is_ok()) {
    table.cancel(*handle);
    return made;
  }
  table.open(*handle, std::move(communicator));
  *comm = reinterpret_cast<tuttiComm_t>(*handle);
  return {};
}

Status init_environment(tuttiComm_t* comm, const tuttiConfig_t* config) {
  if (comm == nullptr) return Status::invalid_argument("comm is NULL");
  // Without a launcher, only a job of one rank needs no address.
  const int ranks = environment_variable("TUTTI_WORLD_SIZE") == "1" ? 1 : 0;
  return make_comm(comm, ranks, config, join_launched, decline_launched);
}

Status init_all(tuttiComm_t* comms, int ndev, const int* devlist, const tuttiConfig_t* config) {
  if (ndev < 1) return Status::invalid_argument(fmt::format("ndev is {}; it must be at least 1", ndev));
  if (comms == nullptr) return Status::invalid_argument("comms is NULL");
  const std::span<const int> devices(devlist, devlist != nullptr ? static_cast<std::size_t>(ndev) : 0);
  if (std::any_of(devices.begin(), devices.end(), [](int d) { return d < memory::kHost; })) {
    return Status::invalid_argument("devlist has a number that is neither a CUDA device's nor -1 (host memory)");
  }
  const auto on_host = std::count(devices.begin(), devices.end(), memory::kHost);
  if (on_host != 0 && on_host != static_cast<std::ptrdiff_t>(devices.size())) {
    return Status::invalid_argument("devlist mixes CUDA devices and host memory (-1). Use one kind for all ranks");
  }
  auto settings = settings_from(config);
  if (!settings.is_ok()) return settings.status();
  CommTable& table = CommTable::instance();
  std::vector<std::uint64_t> handles;
  std::vector<std::unique_ptr<Communicator>> made;
  Status status = guarded([&]() -> Status {
    handles.reserve(static_cast<std::size_t>(ndev));
    for (int i = 0; i < ndev; ++i) {
      auto handle = table.reserve();
      if (!handle.is_ok()) return handle.status();
      handles.push_back(*handle);
    }
    auto communicators = make_in_process(ndev, devices, *settings);
    if (communicators.is_ok()) made = std::move(*communicators);
    return communicators.status();
  });
  for (std::size_t i = 0; i < handles.size(); ++i) {
    if (status.is_ok()) {
      table.open(handles[i], std::move(made[i]));
      comms[i] = reinterpret_cast<tuttiComm_t>(handles[i]);
    } else {
      table.cancel(handles[i]);
    }
  }
  return status;
}

Status create_id(const Settings& settings, tuttiUniqueId* id) {
  auto bytes = create_unique_id(settings);
  if (bytes.is_ok()) std::memcpy(id->internal, bytes->data(), bytes->size());
  return bytes.status();
}

}  // namespace

Status init_rank(tuttiComm_t* comm, int nranks, const tuttiUniqueId& id, int rank, const tuttiConfig_t* config) {
  if (Status s = check_rank(comm, nranks, rank); !s.is_ok()) return s;
  UniqueIdBytes bytes{};
  static_assert(sizeof bytes == sizeof id.internal);
  std::memcpy(bytes.data(), id.internal, bytes.size());
  return make_comm(
      comm, nranks, config, [&](const Settings& settings) { return join_with_id(bytes, rank, nranks, settings); },
      [&](const Status& why) { decline_with_id(bytes, rank, nranks, why); });
}

tuttiResult_t report(const Status& status, Communicator* comm) noexcept {
  if (status.is_ok()) return tuttiSuccess;
  if (status.code() == Code::kInProgress) return tuttiInProgress;  // no error
  if (ThreadRecord* const thread = this_thread(); thread != nullptr) thread->last_error = status;
  if (comm != nullptr) comm->failures().set_last_error(status);
  return static_cast<tuttiResult_t>(status.code());
}

tuttiResult_t report_refusal(const Status& status, Communicator* comm) noexcept {
  comm->note_refusal(status);
  return report(status);
}

tuttiResult_t refuse_in_operator(const char* name) noexcept {
  return report(guarded([&] {
    return Status::invalid_usage(
        fmt::format("{}: this thread runs a user-defined operator function, which must not call tutti. Make the call "
                    "after the operation has returned",
                    name));
  }));
}

tuttiResult_t report_refused(const Status& status, tuttiComm_t comm) {
  const Looking looking(number_of(comm));
  return report(status, looking.status().is_ok() ? looking.get() : nullptr);
}

}  // namespace tutti::internal::api

using namespace tutti::internal::api;  // NOLINT: this file is the C face of that namespace
using tutti::internal::Collective;
using tutti::internal::Communicator;
using tutti::internal::guarded;
using tutti::internal::HostFunctions;
using tutti::internal::Status;

tuttiResult_t tuttiGetVersion(int* version) {
  if (version == nullptr) return report(Status::invalid_argument("version is NULL"));
  *version = TUTTI_VERSION_CODE;
  return tuttiSuccess;
}

const char* tuttiGetErrorString(tuttiResult_t result) {
  switch (result) {
    case tuttiSuccess: return "no error";
    case tuttiUnhandledCudaError: return "a CUDA call failed";
    case tuttiSystemError: return "a system call failed";
    case tuttiInternalError: return "internal error, a defect in tutti";
    case tuttiInvalidArgument: return "invalid argument";
    case tuttiInvalidUsage: return "invalid usage";
    case tuttiRemoteError: return "a remote rank died, left or failed";
    case tuttiInProgress: return "operation in progress";
    case tuttiTimeout: return "timeout";
    case tuttiAborted: return "communicator aborted";
    case tuttiMismatch: return "ranks called different operations";
    case tuttiResultMax: break;
  }
  return "unknown result code";
}

const char* tuttiGetLastError(tuttiComm_t comm) {
  ThreadRecord* const thread = this_thread();
  if (thread == nullptr) return "out of memory";
  thread->told = thread->last_error;
  if (comm != nullptr) {
    const Status found = guarded([&] {
      const Looking looking(number_of(comm));
      if (looking.status().is_ok()) thread->told = looking->last_error();
      return Status();
    });
    if (!found.is_ok()) thread->told = found;
  }
  const Status& told = thread->told;
  // If there is no memory for the longer text, the shorter one stays.
  if (tutti::internal::log::has_controls(told.message()))
    (void)guarded(
        [&] { return thread->told = Status(told.code(), tutti::internal::log::printable(told.message())), Status(); });
  return thread->told.message().c_str();
}

tuttiResult_t tuttiGetUniqueId(tuttiUniqueId* id) {
  return entry([&] {
    if (id == nullptr) return report(Status::invalid_argument("id is NULL"));
    auto settings = tutti::internal::checked_settings();
    if (!settings.is_ok()) return report(settings.status());
    return report(create_id(*settings, id));
  });
}

tuttiResult_t tuttiCommGetUniqueId(tuttiComm_t comm, tuttiUniqueId* id) {
  return look(comm, [&](Communicator* c) {
    if (id == nullptr) return report(Status::invalid_argument("id is NULL"), c);
    return report(create_id(c->settings(), id).with_context("tuttiCommGetUniqueId"), c);
  });
}

tuttiResult_t tuttiCommInitRank(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank) {
  return entry([&] { return report(init_rank(comm, nranks, id, rank, nullptr).with_context("tuttiCommInitRank")); });
}

tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank,
                                      const tuttiConfig_t* config) {
  return entry(
      [&] { return report(init_rank(comm, nranks, id, rank, config).with_context("tuttiCommInitRankConfig")); });
}

tuttiResult_t tuttiCommInitEnv(tuttiComm_t* comm, const tuttiConfig_t* config) {
  return entry([&] { return report(init_environment(comm, config).with_context("tuttiCommInitEnv")); });
}

tuttiResult_t tuttiCommInitAll(tuttiComm_t* comms, int ndev, const int* devlist) {
  return entry([&] { return report(init_all(comms, ndev, devlist, nullptr).with_context("tuttiCommInitAll")); });
}

tuttiResult_t tuttiCommInitAllConfig(tuttiComm_t* comms, int ndev, const int* devlist, const tuttiConfig_t* config) {
  return entry([&] { return report(init_all(comms, ndev, devlist, config).with_context("tuttiCommInitAllConfig")); });
}

tuttiResult_t tuttiCommFinalize(tuttiComm_t comm) {
  return entry([&] {
    if (HostFunctions::runs_here()) return report_refused(HostFunctions::waits_here(), comm);
    const Operating operating(number_of(comm));
    if (!operating.status().is_ok()) return report_refused(operating.status(), comm);
    if (const Status open = check_no_group(number_of(comm)); !open.is_ok())
      return report_refused(open.with_context("tuttiCommFinalize"), comm);
    const Status finalized = operating->finalize();
    if (!finalized.is_ok()) operating->failures().state().set_told();
    return report(finalized);
  });
}

tuttiResult_t tuttiCommDestroy(tuttiComm_t comm) {
  return entry([&] {
    if (comm == nullptr) return tuttiSuccess;
    if (HostFunctions::runs_here()) return report_refused(HostFunctions::waits_here(), comm);
    if (const Status open = check_no_group(number_of(comm)); !open.is_ok())
      return report_refused(open.with_context("tuttiCommDestroy"), comm);
    Status finalized;
    const Status destroyed = tutti::internal::api::CommTable::instance().destroy(number_of(comm), &finalized);
    if (!destroyed.is_ok()) return report(destroyed.with_context("tuttiCommDestroy"));
    // Destroying a failed communicator is not an error of this call, except for a mismatch that has not been reported
    // yet.
    return finalized.code() == tutti::internal::Code::kMismatch ? report(finalized) : tuttiSuccess;
  });
}

tuttiResult_t tuttiCommAbort(tuttiComm_t comm) {
  return entry([&] { return report(tutti::internal::api::CommTable::instance().abort(number_of(comm))); });
}

tuttiResult_t tuttiCommRevoke(tuttiComm_t comm, int flags) {
  return look(comm, [&](Communicator* c) {
    if (flags != TUTTI_REVOKE_DEFAULT) {
      return report(
          Status::invalid_argument(fmt::format("tuttiCommRevoke: flags is {}. Pass TUTTI_REVOKE_DEFAULT (0)", flags)),
          c);
    }
    c->revoke();
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* error) {
  return look(comm, [&](Communicator* c) {
    if (error == nullptr) return report(Status::invalid_argument("error is NULL"), c);
    *error = static_cast<tuttiResult_t>(c->async_error().code());
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommCount(tuttiComm_t comm, int* count) {
  return look(comm, [&](Communicator* c) {
    if (count == nullptr) return report(Status::invalid_argument("count is NULL"), c);
    *count = c->ranks();
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int* rank) {
  return look(comm, [&](Communicator* c) {
    if (rank == nullptr) return report(Status::invalid_argument("rank is NULL"), c);
    *rank = c->rank();
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiCommCuDevice(tuttiComm_t comm, int* device) {
  return look(comm, [&](Communicator* c) {
    if (device == nullptr) return report(Status::invalid_argument("device is NULL"), c);
    *device = c->device();
    return tuttiSuccess;
  });
}

static_assert(tuttiCollectiveAllReduce == static_cast<int>(Collective::kAllReduce) &&
              tuttiCollectiveReduceScatter == static_cast<int>(Collective::kReduceScatter) &&
              tuttiCollectiveAllGather == static_cast<int>(Collective::kAllGather) &&
              tuttiCollectiveBroadcast == static_cast<int>(Collective::kBroadcast) &&
              tuttiCollectiveReduce == static_cast<int>(Collective::kReduce) &&
              tuttiCollectiveBarrier == static_cast<int>(Collective::kBarrier) &&
              tuttiCollectiveGather == static_cast<int>(Collective::kGather) &&
              tuttiCollectiveScatter == static_cast<int>(Collective::kScatter) &&
              tuttiCollectiveAlltoAll == static_cast<int>(Collective::kAllToAll) &&
              tuttiCollectiveScan == static_cast<int>(Collective::kScan) &&
              tuttiCollectiveExscan == static_cast<int>(Collective::kExscan) &&
              tuttiCollectiveAllGatherV == static_cast<int>(Collective::kAllGatherV) &&
              tuttiCollectiveReduceScatterV == static_cast<int>(Collective::kReduceScatterV) &&
              tuttiCollectiveAlltoAllV == static_cast<int>(Collective::kAllToAllV) &&
              tuttiCollectiveGatherV == static_cast<int>(Collective::kGatherV) &&
              tuttiCollectiveScatterV == static_cast<int>(Collective::kScatterV));

// A buffer of this size requests more than one line.
constexpr std::size_t kExplainedAtLength = 1024;

tuttiResult_t tuttiCommExplain(tuttiComm_t comm, tuttiCollective_t collective, size_t bytes, char* text, size_t size) {
  return look(comm, [&](Communicator* c) {
    if (text == nullptr) return report(Status::invalid_argument("text is NULL"), c);
    if (static_cast<unsigned>(collective) >= tutti::internal::kCollectives) {
      return report(Status::invalid_argument("collective is not a tuttiCollective_t"), c);
    }
    auto lines = c->describe_plan(static_cast<Collective>(collective), bytes, size >= kExplainedAtLength);
    if (!lines.is_ok()) return report(lines.status(), c);
    const std::string all = tutti::internal::lines_within(*lines, size);
    if (all.size() + 1 > size) {
      return report(
          Status::invalid_argument(fmt::format(
              "tuttiCommExplain: the text needs {} bytes, but size is {}. Pass a larger buffer", all.size() + 1, size)),
          c);
    }
    std::memcpy(text, all.c_str(), all.size() + 1);
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiMemAlloc(void** ptr, size_t size) {
  return entry([&] {
    if (ptr == nullptr) return report(Status::invalid_argument("ptr is NULL"));
    if (size == 0) return report(Status::invalid_argument("size is 0"));
    auto memory = tutti::internal::memory::RegionRegistry::instance().allocate(size);
    if (!memory.is_ok()) return report(memory.status().with_context("tuttiMemAlloc"));
    *ptr = *memory;
    return tuttiSuccess;
  });
}

tuttiResult_t tuttiMemFree(void* ptr) {
  return entry([&] {
    if (ptr == nullptr) return tuttiSuccess;
    return report(tutti::internal::memory::RegionRegistry::instance().free(ptr).with_context("tuttiMemFree"));
  });
}

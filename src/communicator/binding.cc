#include "communicator/binding.h"

#include <fmt/core.h>
#include <sched.h>

#include <cerrno>
#include <optional>

#include "base/log.h"
#include "join/launch/local_rank.h"
#include "os/bound_processors.h"
#include "topology/binding.h"

namespace tutti::internal {

Status bind_calling_thread(Bind bind, int ranks) {
  if (bind == Bind::kNone) return {};
  auto local = detect_local_rank(ranks == 1 ? std::optional<LocalRank>(LocalRank{}) : std::nullopt);
  if (!local.is_ok()) return local.status().with_context("TUTTI_BIND");
  const topology::ProcessorSet allowed = topology::allowed_processors();
  const topology::ProcessorSet share =
      topology::share_of(topology::this_machine(), allowed, bind, static_cast<std::size_t>(local->rank),
                         static_cast<std::size_t>(local->ranks));
  cpu_set_t processors;
  CPU_ZERO(&processors);
  for (std::size_t i = 0; i < topology::kMaxProcessors; ++i) {
    if (share[i]) CPU_SET(i, &processors);
  }
  if (share != allowed && ::sched_setaffinity(0, sizeof processors, &processors) != 0) {
    return Status::system("TUTTI_BIND: binding the thread", errno);
  }
  add_bound_processors(processors);
  log::info(fmt::format("TUTTI_BIND: local rank {} of {} {} processors {} of the {} that it could use", local->rank,
                        local->ranks, share != allowed ? "is bound to" : "stays with", topology::list_of(share),
                        topology::list_of(allowed)));
  return {};
}

}  // namespace tutti::internal

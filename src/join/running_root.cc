#include "join/running_root.h"

#include <algorithm>
#include <vector>

#include "os/fork.h"

namespace tutti::internal {
namespace {

struct Services {
  ForkMutex mutex;
  std::vector<std::shared_ptr<RunningRoot>> list TUTTI_GUARDED_BY(mutex);
};

// Of this process. Never destroyed, made when the library is loaded.
Services& services = *new Services;

}  // namespace

std::shared_ptr<RunningRoot> add_running_root(const Secret& secret) {
  auto running = std::make_shared<RunningRoot>(secret);
  const MutexLock lock(services.mutex);
  std::erase_if(services.list, [](const auto& other) { return other->ended(); });
  services.list.push_back(running);
  return running;
}

std::shared_ptr<const RunningRoot> find_running_root(const Secret& secret) {
  const MutexLock lock(services.mutex);
  const auto found = std::find_if(services.list.rbegin(), services.list.rend(),
                                  [&](const auto& running) { return running->serves(secret); });
  return found == services.list.rend() ? nullptr : *found;
}

}  // namespace tutti::internal

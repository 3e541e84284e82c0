// An RDMA context whose devices are open, or are opened when a link first needs them, with the memory registered with
// them.
//
// Threads: any. Only the first use of a device or of memory takes locks; messages take none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "memory/memory_monitor.h"
#include "memory/registration.h"
#include "os/mutex.h"
#include "transport/verbs/device.h"
#include "transport/verbs/options.h"
#include "transport/verbs/ports/ports.h"
#include "transport/verbs/rdma_context.h"

namespace tutti::internal::transport::verbs {

class OpenContext final : public RdmaContext,
                          public memory::Registrar,
                          public std::enable_shared_from_this<OpenContext> {
 public:
  OpenContext(const Options& options, std::vector<Port> ports);

  [[nodiscard]] const std::vector<Port>& ports() const override { return ports_; }
  [[nodiscard]] std::shared_ptr<LinkSet> make_link_set() override;

  [[nodiscard]] const Options& options() const { return options_; }
  [[nodiscard]] bool through_manager(const Port& port) const {
    return options_.connect == Connect::kManager ||
           (options_.connect == Connect::kAuto && port.fabric == Fabric::kIwarp);
  }
  // The device of port `index`; it lives as long as this object. Registrations found from then on include it.
  Result<Device*> device(std::size_t index) TUTTI_EXCLUDES(opening_, mutex_);
  [[nodiscard]] memory::RegistrationCache& registrations() { return registrations_; }
  // Whether user memory outside regions can be registered.
  [[nodiscard]] bool registers_any_memory() const { return watch_ != nullptr; }

 private:
  // Memory registered with all devices in use.
  struct Registration {
    std::array<Owned<ibv_mr>, kMaxRails> by_device;
  };

  Status register_memory(const std::byte* begin, std::size_t bytes, memory::RdmaKeys* keys,
                         std::uint64_t* handle) override TUTTI_EXCLUDES(mutex_);
  void deregister(std::uint64_t handle) override TUTTI_EXCLUDES(mutex_);

  const Options options_;
  const std::vector<Port> ports_;
  memory::MemoryMonitor* const watch_;
  Mutex opening_;  // held while a device is opened
  Mutex mutex_;
  std::vector<std::unique_ptr<Device>> devices_ TUTTI_GUARDED_BY(mutex_);  // by port; null until used
  std::map<std::uint64_t, Registration> by_handle_ TUTTI_GUARDED_BY(mutex_);
  std::uint64_t next_handle_ TUTTI_GUARDED_BY(mutex_) = 1;
  memory::RegistrationCache registrations_;
};

}  // namespace tutti::internal::transport::verbs

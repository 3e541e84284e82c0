// One open RDMA port: context, protection domain, properties. RAII for its objects.
//
// Threads: any.
#pragma once

#include <fmt/core.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <memory>
#include <string>

#include "base/status.h"
#include "os/mutex.h"
#include "transport/verbs/library.h"
#include "transport/verbs/ports/ports.h"

namespace tutti::internal::transport::verbs {

// Calls the library's destroyer of a handle.
template <class Handle>
class Owned {
 public:
  using Destroy = int (*)(Handle*);
  Owned() = default;
  Owned(Handle* handle, Destroy destroy) : handle_(handle), destroy_(destroy) {}
  Owned(Owned&& other) noexcept : handle_(other.handle_), destroy_(other.destroy_) { other.handle_ = nullptr; }
  Owned& operator=(Owned&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = other.handle_;
      destroy_ = other.destroy_;
      other.handle_ = nullptr;
    }
    return *this;
  }
  ~Owned() { reset(); }
  void reset() {
    if (handle_ != nullptr) (void)destroy_(handle_);
    handle_ = nullptr;
  }
  [[nodiscard]] Handle* get() const { return handle_; }
  Handle* operator->() const { return handle_; }

 private:
  Handle* handle_ = nullptr;
  Destroy destroy_ = nullptr;
};

class Device {
 public:
  // kSystemError with the fix. through_manager: uses librdmacm's context, which its queue pairs need.
  static Result<std::unique_ptr<Device>> open(const Port& port, bool through_manager);

  [[nodiscard]] const Library& library() const { return *library_; }
  [[nodiscard]] const Port& port() const { return port_; }
  [[nodiscard]] ibv_context* context() const { return context_; }
  [[nodiscard]] ibv_pd* domain() const { return domain_.get(); }
  [[nodiscard]] bool through_manager() const { return own_context_.get() == nullptr; }
  // "rxe0 port 1".
  [[nodiscard]] std::string name() const { return fmt::format("{} port {}", port_.device, port_.port); }

  // For local reads and writes and the peers' writes. kSystemError, which names the limit of locked memory if that was
  // reached. kInvalidArgument if freeing other registrations cannot help (memory that must not be written). `readable`:
  // also by the peer.
  Result<Owned<ibv_mr>> register_memory(const void* begin, std::size_t bytes, bool readable = false) const;

  // Processes the driver's reports since the last call: an error once the device is removed or broken. If a completion
  // queue has lost completions, its context, a std::atomic<bool>, becomes true.
  Status check_events() TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] Status gone(const std::string& why) const;
  // " (the port is down)" if the port went down and has not come up again; for messages.
  [[nodiscard]] std::string remark() const TUTTI_EXCLUDES(mutex_);

 private:
  friend struct DeviceFake;  // of tests
  Device() = default;
  const Library* library_ = nullptr;
  Port port_;
  Owned<ibv_context> own_context_;  // empty if it is librdmacm's
  ibv_context* context_ = nullptr;
  Owned<ibv_pd> domain_;
  mutable Mutex mutex_;
  bool port_down_ TUTTI_GUARDED_BY(mutex_) = false;
  Status broken_ TUTTI_GUARDED_BY(mutex_);
};

// " The limit of locked memory is ...": the fix for ENOMEM; empty for other errors or without a limit.
std::string locked_memory_hint(int error_number);

}  // namespace tutti::internal::transport::verbs

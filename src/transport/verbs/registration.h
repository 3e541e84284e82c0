// Registered memory of one rank: what its devices may read and write.
//
// Registering costs tens of microseconds and more, so user memory stays registered after its operation and is
// found again by address. What makes that safe is MemoryWatch, and for memory from tuttiMemAlloc its registry:
// an entry is used only if its pages are still those that were registered. Where neither can tell, nothing is
// kept and find() returns null: the transport copies through its own slots.
//
// Threads: one at a time, as the communicator that owns it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/transport.h"
#include "transport/verbs/devices.h"
#include "transport/verbs/memory_watch.h"

namespace tutti::transport::verbs {

// Local and remote keys of one range, by device (Adapter's order).
struct Keys {
  std::array<std::uint32_t, kMaxRails> local{};
  std::array<std::uint32_t, kMaxRails> remote{};
};

// Registers with all devices of a rank; the tests have one that only counts.
class Registrar {
 public:
  virtual ~Registrar() = default;
  // For local reads and writes and remote writes. kSystemError, e.g. where the limit of locked memory is reached.
  // `handle` names it for deregister().
  virtual Status register_memory(const std::byte* begin, std::size_t bytes, Keys* keys, std::uint64_t* handle) = 0;
  virtual void deregister(std::uint64_t handle) = 0;
};

class RegistrationCache {
 public:
  // registrar outlives the cache. watch: null where there is none. most_bytes: registered at once; what was not used
  // for longest goes first.
  RegistrationCache(Registrar& registrar, MemoryWatch* watch, std::size_t most_bytes);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // No operation is under way: deregisters what is no longer valid or too much. What find() has returned since the
  // last call is not used again.
  void begin_operation();

  // Keys that cover all of [source.base + source.begin, source.base + source.size), registered now if need be and kept
  // at least until the next begin_operation(). Null: copy instead (memory that cannot be watched or registered; the
  // reason is in trouble()). After a failure the same memory is not tried again before the next begin_operation().
  const Keys* find(const Source& source);

  // Why memory was last refused, for logs; empty if none was.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  // For tests and statistics.
  [[nodiscard]] std::size_t registered_bytes() const { return registered_bytes_; }

 private:
  std::string trouble_;
  std::size_t registered_bytes_ = 0;
};

}  // namespace tutti::transport::verbs

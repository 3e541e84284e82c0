// Registered memory of one rank: what its devices may read and write.
//
// Registering costs tens of microseconds and more, so user memory stays registered after its operation and is
// found again by address. What makes that safe is MemoryMonitor, and for memory from tuttiMemAlloc its registry:
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
#include "memory/memory_monitor.h"
#include "memory/source.h"

namespace tutti::internal::memory {

// RDMA devices that one rank uses at most.
inline constexpr std::size_t kMaxRails = 8;

// The keys of one registered range, by device (RdmaContext's order).
struct RdmaKeys {
  std::array<std::uint32_t, kMaxRails> lkeys{};
  std::array<std::uint32_t, kMaxRails> rkeys{};
};

// Registers with all devices of a rank; the tests have one that only counts.
class Registrar {
 public:
  virtual ~Registrar() = default;
  // For local reads and writes and remote writes. kSystemError, e.g. where the limit of locked memory is reached.
  // `handle` names it for deregister().
  virtual Status register_memory(const std::byte* begin, std::size_t bytes, RdmaKeys* keys, std::uint64_t* handle) = 0;
  virtual void deregister(std::uint64_t handle) = 0;
};

class RegistrationCache {
 public:
  // registrar outlives the cache. watch: null where there is none. most_bytes: registered at once; what was not used
  // for longest goes first.
  RegistrationCache(Registrar& registrar, MemoryMonitor* watch, std::size_t most_bytes);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // An operation begins, whose buffers are the caller's already, and none is under way: deregisters what is known to
  // be no longer valid. What find() has returned since the last call is not used again. A few nanoseconds where
  // nothing has changed.
  void begin_operation();
  // Deregisters everything: there is a device more. REQUIRES: no operation is under way.
  void clear();

  // Keys that cover all of [source.base + source.begin, source.base + source.size), registered now if need be and kept
  // at least until the next begin_operation(). Null: copy instead (memory that cannot be watched or registered; the
  // reason is in trouble()). After a failure the same memory is not tried again before the next begin_operation(),
  // and after each further one for longer. The first call of an operation makes one system call.
  const RdmaKeys* find(const Source& source) noexcept;

  // Why memory was last not registered; empty if all was. The first registration that fails is logged.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }
  // For tests and statistics.
  [[nodiscard]] std::size_t registered_bytes() const { return registered_bytes_; }

 private:
  using Range = MemoryMonitor::Range;

  struct Entry {
    const std::byte* end = nullptr;
    std::uint64_t region = 0;   // of tuttiMemAlloc, or 0: watched
    std::uint64_t used_in = 0;  // operation
    std::uint64_t handle = 0;
    // What its use has earned towards registering it again as part of something larger.
    std::size_t credit_bytes = 0;
    RdmaKeys keys;
  };
  // By first byte. Whole pages. They may overlap, as neighbours share a page, but none contains another: so they are
  // in the order of their ends as well, and of those that begin before a byte the last reaches farthest.
  using Entries = std::map<const std::byte*, Entry>;
  // Memory that could not be registered, which is not tried again before operation `until`.
  struct NegativeEntry {
    Range range;
    std::uint64_t until = 0;  // operation
    std::uint64_t operations = 0;
  };

  void apply_events();
  void drop(Range changed);
  void retire(Entries::iterator entry);
  void deregister(const Entries::value_type& entry);
  void touch(Entry& entry, std::size_t bytes) const;
  [[nodiscard]] Entries::iterator covering(Range range);
  [[nodiscard]] Entries::iterator first_overlapping(Range range);

  const RdmaKeys* add(Range range, std::uint64_t region);
  [[nodiscard]] bool may_grow(Range range, std::uint64_t region, Range* grown, std::size_t* credit);
  Status enter(Range range, std::uint64_t region, std::size_t credit, Entries::iterator* entry);
  [[nodiscard]] bool make_room(std::size_t bytes);
  bool evict_one();
  [[nodiscard]] bool has_negative_entry(Range range) const;
  void add_negative_entry(Range range, const Status& why);

  Registrar& registrar_;
  MemoryMonitor* const watch_;
  const std::size_t most_bytes_;
  Entries entries_;
  // No longer found, but used in this operation.
  std::multimap<const std::byte*, Entry> retired_;
  std::vector<NegativeEntry> negative_entries_;
  std::vector<Range> changed_;
  std::uint64_t operation_ = 1;
  std::uint64_t seen_ = 0;
  std::uint64_t region_generation_ = 0;
  bool asked_ = false;    // this operation has asked the watch to report all changes,
  bool drained_ = false;  // and it has
  std::string trouble_;
  bool logged_ = false;
  std::size_t registered_bytes_ = 0;
};

}  // namespace tutti::internal::memory

// Registered memory of one rank, which its devices may read and write.
//
// Registering costs tens of microseconds and more, so user memory stays registered after its operation and is found
// again by address. MemoryMonitor, and for memory from tuttiMemAlloc its registry, make that safe: an entry is used
// only if its pages are still those that were registered. If neither can detect changes, nothing is kept and find()
// returns null: then the transport copies through its slots.
//
// One cache serves all communicators of a family (RegistrationCache). Each communicator has a RegistrationUser, which
// stores the registrations of its operation and asks the cache for others. So the lock is taken once per operation and
// buffer, not per message. While one communicator registers, others that need a new registration wait; the kernel also
// serialises the pinning of pages.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/memory_monitor.h"
#include "memory/source.h"
#include "os/mutex.h"

namespace tutti::internal::memory {

// The maximum of RDMA devices of one rank.
inline constexpr std::size_t kMaxRails = 8;

// The keys of one registered range, by device (RdmaContext's order).
struct RdmaKeys {
  std::array<std::uint32_t, kMaxRails> lkeys{};
  std::array<std::uint32_t, kMaxRails> rkeys{};
};

// Registers with all devices of a rank; the tests have one that only counts. One thread at a time calls it, under the
// cache's lock.
class Registrar {
 public:
  virtual ~Registrar() = default;
  // For local reads and writes and remote writes. kSystemError, e.g. if the limit of locked memory is reached. `handle`
  // names it for deregister().
  virtual Status register_memory(const std::byte* begin, std::size_t bytes, RdmaKeys* keys, std::uint64_t* handle) = 0;
  virtual void deregister(std::uint64_t handle) = 0;
};

class RegistrationUser;

// Threads: any.
class RegistrationCache {
 public:
  // registrar outlives the cache, which outlives its users. watch: null if there is none. most_bytes: limit of
  // registered memory; the least recently used entry is deregistered first.
  RegistrationCache(Registrar& registrar, MemoryMonitor* watch, std::size_t most_bytes);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // A device was added: earlier registrations are no longer found. Registrations that operations hold stay valid for
  // them, with the earlier devices.
  void forget_all() TUTTI_EXCLUDES(mutex_);

  // For tests and statistics.
  [[nodiscard]] std::size_t registered_bytes() TUTTI_EXCLUDES(mutex_);

 private:
  friend class RegistrationUser;
  using Range = MemoryMonitor::Range;

  struct Registered {
    const std::byte* end = nullptr;
    std::uint64_t region = 0;  // of tuttiMemAlloc, or 0: watched
    std::uint64_t handle = 0;
    // Credit from its use for registering it again as part of a larger range.
    std::size_t credit_bytes = 0;
    std::uint64_t last_use = 0;  // as uses_ was then
    std::uint32_t holders = 0;   // users whose operation holds it: it stays registered
    bool retired = false;        // no longer found
    RdmaKeys keys;
  };
  // By first byte. Whole pages. They may overlap, because neighbours share a page, but none contains another. So they
  // are also in the order of their ends, and of those that begin before a byte, the last one reaches farthest.
  using Entries = std::map<const std::byte*, Registered>;
  using Element = Entries::value_type;

  // For users, which hold the result until they release it.
  const RdmaKeys* find(Range range, std::uint64_t region, RegistrationUser* user) TUTTI_EXCLUDES(mutex_);
  void release(const std::vector<Element*>& held) TUTTI_EXCLUDES(mutex_);
  // Processes changes, if there are any. A few nanoseconds if there are none.
  void catch_up() TUTTI_EXCLUDES(mutex_);

  void apply_events() TUTTI_REQUIRES(mutex_);
  void drop(Range changed) TUTTI_REQUIRES(mutex_);
  void retire(Entries::iterator entry) TUTTI_REQUIRES(mutex_);
  void deregister(const Element& entry) TUTTI_REQUIRES(mutex_);
  void give(Element* entry, std::size_t bytes, RegistrationUser* user) TUTTI_REQUIRES(mutex_);
  [[nodiscard]] Entries::iterator covering(Range range) TUTTI_REQUIRES(mutex_);
  [[nodiscard]] Entries::iterator first_overlapping(Range range) TUTTI_REQUIRES(mutex_);

  const RdmaKeys* add(Range range, std::uint64_t region, RegistrationUser* user) TUTTI_REQUIRES(mutex_);
  [[nodiscard]] bool may_grow(Range range, std::uint64_t region, RegistrationUser* user, Range* grown,
                              std::size_t* credit) TUTTI_REQUIRES(mutex_);
  Status enter(Range range, std::uint64_t region, std::size_t credit) TUTTI_REQUIRES(mutex_);
  [[nodiscard]] bool make_room(std::size_t bytes) TUTTI_REQUIRES(mutex_);
  bool evict_one() TUTTI_REQUIRES(mutex_);

  Registrar& registrar_;
  MemoryMonitor* const watch_;
  const std::size_t most_bytes_;
  Mutex mutex_;
  Entries entries_ TUTTI_GUARDED_BY(mutex_);
  // No longer found, but held by some user.
  std::multimap<const std::byte*, Registered> retired_ TUTTI_GUARDED_BY(mutex_);
  std::vector<Range> changed_ TUTTI_GUARDED_BY(mutex_);
  std::uint64_t uses_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::size_t registered_bytes_ TUTTI_GUARDED_BY(mutex_) = 0;
  bool logged_ TUTTI_GUARDED_BY(mutex_) = false;
  // Written under the lock; read without it only to check for new changes.
  std::atomic<std::uint64_t> seen_{0};
  std::atomic<std::uint64_t> region_generation_{0};
};

// One communicator's use of the cache. Threads: one at a time, as the communicator.
class RegistrationUser {
 public:
  explicit RegistrationUser(RegistrationCache& cache) : cache_(cache) {}
  // REQUIRES: no operation is in progress.
  ~RegistrationUser();
  RegistrationUser(const RegistrationUser&) = delete;
  RegistrationUser& operator=(const RegistrationUser&) = delete;

  // Called at the begin of an operation, while no other of this communicator is in progress. Deregisters invalid
  // entries that no other communicator uses. Results of find() since the last call are not used again. A few
  // nanoseconds if nothing has changed and nothing was found.
  void begin_operation();

  // Keys that cover all of [source.base + source.begin, source.base + source.size), registered now if needed, and kept
  // at least until the next begin_operation(), whatever other communicators do. Null: the memory cannot be watched or
  // registered (trouble() has the reason); copy it in all of this operation. After a failure the same memory is not
  // tried again before the next begin_operation(), and after each further failure for longer. The first call of an
  // operation makes one system call.
  const RdmaKeys* find(const Source& source) noexcept;

  // Why memory was last not registered; empty if all was. The first failure of a cache is logged.
  [[nodiscard]] const std::string& trouble() const { return trouble_; }

 private:
  friend class RegistrationCache;
  using Range = RegistrationCache::Range;
  using Element = RegistrationCache::Element;
  // Memory that could not be registered, which is not tried again before operation `until`.
  struct NegativeEntry {
    Range range;
    std::uint64_t until = 0;  // operation
    std::uint64_t operations = 0;
  };

  [[nodiscard]] const RdmaKeys* find_held(Range range) const;
  [[nodiscard]] bool is_refused(Range range) const;
  static bool begins_before(const Element* a, const Element* b) { return a->first < b->first; }
  // For the cache.
  [[nodiscard]] bool holds(const Element* entry) const;
  void hold(Element* entry);
  [[nodiscard]] bool has_negative_entry(Range range) const;
  void add_negative_entry(Range range);

  RegistrationCache& cache_;
  std::vector<Element*> held_;  // by first byte; of equal ones the newest last
  std::vector<Range> refused_;  // in this operation
  std::vector<NegativeEntry> negative_entries_;
  std::uint64_t operation_ = 1;
  bool asked_ = false;    // this operation has drained the watch,
  bool drained_ = false;  // successfully
  std::string trouble_;
};

}  // namespace tutti::internal::memory

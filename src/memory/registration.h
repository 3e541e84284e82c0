// Registered memory of one rank: what its devices may read and write.
//
// Registering costs tens of microseconds and more, so user memory stays registered after its operation and is
// found again by address. What makes that safe is MemoryMonitor, and for memory from tuttiMemAlloc its registry:
// an entry is used only if its pages are still those that were registered. Where neither can tell, nothing is
// kept and find() returns null: the transport copies through its own slots.
//
// One cache serves all communicators of a family (RegistrationCache); each uses it by a part of its own
// (RegistrationUser), which knows what its operation has been given and asks the cache for the rest. So the lock is
// taken once per operation and buffer, and by no message. While one communicator registers, others that ask for a
// buffer for the first time wait: pinning pages takes turns in the kernel, too.
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

// RDMA devices that one rank uses at most.
inline constexpr std::size_t kMaxRails = 8;

// The keys of one registered range, by device (RdmaContext's order).
struct RdmaKeys {
  std::array<std::uint32_t, kMaxRails> lkeys{};
  std::array<std::uint32_t, kMaxRails> rkeys{};
};

// Registers with all devices of a rank; the tests have one that only counts. Called by one thread at a time, under the
// cache's lock.
class Registrar {
 public:
  virtual ~Registrar() = default;
  // For local reads and writes and remote writes. kSystemError, e.g. where the limit of locked memory is reached.
  // `handle` names it for deregister().
  virtual Status register_memory(const std::byte* begin, std::size_t bytes, RdmaKeys* keys, std::uint64_t* handle) = 0;
  virtual void deregister(std::uint64_t handle) = 0;
};

class RegistrationUser;

// Threads: any.
class RegistrationCache {
 public:
  // registrar outlives the cache, which outlives its users. watch: null where there is none. most_bytes: registered at
  // once; what was not used for longest goes first.
  RegistrationCache(Registrar& registrar, MemoryMonitor* watch, std::size_t most_bytes);
  ~RegistrationCache();
  RegistrationCache(const RegistrationCache&) = delete;
  RegistrationCache& operator=(const RegistrationCache&) = delete;

  // There is a device more: from now on nothing is found that was registered before. What operations have been given
  // stays registered for them, with the devices that there were.
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
    // What its use has earned towards registering it again as part of something larger.
    std::size_t credit_bytes = 0;
    std::uint64_t last_use = 0;  // as uses_ was then
    std::uint32_t holders = 0;   // users whose operation has been given it: it stays registered
    bool retired = false;        // no longer found
    RdmaKeys keys;
  };
  // By first byte. Whole pages. They may overlap, as neighbours share a page, but none contains another: so they are
  // in the order of their ends as well, and of those that begin before a byte the last reaches farthest.
  using Entries = std::map<const std::byte*, Registered>;
  using Element = Entries::value_type;

  // For users. What they are given is theirs until they release it.
  const RdmaKeys* find(Range range, std::uint64_t region, RegistrationUser* user) TUTTI_EXCLUDES(mutex_);
  void release(const std::vector<Element*>& held) TUTTI_EXCLUDES(mutex_);
  // Takes note of changes, if there are any. A few nanoseconds where there are none.
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
  // Written under the lock; without it they only tell whether there is something to take note of.
  std::atomic<std::uint64_t> seen_{0};
  std::atomic<std::uint64_t> region_generation_{0};
};

// What one communicator uses of the cache. Threads: one at a time, as the communicator.
class RegistrationUser {
 public:
  explicit RegistrationUser(RegistrationCache& cache) : cache_(cache) {}
  // No operation is under way.
  ~RegistrationUser();
  RegistrationUser(const RegistrationUser&) = delete;
  RegistrationUser& operator=(const RegistrationUser&) = delete;

  // An operation begins, whose buffers are the caller's already, and none of this communicator is under way:
  // deregisters what is known to be no longer valid, and in no other communicator's use. What find() has returned since
  // the last call is not used again. A few nanoseconds where nothing has changed and nothing was found.
  void begin_operation();

  // Keys that cover all of [source.base + source.begin, source.base + source.size), registered now if need be and kept
  // at least until the next begin_operation(), whatever other communicators do. Null: copy instead (memory that cannot
  // be watched or registered; the reason is in trouble()), in all of this operation. After a failure the same memory is
  // not tried again before the next begin_operation(), and after each further one for longer. The first call of an
  // operation makes one system call.
  const RdmaKeys* find(const Source& source) noexcept;

  // Why memory was last not registered; empty if all was. The first registration of a cache that fails is logged.
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
  bool asked_ = false;    // this operation has asked the watch to report all changes,
  bool drained_ = false;  // and it has
  std::string trouble_;
};

}  // namespace tutti::internal::memory

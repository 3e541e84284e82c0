// A registrar that only counts, and the shared parts of the tests of registered memory.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "catch_compat.h"
#include "memory/registration.h"
#include "os/mutex.h"

namespace tutti::internal::memory::test {

inline const std::size_t kPage = MemoryMonitor::page_bytes();

// Like pinning: makes every page present and private to this process. The first and the last page may contain memory of
// others, to which AddressSanitizer would object.
[[gnu::no_sanitize_address]] inline void touch(const std::byte* begin, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kPage) {
    volatile std::byte& byte = *const_cast<std::byte*>(begin + at);
    byte = byte;
  }
}

// A handle is also the key of all devices, so that a user with keys can ask about their registration, in any thread;
// the other functions by one thread at a time, like the cache. fault() must be empty at the end.
class CountingRegistrar final : public Registrar {
 public:
  CountingRegistrar() = default;
  CountingRegistrar(const CountingRegistrar&) = delete;
  CountingRegistrar& operator=(const CountingRegistrar&) = delete;
  ~CountingRegistrar() override = default;

  Status register_memory(const std::byte* begin, std::size_t bytes, RdmaKeys* keys, std::uint64_t* handle) override {
    if (reinterpret_cast<std::uintptr_t>(begin) % kPage != 0 || bytes % kPage != 0) fault_ = "not whole pages";
    if (fail_next > 0) {
      --fail_next;
      return Status(Code::kSystemError, "the limit of locked memory");
    }
    if (bytes > most_bytes - bytes_) return Status(Code::kSystemError, "the device is full");
    if (on_register) on_register();
    if (touches_pages) touch(begin, bytes);
    ++registered;
    registered_bytes += bytes;
    *handle = ++last_;
    const MutexLock lock(mutex_);
    live_[last_] = bytes;
    bytes_ += bytes;
    for (std::uint32_t& key : keys->lkeys) key = static_cast<std::uint32_t>(last_);
    keys->rkeys = keys->lkeys;
    return {};
  }

  void deregister(std::uint64_t handle) override {
    const MutexLock lock(mutex_);
    const auto at = live_.find(handle);
    if (at == live_.end()) {
      fault_ = "deregistered twice";
      return;
    }
    bytes_ -= at->second;
    live_.erase(at);
  }

  [[nodiscard]] bool is_live(const RdmaKeys* keys) {
    const MutexLock lock(mutex_);
    return keys != nullptr && live_.count(keys->lkeys[0]) == 1;
  }
  [[nodiscard]] std::size_t live() {
    const MutexLock lock(mutex_);
    return live_.size();
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] const std::string& fault() const { return fault_; }

  int registered = 0;                // number of registrations,
  std::size_t registered_bytes = 0;  // and their bytes in total
  int fail_next = 0;
  std::size_t most_bytes = SIZE_MAX;
  bool touches_pages = true;
  std::function<void()> on_register;

 private:
  Mutex mutex_;
  std::map<std::uint64_t, std::size_t> live_ TUTTI_GUARDED_BY(mutex_);
  std::uint64_t last_ = 0;
  std::size_t bytes_ = 0;
  std::string fault_;
};

// A registrar, its cache and a user of the cache; checks at the end that nothing is left registered.
class Cache {
 public:
  explicit Cache(MemoryMonitor* watch, std::size_t most_bytes = SIZE_MAX)
      : cache_(std::in_place, registrar, watch, most_bytes), user_(std::in_place, *cache_) {}
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  ~Cache() {
    CHECK(cache_->registered_bytes() == registrar.bytes());
    user_.reset();
    cache_.reset();
    CHECK(registrar.live() == 0);
    CHECK(registrar.fault() == "");
  }
  RegistrationUser* operator->() { return &*user_; }
  [[nodiscard]] RegistrationCache& shared() { return *cache_; }
  [[nodiscard]] std::size_t registered_bytes() { return cache_->registered_bytes(); }

  // In a new operation.
  const RdmaKeys* next(const std::byte* begin, std::size_t bytes, std::uint64_t region = 0) {
    user_->begin_operation();
    return find(begin, bytes, region);
  }
  // Like next(), but waits until the watch is at rest: on an oversubscribed machine an operation may get no
  // registration.
  const RdmaKeys* at_rest(const std::byte* begin, std::size_t bytes) {
    const RdmaKeys* keys = nullptr;
    for (int i = 0; i < 1000 && keys == nullptr; ++i) keys = next(begin, bytes);
    return keys;
  }
  const RdmaKeys* find(const std::byte* begin, std::size_t bytes, std::uint64_t region = 0) {
    Source source;
    source.base = begin;
    source.size = bytes;
    source.region = region;
    return user_->find(source);
  }

  CountingRegistrar registrar;

 private:
  std::optional<RegistrationCache> cache_;
  std::optional<RegistrationUser> user_;
};

// Pages of anonymous memory at an address that the kernel or the caller chooses.
class Pages {
 public:
  explicit Pages(std::size_t pages, std::byte* where = nullptr, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1)
      : bytes_(pages * kPage) {
    void* p = ::mmap(where, bytes_, PROT_READ | PROT_WRITE, flags | (where != nullptr ? MAP_FIXED : 0), fd, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(p);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { unmap(); }
  void unmap() {
    if (begin_ != nullptr) ::munmap(begin_, bytes_);
    begin_ = nullptr;
  }
  // An address that the kernel does not choose by itself, because it fills the address space from the top: memory that
  // is unmapped and mapped again there is not reused in between, for example by a sanitizer's allocator.
  static std::byte* apart() {
    constexpr std::uintptr_t kFirst = 0x7e9000000000;  // the sanitizers allow it
    constexpr std::uintptr_t kDistance = 16 << 20;
    static std::atomic<std::uintptr_t> next{kFirst};
    return reinterpret_cast<std::byte*>(next.fetch_add(kDistance));
  }
  // The caller unmaps it.
  std::byte* release() { return std::exchange(begin_, nullptr); }
  [[nodiscard]] std::byte* at(std::size_t page) const { return begin_ + page * kPage; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t bytes_;
};

}  // namespace tutti::internal::memory::test

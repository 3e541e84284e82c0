#include "rendezvous.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "failure.h"

namespace tutti_torch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kOperation = "init";
// Both ranks of a pair are there, and only have to connect.
constexpr std::chrono::milliseconds kPairTimeout{60'000};
// How much later than the others rank 0 may begin, of an attempt that follows on one which died while it began.
constexpr std::chrono::seconds kReplaced{5};
constexpr std::chrono::milliseconds kFirstPause{1};
constexpr std::chrono::milliseconds kLongestPause{50};

int in_int(std::chrono::milliseconds time) {
  return static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(time.count(), 1, INT_MAX));
}

void publish_id(c10d::Store& store, const std::string& key, tuttiUniqueId* id) {
  check(tuttiGetUniqueId(id), kOperation);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(id->internal);
  store.set(key, std::vector<std::uint8_t>(bytes, bytes + sizeof id->internal));
}

void read_id(c10d::Store& store, const std::string& key, tuttiUniqueId* id) {
  const std::vector<std::uint8_t> bytes = store.get(key);
  if (bytes.size() != sizeof id->internal) {
    std::rethrow_exception(backend_error(kOperation, "the store holds no unique id of tutti under " + key));
  }
  std::memcpy(id->internal, bytes.data(), bytes.size());
}

tuttiResult_t try_init(const tuttiUniqueId& id, const Place& place, std::chrono::milliseconds init_timeout,
                       std::chrono::milliseconds timeout, tuttiComm_t* comm, const std::string& device = {}) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  if (!device.empty()) config.device = device.c_str();
  config.init_timeout_ms = in_int(init_timeout);
  config.timeout_ms = in_int(timeout);
  return tuttiCommInitRankConfig(comm, place.ranks, id, place.rank, &config);
}

// Other attempts of the job, which may have the same store, must not find it. A store that cannot forget keeps it.
void withdraw(c10d::Store& store, const std::string& key) {
  try {
    (void)store.deleteKey(key);
  } catch (const std::exception&) {
  }
}

// Whether the store gets another id before the deadline.
bool changes(c10d::Store& store, const std::string& key, const tuttiUniqueId& id, Clock::time_point deadline) {
  for (; Clock::now() < deadline; std::this_thread::sleep_for(kLongestPause)) {
    if (!store.check({key})) continue;
    tuttiUniqueId other;
    read_id(store, key, &other);
    if (std::memcmp(&other, &id, sizeof id) != 0) return true;
  }
  return false;
}

// An id for which nobody listens may be left over from an attempt that died while it began: then rank 0 of this one
// will replace it.
tuttiComm_t join_published(c10d::Store& store, const std::string& key, const Place& place,
                           std::chrono::milliseconds timeout, tuttiUniqueId* id) {
  const Clock::time_point deadline = Clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    try {
      store.wait({key}, std::max(left, std::chrono::milliseconds(1)));
    } catch (const std::exception& e) {
      std::rethrow_exception(backend_error(kOperation, std::string("rank 0 has not come to the store: ") + e.what()));
    }
    read_id(store, key, id);
    tuttiComm_t comm = nullptr;
    const tuttiResult_t result = try_init(*id, place, left, timeout, &comm);
    if (result == tuttiSuccess) return comm;
    const std::exception_ptr error = backend_error(kOperation, error_text(result, nullptr));
    const bool stale =
        result == tuttiRemoteError && changes(store, key, *id, std::min(deadline, Clock::now() + kReplaced));
    if (!stale) std::rethrow_exception(error);
  }
}

std::string name_of(const tuttiUniqueId& id) {
  const std::size_t hash = std::hash<std::string_view>()({id.internal, sizeof id.internal});
  return std::to_string(hash);
}

}  // namespace

Joined join(c10d::Store& store, const Place& place, std::chrono::milliseconds timeout) {
  const std::string key = "tutti/id";
  tuttiUniqueId id;
  Joined joined;
  if (place.rank == 0) {
    publish_id(store, key, &id);
    check(try_init(id, place, timeout, timeout, &joined.comm), kOperation);
    withdraw(store, key);
  } else {
    joined.comm = join_published(store, key, place, timeout, &id);
  }
  joined.name = name_of(id);
  return joined;
}

tuttiComm_t join_pair(c10d::Store& store, const std::string& key, int rank, std::chrono::milliseconds timeout,
                      const std::function<std::string()>& gives_up, const std::string& device) {
  const auto wait_for = [&](const std::string& awaited) {
    for (auto pause = kFirstPause; !store.check({awaited}); pause = std::min(pause * 2, kLongestPause)) {
      if (const std::string why = gives_up(); !why.empty()) throw std::runtime_error(why);
      std::this_thread::sleep_for(pause);
    }
  };
  // Each says that it is there when the other waits for that alone: one may have come, and died, long before.
  const std::string own = key + (rank == 0 ? "/id" : "/there");
  const std::vector<std::uint8_t> here{1};
  tuttiUniqueId id;
  try {
    if (rank == 0) {
      wait_for(key + "/there");
      publish_id(store, own, &id);
      wait_for(key + "/joins");
    } else {
      store.set(own, here);
      wait_for(key + "/id");
      read_id(store, key + "/id", &id);
      store.set(key + "/joins", here);
    }
  } catch (...) {
    withdraw(store, own);
    throw;
  }
  tuttiComm_t comm = nullptr;
  const tuttiResult_t result = try_init(id, {rank, 2}, std::min(kPairTimeout, timeout), timeout, &comm, device);
  // Both have read what they need, or begin anew.
  withdraw(store, own);
  if (rank != 0) withdraw(store, key + "/joins");
  check(result, kOperation);
  return comm;
}

}  // namespace tutti_torch

#include "rendezvous.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "failure.h"

namespace tutti_torch {
namespace {

constexpr const char* kOperation = "init";
// Both ranks of a pair are there, and only have to connect.
constexpr std::chrono::milliseconds kPairTimeout{60'000};
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

tuttiComm_t init(const tuttiUniqueId& id, const Place& place, std::chrono::milliseconds init_timeout,
                 std::chrono::milliseconds timeout) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.init_timeout_ms = in_int(init_timeout);
  config.timeout_ms = in_int(timeout);
  tuttiComm_t comm = nullptr;
  check(tuttiCommInitRankConfig(&comm, place.ranks, id, place.rank, &config), kOperation);
  return comm;
}

}  // namespace

tuttiComm_t join(c10d::Store& store, const std::string& key, const Place& place, std::chrono::milliseconds timeout) {
  tuttiUniqueId id;
  if (place.rank == 0) {
    publish_id(store, key, &id);
  } else {
    try {
      store.wait({key}, timeout);
    } catch (const std::exception& e) {
      std::rethrow_exception(backend_error(kOperation, std::string("rank 0 has not come to the store: ") + e.what()));
    }
    read_id(store, key, &id);
  }
  return init(id, place, timeout, timeout);
}

tuttiComm_t join_pair(c10d::Store& store, const std::string& key, int rank, std::chrono::milliseconds timeout,
                      const std::function<bool()>& gives_up) {
  const auto wait_for = [&](const std::string& awaited) {
    for (auto pause = kFirstPause; !store.check({awaited}); pause = std::min(pause * 2, kLongestPause)) {
      if (gives_up()) return false;
      std::this_thread::sleep_for(pause);
    }
    return true;
  };
  tuttiUniqueId id;
  if (rank == 0) {
    if (!wait_for(key + "/there")) return nullptr;
    publish_id(store, key + "/id", &id);
  } else {
    store.set(key + "/there", std::vector<std::uint8_t>{1});
    if (!wait_for(key + "/id")) return nullptr;
    read_id(store, key + "/id", &id);
  }
  return init(id, {rank, 2}, kPairTimeout, timeout);
}

}  // namespace tutti_torch

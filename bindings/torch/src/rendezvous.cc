#include "rendezvous.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
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

using Bytes = std::vector<std::uint8_t>;

template <class Thing>
Bytes bytes_of(const Thing& thing) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&thing);
  return {bytes, bytes + sizeof thing};
}

// Rank 0's message to the others: a unique id for a new communicator, or the id of a group of the world.
Bytes told_of_group(const World::Found& world, std::uint64_t id) {
  Bytes bytes = bytes_of(id);
  bytes.insert(bytes.end(), world.name.begin(), world.name.end());
  return bytes;
}

template <class Thing>
Thing read_as(const Bytes& bytes, const std::string& key) {
  Thing thing;
  if (bytes.size() < sizeof thing) {
    std::rethrow_exception(backend_error(kOperation, "the store holds no id of tutti under " + key));
  }
  std::memcpy(&thing, bytes.data(), sizeof thing);
  return thing;
}

tuttiConfig_t config_of(std::chrono::milliseconds init_timeout, std::chrono::milliseconds timeout,
                        const std::string& device) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  if (!device.empty()) config.device = device.c_str();
  config.init_timeout_ms = in_int(init_timeout);
  config.timeout_ms = in_int(timeout);
  if (!device.empty()) config.survivors = "off";  // which works on host memory only
  return config;
}

tuttiResult_t try_init(const tuttiUniqueId& id, const RankInGroup& place, std::chrono::milliseconds init_timeout,
                       std::chrono::milliseconds timeout, tuttiComm_t* comm) {
  const tuttiConfig_t config = config_of(init_timeout, timeout, {});
  return tuttiCommInitRankConfig(comm, place.ranks, id, place.rank, &config);
}

tuttiResult_t try_group(tuttiComm_t parent, std::uint64_t id, const std::vector<int>& ranks,
                        std::chrono::milliseconds init_timeout, std::chrono::milliseconds timeout, tuttiComm_t* comm,
                        const std::string& device = {}) {
  const tuttiConfig_t config = config_of(init_timeout, timeout, device);
  return tuttiCommCreateGroup(parent, id, static_cast<int>(ranks.size()), ranks.data(), comm, &config);
}

// Other attempts of the job, which may have the same store, must not find it. A store that cannot forget keeps it.
void withdraw(c10d::Store& store, const std::string& key) {
  try {
    (void)store.deleteKey(key);
  } catch (const std::exception&) {
  }
}

// Whether the store gets another id before the deadline.
bool changes(c10d::Store& store, const std::string& key, const Bytes& id, Clock::time_point deadline) {
  for (; Clock::now() < deadline; std::this_thread::sleep_for(kLongestPause)) {
    if (store.check({key}) && store.get(key) != id) return true;
  }
  return false;
}

std::string name_of(const tuttiUniqueId& id) {
  const std::size_t hash = std::hash<std::string_view>()({id.internal, sizeof id.internal});
  return std::to_string(hash);
}

std::string name_of(const World::Found& world, std::uint64_t id) {
  return world.name + "." + std::to_string(id);
}

// By what rank 0 has told. *why: of a failure.
tuttiResult_t join_told(const Bytes& told, const std::string& key, const RankInGroup& place,
                        const std::vector<int>& ranks, std::chrono::milliseconds left,
                        std::chrono::milliseconds timeout, Joined* joined, std::string* why) {
  tuttiResult_t result = tuttiSuccess;
  if (told.size() == sizeof(tuttiUniqueId)) {
    const auto id = read_as<tuttiUniqueId>(told, key);
    result = try_init(id, place, left, timeout, &joined->comm);
    joined->name = name_of(id);
  } else {
    const auto id = read_as<std::uint64_t>(told, key);
    const auto world = World::find(ranks[static_cast<std::size_t>(place.rank)]);
    if (!world || told_of_group(*world, id) != told) {
      *why = "rank 0 of the group shares the connections of a default group that this rank is not in";
      return tuttiRemoteError;
    }
    result = try_group(world->comm, id, ranks, left, timeout, &joined->comm);
    joined->name = name_of(*world, id);
  }
  if (result != tuttiSuccess) *why = failure_text(result, nullptr);
  return result;
}

// get() waits for as long as the store's timeout, which torch sets to that of the default group: then it saves a
// message to the store and back.
Bytes wait_for_published(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout,
                         std::chrono::milliseconds left) {
  const Clock::time_point deadline = Clock::now() + left;
  try {
    if (store.getTimeout() != timeout || left < timeout) store.wait({key}, left);
    return store.get(key);
  } catch (const std::exception& e) {
    const char* const late = Clock::now() >= deadline ? kTimedOut : "";
    std::rethrow_exception(backend_error(kOperation, c10::str(late, "rank 0 has not come to the store: ", e.what())));
  }
}

// If no process listens for an id, it may be left over from an earlier attempt that died at its start; rank 0 of this
// attempt then replaces it.
Joined join_published(c10d::Store& store, const std::string& key, const RankInGroup& place,
                      const std::vector<int>& ranks, std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const Bytes told = wait_for_published(store, key, timeout, std::max(left, std::chrono::milliseconds(1)));
    Joined joined;
    std::string why;
    const tuttiResult_t result = join_told(told, key, place, ranks, left, timeout, &joined, &why);
    if (result == tuttiSuccess) return joined;
    const bool stale =
        result == tuttiRemoteError && changes(store, key, told, std::min(deadline, Clock::now() + kReplaced));
    if (!stale) std::rethrow_exception(backend_error(kOperation, why));
  }
}

// As rank 0.
Joined publish(c10d::Store& store, const std::string& key, const RankInGroup& place, const std::vector<int>& ranks,
               std::chrono::milliseconds timeout) {
  Joined joined;
  const auto world = ranks.empty() ? std::nullopt : World::find(ranks.front());
  if (world) {
    std::uint64_t id = 0;
    check(tuttiCommGetGroupId(world->comm, &id), kOperation);
    store.set(key, told_of_group(*world, id));
    check(try_group(world->comm, id, ranks, timeout, timeout, &joined.comm), kOperation);
    joined.name = name_of(*world, id);
  } else {
    tuttiUniqueId id;
    check(tuttiGetUniqueId(&id), kOperation);
    store.set(key, bytes_of(id));
    check(try_init(id, place, timeout, timeout, &joined.comm), kOperation);
    joined.name = name_of(id);
  }
  withdraw(store, key);
  return joined;
}

struct Known {
  std::string name;
  int rank = 0;
  std::function<tuttiComm_t()> comm;
};

struct Worlds {
  std::mutex mutex;
  std::vector<Known> known;
};

// Never destroyed: groups may end after the interpreter has.
Worlds& worlds() {
  static auto* const all = new Worlds;
  return *all;
}

}  // namespace

void World::set(std::string name, int rank, std::function<tuttiComm_t()> comm) {
  const std::lock_guard<std::mutex> lock(worlds().mutex);
  std::erase_if(worlds().known, [](const Known& one) { return one.comm() == nullptr; });
  worlds().known.push_back({std::move(name), rank, std::move(comm)});
}

std::optional<World::Found> World::find(int rank) {
  const std::lock_guard<std::mutex> lock(worlds().mutex);
  std::optional<Found> found;
  for (const Known& one : worlds().known) {
    const tuttiComm_t comm = one.comm();
    if (comm == nullptr) continue;
    if (found || one.rank != rank) return std::nullopt;
    found = Found{comm, one.name};
  }
  return found;
}

Joined join(c10d::Store& store, const RankInGroup& place, std::chrono::milliseconds timeout,
            const std::vector<int>& ranks_in_world) {
  const std::string key = "tutti/id";
  if (place.rank == 0) return publish(store, key, place, ranks_in_world, timeout);
  return join_published(store, key, place, ranks_in_world, timeout);
}

tuttiComm_t join_pair(c10d::Store& store, const std::string& key, const Pair& pair, int rank,
                      std::chrono::milliseconds timeout, const std::function<std::string()>& gives_up,
                      const std::string& device) {
  const auto wait_for = [&](const std::string& awaited) {
    for (auto pause = kFirstPause; !store.check({awaited}); pause = std::min(pause * 2, kLongestPause)) {
      if (const std::string why = gives_up(); !why.empty()) throw std::runtime_error(why);
      std::this_thread::sleep_for(pause);
    }
  };
  // Each says that it is there when the other waits for that alone: one may have come, and died, long before.
  const std::string own = key + (rank == 0 ? "/id" : "/there");
  const Bytes here{1};
  std::uint64_t id = 0;
  try {
    if (rank == 0) {
      wait_for(key + "/there");
      check(tuttiCommGetGroupId(pair.group, &id), kOperation);
      store.set(own, bytes_of(id));
      wait_for(key + "/joins");
    } else {
      store.set(own, here);
      wait_for(key + "/id");
      id = read_as<std::uint64_t>(store.get(key + "/id"), key);
      store.set(key + "/joins", here);
    }
  } catch (...) {
    withdraw(store, own);
    throw;
  }
  tuttiComm_t comm = nullptr;
  const tuttiResult_t result =
      try_group(pair.group, id, {pair.first, pair.second}, std::min(kPairTimeout, timeout), timeout, &comm, device);
  // Both ranks have read the keys, or restart with new ones.
  withdraw(store, own);
  if (rank != 0) withdraw(store, key + "/joins");
  check(result, kOperation);
  return comm;
}

}  // namespace tutti_torch

#include "lanes.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "config.h"
#include "progress.h"
#include "recovery.h"

namespace tutti::mpi {

constexpr std::size_t kSlots = 64;     // of a pool: the ranks agree by the bits of a word
constexpr std::size_t kMostKept = 64;  // lanes with a slot that a process has, of all pools

// The lanes of the same processes in the same order.
struct Pool {
  std::array<Lane*, kSlots> lanes = {};
  std::uint64_t idle = 0;                    // slots of released lanes that no call offers to the other ranks
  std::uint64_t vacant = ~std::uint64_t{0};  // slots without a lane that no call offers
};

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::vector<int>, std::unique_ptr<Pool>> pools;  // by the ranks in MPI_COMM_WORLD
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<Lane*> surplus;
};
// Never freed: attributes of communicators are deleted whenever the MPI library likes.
Registry& registry() {
  static auto* const kRegistry = new Registry;
  return *kRegistry;
}

std::uint64_t bit_of(int slot) {
  return slot < 0 ? 0 : std::uint64_t{1} << static_cast<unsigned>(slot);
}

// The lowest slot of these; -1: there is none.
int first_of(std::uint64_t slots) {
  return slots == 0 ? -1 : std::countr_zero(slots);
}

Pool& pool_of(const Asking& asking) {
  const std::vector<int> world_ranks = ranks_in_world(asking.handle, asking.ranks);
  const std::lock_guard lock(registry().mutex);
  std::unique_ptr<Pool>& pool = registry().pools[world_ranks];
  if (pool == nullptr) pool = std::make_unique<Pool>();
  return *pool;
}

// Whether a quarter of the process's file limit stays free if another lane is made. Each lane may need a few
// descriptors for every peer, but only from its first use on. tutti raises the soft limit by its need, as far as the
// hard limit allows.
bool descriptors_left(int ranks) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  constexpr rlim_t kOfEach = 24;
  constexpr rlim_t kOfEachPeer = 4;
  const std::lock_guard lock(registry().mutex);
  rlim_t needed = kOfEach + kOfEachPeer * static_cast<rlim_t>(ranks - 1);
  for (const auto& lane : registry().lanes) needed += kOfEach + kOfEachPeer * static_cast<rlim_t>(lane->ranks - 1);
  return needed <= limit.rlim_max / 4 * 3;
}

bool may_keep_more() {
  const std::lock_guard lock(registry().mutex);
  const auto& lanes = registry().lanes;
  return static_cast<std::size_t>(
             std::count_if(lanes.begin(), lanes.end(), [](const auto& lane) { return lane->slot >= 0; })) < kMostKept;
}

// The lane of a pool that one call offers to the other ranks; no other call offers one at the same time.
class Offer {
 public:
  explicit Offer(Pool& pool) : pool_(pool) {
    const std::lock_guard lock(registry().mutex);
    idle_ = std::exchange(pool.idle, 0);
    vacant_ = std::exchange(pool.vacant, 0);
    for (std::uint64_t left = idle_; left != 0; left &= left - 1) {
      const int slot = first_of(left);
      tuttiResult_t failure = tuttiSuccess;
      tuttiCommGetAsyncError(pool.lanes[static_cast<std::size_t>(slot)]->comm, &failure);
      if (failure == tuttiSuccess) continue;
      idle_ &= ~bit_of(slot);
      registry().surplus.push_back(pool.lanes[static_cast<std::size_t>(slot)]);
    }
  }
  ~Offer() {
    const std::lock_guard lock(registry().mutex);
    pool_.idle |= idle_;
    pool_.vacant |= vacant_;
  }
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;

  [[nodiscard]] std::uint64_t idle() const { return idle_; }
  [[nodiscard]] std::uint64_t vacant() const { return vacant_; }
  Lane* take(int slot) {
    idle_ &= ~bit_of(slot);
    return pool_.lanes[static_cast<std::size_t>(slot)];
  }
  // slot: -1 for none.
  void put(int slot, Lane* lane) {
    const std::lock_guard lock(registry().mutex);
    vacant_ &= ~bit_of(slot);
    lane->pool = &pool_;
    lane->slot = slot;
    if (slot >= 0) pool_.lanes[static_cast<std::size_t>(slot)] = lane;
  }

 private:
  Pool& pool_;
  std::uint64_t idle_ = 0;
  std::uint64_t vacant_ = 0;
};

// A rank's report to the others about its part; the lowest value of all ranks counts.
enum Made : int {
  kUnreadable,  // one of libtutti's variables
  kNotMade,
  kMade = 3,  // so the lowest value is the bitwise AND
};

struct Attempt {
  tuttiResult_t result = tuttiSystemError;
  tuttiComm_t comm = nullptr;
  std::string why;  // of a failure; tutti's own text may change while MPI makes progress
};

// The binding passes valid arguments, so the user's arguments are wrong.
Made made_of(tuttiResult_t result) {
  if (result == tuttiSuccess) return kMade;
  return result == tuttiInvalidUsage || result == tuttiInvalidArgument ? kUnreadable : kNotMade;
}

void report(const Asking& asking, const Attempt& attempt, bool none_is_served) {
  std::fprintf(stderr, "tutti: rank %d: %s; %s\n", asking.rank, attempt.why.c_str(),
               none_is_served ? "all collectives go to the MPI library" : "the MPI library serves this communicator");
}

// The ranks agree: all have it, or none keeps it. error: of the MPI library.
Reason agree(const Asking& asking, Attempt& attempt, int& error) {
  int everywhere = made_of(attempt.result);
  error = agree_on(asking.handle, everywhere);
  if (error == MPI_SUCCESS && everywhere == kMade) return Reason::kNone;
  const bool unreadable = error == MPI_SUCCESS && everywhere == kUnreadable;
  // That of the world is the first: where it cannot be made for this no other is tried.
  if (attempt.result != tuttiSuccess && error == MPI_SUCCESS) {
    report(asking, attempt, unreadable && asking.handle == MPI_COMM_WORLD);
  }
  if (attempt.comm != nullptr) tuttiCommAbort(attempt.comm);
  attempt.comm = nullptr;
  return unreadable ? Reason::kUnreadable : Reason::kFailed;
}

Attempt join(const Asking& asking) {
  struct {
    tuttiUniqueId id;
    int result;
    char why[512];
  } message = {};
  if (asking.rank == 0) {
    message.result = static_cast<int>(tuttiGetUniqueId(&message.id));
    if (message.result != tuttiSuccess) {
      std::snprintf(message.why, sizeof message.why, "rank 0: %s", tuttiGetLastError(nullptr));
    }
  }
  Attempt attempt;
  attempt.why = "MPI_Bcast has failed, or a rank has died";
  const int error = PMPI_Bcast(&message, static_cast<int>(sizeof message), MPI_BYTE, 0, asking.handle);
  // tutti would wait until the init timeout for a rank that does not join.
  if (!hold_all(asking.handle, error == MPI_SUCCESS)) return attempt;
  attempt.result = static_cast<tuttiResult_t>(message.result);
  attempt.why = message.why;
  if (attempt.result != tuttiSuccess) return attempt;
  // MPI programs wait as long as it takes, for a rank that writes its results. The end of a process is noticed all the
  // same, and a host that is gone after the init timeout, as an operation's timeout of INT_MAX does not count for that.
  tuttiConfig_t settings = TUTTI_CONFIG_INITIALIZER;
  if (!config().has_timeout) settings.timeout_ms = INT_MAX;
  settings.survivors = "off";  // an MPI program expects the error
  const Inside inside;
  attempt.result = tuttiCommInitRankConfig(&attempt.comm, asking.ranks, message.id, asking.rank, &settings);
  if (attempt.result != tuttiSuccess) attempt.why = tuttiGetLastError(nullptr);
  return attempt;
}

// All ranks make theirs, or none does.
Attempt split(const Asking& asking) {
  Attempt attempt;
  const Inside inside;
  attempt.result = tuttiCommSplit(asking.parent, 0, asking.rank, &attempt.comm, nullptr);
  if (attempt.result != tuttiSuccess) {
    attempt.why = tuttiGetLastError(asking.parent);
    report(asking, attempt, false);
  }
  return attempt;
}

Lane* remember(std::unique_ptr<Lane> lane) {
  const std::lock_guard lock(registry().mutex);
  registry().lanes.push_back(std::move(lane));
  return registry().lanes.back().get();
}

void destroy(std::vector<Lane*>& lanes) {
  std::sort(lanes.begin(), lanes.end(), [](const Lane* a, const Lane* b) { return a->turn < b->turn; });
  const Inside inside;
  for (Lane* lane : lanes) {
    if (lane->stream != nullptr) tuttiStreamDestroy(lane->stream);
    tuttiCommDestroy(lane->comm);
  }
  const std::lock_guard lock(registry().mutex);
  for (Lane* lane : lanes) {
    if (lane->slot >= 0) {
      lane->pool->lanes[static_cast<std::size_t>(lane->slot)] = nullptr;
      lane->pool->vacant |= bit_of(lane->slot);
    }
    std::erase_if(registry().lanes, [lane](const auto& other) { return other.get() == lane; });
  }
}

// The words that the ranks exchange: the result of each word has the bits that all ranks have set.
struct Words {
  std::uint64_t idle;
  std::uint64_t vacant;
  std::uint64_t consents;
  std::uint64_t turn;  // of a lane that is made: drawn by rank 0
};
enum : std::uint64_t { kThreadsBit = 1, kFilesBit = 2, kServedBit = 4, kKeptBit = 8 };

// Returns an MPI error code.
int exchange(const Asking& asking, const Offer& offer, Words& common) {
  Words mine = {offer.idle(), offer.vacant(), 0, ~std::uint64_t{0}};
  if (progress_possible()) mine.consents |= kThreadsBit;
  if (descriptors_left(asking.ranks)) mine.consents |= kFilesBit;
  if (asking.reason == Reason::kNone) mine.consents |= kServedBit;
  if (may_keep_more()) mine.consents |= kKeptBit;
  if (asking.rank == 0) {
    std::random_device random;
    mine.turn = std::uint64_t{random()} << 32U | random();
  }
  constexpr int kWords = sizeof(Words) / sizeof(std::uint64_t);
  return PMPI_Allreduce(&mine, &common, kWords, MPI_UINT64_T, MPI_BAND, asking.handle);
}

// Why no lane is given; `makes`: one would be made.
Reason objection(const Words& common, bool makes) {
  if ((common.consents & kServedBit) == 0) return Reason::kShort;
  if ((common.consents & kThreadsBit) == 0) return Reason::kThreads;
  return makes && (common.consents & kFilesBit) == 0 ? Reason::kFiles : Reason::kNone;
}

// reason kNone, or why there is none. error: of the MPI library.
Reason make_comm(const Asking& asking, tuttiComm_t& comm, int& error) {
  Attempt attempt = asking.parent != nullptr ? split(asking) : join(asking);
  Reason reason = attempt.result == tuttiSuccess ? Reason::kNone : Reason::kFailed;
  // A split agrees as well, except if a rank dies in it.
  if (asking.parent == nullptr || config().recovers) reason = agree(asking, attempt, error);
  comm = attempt.comm;
  return reason;
}

}  // namespace

std::vector<int> ranks_in_world(MPI_Comm handle, int ranks) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  PMPI_Comm_group(handle, &group);
  std::vector<int> here(static_cast<std::size_t>(ranks));
  std::vector<int> there(here.size(), MPI_UNDEFINED);
  std::iota(here.begin(), here.end(), 0);
  PMPI_Group_translate_ranks(group, ranks, here.data(), world, there.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  return there;
}

Given take_lane(const Asking& asking) {
  destroy_surplus_lanes();
  Offer offer(pool_of(asking));
  const ErrorsReturned returned(asking.handle);
  Words common = {};
  Given given;
  given.error = exchange(asking, offer, common);
  const int idle = first_of(common.idle);
  given.reason = given.error == MPI_SUCCESS ? objection(common, idle < 0) : Reason::kFailed;
  if (given.reason != Reason::kNone) return given;
  if (idle >= 0) {
    given.lane = offer.take(idle);
    return given;
  }
  auto lane = std::make_unique<Lane>();
  given.reason = make_comm(asking, lane->comm, given.error);
  if (given.reason != Reason::kNone) return given;
  lane->ranks = asking.ranks;
  lane->turn = common.turn;
  given.lane = remember(std::move(lane));
  given.made = true;
  offer.put((common.consents & kKeptBit) != 0 ? first_of(common.vacant) : -1, given.lane);
  return given;
}

void release_lane(Lane& lane) {
  const std::lock_guard lock(registry().mutex);
  if (lane.slot < 0) {
    registry().surplus.push_back(&lane);
  } else {
    lane.pool->idle |= bit_of(lane.slot);
  }
}

void destroy_surplus_lanes() {
  std::vector<Lane*> surplus;
  {
    const std::lock_guard lock(registry().mutex);
    if (registry().surplus.empty()) return;
    surplus.swap(registry().surplus);
  }
  destroy(surplus);
}

void destroy_all_lanes() {
  std::vector<Lane*> all;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& lane : registry().lanes) all.push_back(lane.get());
    registry().surplus.clear();
  }
  destroy(all);
}

}  // namespace tutti::mpi

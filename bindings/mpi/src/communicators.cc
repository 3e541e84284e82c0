#include "communicators.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "config.h"
#include "operators.h"
#include "persistent.h"
#include "progress.h"
#include "recovery.h"
#include "requests.h"

namespace tutti::mpi {

std::atomic<unsigned> communicator_generation{1};

namespace {

struct Registry {
  std::mutex mutex;
  int keyval = MPI_KEYVAL_INVALID;
  std::vector<Communicator*> all;
  bool ending = false;  // forget_all_communicators() is to come
  bool ended = false;
};
// Never freed: attributes are deleted whenever the MPI library likes.
Registry& registry() {
  static auto* const kRegistry = new Registry;
  return *kRegistry;
}

Communicator* passed_on(Reason reason) {
  static auto* const kAlways = [] {
    auto* all = new std::array<Communicator, static_cast<std::size_t>(Reason::kReasons)>;
    for (std::size_t at = 0; at < all->size(); ++at) (*all)[at].reason = static_cast<Reason>(at);
    return all;
  }();
  return &(*kAlways)[static_cast<std::size_t>(reason)];
}

// Whether requests still need it. The registry's mutex is held.
bool is_needed(const Communicator& communicator) {
  const auto& all = registry().all;
  return std::find(all.begin(), all.end(), &communicator) != all.end() && communicator.held > 0;
}

// In place of the handle of one that is freed: for what is packed, and for errors, which go to the same handler and
// name it as before.
MPI_Comm stand_in(MPI_Comm handle) {
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  if (PMPI_Comm_get_errhandler(handle, &handler) != MPI_SUCCESS) return MPI_COMM_WORLD;
  if (make_own_self(made) == MPI_SUCCESS) {
    PMPI_Comm_set_errhandler(made, handler);
    std::array<char, MPI_MAX_OBJECT_NAME> name{};
    int length = 0;
    if (PMPI_Comm_get_name(handle, name.data(), &length) == MPI_SUCCESS) PMPI_Comm_set_name(made, name.data());
  }
  PMPI_Errhandler_free(&handler);
  return made == MPI_COMM_NULL ? MPI_COMM_WORLD : made;
}

// Of stand_in().
void free_stand_in(MPI_Comm handle) {
  if (handle != MPI_COMM_WORLD) PMPI_Comm_free(&handle);
}

// True if it goes on without its MPI communicator.
bool outlive(Communicator& communicator) {
  {
    const std::lock_guard lock(registry().mutex);
    if (!is_needed(communicator)) return false;
    if (communicator.outlived) return true;
  }
  const MPI_Comm handle = stand_in(communicator.handle);
  {
    const std::lock_guard lock(registry().mutex);
    if (is_needed(communicator)) {
      communicator.outlived = true;
      communicator.handle = handle;
      return true;
    }
  }
  free_stand_in(handle);
  return false;
}

int on_delete(MPI_Comm /*handle*/, int /*keyval*/, void* value, void* /*extra*/) {
  auto* communicator = static_cast<Communicator*>(value);
  communicator_generation.fetch_add(1, std::memory_order_acq_rel);
  if (outlive(*communicator)) return MPI_SUCCESS;
  {
    const std::lock_guard lock(registry().mutex);
    // The end of MPI may have come first.
    if (std::erase(registry().all, communicator) == 0) return MPI_SUCCESS;
  }
  finish_requests_of(*communicator);
  delete communicator;
  return MPI_SUCCESS;
}

// The MPI library's own function for this would be needed when the binding is loaded.
int on_copy(MPI_Comm /*handle*/, int /*keyval*/, void* /*extra*/, void* /*value*/, void* /*copy*/, int* copies) {
  *copies = 0;
  return MPI_SUCCESS;
}

int keyval() {
  const std::lock_guard lock(registry().mutex);
  if (registry().keyval == MPI_KEYVAL_INVALID) {
    PMPI_Comm_create_keyval(on_copy, on_delete, &registry().keyval, nullptr);
  }
  return registry().keyval;
}

void keep(Communicator* communicator, MPI_Comm handle) {
  communicator->handle = handle;
  {
    const std::lock_guard lock(registry().mutex);
    registry().all.push_back(communicator);
  }
  PMPI_Comm_set_attr(handle, keyval(), communicator);
}

// Whether all its processes are of this one's MPI_COMM_WORLD. Others, which one of these has started or met, may be
// without the binding, or have other settings: no rank can know, and none may ask.
bool is_of_one_world(MPI_Comm handle, int ranks) {
  const std::vector<int> world_ranks = ranks_in_world(handle, ranks);
  return std::find(world_ranks.begin(), world_ranks.end(), MPI_UNDEFINED) == world_ranks.end();
}

// Registers an intracommunicator at its first collective. Asks no other rank.
Communicator* meet(MPI_Comm handle) {
  let_go_of_left();
  auto communicator = std::make_unique<Communicator>();
  PMPI_Comm_rank(handle, &communicator->rank);
  PMPI_Comm_size(handle, &communicator->ranks);
  communicator->reason = Reason::kFew;
  if (!is_of_one_world(handle, communicator->ranks)) communicator->reason = Reason::kOtherWorld;
  if (communicator->ranks == 1) communicator->reason = Reason::kOneRank;
  Communicator* kept = communicator.release();
  keep(kept, handle);
  return kept;
}

bool is_held(const Communicator& communicator) {
  const std::lock_guard lock(registry().mutex);
  return communicator.held > 0;
}

// The communicator stays alive, but is removed from the handle's attributes. REQUIRES: the caller holds it.
void part_from(MPI_Comm handle, Communicator& communicator) {
  outlive(communicator);
  PMPI_Comm_delete_attr(handle, keyval());
}

Communicator* remember(MPI_Comm handle, unsigned generation, Communicator* communicator) {
  last_found = {handle, generation, communicator};
  return communicator;
}

bool between_init_and_finalize() {
  int initialized = 0;
  int finalized = 0;
  PMPI_Initialized(&initialized);
  PMPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0 && !registry().ended;
}

}  // namespace

void Communicator::leave_tutti() {
  operators.clear();
  {
    const std::lock_guard lock(registry().mutex);
    comm = nullptr;
  }
  if (lane != nullptr) release_lane(*std::exchange(lane, nullptr));
}

Communicator::~Communicator() {
  leave_tutti();
}

Communicator* find_slowly(MPI_Comm handle) {
  if (config().off) return passed_on(Reason::kOff);
  if (config().unreadable) return passed_on(Reason::kUnreadable);
  if (!between_init_and_finalize()) return passed_on(Reason::kOutside);
  if (handle == MPI_COMM_NULL) return passed_on(Reason::kArgument);
  const unsigned generation = communicator_generation.load(std::memory_order_acquire);
  void* value = nullptr;
  int has = 0;
  if (PMPI_Comm_get_attr(handle, keyval(), static_cast<void*>(&value), &has) != MPI_SUCCESS) {
    return passed_on(Reason::kArgument);
  }
  auto* communicator = static_cast<Communicator*>(value);
  if (has == 0) {
    int inter = 0;
    PMPI_Comm_test_inter(handle, &inter);
    if (inter != 0) return passed_on(Reason::kInter);
    communicator = meet(handle);
  }
  return remember(handle, generation, communicator);
}

Reason why_not_yet(const Communicator& communicator, Making making) {
  const bool due = communicator.calls >= config().after;
  if (making == Making::kNow || (making == Making::kWhenDue && due)) return Reason::kNone;
  return due ? Reason::kNotMade : Reason::kFew;
}

int make_tutti(Communicator& communicator) {
  const Timer timer;
  const Given given = take_lane({communicator.handle, communicator.rank, communicator.ranks, nullptr, Reason::kNone});
  {
    const std::lock_guard lock(registry().mutex);
    communicator.reason = given.reason;
    communicator.lane = given.lane;
    if (given.lane != nullptr) communicator.comm = given.lane->comm;
  }
  count_making(given.made && communicator.rank == 0, timer);
  return given.error;
}

void heed_revocations() {
  const std::lock_guard lock(registry().mutex);
  for (Communicator* communicator : registry().all) {
    if (communicator->comm == nullptr || communicator->outlived || communicator->revoked) continue;
    if (!is_revoked(communicator->handle)) continue;
    communicator->revoked = true;
    tuttiCommRevoke(communicator->comm, TUTTI_REVOKE_DEFAULT);
    revoke_persistents_of(*communicator);
  }
}

bool is_refusal(int error) {
  static constexpr std::array kRefusals = {MPI_ERR_BUFFER, MPI_ERR_COUNT, MPI_ERR_TYPE, MPI_ERR_COMM,
                                           MPI_ERR_ROOT,   MPI_ERR_OP,    MPI_ERR_ARG,  MPI_ERR_REQUEST};
  int kind = MPI_SUCCESS;
  PMPI_Error_class(error, &kind);
  return std::find(kRefusals.begin(), kRefusals.end(), kind) != kRefusals.end();
}

void count_taken(Communicator& communicator) {
  communicator.calls = std::min(communicator.calls + 1, config().after);
}

Given take_lane_beside(const Communicator& communicator, Reason reason) {
  const Timer timer;
  const Given given =
      take_lane({communicator.handle, communicator.rank, communicator.ranks, communicator.comm, reason});
  count_making(given.made && communicator.rank == 0, timer);
  return given;
}

void forget_communicator(MPI_Comm handle) {
  if (handle == MPI_COMM_NULL || !between_init_and_finalize()) return;
  void* value = nullptr;
  int has = 0;
  if (PMPI_Comm_get_attr(handle, keyval(), static_cast<void*>(&value), &has) != MPI_SUCCESS || has == 0) return;
  auto* communicator = static_cast<Communicator*>(value);
  let_go_of_left();
  if (runs_request_of(*communicator) || is_held(*communicator)) {
    // The call must not wait for requests, as peers may come to them only later.
    hold(*communicator);
    part_from(handle, *communicator);
    hold_for_requests_of(*communicator);
    let_go(*communicator);
    return;
  }
  if (communicator->comm == nullptr) return;
  // The attribute's destructor frees the rest.
  communicator->leave_tutti();
  communicator->reason = Reason::kFailed;
  destroy_surplus_lanes();
}

thread_local bool making_own_self __attribute__((tls_model("initial-exec"))) = false;

int make_own_self(MPI_Comm& made) {
  static std::mutex one_at_a_time;  // as MPI asks of the calls of a communicator
  const std::lock_guard lock(one_at_a_time);
  making_own_self = true;
  const int error = PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &made);
  making_own_self = false;
  return error;
}

bool makes_own_self() {
  return making_own_self;
}

void hold(Communicator& communicator) {
  const std::lock_guard lock(registry().mutex);
  ++communicator.held;
}

void let_go(Communicator& communicator) {
  {
    const std::lock_guard lock(registry().mutex);
    if (--communicator.held > 0 || !communicator.outlived || registry().ending) return;
    std::erase(registry().all, &communicator);
  }
  free_stand_in(communicator.handle);
  delete &communicator;
  destroy_surplus_lanes();
}

void let_go_soon(Communicator& communicator) {
  {
    const std::lock_guard lock(registry().mutex);
    if (communicator.held > 1 || !communicator.outlived || registry().ending) {
      --communicator.held;
      return;
    }
  }
  let_go_later(communicator);
}

void end_in_turn() {
  const std::lock_guard lock(registry().mutex);
  registry().ending = true;
}

void forget_all_communicators() {
  std::vector<Communicator*> all;
  {
    const std::lock_guard lock(registry().mutex);
    all.swap(registry().all);
    registry().ended = true;
  }
  communicator_generation.fetch_add(1, std::memory_order_acq_rel);
  for (Communicator* communicator : all) {
    end_requests_of(*communicator);
    if (communicator->outlived) free_stand_in(communicator->handle);
    delete communicator;
  }
  destroy_all_lanes();
  forget_datatypes();
}

}  // namespace tutti::mpi

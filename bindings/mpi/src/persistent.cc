#include "persistent.h"

#include <mutex>
#include <set>
#include <unordered_map>

#include "exceptions.h"
#include "requests.h"

namespace tutti::mpi {

std::atomic<int> live_persistents{0};

namespace {

struct Table {
  std::mutex mutex;
  std::unordered_map<MPI_Request, std::unique_ptr<Persistent>> all;
  std::vector<MPI_Comm> selves;  // communicators of this process alone, each for as many as there are tags
  std::set<int> free;            // numbers of requests that have been freed
  int most = 0;                  // numbers that have been used
};
Table& table() {
  static auto* const kTable = new Table;
  return *kTable;
}

constexpr int kTags = 32768;  // which every MPI library has

// The mutex is held.
int take_number(Table& of) {
  if (of.free.empty()) return of.most++;
  const int number = *of.free.begin();
  of.free.erase(of.free.begin());
  return number;
}

int self_of(Table& of, int number, MPI_Comm& self) {
  const auto index = static_cast<std::size_t>(number / kTags);
  while (of.selves.size() <= index) {
    MPI_Comm made = MPI_COMM_NULL;
    const int error = make_own_self(made);
    if (error != MPI_SUCCESS) return error;
    of.selves.push_back(made);
  }
  self = of.selves[index];
  return MPI_SUCCESS;
}

int number_of(const Table& of, const Persistent& persistent) {
  int number = persistent.tag;
  for (std::size_t at = 0; at < of.selves.size() && of.selves[at] != persistent.self; ++at) number += kTags;
  return number;
}

Persistent* find(MPI_Request request) {
  const std::lock_guard lock(table().mutex);
  const auto found = table().all.find(request);
  return found == table().all.end() ? nullptr : found->second.get();
}

}  // namespace

Kept::~Kept() {
  for (MPI_Datatype& type : own_types_) PMPI_Type_free(&type);
}

MPI_Datatype Kept::type(MPI_Datatype type, bool significant) {
  MPI_Datatype copy = MPI_DATATYPE_NULL;
  if (!significant || layout_of(type).predefined || PMPI_Type_dup(type, &copy) != MPI_SUCCESS) return type;
  own_types_.push_back(copy);
  return copy;
}

Persistent::Persistent(Function of, Communicator& on, Lane& in) : function(of), communicator(on), lane(in), kept(on) {
  hold(on);
  // Before threads start requests: a request does not run twice at a time.
  if (lane.stream == nullptr) tuttiStreamCreate(&lane.stream);
}

Persistent::~Persistent() {
  body = nullptr;
  release_lane(lane);
  let_go_soon(communicator);
}

int make_persistent(std::unique_ptr<Persistent> persistent, MPI_Request* request) {
  const std::lock_guard lock(table().mutex);
  const int number = take_number(table());
  persistent->tag = number % kTags;
  int error = self_of(table(), number, persistent->self);
  if (error == MPI_SUCCESS) {
    error = PMPI_Recv_init(nullptr, 0, MPI_BYTE, 0, persistent->tag, persistent->self, request);
  }
  if (error != MPI_SUCCESS) {
    table().free.insert(number);
    return error;
  }
  table().all[*request] = std::move(persistent);
  live_persistents.fetch_add(1, std::memory_order_release);
  return MPI_SUCCESS;
}

int start_request(MPI_Request* request) {
  Persistent* persistent = nullptr;
  if (live_persistents.load(std::memory_order_acquire) != 0 && request != nullptr) persistent = find(*request);
  if (persistent == nullptr) return PMPI_Start(request);
  const Timer timer;
  forget_failure(*request);
  const Communicator& communicator = persistent->communicator;
  int error = MPI_SUCCESS;
  bool started = false;
  bool queued = false;
  Outcome outcome = tuttiSuccess;
  const int thrown = caught([&] {
    auto work = std::make_unique<Work>(persistent->communicator, Mode::kQueued, persistent->lane);
    error = PMPI_Start(request);
    if (error != MPI_SUCCESS) return;
    started = true;
    outcome = persistent->body(*work);
    if (outcome.reason != Reason::kNone || outcome.result != tuttiSuccess) return;
    add_pending(std::move(work), *request, *persistent);
    queued = true;
  });
  if (started && !queued) {
    error = thrown == MPI_SUCCESS ? report_failure(communicator, persistent->function, Form::kPersistent,
                                                   persistent->lane.comm, outcome.result)
                                  : thrown;
    end_receive(*persistent);
    PMPI_Wait(request, MPI_STATUS_IGNORE);
  }
  if (thrown != MPI_SUCCESS) error = raise_error(communicator.handle, thrown);
  if (started && error != MPI_SUCCESS) count_failed(persistent->function, true);
  if (started) count_call(persistent->function, true, Reason::kNone, timer);
  return error;
}

void end_receive(const Persistent& persistent) {
  PMPI_Send(nullptr, 0, MPI_BYTE, 0, persistent.tag, persistent.self);
}

void forget_persistent(MPI_Request request) {
  if (live_persistents.load(std::memory_order_acquire) == 0) return;
  forget_failure(request);
  std::unique_ptr<Persistent> ended;
  const std::lock_guard lock(table().mutex);
  const auto found = table().all.find(request);
  if (found == table().all.end()) return;
  ended = std::move(found->second);
  table().all.erase(found);
  table().free.insert(number_of(table(), *ended));
  live_persistents.fetch_sub(1, std::memory_order_release);
}

void revoke_persistents_of(const Communicator& communicator) {
  const std::lock_guard lock(table().mutex);
  for (const auto& [request, persistent] : table().all) {
    if (&persistent->communicator == &communicator) tuttiCommRevoke(persistent->lane.comm, TUTTI_REVOKE_DEFAULT);
  }
}

void forget_all_persistents() {
  std::unordered_map<MPI_Request, std::unique_ptr<Persistent>> all;
  {
    const std::lock_guard lock(table().mutex);
    all.swap(table().all);
    live_persistents.store(0, std::memory_order_release);
  }
  // Requests that the program has left to run end with their communicators.
  for (const auto& [request, persistent] : all) complete_request(request);
  all.clear();
  for (MPI_Comm& self : table().selves) PMPI_Comm_free(&self);
  table().selves.clear();
}

}  // namespace tutti::mpi

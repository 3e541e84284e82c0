// Ranks that call different operations without exchanging any data in them: detected at the next operation with data
// exchange, at finalize and destroy at the latest, and at once if every call is checked.
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <vector>

#include "collectives/specs.h"
#include "collectives/trial.h"
#include "faults.h"

namespace tutti::internal::test {
namespace {

constexpr std::size_t kCount = 40;

// Each rank passes its own number as the root of the broadcast. So no rank receives anything, and each call returns at
// once.
tuttiResult_t broadcast_from_itself(tuttiComm_t comm, int rank, void* stream = nullptr, std::size_t count = kCount) {
  static thread_local std::array<std::int8_t, kCount> data{};
  return tuttiBroadcast(data.data(), data.data(), count, tuttiInt8, rank, comm, stream);
}

std::string success(tuttiResult_t result, tuttiComm_t comm, const char* what) {
  return result == tuttiSuccess ? "" : std::string(what) + ": " + describe(result, comm);
}

// Empty, or what is wrong with an error that should name two ranks that each broadcast from themselves.
std::string names_both(tuttiResult_t result, const std::string& text) {
  if (result != tuttiMismatch) return std::string(tuttiGetErrorString(result)) + " (" + text + ")";
  int named = 0;
  for (int rank = 0; rank < 5; ++rank) {
    const std::string name = std::to_string(rank);
    named += contains(text, "rank " + name + " runs operation ") && contains(text, ", root " + name + ")") ? 1 : 0;
  }
  return named == 2 ? "" : "both sides are not named: " + text;
}

// The error of an operation, which all ranks get.
Outcome told(tuttiResult_t result, const std::string& text) {
  return Outcome{names_both(result, text), 1};
}

// The error of finalize or destroy.
Outcome told_at_end(tuttiResult_t result, const std::string& text) {
  return result == tuttiSuccess ? Outcome{} : told(result, text);
}

// Another communicator of the same ranks, for the caller's test of its end.
std::string make_another(tuttiComm_t comm, int rank, int ranks, tuttiComm_t* another) {
  tuttiUniqueId id;
  std::memset(&id, 0, sizeof id);
  if (rank == 0 && tuttiGetUniqueId(&id) != tuttiSuccess) return "no unique id";
  if (tuttiBroadcast(&id, &id, sizeof id, tuttiUint8, 0, comm, nullptr) != tuttiSuccess) return "no id came";
  return success(tuttiCommInitRank(another, ranks, id, rank), nullptr, "init");
}

// All ranks are there before the first of them differs. One may still be leaving the barrier when others have already
// detected the difference.
Body after_a_barrier(const Body& body) {
  return [body](tuttiComm_t comm, int rank, int ranks) {
    const tuttiResult_t met = tuttiBarrier(comm, nullptr);
    if (met == tuttiSuccess) return body(comm, rank, ranks);
    return Outcome{met == tuttiMismatch ? "" : "barrier: " + describe(met, comm)};
  };
}

// What is wrong, or that no rank has got the mismatch error. A rank that is more than a second ahead of the others when
// it leaves, as may happen on a busy machine, correctly succeeds; its digest is 0.
std::string wrong_in(const std::vector<Outcome>& outcomes) {
  const std::string wrong = wrong_of(outcomes);
  const bool found = std::any_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.digest != 0; });
  return wrong.empty() && !found ? "no rank was told" : wrong;
}

void on_threads(const Body& body, const std::string& what, const std::vector<const char*>& over) {
  for (const char* transports : over) {
    for (const int ranks : {2, 3, 5}) {
      INFO(what << ", threads, " << transports << ", " << ranks << " ranks");
      CHECK(wrong_in(run_threads(ranks, transports, after_a_barrier(body))) == "");
    }
  }
}

void on_all(const Body& body, const std::string& what) {
  on_threads(body, what, {"shm", "tcp", "sim:5"});
}

void on_processes(const Body& body, const std::string& what) {
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {2, 4}) {
      INFO(what << ", processes, " << transports << ", " << ranks << " ranks");
      CHECK(wrong_in(run_processes(ranks, transports, after_a_barrier(body))) == "");
    }
  }
}

// The ranks' actions after they have called different operations.
Outcome then_all_reduce(tuttiComm_t comm, int rank, int) {
  const tuttiResult_t first = broadcast_from_itself(comm, rank);
  // A faster rank may have detected it already.
  if (first != tuttiSuccess) return told(first, tuttiGetLastError(comm));
  float v = 1;
  const tuttiResult_t result = tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, comm, nullptr);
  return told(result, tuttiGetLastError(comm));
}

// Calls that move nothing, repeated, with one that differs.
Outcome one_empty_call_differs(tuttiComm_t comm, int rank, int) {
  const auto reduce = [comm](std::size_t count, tuttiRedOp_t op) {
    float v = 1;
    return tuttiAllReduce(&v, &v, count, tuttiFloat32, op, comm, nullptr);
  };
  tuttiResult_t result = tuttiSuccess;
  for (int time = 0; time < 40 && result == tuttiSuccess; ++time) {
    result = reduce(0, rank == 1 && time == 35 ? tuttiMax : tuttiSum);
  }
  // A faster rank may have detected it already.
  if (result == tuttiSuccess) result = reduce(1, tuttiSum);
  const std::string text = tuttiGetLastError(comm);
  const bool named =
      contains(text, "all_reduce(count 0, float, sum)") && contains(text, "all_reduce(count 0, float, max)");
  return {result == tuttiMismatch && named ? "" : describe(result, comm), 1};
}

Outcome then_finalize(tuttiComm_t comm, int rank, int) {
  const tuttiResult_t first = broadcast_from_itself(comm, rank);
  if (first != tuttiSuccess) return told(first, tuttiGetLastError(comm));
  const tuttiResult_t result = tuttiCommFinalize(comm);
  return told_at_end(result, tuttiGetLastError(comm));
}

Outcome then_destroy(tuttiComm_t comm, int rank, int ranks) {
  tuttiComm_t another = nullptr;
  std::string wrong = make_another(comm, rank, ranks, &another);
  if (!wrong.empty()) return Outcome{wrong};
  const tuttiResult_t first = broadcast_from_itself(another, rank);
  if (first != tuttiSuccess) wrong = names_both(first, tuttiGetLastError(another));
  const tuttiResult_t result = tuttiCommDestroy(another);
  // Destroy does not repeat an error that the rank has already returned.
  if (first != tuttiSuccess) return Outcome{wrong + success(result, nullptr, "destroy"), 1};
  return told_at_end(result, tuttiGetLastError(nullptr));
}

// Whether the communicator fails through another rank's notice while no call is in flight here.
bool fails_by_itself(tuttiComm_t comm) {
  const Deadline soon = Deadline::after_ms(2 * kNoticeMs);
  tuttiResult_t error = tuttiSuccess;
  while (tuttiCommGetAsyncError(comm, &error) == tuttiSuccess && error == tuttiSuccess && !soon.passed()) sleep_ms(1);
  return error == tuttiMismatch;
}

// Rank 0 destroys at once, the others when they have noticed: no call has told them yet.
Outcome destroy_one_after_the_other(tuttiComm_t comm, int rank, int ranks) {
  tuttiComm_t another = nullptr;
  const std::string wrong = make_another(comm, rank, ranks, &another);
  if (!wrong.empty()) return Outcome{wrong};
  const tuttiResult_t first = broadcast_from_itself(another, rank);
  if (first != tuttiSuccess) {  // a faster rank has detected it: destroy never reports it on this rank
    const Outcome outcome = told(first, tuttiGetLastError(another));
    (void)tuttiBarrier(comm, nullptr);
    (void)tuttiCommDestroy(another);
    return outcome;
  }
  const bool met = tuttiBarrier(comm, nullptr) == tuttiSuccess;
  const bool heard = rank == 0 || fails_by_itself(another);
  const tuttiResult_t result = tuttiCommDestroy(another);
  if (!met || !heard) return Outcome{met ? "no rank has reported the mismatch" : "barrier failed"};
  // The rank that leaves first gets the error only if it hears of the others within a second.
  return rank == 0 ? told_at_end(result, tuttiGetLastError(nullptr)) : told(result, tuttiGetLastError(nullptr));
}

// A call that is refused after the mismatch error neither removes that error nor hides its text.
Outcome refused_in_between(tuttiComm_t comm, int rank, int ranks) {
  tuttiComm_t another = nullptr;
  std::string wrong = make_another(comm, rank, ranks, &another);
  if (!wrong.empty()) return Outcome{wrong};
  tuttiResult_t result = broadcast_from_itself(another, rank);
  if (result == tuttiSuccess) result = tuttiBarrier(another, nullptr);
  const std::string text = tuttiGetLastError(another);
  wrong = names_both(result, text);
  float v = 1;
  if (tuttiAllReduce(&v, nullptr, 1, tuttiFloat32, tuttiSum, another, nullptr) != tuttiInvalidArgument) {
    wrong += "a missing buffer was not refused";
  }
  if (!contains(tuttiGetLastError(nullptr), "recvbuff")) wrong += "the thread was not told of the buffer";
  if (tuttiGetLastError(another) != text)
    wrong += std::string("the failure is hidden by ") + tuttiGetLastError(another);
  return Outcome{wrong + success(tuttiCommDestroy(another), nullptr, "destroy"), 1};
}

// The error of a queued operation comes from the end of its stream, or from an event behind it; that the library has
// noticed it does not count as a report.
Outcome told_by_stream(tuttiComm_t comm, int rank, int ranks, bool by_event) {
  tuttiComm_t another = nullptr;
  std::string wrong = make_another(comm, rank, ranks, &another);
  if (!wrong.empty()) return Outcome{wrong};
  tuttiStream_t stream = nullptr;
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return Outcome{"no stream"};
  tuttiResult_t queued = broadcast_from_itself(another, rank, stream);
  if (queued == tuttiSuccess) queued = tuttiBarrier(another, stream);
  tuttiEvent_t event = nullptr;
  if (tuttiEventCreate(&event) != tuttiSuccess || tuttiEventRecord(event, stream) != tuttiSuccess) {
    return Outcome{"no event"};
  }
  if (!fails_by_itself(another)) wrong = "nothing has failed";
  const tuttiResult_t waited = by_event ? tuttiEventSynchronize(event) : tuttiSuccess;
  if (by_event) wrong += names_both(waited, tuttiGetLastError(nullptr));
  const tuttiResult_t result = tuttiCommDestroy(another);
  // If the second call was refused, that was the report.
  if (by_event || queued != tuttiSuccess) {
    wrong += success(result, nullptr, "destroy");
  } else {
    wrong += names_both(result, tuttiGetLastError(nullptr));
  }
  (void)tuttiEventDestroy(event);
  (void)tuttiStreamDestroy(stream);
  return Outcome{wrong, 1};
}

// The last rank omits a call of no elements.
Outcome one_calls_less(tuttiComm_t comm, int rank, int ranks) {
  const bool idle = rank == ranks - 1;
  tuttiResult_t result = idle ? tuttiSuccess : broadcast_from_itself(comm, 0, nullptr, 0);
  if (result == tuttiSuccess) result = tuttiCommFinalize(comm);
  const std::string text = describe(result, comm);
  const std::string name = "rank " + std::to_string(ranks - 1) + " leaves after 1 operation";
  const bool both = contains(text, " runs operation 2, broadcast(count 0, int8, root 0)") && contains(text, name);
  if (result == tuttiSuccess) return Outcome{};
  return Outcome{result == tuttiMismatch && both ? "" : "rank " + std::to_string(rank) + ": " + text, 1};
}

// The others call something different when rank 0 has long left.
Outcome one_leaves_early(tuttiComm_t comm, int rank, int) {
  if (rank != 0) sleep_ms(3000);
  tuttiResult_t result = broadcast_from_itself(comm, rank);
  if (result == tuttiSuccess) result = tuttiCommFinalize(comm);
  if (rank == 0 && result == tuttiSuccess) return Outcome{};
  return told(result, tuttiGetLastError(comm));
}

Outcome checked_at_once(tuttiComm_t comm, int rank, int) {
  float v = 1;
  const std::string agreed =
      success(tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, comm, nullptr), comm, "all-reduce");
  if (!agreed.empty()) return Outcome{agreed};
  const tuttiResult_t result = broadcast_from_itself(comm, rank);
  return told(result, tuttiGetLastError(comm));
}

Outcome checked_when_queued(tuttiComm_t comm, int rank, int) {
  tuttiStream_t stream = nullptr;
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return Outcome{"no stream"};
  const tuttiResult_t queued = broadcast_from_itself(comm, rank, stream);
  const tuttiResult_t result = tuttiStreamSynchronize(stream);
  const std::string text = tuttiGetLastError(comm);
  (void)tuttiStreamDestroy(stream);
  return Outcome{queued == tuttiSuccess ? names_both(result, text) : "it was not queued", 1};
}

}  // namespace

TEST_CASE("broadcasts from different roots are a mismatch at the next operation", "[threads]") {
  on_all(then_all_reduce, "all-reduce");
}

TEST_CASE("an empty call that differs is a mismatch at the next operation", "[threads]") {
  on_all(one_empty_call_differs, "empty calls");
}

TEST_CASE("broadcasts from different roots are a mismatch at finalize", "[threads]") {
  on_all(then_finalize, "finalize");
}

TEST_CASE("broadcasts from different roots are a mismatch at destroy", "[threads]") {
  on_threads(then_destroy, "destroy", {"shm", "tcp"});
}

TEST_CASE("destroy returns a mismatch that no call has returned, whichever rank is late", "[threads]") {
  on_threads(destroy_one_after_the_other, "destroy in turn", {"shm", "tcp"});
}

TEST_CASE("destroy does not repeat a mismatch that a call has returned", "[threads]") {
  on_threads(refused_in_between, "refused in between", {"shm", "tcp"});
  for (const bool by_event : {false, true}) {
    const auto body = [by_event](tuttiComm_t comm, int rank, int ranks) {
      return told_by_stream(comm, rank, ranks, by_event);
    };
    on_threads(body, by_event ? "told by an event" : "told by nothing", {"shm"});
  }
}

TEST_CASE("calls that one rank omits are a mismatch at finalize", "[threads]") {
  on_all(one_calls_less, "one call less");
}

TEST_CASE("ranks that stay detect a mismatch with a rank that has left", "[threads]") {
  for (const char* transports : {"shm", "tcp"}) {
    INFO(transports);
    CHECK(wrong_of(run_threads(3, transports, one_leaves_early)) == "");
  }
}

TEST_CASE("strict checks find every difference in the call itself", "[threads]") {
  const Variable strict("TUTTI_CHECK", "strict");
  on_all(checked_at_once, "strict");
  on_all(checked_when_queued, "strict, queued");
}

TEST_CASE("strict checks change nothing for ranks that agree", "[threads]") {
  const Variable strict("TUTTI_CHECK", "strict");
  for (const char* transports : {"shm", "tcp", "sim:5"}) {
    const auto outcomes = run_threads(3, transports, [](tuttiComm_t comm, int rank, int ranks) {
      return Outcome{Runner(comm, rank, ranks).run_all(every_root(ranks))};
    });
    INFO(transports);
    CHECK(wrong_of(outcomes) == "");
  }
}

TEST_CASE("communicators may be destroyed in different orders", "[threads]") {
  const auto outcomes = run_threads(2, "shm", [](tuttiComm_t comm, int rank, int ranks) {
    std::array<tuttiComm_t, 3> more{};
    for (tuttiComm_t& another : more) {
      const std::string wrong = make_another(comm, rank, ranks, &another);
      if (!wrong.empty()) return Outcome{wrong};
      if (tuttiBarrier(another, nullptr) != tuttiSuccess) return Outcome{"barrier failed"};
    }
    for (std::size_t i = 0; i < more.size(); ++i) {
      const std::size_t which = rank == 0 ? i : more.size() - 1 - i;
      const std::string wrong = success(tuttiCommDestroy(more[which]), nullptr, "destroy");
      if (!wrong.empty()) return Outcome{wrong};
    }
    return Outcome{};
  });
  CHECK(wrong_of(outcomes) == "");
}

TEST_CASE("processes find mismatches that exchange no data", "[processes]") {
  on_processes(then_all_reduce, "all-reduce");
  on_processes(one_empty_call_differs, "empty calls");
  on_processes(then_finalize, "finalize");
  on_processes(then_destroy, "destroy");
  on_processes(destroy_one_after_the_other, "destroy in turn");
  on_processes(one_calls_less, "one call less");
  const Variable strict("TUTTI_CHECK", "strict");
  on_processes(checked_at_once, "strict");
}

}  // namespace tutti::internal::test

#include "rank.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace tutti::internal::test::chaos {
namespace {

constexpr int kProbes = 2;  // calls of a failed communicator

std::size_t whole_bytes(const Spec& spec, int ranks) {
  return spec.count * size_of(spec.type) * blocks_of(spec.collective, ranks);
}

// No rank completes these, unless they are empty, before all ranks have called them.
bool joins_all(const Spec& spec) {
  const bool partly = has_root(spec.collective) || combines_prefixes(spec.collective);
  return spec.collective == Collective::kBarrier || (!partly && spec.count != 0);
}

}  // namespace

void note_wrong(RankBoard& board, const char* kind, const std::string& text) {
  if (board.is_wrong) return;
  std::snprintf(board.wrong_kind, sizeof board.wrong_kind, "%s", kind);
  std::snprintf(board.wrong, sizeof board.wrong, "%s", text.c_str());
  board.is_wrong = true;
}

void note_error(RankBoard& board, int comm, int step, tuttiResult_t code, const char* text) {
  Error& error = board.errors[comm];
  if (error.code != 0) return;
  error.step = step;
  std::snprintf(error.text, sizeof error.text, "%s", text);
  error.code = code;
}

void limit_files(int more) {
  namespace fs = std::filesystem;
  // Descriptors are dense here; the one that reads the folder is counted and free again.
  std::error_code taken;
  const fs::directory_iterator descriptors("/proc/self/fd", taken);
  if (taken) return;  // another thread has just lowered the limit
  const auto open = std::distance(descriptors, fs::directory_iterator());
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(open - 1 + more);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void lift_file_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

RankRun::RankRun(const Round& round, InProcessControl& board, int rank, Handles& handles, bool files_are_few)
    : round_(round),
      board_(board),
      mine_(board.ranks[rank]),
      rank_(rank),
      handles_(handles),
      files_are_few_(files_are_few) {
  pending_.resize(static_cast<std::size_t>(round.streams));
}

const Mishap* RankRun::mishap_at(MishapKind kind, int step) const {
  const auto found = std::find_if(round_.mishaps.begin(), round_.mishaps.end(),
                                  [&](const Mishap& m) { return m.kind == kind && m.rank == rank_ && m.step == step; });
  return found == round_.mishaps.end() ? nullptr : &*found;
}

void RankRun::strike(const Mishap& mishap) {
  board_.struck[&mishap - round_.mishaps.data()] = true;
}

void RankRun::run() {
  for (int c = 0; c < round_.comms; ++c) {
    if (handles_[c].comm != nullptr) states_[c] = State::kGood;
  }
  if (round_.hosting == Hosting::kInitAll || make_communicators()) {
    for (int s = 0; s < round_.streams; ++s) {
      tuttiStream_t stream = nullptr;
      if (in_library("tuttiStreamCreate", [&] { return tuttiStreamCreate(&stream); }) != tuttiSuccess) {
        note_wrong(mine_, "stream", std::string("tuttiStreamCreate: ") + tuttiGetLastError(nullptr));
      }
      streams_.push_back(stream);
    }
    for (int k = 0; k < static_cast<int>(round_.steps.size()); ++k) {
      mine_.step = k;
      if (!meet_mishaps(k)) break;
      perform(k);
    }
  }
  finish();
}

bool RankRun::wait_for_ids() {
  while (!board_.ids_made) {
    if (board_.no_ids) return false;
    sleep_us(500);
  }
  return true;
}

// All of them, in order. A rank that cannot make one makes no more: the others notice that it leaves.
bool RankRun::make_communicators() {
  mine_.step = kInInit;
  if (!meet_mishaps(kInInit) || !wait_for_ids()) return false;
  for (int c = 0; c < round_.comms; ++c) {
    tuttiUniqueId id;
    std::memcpy(id.internal, board_.ids[c], sizeof id.internal);
    tuttiComm_t comm = nullptr;
    const tuttiResult_t result =
        in_library("tuttiCommInitRank", [&] { return tuttiCommInitRank(&comm, round_.ranks, id, rank_); });
    if (result != tuttiSuccess) {
      note_error(mine_, c, kInInit, result, tuttiGetLastError(nullptr));
      return false;
    }
    handles_[c].comm = comm;
    states_[c] = State::kGood;
  }
  return true;
}

// False if the rank makes only the last calls from now on.
bool RankRun::meet_mishaps(int step) {
  if (const Mishap* m = mishap_at(MishapKind::kFewFiles, step); m != nullptr && !(step == kInInit && rank_ == 0)) {
    strike(*m);
    limit_files(m->files);
  }
  if (const Mishap* m = mishap_at(MishapKind::kExit, step)) {
    strike(*m);
    if (m->orderly && round_.hosting == Hosting::kProcesses) std::exit(0);
    ::_exit(0);
  }
  if (const Mishap* m = mishap_at(MishapKind::kLeave, step)) leave(*m);
  if (const Mishap* m = mishap_at(MishapKind::kAbsent, step)) {
    strike(*m);
    while (!board_.absent_may_go) sleep_us(2000);
    return false;
  }
  return true;
}

void RankRun::leave(const Mishap& mishap) {
  const int c = mishap.comm;
  if (states_[c] != State::kGood) return;
  strike(mishap);
  if (!mishap.orderly) return destroy(c);
  const tuttiResult_t result = in_library("tuttiCommFinalize", [&] { return tuttiCommFinalize(handles_[c].comm); });
  if (result != tuttiSuccess) note_error(mine_, c, mishap.step, result, tuttiGetLastError(handles_[c].comm));
  states_[c] = State::kFinalized;
}

Spec RankRun::spec_at(int k) const {
  const Mishap* m = mishap_at(MishapKind::kDiffer, k);
  Spec spec = m != nullptr ? m->odd : round_.steps[static_cast<std::size_t>(k)].spec;
  // Each rank uses another kind of memory.
  if (rank_ % 2 == 1) spec.registered = !spec.registered;
  if (files_are_few_) spec.registered = false;
  return spec;
}

void RankRun::perform(int k) {
  const Step& step = round_.steps[static_cast<std::size_t>(k)];
  const int c = step.comm;
  if (step.pause_us > 0) sleep_us(step.pause_us);
  if (step.synchronize) return synchronize(step.stream);
  if (!step.moves.empty()) return perform_group(k);
  if (states_[c] == State::kFailed || states_[c] == State::kFinalized) return probe_failed(k, c);
  if (states_[c] != State::kGood) return;
  if (const Mishap* m = mishap_at(MishapKind::kDiffer, k)) strike(*m);
  const Spec spec = spec_at(k);
  mine_.called[c] = k + 1;
  step.stream < 0 ? block(k, c, spec) : queue(k, c, spec);
}

void RankRun::block(int k, int c, const Spec& spec) {
  std::unique_ptr<Buffers>& buffers = blocking_[spec.registered ? 1 : 0];
  if (buffers == nullptr) buffers = std::make_unique<Buffers>();
  Trial trial(spec, rank_, round_.ranks);
  trial.prepare(&buffers->send, &buffers->recv);
  const tuttiResult_t result =
      in_library(name_of(spec.collective), [&] { return trial.issue(handles_[c].comm, nullptr); });
  if (result == tuttiSuccess) {
    if (const std::string wrong = trial.check(); !wrong.empty()) {
      note_wrong(mine_, "data", "step " + std::to_string(k) + ": " + wrong);
    }
    return check_met(k, c, spec);
  }
  failed(c, k, result, tuttiGetLastError(nullptr));
  reclaim(std::move(buffers), spec);
}

void RankRun::check_met(int k, int c, const Spec& spec) {
  if (!joins_all(spec)) return;
  for (int r = 0; r < round_.ranks; ++r) {
    if (board_.ranks[r].called[c] > k) continue;
    note_wrong(mine_, "early",
               "step " + std::to_string(k) + " is complete before rank " + std::to_string(r) + " has called it");
  }
}

void RankRun::queue(int k, int c, const Spec& spec) {
  auto& spare = spare_[spec.registered ? 1 : 0];
  std::unique_ptr<Buffers> buffers;
  if (spare.empty()) {
    buffers = std::make_unique<Buffers>();
  } else {
    buffers = std::move(spare.back());
    spare.pop_back();
  }
  const auto s = static_cast<std::size_t>(round_.steps[static_cast<std::size_t>(k)].stream);
  std::unique_ptr<Pending> queued(new Pending{c, k, spec, std::move(buffers), Trial(spec, rank_, round_.ranks), {}});
  queued->trial.prepare(&queued->buffers->send, &queued->buffers->recv);
  const tuttiResult_t result =
      in_library("queueing", [&] { return queued->trial.issue(handles_[c].comm, streams_[s]); });
  if (result == tuttiSuccess) {
    pending_[s].push_back(std::move(queued));
    return;
  }
  failed(c, k, result, tuttiGetLastError(nullptr));
  reclaim(std::move(queued->buffers), spec);
}

void RankRun::synchronize(int s) {
  auto& pending = pending_[static_cast<std::size_t>(s)];
  if (pending.empty()) return;
  tuttiStream_t stream = streams_[static_cast<std::size_t>(s)];
  if (pending.size() % 2 == 0) {
    tuttiEvent_t event = nullptr;
    if (in_library("tuttiEventCreate", [&] { return tuttiEventCreate(&event); }) == tuttiSuccess) {
      (void)in_library("tuttiEventRecord", [&] { return tuttiEventRecord(event, stream); });
      (void)in_library("tuttiEventSynchronize", [&] { return tuttiEventSynchronize(event); });
      (void)in_library("tuttiEventDestroy", [&] { return tuttiEventDestroy(event); });
    }
  }
  const tuttiResult_t result = in_library("tuttiStreamSynchronize", [&] { return tuttiStreamSynchronize(stream); });
  settle(&pending, result, result == tuttiSuccess ? "" : tuttiGetLastError(nullptr));
}

// After the stream's synchronization: everything in it is complete, or a communicator of one of its operations has
// failed. That does not affect the other communicators, whose operations are complete.
void RankRun::settle(std::vector<std::unique_ptr<Pending>>* pending, tuttiResult_t result, const std::string& text) {
  bool explained = result == tuttiSuccess;
  for (const auto& p : *pending) {
    if (result == tuttiSuccess) {
      if (const std::string wrong = p->side ? p->side->check() : p->trial.check(); !wrong.empty()) {
        note_wrong(mine_, "data", "queued step " + std::to_string(p->step) + ": " + wrong);
      }
      if (p->side) continue;
      spare_[p->spec.registered ? 1 : 0].push_back(std::move(p->buffers));
      continue;
    }
    const int c = p->comm;
    if (states_[c] == State::kGood) {
      std::string why = text;
      const tuttiResult_t error = error_of(c, &why);
      if (error != tuttiSuccess) failed(c, p->step, error, why);
    }
    if (states_[c] == State::kGood && !p->side) {
      if (const std::string wrong = p->trial.check(); !wrong.empty()) {
        note_wrong(mine_, "data", "step " + std::to_string(p->step) + ", queued beside a failure: " + wrong);
      }
    }
    explained = explained || states_[c] != State::kGood;
    p->side ? reclaim(std::move(p->side)) : reclaim(std::move(p->buffers), p->spec);
  }
  if (!explained) note_wrong(mine_, "stream", "an error of a stream without a failed communicator: " + text);
  pending->clear();
}

// The error that has failed the communicator, or tuttiSuccess; *text stays if there is nothing better.
tuttiResult_t RankRun::error_of(int c, std::string* text) {
  if (handles_[c].aborted) return tuttiAborted;
  tuttiResult_t error = tuttiSuccess;
  const tuttiResult_t asked =
      in_library("tuttiCommGetAsyncError", [&] { return tuttiCommGetAsyncError(handles_[c].comm, &error); });
  if (asked != tuttiSuccess) return handles_[c].aborted ? tuttiAborted : tuttiSuccess;
  if (error != tuttiSuccess) *text = tuttiGetLastError(handles_[c].comm);
  return error;
}

void RankRun::failed(int c, int step, tuttiResult_t code, const std::string& text) {
  note_error(mine_, c, step, code, text.c_str());
  states_[c] = State::kFailed;
}

// A failed communicator refuses all later operations with the same error.
void RankRun::probe_failed(int k, int c) {
  if (probes_[c]++ >= kProbes) return;
  float v = 1;
  const tuttiResult_t result = in_library("all-reduce after an error", [&] {
    return tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, handles_[c].comm, nullptr);
  });
  const int first = mine_.errors[c].code;
  if (states_[c] == State::kFinalized && result == tuttiInvalidUsage) return;
  if (result == first || (handles_[c].aborted && (result == tuttiInvalidArgument || result == tuttiAborted))) return;
  note_wrong(mine_, "later",
             "step " + std::to_string(k) + " got " + std::to_string(result) + " (" + tuttiGetLastError(nullptr) +
                 ") where " + std::to_string(first) + " was the error");
}

// After an error the buffers belong to this rank: its writes must not be overwritten, and it may unmap them.
void RankRun::reclaim(std::unique_ptr<Buffers> buffers, const Spec& spec) {
  const std::size_t bytes = whole_bytes(spec, round_.ranks);
  // A process that is stopped in the middle of an operation continues it when it is woken.
  const bool kept_by_all = !round_.has(MishapKind::kStop);
  if (bytes == 0 || spec.collective == Collective::kBarrier || !kept_by_all) return;
  std::byte* at = buffers->recv.get(bytes, spec.registered);
  if (at == nullptr) return;
  std::memset(at, static_cast<int>(kRubbish), bytes);
  sleep_us(kKeepUs);
  if (!std::all_of(at, at + bytes, [](std::byte b) { return b == kRubbish; })) {
    note_wrong(mine_, "buffer", "somebody wrote into the output of an operation that had failed: " + spec.text());
  }
}

// An aborted communicator is gone, and its handle is refused.
void RankRun::destroy(int c) {
  tuttiComm_t comm = handles_[c].comm;
  if (states_[c] == State::kGood && rank_ % 3 == 1) {
    const tuttiResult_t result = in_library("tuttiCommFinalize", [&] { return tuttiCommFinalize(comm); });
    if (result != tuttiSuccess) note_error(mine_, c, kThrough, result, tuttiGetLastError(nullptr));
  }
  const tuttiResult_t result = in_library("tuttiCommDestroy", [&] { return tuttiCommDestroy(comm); });
  const bool refused = handles_[c].aborted && result == tuttiInvalidArgument;
  if (result != tuttiSuccess && !refused) note_error(mine_, c, kThrough, result, tuttiGetLastError(nullptr));
  states_[c] = State::kGone;
}

void RankRun::finish() {
  mine_.step = kThrough;
  for (int s = 0; s < static_cast<int>(streams_.size()); ++s) synchronize(s);
  for (tuttiStream_t stream : streams_) {
    (void)in_library("tuttiStreamDestroy", [&] { return tuttiStreamDestroy(stream); });
  }
  if (round_.goes_on) go_on();
  for (int c = 0; c < round_.comms; ++c) {
    if (states_[c] != State::kMissing && states_[c] != State::kGone) destroy(c);
  }
}

}  // namespace tutti::internal::test::chaos

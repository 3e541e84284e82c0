// One rank of a round: a thread that makes the round's calls, checks each result, and records its position on the
// board.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "board.h"
#include "os/clock.h"

namespace tutti::internal::test::chaos {

// A communicator of one rank, which its thread and another thread, which aborts and queries, use without
// synchronisation.
struct Handle {
  std::atomic<tuttiComm_t> comm{nullptr};  // set once
  std::atomic<bool> aborted{false};        // or is about to be aborted
};

using Handles = Handle[kMaxComms];

// How long the buffers of a failed operation are watched, and the value that fills them meanwhile.
inline constexpr int kKeepUs = 3000;
inline constexpr std::byte kRubbish{0x77};

inline void sleep_us(int us) {
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

// Records a defect, once per rank.
void note_wrong(RankBoard& board, const char* kind, const std::string& text);
// The first error of a communicator.
void note_error(RankBoard& board, int comm, int step, tuttiResult_t code, const char* text);

// Notes that a thread is inside the library.
template <class Call>
auto in_library(Inside& inside, const char* name, Call&& call) {
  inside.name = name;
  inside.since_ns = now_ns();
  auto result = call();
  inside.since_ns = 0;
  return result;
}

// This process can open `more` descriptors besides those that it has.
void limit_files(int more);
void lift_file_limit();

class RankRun {
 public:
  // `files_are_few`: in this process, so that it asks for no memory that needs a descriptor.
  RankRun(const Round& round, InProcessControl& board, int rank, Handles& handles, bool files_are_few);
  // Makes communicators, unless InitAll has made them; makes the calls; destroys.
  void run();

 private:
  enum class State { kMissing, kGood, kFailed, kFinalized, kGone };
  struct Buffers {
    Memory send;
    Memory recv;
  };
  struct Pending {
    int comm;
    int step;
    Spec spec;
    std::unique_ptr<Buffers> buffers;
    Trial trial;
    std::unique_ptr<Side> side = nullptr;  // for a group's operation, which has no spec, buffers or trial
  };
  using Sides = std::vector<std::unique_ptr<Side>>;

  [[nodiscard]] const Mishap* mishap_at(MishapKind kind, int step) const;
  void strike(const Mishap& mishap);
  bool make_communicators();
  bool wait_for_ids();
  bool meet_mishaps(int step);
  void leave(const Mishap& mishap);
  void perform(int k);
  [[nodiscard]] Spec spec_at(int k) const;
  void block(int k, int c, const Spec& spec);
  void queue(int k, int c, const Spec& spec);
  void perform_group(int k);
  bool try_group(int k);
  Sides make_sides(int k);
  tuttiResult_t issue_group(int k, const Sides& sides, tuttiResult_t* refused);
  void settle_group(int k, Sides sides, tuttiResult_t result, const tuttiResult_t* refused);
  tuttiResult_t error_of(int c, std::string* text);
  void synchronize(int s);
  void settle(std::vector<std::unique_ptr<Pending>>* pending, tuttiResult_t result, const std::string& text);
  void probe_failed(int k, int c);
  void check_met(int k, int c, const Spec& spec);
  void failed(int c, int step, tuttiResult_t code, const std::string& text);
  void reclaim(std::unique_ptr<Buffers> buffers, const Spec& spec);
  void reclaim(std::unique_ptr<Side> side);
  void go_on();
  [[nodiscard]] std::string go_on_from(tuttiComm_t* comm);
  void finish();
  void destroy(int c);

  template <class Call>
  auto in_library(const char* name, Call&& call) {
    return chaos::in_library(mine_.inside, name, std::forward<Call>(call));
  }

  const Round& round_;
  InProcessControl& board_;
  RankBoard& mine_;
  int rank_;
  Handles& handles_;
  bool files_are_few_;
  State states_[kMaxComms] = {};
  int probes_[kMaxComms] = {};
  std::unique_ptr<Buffers> blocking_[2];  // malloc, registered
  std::vector<std::unique_ptr<Buffers>> spare_[2];
  std::vector<tuttiStream_t> streams_;
  std::string group_text_;                                      // of the last group's error
  std::vector<std::vector<std::unique_ptr<Pending>>> pending_;  // by stream
};

}  // namespace tutti::internal::test::chaos

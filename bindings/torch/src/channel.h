// A communicator with a stream: operations that run one after the other.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "completer.h"
#include "copies.h"
#include "failure.h"
#include "flight.h"
#include "refusals.h"

namespace tutti_torch {

// Calls tutti, with a stream or null: the operation, or those that belong together in a group.
using Call = std::function<tuttiResult_t(tuttiComm_t, void*)>;

// A Call throws it if all ranks refuse the operation after the same calls of tutti; the channel remains usable. After
// any other exception the ranks may have called different operations, and the channel ends on all of them.
struct RefusedByAll : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Any thread, unless said otherwise.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // An operation that has been waited for so long is looked for among the refusals.
  static constexpr std::chrono::milliseconds kPatience{300};

  // name: for errors and in the store. ranks: what the ranks of its communicator are in the group, where it is of two.
  Channel(std::string name, std::optional<PairRanks> ranks, c10::intrusive_ptr<c10d::Store> store, int rank)
      : name_(std::move(name)), ranks_(ranks), refusals_(std::move(store), name_, rank) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel() { close(); }

  // It has its communicator, or none will come: what has been called meanwhile begins, or fails.
  void open(tuttiComm_t comm);
  void fail(const std::string& why);

  // The number that the next operation gets, from 1.
  [[nodiscard]] std::uint64_t next() const { return sequence_ + 1; }
  // Begins the operation; `here`: and runs it to its end in this thread, if nothing is queued before it. copies: null
  // if it has none.
  void begin(const std::shared_ptr<Flight>& flight, Call call, const std::shared_ptr<Copies>& copies, bool here);
  // The operation that would have been next has wrong arguments.
  void refuse(const std::string& why);
  // For who receives by itself (tagged.h): what the flight waits for may be refused by the other rank; one more
  // message has come.
  void look_for_refusals(const std::shared_ptr<Flight>& flight);
  void count_message() { ++sequence_; }
  [[nodiscard]] bool has_ended() const { return closed_ || never_opens_; }
  // Fails it, for this reason on all ranks. Another channel may come in its place.
  void end_with(const std::string& why);
  [[nodiscard]] bool was_ended() const { return ended_; }
  // The text for a failed operation: the reason of the rank that refused it, if one has, otherwise tutti's text.
  std::string explain(tuttiResult_t result);
  // An operation has: those that begin now fail as well.
  [[nodiscard]] bool has_failed() const { return failed_; }
  void tell(const std::shared_ptr<Flight>& flight, std::function<void()> told) {
    completer_.add(flight, std::move(told));
  }

  // The same ranks with their buffers on a device (tutti's name). Collective, in the order of the operations.
  tuttiComm_t split_to(const std::string& device, int rank, std::chrono::milliseconds timeout);

  // look_after() calls it as well. Before anybody else has the channel.
  void look_also(std::function<void()> look) { looks_also_ = std::move(look); }
  // Looks after what is on its way: lets go of what has ended, and fails what another rank has refused. Returns whether
  // there is anything left.
  bool look_after();
  // Ends what is on its way, and what comes.
  void revoke();
  // Ends the communicator, after what is on its way.
  void close();
  [[nodiscard]] bool is_idle() { return !oldest().has_value(); }
  [[nodiscard]] tuttiComm_t comm() const { return comm_; }

 private:
  struct Waiting {
    std::shared_ptr<Flight> flight;
    Call call;
    std::shared_ptr<Copies> copies;
  };
  struct Begun {
    std::uint64_t number = 0;  // 0: that of the next message
    std::shared_ptr<Flight> flight;
  };
  void queue(const Waiting& one);
  void run_here(const Waiting& one);
  tuttiResult_t call(const Waiting& one, void* stream);
  void wait_for_all();
  void end(const std::shared_ptr<Flight>& flight, tuttiResult_t result);
  void note_refusal(const std::string& why);
  void withdraw_refusal(std::uint64_t number);
  std::string find_reason(tuttiResult_t result);
  std::optional<Begun> oldest();

  const std::string name_;
  const std::optional<PairRanks> ranks_;
  std::atomic<bool> failed_{false};
  std::atomic<tuttiComm_t> comm_{nullptr};
  std::atomic<std::uint64_t> sequence_{0};
  Completer completer_;
  std::function<void()> looks_also_;

  std::mutex order_;  // held while an operation begins, or runs in its caller's thread
  tuttiStream_t stream_ = nullptr;
  bool copies_queued_ = false;   // some may not have run yet
  std::deque<Waiting> waiting_;  // for the communicator
  std::string broken_;           // why there will be none
  std::atomic<bool> closed_{false};
  std::atomic<bool> never_opens_{false};
  std::atomic<bool> ended_{false};  // by end_with(), of any rank
  bool withdraws_ = false;          // the next operation has been refused before

  std::mutex flights_mutex_;
  std::deque<Begun> flights_;  // that have not ended, and some that have
  std::string refused_;  // what has ended the communicator, if it has been revoked: this rank's refusal, or another's

  std::mutex refusals_mutex_;  // of the store
  Refusals refusals_;
};

}  // namespace tutti_torch

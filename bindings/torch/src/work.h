// The caller's handle: c10d's Work for one operation, or for several that were called together.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "channel.h"
#include "flight.h"

namespace tutti_torch {

class Work final : public c10d::Work {
 public:
  struct InFlight {
    std::shared_ptr<Channel> channel;
    std::shared_ptr<Flight> flight;
  };
  // title: of its range in profiles. timeout: of wait() where it is given none; 0: the communicator's is enough.
  // sender: whom a receive is from, else -1. lists: see future_value.h.
  Work(int rank, c10d::OpType type, const char* title, const Tensors& inputs, Tensors outputs, std::uint64_t sequence,
       std::chrono::milliseconds timeout, int sender, std::size_t lists);

  // Before anybody else has it: its parts, and then what ends its range in a profile.
  void add(InFlight part);
  void end_range_when_done();

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return outputs_; }
  void synchronize() override { (void)wait(); }
  // Throws what an operation has failed with; and after `timeout`, which leaves the operations as they are.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  // Revokes the communicators of its operations.
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
  // Ends the range in a profile before a thread can see the operations as complete, because that thread may end the
  // profile. The first thread that finds them complete ends the range; the others wait for it.
  class RangeEnd {
   public:
    explicit RangeEnd(std::function<void()> tell) : tell_(std::move(tell)) {}
    // Frees what it keeps after all waits have ended: freeing may take Python's lock, whose holder may be waiting.
    void end() {
      std::function<void()> told;
      std::call_once(once_, [&] {
        tell_();
        told = std::move(tell_);
      });
    }

   private:
    std::once_flag once_;
    std::function<void()> tell_;
  };
  [[nodiscard]] static std::exception_ptr error_of(const std::vector<InFlight>& parts);
  [[nodiscard]] bool all_ended() const;
  // Until all parts have ended, or one has failed; false at the deadline.
  [[nodiscard]] bool wait_for_parts(std::optional<Clock::time_point> deadline) const;
  // Calls it when all parts have ended: at once, or in a thread of the last part's channel.
  void when_done(std::function<void()> told);

  std::vector<InFlight> parts_;
  const Tensors outputs_;
  const std::uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  const int sender_;
  const std::size_t lists_;
  std::shared_ptr<RangeEnd> range_;  // null: there is no profile
  std::mutex futures_mutex_;
  FuturePtr future_;
  FuturePtr future_result_;
};

}  // namespace tutti_torch

// The wait of a thread that makes a connection: polls at least every kFailureCheckMs, and ends with failure, departure
// or the deadline.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/failure.h"
#include "base/stall.h"
#include "base/status.h"
#include "os/clock.h"

namespace tutti::internal::net {

class ConnectWait {
 public:
  // `failure` and `stalls`, which is notified of the wait, may be null. Both outlive this.
  ConnectWait(const FailureState* failure, Deadline deadline, StallWatch* stalls = nullptr)
      : failure_(failure), deadline_(deadline), stalls_(stalls) {}

  // Called after each unsuccessful poll. Ok: continue to wait. Otherwise, in this order: the failure; the result of
  // `hopeless` and of `stalls`, if not ok; after the deadline the result of `late`.
  template <class Hopeless, class Late>
  [[nodiscard]] Status go_on(Hopeless hopeless, Late late) const {
    if (failure_ != nullptr && failure_->failed()) return failure_->status();
    if (Status s = hopeless(); !s.is_ok()) return s;
    if (Status s = tell(); !s.is_ok()) return s;
    return deadline_.passed() ? late() : Status();
  }

  // Waits for `events` of `fd` (-1: for a millisecond), which `peer` should cause. Ok: poll again. Otherwise as
  // go_on(): kRemoteError if the peer has left and has sent nothing, and kTimeout with `late`.
  [[nodiscard]] Status poll(int fd, short events, int peer, std::string_view late) const;

 private:
  [[nodiscard]] Status tell() const;

  const FailureState* failure_;
  Deadline deadline_;
  StallWatch* stalls_;
  std::int64_t begin_ns_ = now_ns();
};

}  // namespace tutti::internal::net

// How whoever makes a connection waits for others: looks again every kFailureCheckMs at the latest, and ends by
// failure, departure or the deadline.
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
  // `failure` and `stalls`, which is told of the waiting, may be null. Both outlive this.
  ConnectWait(const FailureState* failure, Deadline deadline, StallWatch* stalls = nullptr)
      : failure_(failure), deadline_(deadline), stalls_(stalls) {}

  // After each look that has not found what is waited for. Ok: wait on. Otherwise, in this order, the failure; what
  // `hopeless` says, and what `stalls` says, if that is not ok; and behind the deadline what `late` says.
  template <class Hopeless, class Late>
  [[nodiscard]] Status go_on(Hopeless hopeless, Late late) const {
    if (failure_ != nullptr && failure_->failed()) return failure_->status();
    if (Status s = hopeless(); !s.is_ok()) return s;
    if (Status s = tell(); !s.is_ok()) return s;
    return deadline_.passed() ? late() : Status();
  }

  // Waits for `events` of `fd` (-1: for a millisecond), where `peer` is to bring them about. Ok: look again. Otherwise
  // as go_on(): kRemoteError if the peer has left and has left nothing here, and kTimeout with `late`.
  [[nodiscard]] Status poll(int fd, short events, int peer, std::string_view late) const;

 private:
  [[nodiscard]] Status tell() const;

  const FailureState* failure_;
  Deadline deadline_;
  StallWatch* stalls_;
  std::int64_t begin_ns_ = now_ns();
};

}  // namespace tutti::internal::net

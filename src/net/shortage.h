// A lack of descriptors or of memory for connections: it may be the doing of strangers, whose pending connections are
// given up first; if it lasts all the same, it is an error of this process rather than of a peer.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace tutti::internal::net {

class Shortage {
 public:
  static constexpr std::int64_t kShortageMs = 500;  // longer than an Acceptor needs to give up several strangers

  // Something was not to be had, for the reason `why`.
  void note(const Status& why);
  // Something was had.
  void end() { since_ns_ = 0; }
  [[nodiscard]] bool now() const { return since_ns_ != 0; }
  // Why, once that has been so for kShortageMs without a pause; else ok.
  [[nodiscard]] const Status& lasting() const { return lasting_; }
  // Somebody in this process has noted one within the last moments. Any thread.
  static bool anywhere();

 private:
  std::int64_t since_ns_ = 0;
  Status lasting_;
};

}  // namespace tutti::internal::net

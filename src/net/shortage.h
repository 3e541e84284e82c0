// A lack of descriptors or of memory for connections. Unauthenticated peers may cause it, so their pending connections
// are closed first. If it still lasts, it is an error of this process and not of a peer.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace tutti::internal::net {

class Shortage {
 public:
  static constexpr std::int64_t kShortageMs = 500;  // longer than an Acceptor needs to close several pending
                                                    // connections

  // A resource was not available, for the reason `why`.
  void note(const Status& why);
  // A resource was available.
  void end() { since_ns_ = 0; }
  [[nodiscard]] bool now() const { return since_ns_ != 0; }
  // The reason, if the shortage has lasted for kShortageMs without interruption; else ok.
  [[nodiscard]] const Status& lasting() const { return lasting_; }
  // Some thread of this process has noted a shortage recently. Any thread.
  static bool anywhere();

 private:
  std::int64_t since_ns_ = 0;
  Status lasting_;
};

}  // namespace tutti::internal::net

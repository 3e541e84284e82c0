// The memory of one link between two processes: one side of it in each process's arena (pair.h).
//
// Threads: as the link.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "base/status.h"
#include "transport/shm/layout.h"
#include "transport/shm/pair.h"

namespace tutti::internal::transport::shm {

// Usable once connect() has returned true.
class PairLinkMemory final : public LinkMemory {
 public:
  PairLinkMemory(std::shared_ptr<Pair> pair, std::uint64_t id, Turns turns)
      : LinkMemory(turns), pair_(std::move(pair)), id_(id) {}
  ~PairLinkMemory() override {
    if (own_ != nullptr) pair_->close(id_);
  }
  // This side, which the pair has opened.
  void set_own(SideMemory* own) { own_ = own; }

  // False: the peer has not opened its side yet. kRemoteError if the two have different Turns, or the peer has sent an
  // impossible value, or has ended.
  Result<bool> connect();
  [[nodiscard]] const std::shared_ptr<Pair>& pair() const { return pair_; }

  [[nodiscard]] SideMemory& own() const override { return *own_; }
  [[nodiscard]] const SideMemory& theirs() const override { return *theirs_; }
  [[nodiscard]] Result<Extension> extend() override;
  [[nodiscard]] Result<Extension> peers_extension() override;

 private:
  const std::shared_ptr<Pair> pair_;
  const std::uint64_t id_;
  SideMemory* own_ = nullptr;
  const SideMemory* theirs_ = nullptr;
};

}  // namespace tutti::internal::transport::shm

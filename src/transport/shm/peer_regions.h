// The peer's regions as mapped here, and this rank's regions as announced to the peer: what turns a
// Loan into an address. Both directions share the link's Unix socket.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/shm/segment.h"

namespace tutti::transport::shm {

class PeerRegions {
 public:
  explicit PeerRegions(UniqueFd socket) : socket_(std::move(socket)) {}
  ~PeerRegions();
  PeerRegions(const PeerRegions&) = delete;
  PeerRegions& operator=(const PeerRegions&) = delete;

  // Makes sure that the peer can map `region` of this process. False if it cannot be (the region is
  // gone, or the socket does not take the message now): then the caller copies instead.
  bool announce(std::uint64_t region);
  // Where the loan lies in this process. Maps the region if it is new.
  Result<std::byte*> resolve(const Loan& loan);

 private:
  struct Mapping {
    std::byte* base;
    std::size_t bytes;
  };
  struct Message {
    std::uint32_t kind;
    std::uint32_t reserved;
    std::uint64_t region;
    std::uint64_t bytes;
  };
  void forget_freed();
  bool send(const Message& message, int fd);
  Status receive_all();
  Status apply(const Message& message, UniqueFd fd);

  UniqueFd socket_;
  std::map<std::uint64_t, Mapping> mapped_;
  std::set<std::uint64_t> announced_;
  std::uint64_t last_region_ = 0;  // of resolve(), the usual answer
  Mapping last_mapping_{};
  std::uint64_t generation_ = 0;  // of the registry, when forget_freed() last looked
};

}  // namespace tutti::transport::shm

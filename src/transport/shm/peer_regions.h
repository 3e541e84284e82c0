// The peer's regions as mapped here, and this rank's regions as announced to the peer: what turns a
// ZcopyDescriptor into an address. Both directions share the link's Unix socket.
//
// Threads: as the link (transport.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <set>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/shm/segment.h"

namespace tutti::internal::transport::shm {

class PeerRegions {
 public:
  // The counters of messages that this side and the peer have sent: see SegmentMemory::announced.
  PeerRegions(UniqueFd socket, std::atomic<std::uint32_t>* sent, const std::atomic<std::uint32_t>* peer_sent)
      : socket_(std::move(socket)), sent_(*sent), peer_sent_(*peer_sent) {}
  ~PeerRegions();
  PeerRegions(const PeerRegions&) = delete;
  PeerRegions& operator=(const PeerRegions&) = delete;

  // Makes sure that the peer can map `region` of this process. False if it cannot be (the region is
  // gone, or the socket does not take the message now): then the caller copies instead.
  bool announce(std::uint64_t region);
  // Where the memory lies in this process. Maps the region if it is new.
  Result<std::byte*> resolve(const ZcopyDescriptor& descriptor);
  // Tells the peer of regions that are gone, and hears what it has told. Now and then, or memory that has been
  // freed is kept by mappings and by descriptors that nobody has received.
  void tidy();
  // The peer closes its end when it ends.
  [[nodiscard]] int socket() const { return socket_.get(); }

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
  void receive_all();
  Status apply(const Message& message, UniqueFd fd);

  UniqueFd socket_;
  std::atomic<std::uint32_t>& sent_;
  const std::atomic<std::uint32_t>& peer_sent_;
  std::uint32_t received_ = 0;  // messages
  Status failure_;              // the first to receive one: what a region is missing for
  std::map<std::uint64_t, Mapping> mapped_;
  std::set<std::uint64_t> announced_;
  std::uint64_t last_region_ = 0;  // of resolve(), the usual answer; 0: none, which is no region's number
  Mapping last_mapping_{};
  std::uint64_t generation_ = 0;  // of the registry, when forget_freed() last looked
};

}  // namespace tutti::internal::transport::shm

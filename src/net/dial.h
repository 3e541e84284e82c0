// Dials one peer that may be reached at any of several addresses, until one of them authenticates as the peer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "net/address.h"
#include "net/auth.h"
#include "net/byte_stream.h"
#include "net/shortage.h"
#include "net/socket.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace tutti::internal::net {

struct DialOptions {
  bool patient = false;        // attempts have no time limit, for a peer that is known to be slow to answer
  bool first_is_sure = false;  // the first address leads to no other host than the peer's: leads_to_peer()
};

// One thread. In a poll loop: prepare(set), set.wait(), process(set), until done().
//
// Addresses are tried in order. The next attempt starts when the last one has failed or has been silent for kStaggerMs;
// attempts then run in parallel. So an address that never answers, or an unauthenticated peer that sends nothing,
// delays the others only by that time. Failed addresses are tried again, at growing intervals. Only one connection
// sends its proof: then the others are closed, and the peer, which may already rely on this connection, has no time
// limit to confirm it.
class Dial {
 public:
  static constexpr std::int64_t kStaggerMs = 50;      // of silence, before the next address starts
  static constexpr std::int64_t kHandshakeMs = 5000;  // then the attempt is given up and repeated
  static constexpr std::int64_t kSecondMs = 100;      // of silence, before a second connection; and after it
  static constexpr std::int64_t kMaxBackoffMs = 50;   // between two attempts at one address

  Dial(const std::vector<Address>& targets, const Secret& secret, const Claim& mine, std::int32_t expected_rank,
       DialOptions options = {});

  void prepare(PollSet* set);
  void process(const PollSet& set);
  [[nodiscard]] bool done() const { return stream_.valid(); }
  // REQUIRES: done().
  ByteStream take() { return std::move(stream_); }
  // True if every address has refused or was unreachable since `ms` milliseconds, and none is pending. An address that
  // swallows everything proves nothing: a listener whose queue is full does so, or a host that is cut off.
  [[nodiscard]] bool refused_for(std::int64_t ms) const;
  // True if attempts at every address have failed, and for `ms` milliseconds one of them has been answered only by
  // tutti with another secret.
  [[nodiscard]] bool foreign_for(std::int64_t ms) const;
  // Likewise, by another version of tutti.
  [[nodiscard]] bool other_version_for(std::int64_t ms) const;
  // True if for `ms` milliseconds no process, or only one of another job, has listened at the peer's host. Final for a
  // peer that did listen; other failures (no route, no answer) may be temporary network failures. A listener serves all
  // addresses of its host, so a refusal at the first address is enough if that address is sure and no other address
  // answers. A packet filter may have refused, and a packet may have been lost: so an address counts as silent only
  // when two connections to it get no answer. Else every address must have refused: any of them may be another host's.
  [[nodiscard]] bool gone_for(std::int64_t ms) const;
  // No process listened at an address when it was tried last.
  [[nodiscard]] bool any_refused() const;
  // At least one attempt at every address has failed.
  [[nodiscard]] bool all_failed() const;
  // The peer's listener was not reached at any address: as all_failed(), but connections that broke later, and a local
  // lack of descriptors, do not count.
  [[nodiscard]] bool unreachable() const;
  // Not ok if for kShortageMs this process has had no descriptor or memory for a connection, or the system has refused
  // it a call at every address: further attempts are pointless. Until then, in a shortage, Acceptors of this process
  // close pending connections (net/shortage.h).
  [[nodiscard]] Status shortage() const;
  // A connection to an address exists now: the peer may answer late.
  [[nodiscard]] bool connected() const;
  // This side has sent its proof to a peer, which may rely on the connection from now on, and has not confirmed it yet.
  [[nodiscard]] bool proven() const;
  // The last attempts have failed because of such a shortage or refusal.
  [[nodiscard]] bool lacks() const { return shortage_.now() || refuses_calls_for(0); }
  // The last error of each address, for messages.
  [[nodiscard]] std::string trouble() const;
  // The most likely cause, for messages: no process listens, or packets do not arrive. Empty for other errors.
  [[nodiscard]] std::string likely_cause() const;

 private:
  struct Attempt {
    Address address;
    ByteStream stream;
    Handshake handshake;
    bool connected = false;
    bool started = false;  // ever
    bool polled = false;
    std::size_t entry = 0;
    std::int64_t begun_ns = 0;
    std::int64_t next_ns = 0;  // not before
    std::int64_t backoff_ms = 1;
    std::string error;
    std::int64_t foreign_since_ns = 0;  // 0: the last answer had this secret, or there was none
    std::int64_t other_version_since_ns = 0;
    std::int64_t absent_since_ns = 0;      // the same for this secret or a refusal
    std::int64_t uncallable_since_ns = 0;  // the system refuses this process a call that takes
    bool refused = false;                  // no process listens there
    bool silent = false;                   // nothing has come from there in kHandshakeMs
    bool reached = false;                  // `error` is of a connection that had been made, or of this side
    UniqueFd second{};  // another connection, if the first one gets no answer after a refusal elsewhere
    bool second_polled = false;
    std::size_t second_entry = 0;
    std::int64_t second_ns = 0;  // when it was begun; 0: it was not
  };
  void begin(Attempt* attempt);
  void fail(Attempt* attempt, const Status& why);
  void advance(std::size_t index);
  // Whether the first address is the peer's and refuses: then other addresses are tried twice.
  [[nodiscard]] bool doubts() const;
  void prepare_second(Attempt* attempt, PollSet* set);
  void read_second(std::size_t index, const PollSet& set);
  [[nodiscard]] static bool is_silent(const Attempt& attempt);
  // By the system, at every address, for `ms` milliseconds.
  [[nodiscard]] bool refuses_calls_for(std::int64_t ms) const;
  [[nodiscard]] bool only_since(std::int64_t Attempt::*since_ns, std::int64_t ms) const;

  Secret secret_;
  Claim mine_;
  std::int32_t expected_rank_;
  DialOptions options_;
  std::vector<Attempt> attempts_;
  ByteStream stream_;
  std::int64_t refused_since_ns_ = 0;
  Shortage shortage_;
};

}  // namespace tutti::internal::net

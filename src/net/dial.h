// Dials one peer that may be reached at any of several addresses, until one of them proves to be it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "net/address.h"
#include "net/auth.h"
#include "net/shortage.h"
#include "net/socket.h"
#include "os/clock.h"
#include "os/unique_fd.h"

namespace tutti::internal::net {

// One thread. In a poll loop: prepare(set), set.wait(), process(set), until done().
//
// Addresses are tried in order. The next one starts when the last has failed or has been silent for a
// while, and they then go on side by side, so that an address that swallows everything, or a stranger
// who accepts and says nothing, costs that while only. Failed addresses are tried again, less and less
// often. Only one connection ever proves itself: then the others are given up, and the peer, who may count on it
// already, has all the time that it needs to say so.
class Dial {
 public:
  static constexpr std::int64_t kStaggerMs = 50;      // of silence, before the next address starts
  static constexpr std::int64_t kHandshakeMs = 5000;  // then the attempt is given up and repeated
  static constexpr std::int64_t kMaxBackoffMs = 50;   // between two attempts at one address

  // `patient`: attempts have no time limit of their own, for a peer that is known to be slow to answer.
  Dial(const std::vector<Address>& targets, const Secret& secret, const Claim& mine, std::int32_t expected_rank,
       bool patient = false);

  void prepare(PollSet* set);
  void process(const PollSet& set);
  [[nodiscard]] bool done() const { return socket_.valid(); }
  // REQUIRES: done().
  UniqueFd take() { return std::move(socket_); }
  // True if every address has refused or was unreachable since `ms` milliseconds, and none is pending. An address that
  // swallows everything proves nothing: a listener whose queue is full does so, or a host that is cut off.
  [[nodiscard]] bool refused_for(std::int64_t ms) const;
  // True if attempts at every address have failed, and for `ms` milliseconds one of them has been answered by tutti
  // with another secret, and by nobody else.
  [[nodiscard]] bool foreign_for(std::int64_t ms) const;
  // Likewise, by another version of tutti.
  [[nodiscard]] bool other_version_for(std::int64_t ms) const;
  // True if for `ms` milliseconds nobody has listened at any of the addresses, or somebody of another job. Final for
  // a peer that did listen; other failures (no route, no answer) may be the network's, and pass.
  [[nodiscard]] bool gone_for(std::int64_t ms) const;
  // Nobody listened at an address when it was tried last.
  [[nodiscard]] bool any_refused() const;
  // At least one attempt at every address has failed.
  [[nodiscard]] bool all_failed() const;
  // The peer's listener was not even reached, at any address: as all_failed(), but a connection that broke later, and
  // a lack of descriptors here, do not count.
  [[nodiscard]] bool unreachable() const;
  // Not ok if for kShortageMs this process has had no descriptor or memory for a connection, or the system has refused
  // it a call at every address: trying on is pointless. Until then Acceptors of this process give up strangers, if
  // something lacks (net/shortage.h).
  [[nodiscard]] Status shortage() const;
  // This side has proven itself to a peer, which may count on it from now on, and has not said so yet.
  [[nodiscard]] bool proven() const;
  // The last attempts have failed for such a lack or refusal.
  [[nodiscard]] bool lacks() const { return shortage_.now() || refuses_calls_for(0); }
  // Per address what went wrong last, for messages.
  [[nodiscard]] std::string trouble() const;
  // What that most often means, for messages: nobody listens, or nothing arrives. Empty where it is neither.
  [[nodiscard]] std::string likely_cause() const;

 private:
  struct Attempt {
    Address address;
    UniqueFd fd;
    Handshake handshake;
    bool connected = false;
    bool started = false;  // ever
    bool polled = false;
    std::size_t entry = 0;
    std::int64_t begun_ns = 0;
    std::int64_t next_ns = 0;  // not before
    std::int64_t backoff_ms = 1;
    std::string error;
    std::int64_t foreign_since_ns = 0;  // 0: what answered last had this secret, or nobody did
    std::int64_t other_version_since_ns = 0;
    std::int64_t absent_since_ns = 0;      // the same for this secret or a refusal
    std::int64_t uncallable_since_ns = 0;  // the system refuses this process a call that takes
    bool refused = false;                  // nobody listens there
    bool silent = false;                   // nothing has come from there in kHandshakeMs
    bool reached = false;                  // `error` is of a connection that had been made, or of this side
  };
  void begin(Attempt* attempt);
  void fail(Attempt* attempt, const Status& why);
  void advance(std::size_t index);
  [[nodiscard]] bool connected() const;
  // By the system, at every address, for `ms` milliseconds.
  [[nodiscard]] bool refuses_calls_for(std::int64_t ms) const;
  [[nodiscard]] bool only_since(std::int64_t Attempt::*since_ns, std::int64_t ms) const;

  Secret secret_;
  Claim mine_;
  std::int32_t expected_rank_;
  bool patient_;
  std::vector<Attempt> attempts_;
  UniqueFd socket_;
  std::int64_t refused_since_ns_ = 0;
  Shortage shortage_;
};

}  // namespace tutti::internal::net

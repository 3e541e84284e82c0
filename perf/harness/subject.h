// The subject of a program's measurement: a collective, or transfers (sends and receives).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>

#include "base/types.h"

namespace tutti::internal::perf {

enum class Transfers : std::uint8_t {
  kSendRecv,  // in one group, each rank sends to the next one and receives from the one before
  kPingPong,  // of two ranks, one sends and then receives, the other receives and then sends
};

// The collective that does the same with blocks that have counts of their own, if there is one.
constexpr std::optional<Collective> varying_form(Collective collective) {
  const CollectiveInfo& uniform = info_of(collective);
  for (const CollectiveInfo& info : kCollectiveTable) {
    const bool alike = info.input == uniform.input && info.output == uniform.output && info.origin == uniform.origin;
    if (alike && info.varies) return info.collective;
  }
  return std::nullopt;
}

class Subject {
 public:
  // Implicit: each collective is a subject, and so are transfers.
  constexpr Subject(Collective collective) : what_(collective) {}  // NOLINT(google-explicit-constructor)
  constexpr Subject(Transfers transfers) : what_(transfers) {}     // NOLINT(google-explicit-constructor)
  constexpr bool operator==(const Subject&) const = default;

  // Null: it is the other of the two.
  [[nodiscard]] constexpr const Collective* collective() const { return std::get_if<Collective>(&what_); }
  [[nodiscard]] constexpr const Transfers* transfers() const { return std::get_if<Transfers>(&what_); }

  [[nodiscard]] constexpr const char* name() const {
    if (const Collective* c = collective()) return name_of(*c);
    return *transfers() == Transfers::kPingPong ? "ping_pong" : "sendrecv";
  }
  // How many transfers a call makes one after the other; its time is that of one of them.
  [[nodiscard]] constexpr int in_turn() const { return *this == Transfers::kPingPong ? 2 : 1; }

  // As of collectives (base/collectives.h); transfers have one vector to send and one to receive on every rank.
  [[nodiscard]] constexpr bool has_data() const { return transfers() != nullptr || internal::has_data(*collective()); }
  [[nodiscard]] constexpr bool has_root() const { return is(internal::has_root); }
  [[nodiscard]] constexpr bool reduces() const { return is(internal::reduces); }
  [[nodiscard]] constexpr bool combines_prefixes() const { return is(internal::combines_prefixes); }
  [[nodiscard]] constexpr bool alike_everywhere() const { return is(internal::alike_everywhere); }
  [[nodiscard]] constexpr bool has_blocks() const { return is(internal::has_blocks); }
  [[nodiscard]] constexpr bool varies() const { return is(internal::varies); }
  [[nodiscard]] constexpr bool gives_own_block() const { return is(internal::gives_own_block); }
  [[nodiscard]] constexpr bool gets_own_block() const { return is(internal::gets_own_block); }
  // Transfers have no form in place, nor has what moves no data.
  [[nodiscard]] constexpr bool has_in_place() const { return is(internal::has_data); }
  // Whether recvbuff has a meaning on `rank`.
  [[nodiscard]] constexpr bool receives(int rank, int root) const {
    return transfers() != nullptr || has_any(info_of(*collective()).output, rank, root);
  }

 private:
  [[nodiscard]] constexpr bool is(bool (*trait)(Collective)) const {
    return collective() != nullptr && trait(*collective());
  }

  std::variant<Collective, Transfers> what_;
};

}  // namespace tutti::internal::perf

// The notices of survivor mode: the ends of all collectives, and the invitations of late ranks.
#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/rank_list.h"
#include "communicator/survivors.h"
#include "control/control_messages.h"
#include "net/frame.h"

namespace tutti::internal {
namespace {

constexpr std::uint32_t kNoticeMark = 0x76727573;  // no decision of a rank begins so

void put(net::Packer* packer, const Invitation& invitation) {
  packer->number(invitation.phase).number(invitation.calls);
  control::put(packer, invitation.members);
  control::put(packer, invitation.late);
  packer->number(static_cast<std::uint8_t>(invitation.all_were_late));
}

bool take(net::Unpacker* unpacker, int ranks, Invitation* invitation) {
  invitation->phase = unpacker->number<std::uint32_t>();
  invitation->calls = unpacker->number<std::uint64_t>();
  if (!control::take(unpacker, ranks, &invitation->members)) return false;
  if (!control::take(unpacker, ranks, &invitation->late)) return false;
  invitation->all_were_late = unpacker->number<std::uint8_t>() != 0;
  return unpacker->complete();
}

}  // namespace

struct Survivors::Notice {
  enum class Kind : std::uint32_t { kEnd, kReturn, kInvitation };
  Kind kind = Kind::kEnd;
  int rank = 0;
  Status end{};
  LateReturn late_return{};
  Invitation invitation{};

  [[nodiscard]] std::string pack() const;
  // Nothing if it is something else, or damaged. `ranks`: of the communicator.
  static std::optional<Notice> unpack(const std::string& told, int ranks);
};

std::string Survivors::Notice::pack() const {
  net::Packer packer;
  packer.number(kNoticeMark).number(static_cast<std::uint32_t>(kind)).number(rank);
  switch (kind) {
    case Kind::kEnd: packer.number(static_cast<std::int32_t>(end.code())).text(end.message()); break;
    case Kind::kReturn: packer.number(late_return.phase).number(late_return.calls); break;
    case Kind::kInvitation: put(&packer, invitation); break;
  }
  return packer.bytes();
}

std::optional<Survivors::Notice> Survivors::Notice::unpack(const std::string& told, int ranks) {
  net::Unpacker unpacker(told);
  if (unpacker.number<std::uint32_t>() != kNoticeMark) return {};
  Notice notice;
  notice.kind = static_cast<Kind>(unpacker.number<std::uint32_t>());
  notice.rank = unpacker.number<std::int32_t>();
  if (notice.rank < 0 || notice.rank >= ranks) return {};
  switch (notice.kind) {
    case Kind::kEnd: {
      const Code code = code_of(unpacker.number<std::int32_t>());
      notice.end = {code, unpacker.text()};
      if (code == Code::kSuccess) return {};
      break;
    }
    case Kind::kReturn:
      notice.late_return.rank = notice.rank;
      notice.late_return.phase = unpacker.number<std::uint32_t>();
      notice.late_return.calls = unpacker.number<std::uint64_t>();
      break;
    case Kind::kInvitation:
      if (!take(&unpacker, ranks, &notice.invitation)) return {};
      break;
    default: return {};
  }
  return unpacker.complete() ? std::optional(std::move(notice)) : std::nullopt;
}

void Survivors::tell(const Notice& notice) {
  if (epoch_.tree() != nullptr) epoch_.tree()->tell_lasting_decision(static_cast<int>(notice.kind), notice.pack());
}

void Survivors::note(const Notice& notice) {
  const MutexLock lock(mutex_);
  switch (notice.kind) {
    case Notice::Kind::kEnd:
      if (ended_.is_ok()) ended_ = notice.end;
      break;
    case Notice::Kind::kReturn: late_ranks_.hear(notice.late_return); break;
    case Notice::Kind::kInvitation: late_ranks_.hear(notice.invitation); break;
  }
  changed_.notify_all();
}

bool Survivors::hear(const std::string& told) {
  const auto notice = Notice::unpack(told, epoch_.ranks());
  if (notice) note(*notice);
  return notice.has_value();
}

void Survivors::tell_end(const Status& why) {
  const Notice notice{.rank = epoch_.rank(), .end = as_told_to_peers(why)};
  note(notice);
  tell(notice);
}

Status Survivors::ended() const {
  const MutexLock lock(mutex_);
  return ended_;
}

// ---- Late ranks ---------------------------------------------------------------------------------

RankSet Survivors::departed() const {
  return RankSet::where(epoch_.ranks(), [this](int rank) { return failures_.state().departed(rank); });
}

std::string Survivors::offer_phase(std::uint32_t phase, const std::vector<int>& late, std::int64_t patience_ms) const {
  if (late.empty()) return {};
  auto dead = epoch_.tree()->dead();
  if (!dead.is_ok()) return {};  // the agreement fails
  RankSet gone = departed();
  gone.add(*dead);
  const MutexLock lock(mutex_);
  RankSet invited = late_ranks_.to_invite(late, gone, patience_ms);
  for (;;) {
    if (invited.empty()) return {};
    net::Packer packer;
    packer.number(late_ranks_.next_phase(phase));
    control::put(&packer, invited);
    if (packer.bytes().size() <= control::kMaxOfferBytes) return packer.bytes();
    const RankSet::Range last = invited.ranges().back();
    invited = invited.without(RankSet(last.first, last.end));  // another time
  }
}

Result<Survivors::NextPhase> Survivors::phase_of(const std::string& offer) const {
  net::Unpacker unpacker(offer);
  NextPhase next;
  next.phase = unpacker.number<std::uint32_t>();
  if (!control::take(&unpacker, epoch_.ranks(), &next.invited) || !unpacker.complete()) {
    return Status::remote("protocol error: a damaged invitation of late ranks");
  }
  return next;
}

void Survivors::invite(const Invitation& invitation, bool tells) {
  const Notice notice{.kind = Notice::Kind::kInvitation, .rank = epoch_.rank(), .invitation = invitation};
  note(notice);
  if (tells) tell(notice);
}

void Survivors::tell_return(const LateReturn& own) {
  const Notice notice{.kind = Notice::Kind::kReturn, .rank = epoch_.rank(), .late_return = own};
  note(notice);
  tell(notice);
}

Result<Invitation> Survivors::await_invitation(LateReturn own, Deadline deadline) {
  tell_return(own);
  for (;;) {
    if (Status s = check_not_aborted(); !s.is_ok()) return s;
    auto dead = epoch_.tree()->dead();
    if (!dead.is_ok()) return dead.status();
    const RankSet left = departed().without(*dead);
    const RankSet living = RankSet(0, epoch_.ranks()).without(*dead).without(left);
    std::optional<Invitation> of_all;
    std::optional<Invitation> last;
    {
      const MutexLock lock(mutex_);
      last = late_ranks_.invitation(own.phase);
      if (last && last->members.contains(own.rank)) return *last;
      if (deadline.passed()) return Status::timeout("timed out: the ranks on time have called no collective");
      of_all = late_ranks_.invite_all(living);
      if (!last && (!of_all || (left.empty() && living.front() != own.rank))) {
        changed_.wait_until(mutex_, Deadline::after_ms(deadline.left_ms(kFailureCheckMs)));
        continue;
      }
    }
    if (last) {
      own.phase = last->phase;
      tell_return(own);
      continue;
    }
    if (!left.empty()) {
      std::vector<int> ranks;
      left.each([&](int rank) { ranks.push_back(rank); });
      return Status::remote(fmt::format("{} left the communicator while this rank was late", list_ranks(ranks)));
    }
    invite(*of_all, true);
  }
}

}  // namespace tutti::internal

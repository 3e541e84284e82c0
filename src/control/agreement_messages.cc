#include "control/agreement_messages.h"

#include <utility>

namespace tutti::internal::control {
namespace {

// The text of a call has a few hundred bytes, and a list of ranks.
constexpr std::size_t kMaxCallBytes = 4096;

void put(net::Packer* packer, const AgreementName& name) {
  control::put(packer, name.excluded);
  packer->number(name.series).number(name.number);
}

bool take(const Header& header, net::Unpacker* unpacker, int ranks, AgreementName* name) {
  name->comm = {header.comm, header.members};
  if (!control::take(unpacker, ranks, &name->excluded)) return false;
  name->series = unpacker->number<std::uint32_t>();
  name->number = unpacker->number<std::uint32_t>();
  return unpacker->ok();
}

void put(net::Packer* packer, const Caller& caller) {
  packer->number(caller.rank).text(caller.call);
}

bool take(net::Unpacker* unpacker, int ranks, Caller* caller) {
  caller->rank = unpacker->number<std::int32_t>();
  caller->call = unpacker->text();
  return unpacker->ok() && caller->rank >= -1 && caller->rank < ranks && caller->call.size() <= kMaxCallBytes;
}

void put(net::Packer* packer, const Offer& offer) {
  packer->number(offer.rank).text(offer.bytes);
}

bool take(net::Unpacker* unpacker, int ranks, Offer* offer) {
  offer->rank = unpacker->number<std::int32_t>();
  offer->bytes = unpacker->text();
  return unpacker->ok() && offer->rank >= -1 && offer->rank < ranks && offer->bytes.size() <= kMaxOfferBytes &&
         offer->bytes.empty() == (offer->rank < 0);
}

void put(net::Packer* packer, const Decision& decision) {
  packer->number(static_cast<std::uint8_t>(decision.outcome)).number(decision.flags);
  put(packer, decision.offer);
  control::put(packer, decision.ranks);
  put(packer, decision.caller);
  put(packer, decision.other);
}

bool take(net::Unpacker* unpacker, int ranks, Decision* decision) {
  const auto outcome = unpacker->number<std::uint8_t>();
  decision->outcome = static_cast<Outcome>(outcome);
  decision->flags = unpacker->number<std::uint64_t>();
  return outcome <= static_cast<std::uint8_t>(Outcome::kLate) && take(unpacker, ranks, &decision->offer) &&
         control::take(unpacker, ranks, &decision->ranks) && take(unpacker, ranks, &decision->caller) &&
         take(unpacker, ranks, &decision->other) &&
         (decision->outcome != Outcome::kMismatch || decision->other.rank >= 0);
}

}  // namespace

std::string AgreementName::key() const {
  net::Packer packer;
  packer.number(comm.id).number(series).number(number);
  control::put(&packer, excluded);
  return packer.bytes();
}

// FNV-1a: the same on all machines.
std::uint64_t AgreementName::hash() const {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : key()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

RankSet AgreementName::members(int ranks) const {
  if (comm.members.empty()) return RankSet(0, ranks).without(excluded);
  return RankSet::where(ranks, [&](int rank) { return is_member(comm.members, rank); }).without(excluded);
}

std::string pack_proposals(const Proposals& proposals) {
  net::Packer packer = begin_named(FrameKind::kProposals, proposals.name.comm);
  put(&packer, proposals.name);
  const Tally& tally = proposals.tally;
  packer.number(proposals.ballot).number(proposals.wait_ms);
  control::put(&packer, proposals.left);
  control::put(&packer, tally.given);
  packer.number(tally.flags);
  put(&packer, tally.offer);
  put(&packer, tally.caller);
  put(&packer, tally.other);
  packer.number(static_cast<std::uint8_t>(proposals.decision.has_value()));
  if (proposals.decision) put(&packer, *proposals.decision);
  return packer.bytes();
}

bool unpack_proposals(const Header& header, net::Unpacker* unpacker, int ranks, Proposals* proposals) {
  if (!take(header, unpacker, ranks, &proposals->name)) return false;
  proposals->ballot = unpacker->number<std::int32_t>();
  proposals->wait_ms = unpacker->number<std::int64_t>();
  Tally& tally = proposals->tally;
  if (!control::take(unpacker, ranks, &proposals->left) || !control::take(unpacker, ranks, &tally.given)) return false;
  tally.flags = unpacker->number<std::uint64_t>();
  if (!take(unpacker, ranks, &tally.offer) || !take(unpacker, ranks, &tally.caller) ||
      !take(unpacker, ranks, &tally.other))
    return false;
  if (unpacker->number<std::uint8_t>() != 0 && !take(unpacker, ranks, &proposals->decision.emplace())) return false;
  return unpacker->complete() && proposals->ballot >= 0 && proposals->ballot < ranks && proposals->wait_ms >= 0 &&
         proposals->wait_ms <= kMaxWaitMs && tally.given.empty() == (tally.caller.rank < 0);
}

std::string pack_agreed(const Agreed& agreed) {
  net::Packer packer = begin_named(FrameKind::kAgreed, agreed.name.comm);
  put(&packer, agreed.name);
  packer.number(agreed.ballot);
  put(&packer, agreed.decision);
  return packer.bytes();
}

bool unpack_agreed(const Header& header, net::Unpacker* unpacker, int ranks, Agreed* agreed) {
  if (!take(header, unpacker, ranks, &agreed->name)) return false;
  agreed->ballot = unpacker->number<std::int32_t>();
  return take(unpacker, ranks, &agreed->decision) && unpacker->complete() && agreed->ballot >= 0 &&
         agreed->ballot < ranks;
}

}  // namespace tutti::internal::control

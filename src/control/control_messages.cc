#include "control/control_messages.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "net/address.h"

namespace tutti::internal::control {
namespace {

constexpr std::int64_t kMaxPatienceMs = 60'000;
// Limit for a call's description and its hint, which have a few hundred bytes.
constexpr std::size_t kMaxWordsBytes = 4096;

using net::kMaxAddresses;

void put(net::Packer* packer, const Question& question) {
  packer->number(question.sequence).number(question.patience_ms).number(question.waited_ms);
  packer->text(question.what).text(question.hint).number(static_cast<std::uint8_t>(question.all));
}

bool take(net::Unpacker* unpacker, Question* question) {
  question->sequence = unpacker->number<std::uint32_t>();
  question->patience_ms = unpacker->number<std::int64_t>();
  question->waited_ms = unpacker->number<std::int64_t>();
  question->what = unpacker->text();
  question->hint = unpacker->text();
  question->all = unpacker->number<std::uint8_t>() != 0;
  const bool tells = question->waited_ms > 0;  // then it names the operation
  return question->patience_ms >= 0 && question->patience_ms <= kMaxPatienceMs && question->waited_ms >= 0 &&
         tells != question->what.empty() && question->what.size() <= kMaxWordsBytes &&
         question->hint.size() <= kMaxWordsBytes;
}

void put(net::Packer* packer, const Absence& absence) {
  packer->number(absence.rank).number(static_cast<std::uint8_t>(absence.silent)).number(absence.sequence);
  packer->number(static_cast<std::uint8_t>(absence.inside)).text(absence.report);
}

bool take(net::Unpacker* unpacker, int ranks, Absence* absence) {
  absence->rank = unpacker->number<std::int32_t>();
  absence->silent = unpacker->number<std::uint8_t>() != 0;
  absence->sequence = unpacker->number<std::uint32_t>();
  absence->inside = unpacker->number<std::uint8_t>() != 0;
  absence->report = unpacker->text();
  return absence->rank >= 0 && absence->rank < ranks && absence->report.size() <= kMostReportBytes;
}

void put(net::Packer* packer, const std::vector<CallRecord>& records) {
  packer->number(static_cast<std::uint32_t>(records.size()));
  for (const CallRecord& record : records) {
    packer->number(record.sequence).number(record.call[0]).number(record.call[1]).number(record.before);
    packer->text(record.text).text(record.plan);
  }
}

void take(net::Unpacker* unpacker, std::vector<CallRecord>* records) {
  const auto count = unpacker->number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && unpacker->ok(); ++i) {
    CallRecord record;
    record.sequence = unpacker->number<std::uint32_t>();
    for (std::uint64_t& word : record.call) word = unpacker->number<std::uint64_t>();
    record.before = unpacker->number<std::uint64_t>();
    record.text = unpacker->text();
    record.plan = unpacker->text();
    records->push_back(std::move(record));
  }
}

net::Packer begin(FrameKind kind, CommId comm) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(kind)).number(comm);
  return packer;
}

// Whether the frame goes to the ranks of one communicator, whichever ranks forward it.
bool names_members(std::uint8_t kind) {
  const auto frame = static_cast<FrameKind>(kind);
  return (frame >= FrameKind::kParts && frame < FrameKind::kCalls) || frame >= FrameKind::kProposals;
}

// Ranks' contributions are mostly alike. So bytes are encoded by their difference from preceding ones: alternately the
// number of equal bytes, and the number of different bytes followed by these.
void put_like(net::Packer* packer, const std::string& bytes, const std::string& before) {
  constexpr std::size_t kMost = 255;
  constexpr std::size_t kShort = 3;  // shorter equal runs are sent as different bytes
  const auto same = [&](std::size_t at) { return at < before.size() && at < bytes.size() && bytes[at] == before[at]; };
  const auto begins_same = [&](std::size_t at) {
    for (std::size_t i = 0; i < kShort; ++i) {
      if (!same(at + i)) return false;
    }
    return true;
  };
  packer->number(static_cast<std::uint32_t>(bytes.size()));
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    while (at - begin < kMost && same(at)) ++at;
    const std::size_t middle = at;
    while (at - middle < kMost && at < bytes.size() && !begins_same(at)) ++at;
    packer->number(static_cast<std::uint8_t>(middle - begin)).number(static_cast<std::uint8_t>(at - middle));
    packer->raw(bytes.data() + middle, at - middle);
  }
}

bool take_like(net::Unpacker* unpacker, const std::string& before, std::string* bytes) {
  const auto size = unpacker->number<std::uint32_t>();
  std::string result;
  while (unpacker->ok() && result.size() < size) {
    const auto same = unpacker->number<std::uint8_t>();
    std::string other(unpacker->number<std::uint8_t>(), '\0');
    unpacker->raw(other.data(), other.size());
    if ((same == 0 && other.empty()) || (same > 0 && result.size() + same > before.size())) return false;
    if (same > 0) result.append(before, result.size(), same);
    result += other;
  }
  if (!unpacker->ok() || result.size() != size) return false;
  *bytes = std::move(result);
  return true;
}

std::string bytes_of(const Contact& contact) {
  net::Packer packer;
  packer.number(contact.rank).number(contact.pid).text(contact.host);
  packer.number(static_cast<std::uint8_t>(contact.addresses.size()));
  for (const std::string& address : contact.addresses) packer.text(address);
  return packer.bytes();
}

bool take_rank(net::Unpacker* unpacker, int ranks, int* rank) {
  *rank = unpacker->number<std::int32_t>();
  return *rank >= 0 && *rank < ranks;
}

}  // namespace

net::Packer begin_named(FrameKind kind, const CommName& comm) {
  net::Packer packer = begin(kind, comm.id);
  packer.text(comm.members);
  return packer;
}

void put(net::Packer* packer, const RankSet& ranks) {
  packer->number(static_cast<std::uint32_t>(ranks.ranges().size()));
  for (const RankSet::Range& range : ranks.ranges()) packer->number(range.first).number(range.end);
}

bool take(net::Unpacker* unpacker, int ranks, RankSet* set) {
  const auto count = unpacker->number<std::uint32_t>();
  int above = 0;  // all ranks so far
  for (std::uint32_t i = 0; i < count && unpacker->ok(); ++i) {
    const auto first = unpacker->number<std::int32_t>();
    const auto end = unpacker->number<std::int32_t>();
    if (first < above || end <= first || end > ranks) return false;
    set->append(first, end);
    above = end;
  }
  return unpacker->ok();
}

std::string member_bits(const std::vector<int>& ranks) {
  std::string bits;
  for (const int rank : ranks) {
    const auto at = static_cast<std::size_t>(rank);
    if (bits.size() <= at / 8) bits.resize(at / 8 + 1);
    bits[at / 8] = static_cast<char>(static_cast<unsigned char>(bits[at / 8]) | 1U << at % 8);
  }
  return bits;
}

bool is_member(const std::string& members, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  if (members.empty()) return true;
  return at / 8 < members.size() && (static_cast<unsigned char>(members[at / 8]) >> at % 8 & 1U) != 0;
}

bool any_member(const std::string& members, const RankSet& ranks) {
  return std::any_of(ranks.ranges().begin(), ranks.ranges().end(), [&](const RankSet::Range& range) {
    // No bit is set behind the last member's.
    const int end = members.empty() ? range.end : std::min(range.end, static_cast<int>(members.size() * 8));
    for (int rank = range.first; rank < end; ++rank) {
      if (rank % 8 == 0 && rank + 8 <= end && !members.empty() && members[static_cast<std::size_t>(rank) / 8] == 0) {
        rank += 7;  // none of these eight
      } else if (is_member(members, rank)) {
        return true;
      }
    }
    return false;
  });
}

std::size_t count_members(const std::string& members, int ranks) {
  if (members.empty()) return static_cast<std::size_t>(ranks);
  std::size_t count = 0;
  for (const char byte : members) count += static_cast<std::size_t>(std::popcount(static_cast<unsigned char>(byte)));
  return count;
}

std::string pack_bye(int rank) {
  return begin(FrameKind::kBye, 0).number(rank).bytes();
}

std::string pack_death(const Death& death) {
  return begin(FrameKind::kDeath, 0).number(death.rank).text(death.host).number(death.pid).bytes();
}

std::string pack_contacts(const std::vector<Contact>& contacts) {
  net::Packer packer = begin(FrameKind::kContacts, 0);
  packer.number(static_cast<std::uint32_t>(contacts.size()));
  std::string before;
  for (const Contact& contact : contacts) {
    std::string bytes = bytes_of(contact);
    put_like(&packer, bytes, before);
    before = std::move(bytes);
  }
  return packer.bytes();
}

std::string pack_attachment(const Attachment& attachment) {
  return begin(FrameKind::kAttachment, 0)
      .number(attachment.rank)
      .number(attachment.parent)
      .number(attachment.count)
      .bytes();
}

std::string pack_parts(const CommName& comm, const Parts& parts) {
  net::Packer packer = begin_named(FrameKind::kParts, comm);
  packer.number(parts.round).number(parts.from);
  put(&packer, parts.places);
  std::string before;
  for (const std::string& bytes : parts.bytes) {
    put_like(&packer, bytes, before);
    before = bytes;
  }
  return packer.bytes();
}

std::string pack_decision(const CommName& comm, const std::string& decision) {
  return begin_named(FrameKind::kDecision, comm).text(decision).bytes();
}

std::string pack_notice(const CommName& comm, const Notice& notice, FrameKind kind) {
  return begin_named(kind, comm).number(static_cast<std::int32_t>(notice.code)).text(notice.text).bytes();
}

std::string pack_leave_notices(const CommName& comm, const std::vector<LeaveNotice>& leave_notices) {
  net::Packer packer = begin_named(FrameKind::kLeaveNotices, comm);
  packer.number(static_cast<std::uint32_t>(leave_notices.size()));
  for (const LeaveNotice& leave_notice : leave_notices) {
    put(&packer, leave_notice.places);
    packer.number(leave_notice.rounds).number(leave_notice.calls.operations).number(leave_notice.calls.hash);
    put(&packer, leave_notice.calls.calls);
    packer.number(static_cast<std::uint32_t>(leave_notice.agreements.size()));
    for (const std::uint64_t name : leave_notice.agreements) packer.number(name);
  }
  return packer.bytes();
}

std::string pack_compare(const CommName& comm) {
  return begin_named(FrameKind::kCompare, comm).bytes();
}

std::string pack_claim(const CommName& comm) {
  return begin_named(FrameKind::kClaim, comm).bytes();
}

std::string pack_refusal(const CommName& comm, const Refusal& refusal) {
  net::Packer packer = begin_named(FrameKind::kRefusal, comm);
  packer.number(refusal.rank).number(refusal.sequence).number(refusal.serial).text(refusal.text);
  return packer.bytes();
}

std::string pack_calls(CommId comm, const Calls& calls) {
  net::Packer packer = begin(FrameKind::kCalls, comm);
  packer.number(static_cast<std::uint8_t>(calls.down)).number(calls.rank);
  put(&packer, calls.records);
  return packer.bytes();
}

std::string pack_inquiry(CommId comm, FrameKind kind, const Inquiry& inquiry) {
  net::Packer packer = begin(kind, comm);
  packer.number(inquiry.token);
  put(&packer, inquiry.question);
  return packer.bytes();
}

std::string pack_here(CommId comm, std::uint32_t token) {
  return begin(FrameKind::kHere, comm).number(token).bytes();
}

std::string pack_absence(CommId comm, bool all, const Absence& absence) {
  net::Packer packer = begin(FrameKind::kAbsent, comm);
  packer.number(static_cast<std::uint8_t>(all));
  put(&packer, absence);
  return packer.bytes();
}

std::string pack_answer(CommId comm, const Answer& answer) {
  net::Packer packer = begin(FrameKind::kAnswer, comm);
  put(&packer, answer.question);
  packer.number(static_cast<std::uint32_t>(answer.absent.size()));
  for (const Absence& absence : answer.absent) put(&packer, absence);
  return packer.bytes();
}

bool unpack_header(net::Unpacker* unpacker, Header* header) {
  const auto kind = unpacker->number<std::uint8_t>();
  header->kind = static_cast<FrameKind>(kind);
  header->comm = unpacker->number<CommId>();
  if (names_members(kind)) header->members = unpacker->text();
  return unpacker->ok() && kind >= static_cast<std::uint8_t>(FrameKind::kBye) &&
         kind <= static_cast<std::uint8_t>(FrameKind::kAgreed);
}

bool unpack_bye(net::Unpacker* unpacker, int ranks, int* rank) {
  return take_rank(unpacker, ranks, rank) && unpacker->complete();
}

bool unpack_contacts(net::Unpacker* unpacker, int ranks, std::vector<Contact>* contacts) {
  const auto count = unpacker->number<std::uint32_t>();
  std::string bytes;
  for (std::uint32_t i = 0; i < count && unpacker->ok(); ++i) {
    if (!take_like(unpacker, bytes, &bytes)) return false;
    net::Unpacker one(bytes);
    Contact contact;
    const bool sensible = take_rank(&one, ranks, &contact.rank);
    contact.pid = one.number<std::int32_t>();
    contact.host = one.text();
    const auto addresses = one.number<std::uint8_t>();
    for (std::size_t a = 0; a < addresses && a < kMaxAddresses; ++a) contact.addresses.push_back(one.text());
    if (!sensible || !one.complete()) return false;
    contacts->push_back(std::move(contact));
  }
  return unpacker->complete();
}

bool unpack_attachment(net::Unpacker* unpacker, int ranks, Attachment* attachment) {
  const bool sensible =
      take_rank(unpacker, ranks, &attachment->rank) && take_rank(unpacker, ranks, &attachment->parent);
  attachment->count = unpacker->number<std::uint32_t>();
  return sensible && unpacker->complete() && attachment->parent < attachment->rank;
}

bool unpack_death(net::Unpacker* unpacker, int ranks, Death* death) {
  const bool sensible = take_rank(unpacker, ranks, &death->rank);
  death->host = unpacker->text();
  death->pid = unpacker->number<std::int32_t>();
  return sensible && unpacker->complete();
}

bool unpack_parts(net::Unpacker* unpacker, int ranks, int members, Parts* parts) {
  parts->round = unpacker->number<std::uint32_t>();
  if (!take_rank(unpacker, ranks, &parts->from) || !take(unpacker, members, &parts->places)) return false;
  std::string bytes;
  for (int i = parts->places.size(); i > 0 && unpacker->ok(); --i) {
    if (!take_like(unpacker, bytes, &bytes)) return false;
    parts->bytes.push_back(bytes);
  }
  return unpacker->complete() && !parts->places.empty();
}

bool unpack_decision(net::Unpacker* unpacker, std::string* decision) {
  *decision = unpacker->text();
  return unpacker->complete();
}

bool unpack_notice(net::Unpacker* unpacker, Notice* notice) {
  notice->code = code_of(unpacker->number<std::int32_t>());
  notice->text = unpacker->text();
  return unpacker->complete() && notice->code != Code::kSuccess;
}

bool unpack_leave_notices(net::Unpacker* unpacker, int members, std::vector<LeaveNotice>* leave_notices) {
  const auto count = unpacker->number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && unpacker->ok(); ++i) {
    LeaveNotice leave_notice;
    if (!take(unpacker, members, &leave_notice.places) || leave_notice.places.empty()) return false;
    leave_notice.rounds = unpacker->number<std::uint32_t>();
    leave_notice.calls.operations = unpacker->number<std::uint32_t>();
    leave_notice.calls.hash = unpacker->number<std::uint64_t>();
    take(unpacker, &leave_notice.calls.calls);
    const auto agreements = unpacker->number<std::uint32_t>();
    for (std::uint32_t name = 0; name < agreements && unpacker->ok(); ++name) {
      leave_notice.agreements.push_back(unpacker->number<std::uint64_t>());
    }
    leave_notices->push_back(std::move(leave_notice));
  }
  return unpacker->complete();
}

bool unpack_refusal(net::Unpacker* unpacker, int ranks, Refusal* refusal) {
  const bool sensible = take_rank(unpacker, ranks, &refusal->rank);
  refusal->sequence = unpacker->number<std::uint32_t>();
  refusal->serial = unpacker->number<std::uint32_t>();
  refusal->text = unpacker->text();
  return sensible && unpacker->complete() && refusal->text.size() <= kMaxWordsBytes;
}

bool unpack_calls(net::Unpacker* unpacker, int ranks, Calls* calls) {
  calls->down = unpacker->number<std::uint8_t>() != 0;
  if (!take_rank(unpacker, ranks, &calls->rank)) return false;
  take(unpacker, &calls->records);
  return unpacker->complete();
}

bool unpack_inquiry(net::Unpacker* unpacker, Inquiry* inquiry) {
  inquiry->token = unpacker->number<std::uint32_t>();
  return take(unpacker, &inquiry->question) && unpacker->complete();
}

bool unpack_here(net::Unpacker* unpacker, std::uint32_t* token) {
  *token = unpacker->number<std::uint32_t>();
  return unpacker->complete();
}

bool unpack_absence(net::Unpacker* unpacker, int ranks, bool* all, Absence* absence) {
  *all = unpacker->number<std::uint8_t>() != 0;
  return take(unpacker, ranks, absence) && unpacker->complete();
}

bool unpack_answer(net::Unpacker* unpacker, int ranks, Answer* answer) {
  if (!take(unpacker, &answer->question)) return false;
  const auto count = unpacker->number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && unpacker->ok(); ++i) {
    Absence absence;
    if (!take(unpacker, ranks, &absence)) return false;
    answer->absent.push_back(absence);
  }
  return unpacker->complete();
}

}  // namespace tutti::internal::control

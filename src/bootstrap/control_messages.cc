#include "bootstrap/control_messages.h"

namespace tutti::internal::control {
namespace {

constexpr std::int64_t kMaxPatienceMs = 60'000;

void put(net::Packer* packer, const Question& question) {
  packer->number(question.sequence).number(question.patience_ms).number(question.waited_ms).text(question.what);
}

bool take(net::Unpacker* unpacker, Question* question) {
  question->sequence = unpacker->number<std::uint32_t>();
  question->patience_ms = unpacker->number<std::int64_t>();
  question->waited_ms = unpacker->number<std::int64_t>();
  question->what = unpacker->text();
  return question->patience_ms >= 0 && question->patience_ms <= kMaxPatienceMs;
}

void put(net::Packer* packer, const Absence& absence) {
  packer->number(absence.rank).number(static_cast<std::uint8_t>(absence.silent)).number(absence.sequence);
  packer->number(static_cast<std::uint8_t>(absence.inside));
}

bool take(net::Unpacker* unpacker, int ranks, Absence* absence) {
  absence->rank = unpacker->number<std::int32_t>();
  absence->silent = unpacker->number<std::uint8_t>() != 0;
  absence->sequence = unpacker->number<std::uint32_t>();
  absence->inside = unpacker->number<std::uint8_t>() != 0;
  return absence->rank >= 0 && absence->rank < ranks;
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

}  // namespace

std::string pack_notice(const Notice& notice) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(Kind::kNotice)).number(static_cast<std::int32_t>(notice.code));
  packer.number(notice.origin).number(notice.failed).text(notice.text);
  return packer.bytes();
}

std::string pack_leave_notice(const LeaveNotice& leave_notice) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(Kind::kLeaveNotice)).number(leave_notice.rank);
  packer.number(leave_notice.calls.operations).number(leave_notice.calls.hash);
  put(&packer, leave_notice.calls.calls);
  return packer.bytes();
}

std::string pack_parts(Kind kind, const Parts& parts) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(kind)).number(static_cast<std::uint32_t>(parts.size()));
  for (const auto& [rank, bytes] : parts) packer.number(rank).text(bytes);
  return packer.bytes();
}

std::string pack_calls(const Calls& calls) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(Kind::kCalls)).number(calls.rank);
  put(&packer, calls.records);
  return packer.bytes();
}

std::string pack_compare() {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(Kind::kCompare));
  return packer.bytes();
}

std::string pack_inquiry(Kind kind, const Inquiry& inquiry) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(kind)).number(inquiry.token);
  put(&packer, inquiry.question);
  return packer.bytes();
}

std::string pack_here(std::uint32_t token) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(Kind::kHere)).number(token);
  return packer.bytes();
}

std::string pack_absence(const Absence& absence) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(Kind::kAbsent));
  put(&packer, absence);
  return packer.bytes();
}

std::string pack_answer(const Answer& answer) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(Kind::kAnswer));
  put(&packer, answer.question);
  packer.number(static_cast<std::uint32_t>(answer.absent.size()));
  for (const Absence& absence : answer.absent) put(&packer, absence);
  return packer.bytes();
}

bool unpack_notice(net::Unpacker* unpacker, Notice* notice) {
  notice->code = code_of(unpacker->number<std::int32_t>());
  notice->origin = unpacker->number<std::int32_t>();
  notice->failed = unpacker->number<std::int32_t>();
  notice->text = unpacker->text();
  return unpacker->complete() && notice->code != Code::kSuccess;
}

bool unpack_parts(net::Unpacker* unpacker, int ranks, Parts* parts) {
  const auto count = unpacker->number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && unpacker->ok(); ++i) {
    const auto rank = unpacker->number<std::int32_t>();
    if (rank < 0 || rank >= ranks) return false;
    (*parts)[rank] = unpacker->text();
  }
  return unpacker->complete();
}

bool unpack_calls(net::Unpacker* unpacker, int ranks, Calls* calls) {
  calls->rank = unpacker->number<std::int32_t>();
  if (calls->rank < 0 || calls->rank >= ranks) return false;
  take(unpacker, &calls->records);
  return unpacker->complete();
}

bool unpack_leave_notice(net::Unpacker* unpacker, int ranks, LeaveNotice* leave_notice) {
  leave_notice->rank = unpacker->number<std::int32_t>();
  if (leave_notice->rank < 0 || leave_notice->rank >= ranks) return false;
  leave_notice->calls.operations = unpacker->number<std::uint32_t>();
  leave_notice->calls.hash = unpacker->number<std::uint64_t>();
  take(unpacker, &leave_notice->calls.calls);
  return unpacker->complete();
}

bool unpack_inquiry(net::Unpacker* unpacker, Inquiry* inquiry) {
  inquiry->token = unpacker->number<std::uint32_t>();
  return take(unpacker, &inquiry->question) && unpacker->complete();
}

bool unpack_absence(net::Unpacker* unpacker, int ranks, Absence* absence) {
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

#include "communicator/control_messages.h"

namespace tutti::control {

std::string pack_notice(const Notice& notice) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(Kind::kNotice)).number(static_cast<std::int32_t>(notice.code));
  packer.number(notice.origin).number(notice.failed).text(notice.text);
  return packer.bytes();
}

std::string pack_goodbye(int rank) {
  net::Packer packer;
  packer.number(static_cast<std::uint8_t>(Kind::kGoodbye)).number(rank);
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
  packer.number(static_cast<std::uint32_t>(calls.records.size()));
  for (const CallRecord& record : calls.records) {
    packer.number(record.sequence).number(record.call[0]).number(record.call[1]);
    packer.text(record.text).text(record.plan);
  }
  return packer.bytes();
}

bool unpack_notice(net::Unpacker* unpacker, Notice* notice) {
  notice->code = static_cast<Code>(unpacker->number<std::int32_t>());
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
  const auto count = unpacker->number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && unpacker->ok(); ++i) {
    CallRecord record;
    record.sequence = unpacker->number<std::uint32_t>();
    for (std::uint64_t& word : record.call) word = unpacker->number<std::uint64_t>();
    record.text = unpacker->text();
    record.plan = unpacker->text();
    calls->records.push_back(std::move(record));
  }
  return unpacker->complete();
}

}  // namespace tutti::control

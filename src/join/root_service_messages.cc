// The messages between ranks and the root service, as bytes.
#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "base/rank_list.h"
#include "join/root_service.h"
#include "net/address.h"
#include "net/frame.h"

namespace tutti::internal {
namespace {

using net::kMaxAddresses;

constexpr std::int64_t kMostPatienceMs = std::int64_t{1} << 40;  // longer than any time setting

void pack_addresses(const std::vector<std::string>& addresses, net::Packer* packer) {
  packer->number(static_cast<std::uint8_t>(addresses.size()));
  for (const std::string& address : addresses) packer->text(address);
}

std::vector<std::string> unpack_addresses(net::Unpacker* unpacker) {
  std::vector<std::string> addresses;
  const auto count = unpacker->number<std::uint8_t>();
  for (std::size_t i = 0; i < count && i < kMaxAddresses; ++i) addresses.push_back(unpacker->text());
  return addresses;
}

}  // namespace

std::string Registration::who() const {
  return describe_rank(rank, host, pid);
}

bool Registration::same_version() const {
  return protocol == kProtocol && version == library_version();
}

std::string Registration::library() const {
  return fmt::format("tutti {} (protocol {})", version, protocol);
}

std::string Registration::serialize() const {
  net::Packer packer;
  packer.number(protocol).text(version).number(rank).number(ranks).number(pid).text(host);
  packer.number(patience_ms).raw(process.data(), process.size()).text(trouble).text(decided);
  pack_addresses(addresses, &packer);
  return packer.bytes();
}

Result<Registration> Registration::parse(const std::string& bytes) {
  net::Unpacker unpacker(bytes);
  Registration result;
  result.protocol = unpacker.number<std::uint32_t>();
  result.version = unpacker.text();
  result.rank = unpacker.number<std::int32_t>();
  result.ranks = unpacker.number<std::int32_t>();
  result.pid = unpacker.number<std::int32_t>();
  result.host = unpacker.text();
  const bool sensible = unpacker.ok() && result.ranks >= 1 && result.ranks <= kMaxRanks;
  if (sensible && result.protocol != kProtocol) return result;
  result.patience_ms = unpacker.number<std::int64_t>();
  unpacker.raw(result.process.data(), result.process.size());
  result.trouble = unpacker.text();
  result.decided = unpacker.text();
  result.addresses = unpack_addresses(&unpacker);
  if (!sensible || !unpacker.complete() || result.patience_ms < 0 || result.patience_ms > kMostPatienceMs) {
    return Status::remote("protocol error: a rank's registration cannot be read");
  }
  return result;
}

std::string Placement::serialize() const {
  net::Packer packer;
  packer.number(static_cast<std::int32_t>(status.code())).text(status.message()).text(root_who).text(nonce);
  packer.text(decided);
  pack_addresses(addresses, &packer);
  pack_addresses(parent_addresses, &packer);
  packer.text(parent.host).number(parent.pid).number(static_cast<std::uint8_t>(children.size()));
  for (const RankPlace& child : children) packer.text(child.host).number(child.pid);
  return packer.bytes();
}

Result<Placement> Placement::parse(const std::string& bytes) {
  net::Unpacker unpacker(bytes);
  Placement result;
  const auto code = code_of(unpacker.number<std::int32_t>());
  const std::string message = unpacker.text();
  if (code != Code::kSuccess) result.status = Status(code, message);
  if (code != Code::kSuccess && unpacker.ok()) return result;
  result.root_who = unpacker.text();
  result.nonce = unpacker.text();
  result.decided = unpacker.text();
  result.addresses = unpack_addresses(&unpacker);
  result.parent_addresses = unpack_addresses(&unpacker);
  result.parent.host = unpacker.text();
  result.parent.pid = unpacker.number<std::int32_t>();
  const auto children = unpacker.number<std::uint8_t>();
  for (std::size_t i = 0; i < children && i < kTreeArity; ++i) {
    RankPlace& child = result.children.emplace_back();
    child.host = unpacker.text();
    child.pid = unpacker.number<std::int32_t>();
  }
  if (!unpacker.complete()) return Status::remote("protocol error: the root service's answer cannot be read");
  return result;
}

std::string Report::serialize() const {
  net::Packer packer;
  packer.number(static_cast<std::int32_t>(status.code())).text(status.message());
  return packer.bytes();
}

Result<Report> Report::parse(const std::string& bytes) {
  net::Unpacker unpacker(bytes);
  Report result;
  const auto code = code_of(unpacker.number<std::int32_t>());
  const std::string message = unpacker.text();
  if (code != Code::kSuccess) result.status = Status(code, message);
  if (!unpacker.complete()) return Status::remote("protocol error: a rank's report cannot be read");
  return result;
}

}  // namespace tutti::internal

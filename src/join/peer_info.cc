#include "join/peer_info.h"

#include <sys/stat.h>

#include <fstream>
#include <map>
#include <string_view>

#include "base/hex.h"
#include "net/address.h"
#include "net/auth.h"
#include "net/frame.h"
#include "os/fork.h"
#include "os/kernel.h"
#include "os/mutex.h"

namespace tutti::internal {
namespace {

constexpr std::string_view kSocketPrefix = "tutti-";
constexpr std::size_t kSocketDigits = 24;

// The kernel's boot id as 16 bytes; zeros (which match no machine, see same_machine) if it has none.
std::array<std::uint8_t, 16> read_boot_id() {
  std::array<std::uint8_t, 16> id{};
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  std::erase(text, '-');
  return from_hex(text, id) ? id : std::array<std::uint8_t, 16>{};
}

// Ranks open and remove the file that a peer names, so only names that random_socket_name() makes are accepted.
bool names_socket(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos || path.front() != '/' || path.find('\0') != std::string::npos) return false;
  const std::string_view name = std::string_view(path).substr(slash + 1);
  return name.size() == kSocketPrefix.size() + kSocketDigits && name.starts_with(kSocketPrefix) &&
         name.find_first_not_of("0123456789abcdef", kSocketPrefix.size()) == std::string_view::npos;
}

// Made when the library is loaded, and never destroyed.
ForkMutex& token_mutex = *new ForkMutex;
// The tokens of this process and of its forked ancestors. Tests simulate many processes in one.
std::map<pid_t, std::array<std::uint8_t, 16>>& tokens TUTTI_GUARDED_BY(token_mutex) =
    *new std::map<pid_t, std::array<std::uint8_t, 16>>;

}  // namespace

// Generated once for each process. A forked child generates a new one, because it has another address space.
Result<std::array<std::uint8_t, 16>> process_token() {
  std::array<std::uint8_t, 16> drawn{};
  const MutexLock lock(token_mutex);
  const pid_t process = os::kernel().getpid();
  if (const auto known = tokens.find(process); known != tokens.end()) return known->second;
  if (Status s = net::random_bytes(drawn.data(), drawn.size()); !s.is_ok()) return s;
  return tokens.emplace(process, drawn).first->second;
}

Result<PeerInfo> PeerInfo::local(int rank) {
  PeerInfo info;
  info.rank = rank;
  info.pid = static_cast<std::int32_t>(os::kernel().getpid());
  info.boot = read_boot_id();
  Result<std::array<std::uint8_t, 16>> process = process_token();
  if (!process.is_ok()) return process.status();
  info.process = *process;
  struct stat ns {};
  if (::stat("/proc/self/ns/net", &ns) == 0) info.network_namespace = ns.st_ino;
  info.hostname = host_name();
  return info;
}

Result<std::string> random_socket_name() {
  std::uint8_t bytes[kSocketDigits / 2];
  if (Status s = net::random_bytes(bytes, sizeof bytes); !s.is_ok()) return s;
  return std::string(kSocketPrefix) + to_hex(bytes);
}

std::string host_name() {
  char name[256] = {};
  return os::kernel().gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

std::string PeerInfo::serialize() const {
  net::Packer packer;
  packer.number(rank).number(pid).raw(boot.data(), boot.size()).raw(process.data(), process.size());
  packer.number(network_namespace).text(hostname).text(unix_address).text(unix_path);
  packer.number(static_cast<std::uint32_t>(tcp_addresses.size()));
  for (const std::string& address : tcp_addresses) packer.text(address);
  packer.text(settings);
  return packer.bytes();
}

Result<PeerInfo> PeerInfo::parse(const std::string& bytes) {
  net::Unpacker unpacker(bytes);
  PeerInfo info;
  info.rank = unpacker.number<std::int32_t>();
  info.pid = unpacker.number<std::int32_t>();
  unpacker.raw(info.boot.data(), info.boot.size());
  unpacker.raw(info.process.data(), info.process.size());
  info.network_namespace = unpacker.number<std::uint64_t>();
  info.hostname = unpacker.text();
  info.unix_address = unpacker.text();
  info.unix_path = unpacker.text();
  const auto count = unpacker.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && i < net::kMaxAddresses && unpacker.ok(); ++i) {
    info.tcp_addresses.push_back(unpacker.text());
  }
  info.settings = unpacker.text();
  if (!unpacker.complete() || count > net::kMaxAddresses)
    return Status::remote("protocol error: a peer's description cannot be read");
  if (!info.unix_path.empty() && !names_socket(info.unix_path))
    return Status::remote("protocol error: a peer's description names a file that is not a socket of tutti");
  return info;
}

}  // namespace tutti::internal

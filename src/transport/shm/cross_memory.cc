#include "transport/shm/cross_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace tutti::internal::transport::shm {
namespace {

// 0 if the process cannot be determined.
pid_t process_behind(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return 0;
  return credentials.pid;
}

}  // namespace

void permit_siblings() {
  const int fd = ::open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char mode = 0;
  const bool restricted = ::read(fd, &mode, 1) == 1 && mode == '1';
  ::close(fd);
  if (restricted) (void)::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

CrossMemory::CrossMemory(PairMemory* own, int socket, int peer)
    : own_(*own), peer_(peer), peer_process_(process_behind(socket)) {}

void CrossMemory::offer(bool permits) {
  if (own_.identity.named.load(std::memory_order_relaxed) != 0) return;
  if (::getrandom(&word_, sizeof word_, GRND_NONBLOCK) != sizeof word_) return;
  // For each pair: a child does not inherit the permission, and other code may have withdrawn it.
  if (permits) permit_siblings();
  IdentityLine& own = own_.identity;
  own.address = reinterpret_cast<std::uintptr_t>(&word_);
  own.word = word_;
  own.named.store(1, std::memory_order_release);
}

void CrossMemory::probe(const PairMemory* theirs) {
  theirs_.store(theirs, std::memory_order_release);
  if (probed() || theirs->identity.named.load(std::memory_order_acquire) == 0) return;
  peer_word_address_ = theirs->identity.address;
  peer_word_ = theirs->identity.word;
  std::uint64_t word = 0;
  const int error =
      peer_process_ <= 0 ? ESRCH : read(reinterpret_cast<std::byte*>(&word), peer_word_address_, sizeof word);
  if (error != 0) {
    log::debug(fmt::format("rank {}'s memory is not to be read from here ({}): what it sends goes through slots", peer_,
                           std::strerror(error)));
  } else {
    can_read_.store(true, std::memory_order_release);
    own_.reads.value.store(1, std::memory_order_release);
  }
  probed_.store(true, std::memory_order_release);
}

bool CrossMemory::peer_can_read() const {
  const PairMemory* const theirs = theirs_.load(std::memory_order_acquire);
  return theirs != nullptr && theirs->reads.value.load(std::memory_order_acquire) != 0;
}

int CrossMemory::read(std::byte* target, std::uint64_t address, std::size_t n) const {
  for (std::size_t done = 0; done < n;) {
    std::uint64_t word = 0;
    const std::array<iovec, 2> local{iovec{&word, sizeof word}, iovec{target + done, n - done}};
    const std::array<iovec, 2> remote{iovec{reinterpret_cast<void*>(peer_word_address_), sizeof word},
                                      iovec{reinterpret_cast<void*>(address + done), n - done}};
    const ssize_t got = ::process_vm_readv(peer_process_, local.data(), local.size(), remote.data(), remote.size(), 0);
    if (got < 0) return errno;
    if (word != peer_word_) return ESRCH;
    if (static_cast<std::size_t>(got) <= sizeof word) return EFAULT;
    done += static_cast<std::size_t>(got) - sizeof word;
  }
  return 0;
}

bool CrossMemory::readable(const std::byte* begin, std::size_t n) {
  std::array<std::byte, 2> bytes;
  const iovec local{bytes.data(), bytes.size()};
  const std::array<iovec, 2> remote{iovec{const_cast<std::byte*>(begin), 1},
                                    iovec{const_cast<std::byte*>(begin + n - 1), 1}};
  return ::process_vm_readv(::getpid(), &local, 1, remote.data(), remote.size(), 0) == 2;
}

}  // namespace tutti::internal::transport::shm

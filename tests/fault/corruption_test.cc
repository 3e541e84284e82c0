// Data that changes without an error, on its way or in memory: with TUTTI_CHECKSUM=1 no rank gets a wrong result, and
// the error names a rank. Without it the same damage stays unseen, so the damage of these tests is real.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstring>

#include "faults.h"

namespace {

// The pattern of the payloads that the tests send. It occurs nowhere else.
constexpr std::uint32_t kMark = 0x5eedc0de;
// Whether this process changes a bit of the next payload that it receives or reads.
std::atomic<bool> armed{false};
// After `bytes_before`, long reads of this process get nothing until another rank has ended its call, or for a while.
struct Hold {
  std::atomic<std::size_t> bytes_before{SIZE_MAX};
  const std::atomic<int>* ended = nullptr;
  tutti::internal::Deadline limit = tutti::internal::Deadline::after_ms(0);
};
Hold held;
constexpr std::size_t kLongRead = 8192;

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

// Changes one bit behind a pattern, once.
void damage(std::byte* data, std::size_t n) {
  if (!armed) return;
  for (std::size_t i = 0; i + 2 * sizeof kMark <= n; ++i) {
    if (std::memcmp(data + i, &kMark, sizeof kMark) != 0) continue;
    data[i + sizeof kMark] ^= std::byte{0x40};
    armed = false;
    return;
  }
}

void damage(const iovec* parts, std::size_t count, ssize_t n) {
  for (std::size_t i = 0; i < count && n > 0; ++i) {
    const std::size_t size = std::min(parts[i].iov_len, static_cast<std::size_t>(n));
    damage(static_cast<std::byte*>(parts[i].iov_base), size);
    n -= static_cast<ssize_t>(size);
  }
}

// How many bytes a read may get now; 0: none have arrived.
std::size_t readable(std::size_t size) {
  if (size < kLongRead || held.bytes_before == SIZE_MAX) return size;
  if (held.bytes_before != 0) return std::min<std::size_t>(size, held.bytes_before);
  return *held.ended != 0 || held.limit.passed() ? size : 0;
}
ssize_t count_read(ssize_t n) {
  if (n > 0 && held.bytes_before != SIZE_MAX)
    held.bytes_before -= std::min<std::size_t>(held.bytes_before, static_cast<std::size_t>(n));
  return n;
}

}  // namespace

// These replace the C library's functions, also for the library.
extern "C" [[gnu::visibility("default")]] ssize_t recv(int socket, void* data, size_t size, int flags) {
  static const auto real = next<ssize_t (*)(int, void*, size_t, int)>("recv");
  if (size > 0 && readable(size) == 0) return errno = EAGAIN, -1;
  const ssize_t n = count_read(real(socket, data, readable(size), flags));
  if (n > 0 && (flags & MSG_PEEK) == 0) damage(static_cast<std::byte*>(data), static_cast<std::size_t>(n));
  return n;
}
extern "C" [[gnu::visibility("default")]] ssize_t recvmsg(int socket, msghdr* message, int flags) {
  static const auto real = next<ssize_t (*)(int, msghdr*, int)>("recvmsg");
  // The first part is the payload.
  iovec first = message->msg_iovlen == 0 ? iovec{} : message->msg_iov[0];
  const std::size_t most = readable(first.iov_len);
  if (first.iov_len > 0 && most == 0) return errno = EAGAIN, -1;
  msghdr shorter{};
  shorter.msg_iov = &first;
  shorter.msg_iovlen = 1;
  if (most < first.iov_len) message = &shorter;
  first.iov_len = most;
  const ssize_t n = count_read(real(socket, message, flags));
  if (n > 0) damage(message->msg_iov, message->msg_iovlen, n);
  return n;
}
extern "C" [[gnu::visibility("default")]] ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long locals,
                                                                   const iovec* remote, unsigned long remotes,
                                                                   unsigned long flags) {
  static const auto real =
      next<ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long)>(
          "process_vm_readv");
  const ssize_t n = real(pid, local, locals, remote, remotes, flags);
  if (n > 0) damage(local, locals, n);
  return n;
}

namespace tutti::internal::test {
namespace {

constexpr std::size_t kCount = 5000;
constexpr std::size_t kPage = 4096;

std::vector<std::uint32_t> marks(std::size_t count) {
  return std::vector<std::uint32_t>(count, kMark);
}

// What a rank got in place of the marks.
std::string outcome(tuttiResult_t result, tuttiComm_t comm, const std::vector<std::uint32_t>& received) {
  if (result != tuttiSuccess) return describe(result, comm);
  return received == marks(received.size()) ? "right" : "wrong data";
}

// Changes one bit in each page of a payload in the memory that this process shares with others. Returns how many.
int damage_shared_memory() {
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  if (maps == nullptr) return 0;
  int changed = 0;
  std::array<char, 4096> line{};
  while (std::fgets(line.data(), line.size(), maps) != nullptr) {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    std::array<char, 5> access{};
    if (std::sscanf(line.data(), "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, access.data()) != 3) continue;
    if (std::strcmp(access.data(), "rw-s") != 0 || std::strstr(line.data(), "memfd:") == nullptr) continue;
    // A mapping may be longer than its file.
    for (; begin < end && !armed; begin += kPage) {
      std::array<std::byte, kPage> copy;
      const iovec to{copy.data(), copy.size()};
      const iovec from{reinterpret_cast<void*>(begin), copy.size()};
      if (::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) != static_cast<ssize_t>(kPage)) break;
      armed = true;
      damage(reinterpret_cast<std::byte*>(begin), kPage);
      if (!armed.exchange(false)) ++changed;
    }
  }
  std::fclose(maps);
  return changed;
}

// Rank 0 sends to rank 1, which damages what it receives. A message that does not pass the function that damages it
// comes again: ranks of a busy machine may send through slots what others read. By rank: what it got.
std::vector<std::string> send_damaged(const char* transports, bool checks, std::size_t count) {
  const Variable checksum("TUTTI_CHECKSUM", checks ? "1" : "0");
  const SharedMemory<std::atomic<int>> damaged;
  const auto outcomes = run_processes(2, transports, [&](tuttiComm_t comm, int rank, int) {
    std::vector<std::uint32_t> buffer(count, rank == 0 ? kMark : 0);
    const auto move = [&] {
      return rank == 0 ? tuttiSend(buffer.data(), count, tuttiUint32, 1, comm, nullptr)
                       : tuttiRecv(buffer.data(), count, tuttiUint32, 0, comm, nullptr);
    };
    tuttiResult_t result = tuttiSuccess;
    for (int i = 0; i < 200 && result == tuttiSuccess && *damaged.get() == 0; ++i) {
      armed = rank == 1;
      result = tuttiBarrier(comm, nullptr);
      if (result == tuttiSuccess) result = move();
      if (rank == 1 && !armed.exchange(false)) ++*damaged.get();
      if (result == tuttiSuccess) result = tuttiBarrier(comm, nullptr);
    }
    return Outcome{outcome(result, comm, buffer)};
  });
  return {outcomes[0].wrong, outcomes[1].wrong};
}

void require_noticed(const char* transports, std::size_t count) {
  INFO(transports << ", " << count << " elements");
  CHECK(send_damaged(transports, false, count)[1] == "wrong data");
  const std::string told = send_damaged(transports, true, count)[1];
  INFO(told);
  CHECK(contains(told, "damaged data from rank 0"));
  CHECK(contains(told, transports));
}

}  // namespace

TEST_CASE("corruption: data that changes in the network is an error") {
  for (const std::size_t count : {std::size_t{4}, kCount, 100 * kCount}) require_noticed("tcp", count);
}

// Rank 4 receives the blocks of ranks 4 to 7 in one message and forwards them: that of rank 5 when it has arrived, but
// not before the checksum behind the last one shows that it is damaged.
TEST_CASE("corruption: a rank that forwards a part of a damaged message gives no rank a wrong result") {
  const Variable algorithm("TUTTI_ALGORITHM", "k_nomial:2");
  for (const bool checks : {false, true}) {
    const Variable checksum("TUTTI_CHECKSUM", checks ? "1" : "0");
    const SharedMemory<std::atomic<int>> ended;  // the call of rank 5
    const SharedMemory<std::atomic<int>> all_ended;
    constexpr int kRanks = 8;
    const auto outcomes = run_processes(kRanks, "tcp", [&](tuttiComm_t comm, int rank, int) {
      std::vector<std::uint32_t> all(kRanks * kCount);
      std::vector<std::uint32_t> block(kCount);
      const auto scatter = [&] {
        return tuttiScatter(all.data(), block.data(), block.size(), tuttiUint32, 0, comm, nullptr);
      };
      (void)scatter();  // makes the connections
      std::fill_n(all.begin() + 5 * kCount, kCount, kMark);
      armed = rank == 4;
      held.ended = ended.get();
      held.limit = Deadline::after_ms(2000);
      if (rank == 4) held.bytes_before = 2 * kCount * sizeof kMark + kLongRead;
      (void)tuttiBarrier(comm, nullptr);
      const tuttiResult_t result = scatter();
      armed = false;
      held.bytes_before = SIZE_MAX;
      if (rank == 5) ++*ended.get();
      await_all(all_ended.get(), kRanks);
      return Outcome{rank == 5 ? outcome(result, comm, block) : describe(result, comm)};
    });
    INFO((checks ? "with" : "without") << " checksums: " << outcomes[5].wrong);
    CHECK((outcomes[5].wrong == "wrong data") == !checks);
    CHECK(contains(outcomes[4].wrong, "damaged data from rank 0 over tcp") == checks);
  }
}

TEST_CASE("corruption: data that changes while a rank reads another one's memory is an error") {
  const Variable reads("TUTTI_CROSS_MEMORY", "always");
  require_noticed("shm", 20 * kCount);
}

TEST_CASE("corruption: data that changes in shared memory is an error") {
  for (const bool checks : {false, true}) {
    const Variable checksum("TUTTI_CHECKSUM", checks ? "1" : "0");
    const SharedMemory<std::atomic<int>> sent;
    // Shorter than what rank 0 sends before rank 1 receives.
    const auto outcomes = run_processes(2, "shm", [&](tuttiComm_t comm, int rank, int) {
      std::vector<std::uint32_t> buffer(kCount, rank == 0 ? kMark : 0);
      (void)tuttiBarrier(comm, nullptr);
      if (rank == 0) {
        const tuttiResult_t result = tuttiSend(buffer.data(), kCount, tuttiUint32, 1, comm, nullptr);
        ++*sent.get();
        return Outcome{outcome(result, comm, buffer)};
      }
      await_count(*sent.get(), 1);
      if (damage_shared_memory() == 0) return Outcome{"no payload in shared memory"};
      const tuttiResult_t result = tuttiRecv(buffer.data(), kCount, tuttiUint32, 0, comm, nullptr);
      return Outcome{outcome(result, comm, buffer)};
    });
    INFO((checks ? "with" : "without") << " checksums");
    CHECK(outcomes[0].wrong == "right");
    if (checks) {
      CHECK(contains(outcomes[1].wrong, "damaged data from rank 0 over shm"));
    } else {
      CHECK(outcomes[1].wrong == "wrong data");
    }
  }
}

namespace {

// Memory of one rank that does not keep what is written to it: two addresses of one page.
class SamePageTwice {
 public:
  SamePageTwice() : bytes_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    const int fd = ::memfd_create("page", 0);
    REQUIRE((fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes_)) == 0));
    memory_ = ::mmap(nullptr, 2 * bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REQUIRE(memory_ != MAP_FAILED);
    void* const second = static_cast<std::byte*>(memory_) + bytes_;
    REQUIRE(::mmap(second, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == second);
    ::close(fd);
  }
  SamePageTwice(const SamePageTwice&) = delete;
  SamePageTwice& operator=(const SamePageTwice&) = delete;
  ~SamePageTwice() { ::munmap(memory_, 2 * bytes_); }
  [[nodiscard]] std::uint32_t* data() const { return static_cast<std::uint32_t*>(memory_); }
  [[nodiscard]] std::size_t count() const { return 2 * bytes_ / sizeof(std::uint32_t); }

 private:
  const std::size_t bytes_;
  void* memory_ = nullptr;
};

enum class Kind { kAllReduce, kBroadcast, kAllGather, kAllGatherV };

tuttiResult_t call(Kind kind, const std::uint32_t* in, std::uint32_t* out, std::size_t count, int ranks,
                   tuttiComm_t comm, tuttiStream_t stream) {
  const std::size_t share = count / static_cast<std::size_t>(ranks);
  const std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), share);
  switch (kind) {
    case Kind::kAllReduce: return tuttiAllReduce(in, out, count, tuttiUint32, tuttiMax, comm, stream);
    case Kind::kBroadcast: return tuttiBroadcast(in, out, count, tuttiUint32, 0, comm, stream);
    case Kind::kAllGather: return tuttiAllGather(in, out, share, tuttiUint32, comm, stream);
    case Kind::kAllGatherV: return tuttiAllGatherV(in, share, out, counts.data(), nullptr, tuttiUint32, comm, stream);
  }
  return tuttiInternalError;
}

// The last rank has bad memory for the result.
void require_compared(int ranks, Kind kind, bool queued, bool grouped) {
  const SharedMemory<std::atomic<int>> ended;
  const auto outcomes = run_processes(ranks, "shm", [&](tuttiComm_t comm, int rank, int) {
    const SamePageTwice bad;
    std::vector<std::uint32_t> in(bad.count());
    std::vector<std::uint32_t> good(bad.count());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint32_t>(i + static_cast<std::size_t>(rank));
    std::uint32_t* const out = rank == ranks - 1 ? bad.data() : good.data();
    tuttiStream_t stream = nullptr;
    if (queued && tuttiStreamCreate(&stream) != tuttiSuccess) return Outcome{"no stream"};
    std::vector<std::uint32_t> other(10);
    if (grouped) (void)tuttiGroupStart();
    if (grouped) (void)call(kind, in.data(), other.data(), other.size(), ranks, comm, stream);
    tuttiResult_t result = call(kind, in.data(), out, in.size(), ranks, comm, stream);
    if (grouped) result = tuttiGroupEnd();
    if (queued && result == tuttiSuccess) result = tuttiStreamSynchronize(stream);
    const std::string told = describe(result, comm);
    (void)tuttiStreamDestroy(stream);
    await_all(ended.get(), ranks);
    const std::string culprit = "that of rank " + std::to_string(ranks - 1) + " differs";
    const bool named = contains(told, "is not the same on all ranks") && (ranks == 2 || contains(told, culprit));
    return Outcome{result == tuttiRemoteError && named ? "" : told};
  });
  INFO(ranks << " ranks, kind " << static_cast<int>(kind) << (queued ? ", queued" : "")
             << (grouped ? ", grouped" : ""));
  CHECK(wrong_of(outcomes) == "");
}

}  // namespace

TEST_CASE("corruption: a result that one rank's memory has changed is an error on all ranks") {
  const Variable checksum("TUTTI_CHECKSUM", "1");
  // Ranks take what they forward from the bad memory otherwise.
  const Variable algorithm("TUTTI_ALGORITHM", "direct");
  for (const int ranks : {2, 3}) {
    for (const Kind kind : {Kind::kAllReduce, Kind::kBroadcast, Kind::kAllGather, Kind::kAllGatherV}) {
      for (const bool queued : {false, true}) {
        for (const bool grouped : {false, true}) require_compared(ranks, kind, queued, grouped);
      }
    }
  }
}

}  // namespace tutti::internal::test

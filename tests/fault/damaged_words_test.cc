// A rank that has the secret of the job and sends damaged words: whatever it changes in its messages while ranks join,
// split and run operations, the others end with a result or an error, within their timeouts, and do not allocate memory
// for it.
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstring>

#include "faults.h"
#include "sanitizers.h"

namespace {

// Only in the process of the damaging rank: its n-th message from now on, of those that contain the word.
struct Damage {
  bool armed = false;
  int skip = 0;          // messages before it
  std::size_t word = 0;  // of the message, in 32 bits
  std::uint32_t value = 0;
};
Damage damage;
// In memory that all processes of a job map.
std::atomic<int>* changed = nullptr;

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

// The bytes to send in place of `data`, once.
bool hits(std::size_t bytes) {
  if (!damage.armed || bytes < 4 * (damage.word + 1)) return false;
  if (damage.skip-- > 0) return false;
  damage.armed = false;
  return true;
}

void change(std::vector<std::byte>& bytes) {
  std::memcpy(&bytes[4 * damage.word], &damage.value, sizeof damage.value);
  ++*changed;
}

}  // namespace

// These replace the C library's functions, also for the library.
extern "C" [[gnu::visibility("default")]] ssize_t send(int socket, const void* data, size_t size, int flags) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t, int)>("send");
  if (!hits(size)) return real(socket, data, size, flags);
  std::vector<std::byte> copy(size);
  std::memcpy(copy.data(), data, size);
  change(copy);
  return real(socket, copy.data(), size, flags);
}

extern "C" [[gnu::visibility("default")]] ssize_t sendmsg(int socket, const msghdr* message, int flags) {
  static const auto real = next<ssize_t (*)(int, const msghdr*, int)>("sendmsg");
  std::vector<std::byte> all;
  for (std::size_t i = 0; damage.armed && i < message->msg_iovlen; ++i) {
    const auto* const begin = static_cast<const std::byte*>(message->msg_iov[i].iov_base);
    all.insert(all.end(), begin, begin + message->msg_iov[i].iov_len);
  }
  if (message->msg_controllen != 0 || !hits(all.size())) return real(socket, message, flags);
  change(all);
  iovec part{all.data(), all.size()};
  msghdr changed = *message;
  changed.msg_iov = &part;
  changed.msg_iovlen = 1;
  return real(socket, &changed, flags);
}

namespace tutti::internal::test {
namespace {

constexpr int kRanks = 3;
constexpr int kEvil = 1;
// The memory that a rank may use: a process with the library has about 30 MiB, many times that under a sanitizer.
constexpr long kMostMib = kAnySanitizer ? 4096 : 400;

enum class Phase { kSplit, kOperations };

// All messages that ranks exchange after they have joined. Errors are as good as results.
void say_everything(tuttiComm_t comm, int rank, Phase phase) {
  const auto arm = [&, chosen = damage](Phase now) {
    damage = chosen;
    damage.armed = now == phase && rank == kEvil;
  };
  damage.armed = false;
  tuttiComm_t child = nullptr;
  std::array<float, 100> in{};
  std::array<float, 300> out{};
  if (phase == Phase::kOperations) (void)tuttiBarrier(comm, nullptr);
  // When its connections exist, the next split only exchanges the ranks' requests and outcomes.
  (void)tuttiCommSplit(comm, 0, rank, &child, nullptr);
  if (child != nullptr) (void)tuttiCommDestroy(child);
  child = nullptr;
  arm(Phase::kSplit);
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  (void)tuttiCommSplit(comm, 0, rank, &child, phase == Phase::kSplit ? &config : nullptr);
  if (child != nullptr) (void)tuttiAllReduce(in.data(), out.data(), 100, tuttiFloat32, tuttiSum, child, nullptr);
  arm(Phase::kOperations);
  const std::array<std::size_t, 3> counts{3, 0, 7};
  (void)tuttiAllGatherV(in.data(), counts[static_cast<std::size_t>(rank)], out.data(), counts.data(), nullptr,
                        tuttiFloat32, comm, nullptr);
  (void)tuttiAllReduce(in.data(), out.data(), 100, tuttiFloat32, tuttiSum, comm, nullptr);
  (void)tuttiGroupStart();
  for (int peer = 0; peer < kRanks; ++peer) {
    (void)tuttiSend(in.data(), 5, tuttiFloat32, peer, comm, nullptr);
    (void)tuttiRecv(&out[static_cast<std::size_t>(peer) * 10], 5, tuttiFloat32, peer, comm, nullptr);
  }
  (void)tuttiGroupEnd();
  (void)tuttiAllReduce(in.data(), in.data(), 2, tuttiFloat32, tuttiSum, comm, nullptr);
  damage.armed = false;
  if (child != nullptr) (void)tuttiCommDestroy(child);
}

long peak_mib() {
  rusage use{};
  (void)::getrusage(RUSAGE_SELF, &use);
  return use.ru_maxrss / 1024;
}

void require_unharmed(const Damage& chosen, Phase phase) {
  const auto outcomes = run_processes(kRanks, "tcp", [&](tuttiComm_t comm, int rank, int) {
    damage = chosen;
    say_everything(comm, rank, phase);
    const long mib = peak_mib();
    return Outcome{mib <= kMostMib ? "" : "a rank has taken " + std::to_string(mib) + " MiB"};
  });
  INFO("message " << chosen.skip << ", word " << chosen.word << " = " << std::hex << chosen.value << ", "
                  << (phase == Phase::kSplit ? "split" : "operations"));
  CHECK(wrong_of(outcomes) == "");
}

}  // namespace

// Each word of each message in turn, with values that break lengths, counts and indices.
TEST_CASE("damage: words that a rank changes in a split harm no other rank", "[split]") {
  const Timeout timeout(1500);
  const SharedMemory<std::atomic<int>> words;
  changed = words.get();
  ::setenv("TUTTI_CHECK", "strict", 1);
  constexpr std::array<std::uint32_t, 4> kValues = {0xffffffff, 0x7fffffff, 0x00100000, 1};
  int trial = 0;
  for (int skip = 0; skip < 8; ++skip) {
    for (std::size_t word = 0; word < 24; ++word) {
      if (kAnySanitizer && (skip + static_cast<int>(word)) % 2 != 0) continue;
      ++trial;
      require_unharmed({false, skip, word, kValues[(word + static_cast<std::size_t>(skip)) % kValues.size()]},
                       Phase::kSplit);
    }
  }
  ::unsetenv("TUTTI_CHECK");
  CHECK(*changed > trial / 4);  // otherwise they would not replace the C library's functions
}

TEST_CASE("damage: words that a rank changes in operations harm no other rank", "[operations]") {
  const Timeout timeout(1500);
  const SharedMemory<std::atomic<int>> words;
  changed = words.get();
  constexpr std::array<std::uint32_t, 3> kValues = {0xffffffff, 0x7fffffff, 3};
  int trial = 0;
  for (int skip = 0; skip < 5; ++skip) {
    for (std::size_t word = 0; word < 12; ++word) {
      ++trial;
      require_unharmed({false, skip, word, kValues[(word + static_cast<std::size_t>(skip)) % kValues.size()]},
                       Phase::kOperations);
    }
  }
  CHECK(*changed > trial / 4);
}

}  // namespace tutti::internal::test

// Calls of more than 4 GiB, in bytes and in elements: no count, offset or displacement is cut to 32 bits.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "suites.h"

namespace tutti::internal::test {
namespace {

constexpr std::size_t k4Gi = std::size_t{1} << 32;
constexpr std::size_t kRoom = k4Gi + (std::size_t{1} << 20);  // of each rank's buffer
constexpr std::size_t kNeeded = std::size_t{14} << 30;
constexpr std::size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xa5};
constexpr int kSkipped = 77;  // Meson's

std::size_t first_number(const char* file) {
  std::ifstream in(file);
  std::size_t number = 0;
  return in >> number ? number : SIZE_MAX;
}

// Bytes that this process may still use, as far as the kernel reports it.
std::size_t available() {
  std::ifstream in("/proc/meminfo");
  std::size_t bytes = 0;
  for (std::string name, unit; in >> name;) {
    std::size_t kib = 0;
    if (!(in >> kib)) break;
    if (name == "MemAvailable:") bytes = kib << 10;
    std::getline(in, unit);
  }
  const std::size_t most = first_number("/sys/fs/cgroup/memory.max");
  const std::size_t used = first_number("/sys/fs/cgroup/memory.current");
  return most == SIZE_MAX || used == SIZE_MAX ? bytes : std::min(bytes, most - std::min(most, used));
}

// Before anything else of this program.
[[maybe_unused]] const bool kEnough = [] {
  const std::size_t bytes = available();
  if (bytes >= kNeeded) return true;
  std::cout << "skipped: two buffers of 4 GiB and what others use need " << (kNeeded >> 30) << " GiB of memory, and "
            << (bytes >> 30) << " GiB are available\n"
            << std::flush;
  std::_Exit(kSkipped);
}();

class Mapping {
 public:
  Mapping() : at_(::mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (at_ == MAP_FAILED) std::abort();
    (void)::madvise(at_, kRoom, MADV_HUGEPAGE);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(at_, kRoom); }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(at_); }

 private:
  void* at_;
};

// Called once: the first touch of this much memory may take longer than all else.
std::byte* memory_of(int rank) {
  static const std::array<Mapping, 2> kMemory;
  return kMemory[static_cast<std::size_t>(rank)].data();
}

// The 8 bytes from 8 * `i` of block `block`, which differ in every call and at every position in the block.
std::uint64_t word(std::uint64_t block, std::uint64_t i) {
  const std::uint64_t x = (i + block * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 31);
}
void fill(std::byte* target, std::size_t bytes, std::uint64_t block) {
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
    const std::uint64_t w = word(block, i / sizeof w);
    std::memcpy(target + i, &w, std::min(sizeof w, bytes - i));
  }
}
// The first byte from `from` to before `to` that differs from the fill, or `to`.
std::size_t differs(const std::byte* target, std::size_t from, std::size_t to, std::uint64_t block) {
  for (std::size_t i = from; i < to; ++i) {
    const std::uint64_t w = word(block, i / sizeof w);
    if (static_cast<std::byte>(w >> 8 * (i % sizeof w)) != target[i]) return i;
  }
  return to;
}

// At the ends, around 2^31, 2^32 and the position at which elements of 4 bytes reach 2^32 bytes, and at samples.
std::string check(const std::byte* target, std::size_t bytes, std::uint64_t block) {
  constexpr std::size_t kNear = 100'000;
  constexpr std::size_t kStride = 65'521;
  constexpr std::size_t kSample = 32;
  std::vector<std::array<std::size_t, 2>> ranges;
  for (const std::size_t middle : {std::size_t{0}, k4Gi / 2, k4Gi, bytes}) {
    if (middle <= bytes) ranges.push_back({middle - std::min(middle, kNear), std::min(middle + kNear, bytes)});
  }
  for (std::size_t at = 0; at + kSample < bytes; at += kStride) ranges.push_back({at, at + kSample});
  for (const auto& [from, to] : ranges) {
    const std::size_t at = differs(target, from, to, block);
    if (at != to) return "byte " + std::to_string(at) + " of " + std::to_string(bytes) + " is wrong";
  }
  return {};
}

class Rank {
 public:
  Rank(tuttiComm_t comm, int rank) : comm_(comm), rank_(rank), data_(memory_of(rank)) {}

  std::string run() {
    std::string wrong = transfer();
    if (wrong.empty()) wrong = broadcast();
    if (wrong.empty()) wrong = gather(tuttiUint32, 4, k4Gi / 4 + 3, 1001, 100);
    if (wrong.empty()) wrong = gather(tuttiUint8, 1, 5000, k4Gi + 9, 200);
    return wrong;
  }

  std::string transfer() {
    const std::size_t count = k4Gi + 777;
    if (rank_ == 1) fill(data_, count, 2);
    guard(count);
    const tuttiResult_t result = rank_ == 1 ? tuttiSend(data_, count, tuttiUint8, 0, comm_, nullptr)
                                            : tuttiRecv(data_, count, tuttiUint8, 1, comm_, nullptr);
    return verdict("transfer", result, count, 2);
  }

 private:
  void guard(std::size_t at) { std::fill_n(data_ + at, kGuardBytes, kGuard); }
  [[nodiscard]] bool is_guarded(std::size_t at) const {
    return std::all_of(data_ + at, data_ + at + kGuardBytes, [](std::byte b) { return b == kGuard; });
  }
  [[nodiscard]] std::string verdict(const char* what, tuttiResult_t result, std::size_t bytes, std::uint64_t block) {
    if (result != tuttiSuccess) return std::string(what) + ": " + tuttiGetLastError(comm_);
    const std::string wrong = check(data_, bytes, block);
    if (!wrong.empty()) return std::string(what) + ": " + wrong;
    return is_guarded(bytes) ? "" : std::string(what) + " writes more than its count";
  }

  std::string broadcast() {
    const std::size_t count = k4Gi + 12'345;
    if (rank_ == 0) fill(data_, count, 1);
    guard(count);
    return verdict("broadcast", tuttiBcast(data_, count, tuttiUint8, 0, comm_, nullptr), count, 1);
  }

  // In place. The longer block is first, the other one follows a gap.
  std::string gather(tuttiDataType_t type, std::size_t size, std::size_t first, std::size_t second,
                     std::uint64_t blocks) {
    const std::array<std::size_t, 2> counts{first, second};
    const std::size_t longer = first > second ? 0 : 1;
    const std::size_t behind = counts[longer] + kGuardBytes;
    const std::array<std::size_t, 2> at{longer == 0 ? 0 : behind, longer == 0 ? behind : 0};
    const auto me = static_cast<std::size_t>(rank_);
    guard(counts[longer] * size);
    fill(data_ + at[me] * size, counts[me] * size, blocks + me);
    const tuttiResult_t result =
        tuttiAllGatherV(data_ + at[me] * size, counts[me], data_, counts.data(), at.data(), type, comm_, nullptr);
    std::string wrong = verdict("all-gather", result, counts[longer] * size, blocks + longer);
    if (wrong.empty()) wrong = check(data_ + behind * size, counts[1 - longer] * size, blocks + 1 - longer);
    return wrong;
  }

  tuttiComm_t comm_;
  int rank_;
  std::byte* data_;
};

}  // namespace

TEST_CASE("calls of more than 4 GiB", "[threads]") {
  const auto outcomes =
      run_threads(2, "shm", [](tuttiComm_t comm, int rank, int) { return Outcome{Rank(comm, rank).run()}; });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("a transfer of more than 4 GiB over TCP", "[threads]") {
  const auto outcomes =
      run_threads(2, "tcp", [](tuttiComm_t comm, int rank, int) { return Outcome{Rank(comm, rank).transfer()}; });
  REQUIRE(wrong_of(outcomes) == "");
}

}  // namespace tutti::internal::test

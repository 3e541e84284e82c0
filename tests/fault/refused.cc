// A rank on a system that refuses some calls, like containers' filters do. Usage: refused REFUSED ERRNO [RANK]: REFUSED
// is "memfd" (memfd_create), "seals" (adding seals), "size" (the size of files is limited), "affinity" (a process that
// sets the affinity of a thread after the first second is killed), "ptracer" (a process that lets others attach to it
// is killed), "nothing", or the name of a system call, on this rank only or on all. Reduces and moves vectors of many
// sizes, one in tuttiMemAlloc memory, and compares the results. It exits with status 77 if the kernel does not let it
// install a filter of system calls.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kSkipped = 77;
constexpr std::uint32_t kLoadNumber = offsetof(seccomp_data, nr);
constexpr std::uint32_t kArguments = offsetof(seccomp_data, args);

// The system call, or only calls whose given argument, from 0 on, is `value` (-1: any), get that answer.
bool refuse(std::uint32_t number, std::uint32_t argument, int value, std::uint32_t answer) {
  const std::uint8_t to_answer = value < 0 ? std::uint8_t{2} : std::uint8_t{0};
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kLoadNumber),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, to_answer, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(kArguments + argument * sizeof(std::uint64_t))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(value), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, answer),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{static_cast<unsigned short>(std::size(steps)), steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool refuse(const std::string& what, std::uint32_t error) {
  if (what == "memfd") return refuse(SYS_memfd_create, 0, -1, SECCOMP_RET_ERRNO | error);
  if (what == "seals") return refuse(SYS_fcntl, 1, F_ADD_SEALS, SECCOMP_RET_ERRNO | error);
  if (what == "ptracer") return refuse(SYS_prctl, 0, PR_SET_PTRACER, SECCOMP_RET_KILL_PROCESS);
  const std::map<std::string, std::uint32_t> calls = {{"accept4", SYS_accept4},     {"connect", SYS_connect},
                                                      {"getrandom", SYS_getrandom}, {"getsockopt", SYS_getsockopt},
                                                      {"recvfrom", SYS_recvfrom},   {"sendmsg", SYS_sendmsg},
                                                      {"sendto", SYS_sendto},       {"socket", SYS_socket}};
  if (const auto call = calls.find(what); call != calls.end()) {
    return refuse(call->second, 0, -1, SECCOMP_RET_ERRNO | error);
  }
  const rlimit limit{4096, 4096};
  return what == "nothing" || what == "affinity" || (what == "size" && ::setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

int fail(const char* what) {
  std::fprintf(stderr, "error: %s: %s\n", what, tuttiGetLastError(nullptr));
  return 1;
}

// Sum over all ranks, then to the right neighbour and from the left one.
const char* exchange(tuttiComm_t comm, int rank, int ranks, float* vector, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) vector[i] = static_cast<float>(rank + 1 + static_cast<int>(i % 7));
  if (tuttiAllReduce(vector, vector, count, tuttiFloat32, tuttiSum, comm, nullptr) != tuttiSuccess) return "all-reduce";
  const int ones = ranks * (ranks + 1) / 2;
  for (std::size_t i = 0; i < count; ++i) {
    if (vector[i] != static_cast<float>(ones + ranks * static_cast<int>(i % 7))) return "a wrong sum";
  }
  std::vector<float> from_left(count);
  std::fill(vector, vector + count, static_cast<float>(rank));
  tuttiGroupStart();
  tuttiSend(vector, count, tuttiFloat32, (rank + 1) % ranks, comm, nullptr);
  tuttiRecv(from_left.data(), count, tuttiFloat32, (rank + ranks - 1) % ranks, comm, nullptr);
  if (tuttiGroupEnd() != tuttiSuccess) return "send and receive";
  const auto left = static_cast<float>((rank + ranks - 1) % ranks);
  const bool right = std::all_of(from_left.begin(), from_left.end(), [left](float x) { return x == left; });
  return right ? nullptr : "wrong data";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const char* const own = std::getenv("TUTTI_RANK");
  const bool here = argc == 3 || (own != nullptr && std::strcmp(own, argv[3]) == 0);
  if (here && !refuse(argv[1], static_cast<std::uint32_t>(std::atoi(argv[2])))) return kSkipped;
  tuttiComm_t comm = nullptr;
  int rank = 0;
  int ranks = 0;
  if (tuttiCommInitEnv(&comm, nullptr) != tuttiSuccess) return fail("tuttiCommInitEnv");
  tuttiCommUserRank(comm, &rank);
  tuttiCommCount(comm, &ranks);
  const bool late = std::strcmp(argv[1], "affinity") == 0;
  if (late) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    if (!refuse(SYS_sched_setaffinity, 0, -1, SECCOMP_RET_KILL_PROCESS)) return kSkipped;
  }
  constexpr std::size_t kMost = std::size_t{1} << 20;
  void* allocated = nullptr;
  if (tuttiMemAlloc(&allocated, kMost * sizeof(float)) != tuttiSuccess) return fail("tuttiMemAlloc");
  std::vector<float> ordinary(kMost);
  for (std::size_t count = 1; count <= kMost; count *= 16) {
    for (float* vector : {static_cast<float*>(allocated), ordinary.data()}) {
      if (const char* const what = exchange(comm, rank, ranks, vector, count)) return fail(what);
    }
  }
  if (late) {
    std::printf("right\n");
    return tuttiMemFree(allocated) == tuttiSuccess && tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 1;
  }
  // Also on a communicator that was split off.
  tuttiComm_t half = nullptr;
  if (tuttiCommSplit(comm, 0, -rank, &half, nullptr) != tuttiSuccess) return fail("tuttiCommSplit");
  int other_rank = 0;
  tuttiCommUserRank(half, &other_rank);
  if (const char* const what = exchange(half, other_rank, ranks, ordinary.data(), 1000)) return fail(what);
  if (tuttiMemFree(allocated) != tuttiSuccess) return fail("tuttiMemFree");
  if (tuttiCommDestroy(half) != tuttiSuccess || tuttiCommDestroy(comm) != tuttiSuccess) return fail("tuttiCommDestroy");
  std::printf("right\n");
  return 0;
}

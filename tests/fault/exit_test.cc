// A program that exits while threads join jobs and queue operations: one that has used libcrypto before it loads tutti,
// like Python after "import ssl", and one that has not. Arguments: the library, the number of rounds.
#include <dlfcn.h>
#include <openssl/evp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tutti/tutti.h"

namespace {

constexpr int kJobsAtOnce = 4;
constexpr unsigned kPatienceSeconds = 60;

template <class Function>
Function* find(void* library, const char* name) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) std::_Exit(3);
  return reinterpret_cast<Function*>(found);
}

struct Tutti {
  explicit Tutti(const char* path) : library(::dlopen(path, RTLD_NOW)) {
    if (library == nullptr) std::_Exit(2);
  }
  void* library;
  decltype(tuttiGetUniqueId)* get_unique_id = find<decltype(tuttiGetUniqueId)>(library, "tuttiGetUniqueId");
  decltype(tuttiCommInitRank)* init_rank = find<decltype(tuttiCommInitRank)>(library, "tuttiCommInitRank");
  decltype(tuttiStreamCreate)* stream_create = find<decltype(tuttiStreamCreate)>(library, "tuttiStreamCreate");
  decltype(tuttiStreamDestroy)* stream_destroy = find<decltype(tuttiStreamDestroy)>(library, "tuttiStreamDestroy");
  decltype(tuttiBarrier)* barrier = find<decltype(tuttiBarrier)>(library, "tuttiBarrier");
  decltype(tuttiCommDestroy)* destroy = find<decltype(tuttiCommDestroy)>(library, "tuttiCommDestroy");
};

// One rank of a job of two, from beginning to end.
void take_part(const Tutti& tutti, const tuttiUniqueId& id, int rank) {
  tuttiComm_t comm = nullptr;
  tuttiStream_t stream = nullptr;
  if (tutti.init_rank(&comm, 2, id, rank) != tuttiSuccess) return;
  if (tutti.stream_create(&stream) == tuttiSuccess) {
    (void)tutti.barrier(comm, stream);
    (void)tutti.stream_destroy(stream);
  }
  (void)tutti.destroy(comm);
}

void run_jobs(const Tutti& tutti) {
  for (;;) {
    tuttiUniqueId id;
    if (tutti.get_unique_id(&id) != tuttiSuccess) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    std::thread other([&] { take_part(tutti, id, 1); });
    take_part(tutti, id, 0);
    other.join();
  }
}

// Never returns.
[[noreturn]] void run_and_exit(const char* path, int round) {
  ::alarm(kPatienceSeconds);
  ::setenv("TUTTI_LOG", "error", 1);
  ::setenv("TUTTI_TRANSPORTS", "tcp", 1);
  // Runs after libcrypto's clean-up, because it is registered before: the threads continue for a while.
  (void)std::atexit([] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); });
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  const bool first = round % 2 == 0;
  if (first && ::EVP_Digest("first", 5, digest, &length, ::EVP_sha256(), nullptr) != 1) std::_Exit(4);
  static const Tutti tutti(path);
  for (int i = 0; i < kJobsAtOnce; ++i) std::thread([] { run_jobs(tutti); }).detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(20 + round % 7 * 5));
  std::exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  int wrong = 0;
  for (int round = 0; round < std::atoi(argv[2]); ++round) {
    const pid_t child = ::fork();
    if (child == 0) run_and_exit(argv[1], round);
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) {
      ++wrong;
      std::printf("round %d, libcrypto used %s: %s %d\n", round, round % 2 == 0 ? "before" : "by tutti alone",
                  WIFSIGNALED(status) ? "signal" : "exit status",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      std::fflush(stdout);  // not again by each child
    }
  }
  std::printf("%d of %s rounds ended badly\n", wrong, argv[2]);
  return wrong == 0 ? 0 : 1;
}

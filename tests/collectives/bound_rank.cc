// A rank that TUTTI_BIND binds. Usage: bound_rank RANK RANKS FOLDER. Joins beside a thread that was started before and
// is not bound, and writes FOLDER/bound.RANK: the processors that the calling thread may use then, as the kernel lists
// them. Threads that a queued operation starts must have the same. The ranks find each other through FOLDER.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "rendezvous.h"

namespace {

using namespace tutti::internal::test;  // NOLINT: this program is a test

std::string processors_of(const std::string& thread) {
  std::ifstream status("/proc/self/task/" + thread + "/status");
  const std::string name = "Cpus_allowed_list:\t";
  for (std::string line; std::getline(status, line);) {
    if (line.compare(0, name.size(), name) == 0) return line.substr(name.size());
  }
  return {};
}

std::set<std::string> threads() {
  std::set<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    all.insert(entry.path().filename().string());
  }
  return all;
}

std::string all_reduce(tuttiComm_t comm, int ranks, tuttiStream_t stream) {
  float sum = 1;
  tuttiResult_t result = tuttiAllReduce(&sum, &sum, 1, tuttiFloat32, tuttiSum, comm, stream);
  if (result == tuttiSuccess && stream != nullptr) result = tuttiStreamSynchronize(stream);
  if (result != tuttiSuccess) return tuttiGetLastError(comm);
  return sum == static_cast<float>(ranks) ? "" : "a wrong sum";
}

// Empty, or what is wrong.
std::string run(int rank, int ranks, const std::filesystem::path& folder) {
  const std::string self = std::to_string(::getpid());
  const std::string at_first = processors_of(self);
  std::thread([] { ::pause(); }).detach();
  tuttiComm_t comm = nullptr;
  std::string wrong = join_in_folder(folder, rank, ranks, &comm);
  if (wrong.empty()) wrong = all_reduce(comm, ranks, nullptr);
  if (!wrong.empty()) return wrong;
  const std::string bound = processors_of(self);
  const std::set<std::string> before = threads();
  if (std::none_of(before.begin(), before.end(), [&](const auto& t) { return processors_of(t) == at_first; })) {
    return "a thread that ran before has been bound";
  }
  tuttiStream_t stream = nullptr;
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return tuttiGetLastError(nullptr);
  wrong = all_reduce(comm, ranks, stream);
  if (!wrong.empty()) return wrong;
  int started = 0;
  for (const std::string& thread : threads()) {
    const std::string may_use = processors_of(thread);
    if (before.contains(thread) || may_use.empty()) continue;
    ++started;
    if (may_use != bound) return "a thread that was started may use " + may_use + ", not " + bound;
  }
  if (started == 0) return "no thread was started";
  if (processors_of(self) != bound) return "the thread is bound to others now";
  write_file(folder / ("bound." + std::to_string(rank)), bound + "\n");
  if (tuttiStreamDestroy(stream) != tuttiSuccess) return tuttiGetLastError(nullptr);
  if (tuttiCommDestroy(comm) != tuttiSuccess) return tuttiGetLastError(nullptr);
  return processors_of(self) == bound ? "" : "the thread is no longer bound";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string wrong = run(std::atoi(argv[1]), std::atoi(argv[2]), argv[3]);
  if (!wrong.empty()) std::fprintf(stderr, "rank %s: %s\n", argv[1], wrong.c_str());
  std::fflush(nullptr);
  ::_exit(wrong.empty() ? 0 : 1);
}

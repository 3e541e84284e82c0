// One rank of a job in a guest. Usage: rdma_rank check|programs|splits|loop BYTES RANK RANKS FOLDER
// check: every collective up to about BYTES, compared with the expected result.
// programs: random programs over three communicators, with collectives with blocks of equal and of different counts,
// sends and receives, in groups and alone, with user-defined datatypes and operators, up to about BYTES.
// splits: communicators that are split from each other, whose operations run in a thread each, at the same time: every
// collective up to about BYTES, all-reduces of one buffer that all of them send, further splits. Writes
// FOLDER/descriptors.RANK: the number that each communicator uses once its links are made, one a line.
// loop: all-reduces of BYTES until one fails, which the job's script causes. Writes FOLDER/ready.RANK when some are
// done, and FOLDER/outcome.RANK at the end: the error's code, the milliseconds since the last operation that succeeded,
// and the text.
// The ranks find each other through FOLDER.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "collectives/programs.h"
#include "collectives/rendezvous.h"
#include "collectives/specs.h"
#include "os/clock.h"

namespace {

using namespace tutti::internal::test;  // NOLINT: this program is a test

constexpr int kSplits = 4;
constexpr int kSharedRounds = 10;
constexpr std::size_t kSharedFloats = 50'000;
constexpr std::uint32_t kPrograms = 20;
constexpr std::uint32_t kLongPrograms = 2;
constexpr int kRoundsBeforeReady = 3;
constexpr std::chrono::milliseconds kBetweenLooks{20};
constexpr int kSameLooks = 10;
constexpr int kMostLooks = 250;
constexpr std::int64_t kLoopMs = 60'000;  // nothing has failed by then

struct Job {
  int rank = 0;
  int ranks = 0;
  std::filesystem::path folder;
  std::size_t bytes = 0;
  tuttiComm_t comm = nullptr;
};

int complain(const Job& job, const std::string& what) {
  std::fprintf(stderr, "rank %d: %s: %s\n", job.rank, what.c_str(), tuttiGetLastError(job.comm));
  return 1;
}

int check(const Job& job) {
  Runner runner(job.comm, job.rank, job.ranks);
  std::string wrong = runner.run_all(every_root(job.ranks));
  if (wrong.empty()) wrong = runner.run_all(every_size(job.ranks, job.bytes));
  if (!wrong.empty()) return complain(job, wrong);
  return tuttiCommDestroy(job.comm) == tuttiSuccess ? 0 : complain(job, "destroy");
}

int programs(const Job& job) {
  std::vector<Seat> seats;
  std::string wrong = make_seats(job.comm, job.rank, job.ranks, 3, &seats);
  if (wrong.empty()) wrong = run_programs(seats, job.ranks, {kPrograms, 6, 4000});
  if (wrong.empty()) wrong = run_programs(seats, job.ranks, {kLongPrograms, 6, job.bytes});
  if (wrong.empty()) wrong = leave_seats(seats);
  if (!wrong.empty()) return complain(job, wrong);
  return tuttiCommDestroy(job.comm) == tuttiSuccess ? 0 : complain(job, "destroy");
}

// Small whole numbers, so that sums are exact in every order.
void fill(const Job& job, int round, std::vector<float>* send) {
  for (std::size_t i = 0; i < send->size(); ++i) (*send)[i] = static_cast<float>((i + round) % 100 + job.rank);
}

bool is_sum(const Job& job, int round, const std::vector<float>& got) {
  const auto n = static_cast<std::size_t>(job.ranks);
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] != static_cast<float>(n * ((i + round) % 100) + n * (n - 1) / 2)) return false;
  }
  return true;
}

std::size_t count_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Permanent ones: other threads close the descriptors of making connections, a little later on a busy machine.
std::size_t open_descriptors() {
  std::size_t count = count_descriptors();
  for (int same = 0, looks = 0; same < kSameLooks && looks < kMostLooks; ++looks) {
    std::this_thread::sleep_for(kBetweenLooks);
    const std::size_t now = count_descriptors();
    same = now == count ? same + 1 : 0;
    count = now;
  }
  return count;
}

// All ranks, in the same order. Empty, or what is wrong.
std::string split_all(const Job& parent, Job* child) {
  *child = parent;
  if (tuttiCommSplit(parent.comm, 0, parent.rank, &child->comm, nullptr) == tuttiSuccess) return "";
  return std::string("split: ") + tuttiGetLastError(parent.comm);
}

// The work of a communicator's thread, in parallel with those of the others. `shared`: the input of all of them.
std::string use_beside_others(const Job& job, const std::vector<float>& shared) {
  Runner runner(job.comm, job.rank, job.ranks);
  std::string wrong = runner.run_all(every_size(job.ranks, job.bytes));
  std::vector<float> recv(shared.size());
  for (int round = 0; wrong.empty() && round < kSharedRounds; ++round) {
    std::fill(recv.begin(), recv.end(), 0.0F);
    if (tuttiAllReduce(shared.data(), recv.data(), recv.size(), tuttiFloat32, tuttiSum, job.comm, nullptr) !=
        tuttiSuccess) {
      return std::string("all-reduce: ") + tuttiGetLastError(job.comm);
    }
    if (!is_sum(job, 0, recv)) return "a wrong sum in round " + std::to_string(round);
    // Unmapped and mapped again, while others may register their memory.
    if (round % 3 == 2) std::vector<float>(recv.size()).swap(recv);
  }
  Job child;
  if (wrong.empty()) wrong = split_all(job, &child);
  if (wrong.empty()) wrong = Runner(child.comm, job.rank, job.ranks).run_all(every_root(job.ranks));
  if (wrong.empty() && tuttiCommDestroy(child.comm) != tuttiSuccess) wrong = "destroy of a child";
  return wrong;
}

int splits(const Job& job) {
  std::vector<Job> jobs{job};
  std::string wrong = Runner(job.comm, job.rank, job.ranks).run_all(every_root(job.ranks));
  std::string counts;
  for (std::size_t i = 0; wrong.empty() && i < kSplits; ++i) {
    const std::size_t before = open_descriptors();
    Job child;
    wrong = split_all(jobs[i / 2], &child);
    if (wrong.empty()) wrong = Runner(child.comm, job.rank, job.ranks).run_all(every_root(job.ranks));
    counts += std::to_string(open_descriptors() - before) + "\n";
    jobs.push_back(child);
  }
  if (!wrong.empty()) return complain(job, wrong);
  write_file(job.folder / ("descriptors." + std::to_string(job.rank)), counts);
  std::vector<float> shared(kSharedFloats);
  fill(job, 0, &shared);
  std::vector<std::string> of_threads(jobs.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    threads.emplace_back([&, i] { of_threads[i] = use_beside_others(jobs[i], shared); });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!of_threads[i].empty()) return complain(jobs[i], "communicator " + std::to_string(i) + ": " + of_threads[i]);
  }
  // In order: parents before their children.
  for (std::size_t i = 1; i < jobs.size(); ++i) {
    if (tuttiCommDestroy(jobs[i].comm) != tuttiSuccess) return complain(job, "destroy");
    wrong = Runner(job.comm, job.rank, job.ranks).run_all(every_root(job.ranks));
    if (!wrong.empty()) return complain(job, wrong);
  }
  return tuttiCommDestroy(job.comm) == tuttiSuccess ? 0 : complain(job, "destroy");
}

int loop(const Job& job) {
  std::vector<float> send(job.bytes / sizeof(float));
  std::vector<float> recv(send.size());
  const auto end = tutti::internal::Deadline::after_ms(kLoopMs);
  tuttiResult_t result = tuttiSuccess;
  std::int64_t last_ns = tutti::internal::now_ns();
  std::string text = "no operation has failed";
  for (int round = 0; !end.passed(); ++round) {
    fill(job, round, &send);
    last_ns = tutti::internal::now_ns();
    result = tuttiAllReduce(send.data(), recv.data(), send.size(), tuttiFloat32, tuttiSum, job.comm, nullptr);
    if (result != tuttiSuccess) {
      text = tuttiGetLastError(job.comm);
      break;
    }
    if (!is_sum(job, round, recv)) return complain(job, "a wrong sum in round " + std::to_string(round));
    if (round + 1 == kRoundsBeforeReady)
      write_file(job.folder / ("ready." + std::to_string(job.rank)), std::to_string(::getpid()));
  }
  const std::int64_t ms = (tutti::internal::now_ns() - last_ns) / 1'000'000;
  write_file(job.folder / ("outcome." + std::to_string(job.rank)),
             std::to_string(result) + " " + std::to_string(ms) + " " + text + "\n");
  return tuttiCommDestroy(job.comm) == tuttiSuccess ? 0 : complain(job, "destroy");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  Job job;
  job.bytes = static_cast<std::size_t>(std::atoll(argv[2]));
  job.rank = std::atoi(argv[3]);
  job.ranks = std::atoi(argv[4]);
  job.folder = argv[5];
  const std::string joined = join_in_folder(job.folder, job.rank, job.ranks, &job.comm);
  if (!joined.empty()) {
    std::fprintf(stderr, "rank %d: %s\n", job.rank, joined.c_str());
    return 1;
  }
  if (std::strcmp(argv[1], "check") == 0) return check(job);
  if (std::strcmp(argv[1], "programs") == 0) return programs(job);
  if (std::strcmp(argv[1], "splits") == 0) return splits(job);
  return std::strcmp(argv[1], "loop") == 0 ? loop(job) : 2;
}

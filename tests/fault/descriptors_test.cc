// A process that may open too few files: an immediate error that names the limit, on the rank concerned and through it
// on all others; and no error if the limit can be raised.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "collectives/rendezvous.h"
#include "faults.h"

namespace tutti::internal::test {
namespace {

// Waits end by themselves after a minute; on a busy machine, processes start and end slowly.
constexpr std::int64_t kSoonMs = 4 * kNoticeMs;

// From now on this process may open `more` files; with `hard` it cannot raise that limit.
void leave_room_for(int more, bool hard) {
  int highest = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) highest = fd;
  }
  // An unused number below would be room for a descriptor.
  int last = 0;
  while (last >= 0 && last < highest) last = ::dup(STDIN_FILENO);
  rlimit limit{};
  if (last < 0 || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) std::abort();
  limit.rlim_cur = static_cast<rlim_t>(last + 1 + more);
  if (hard) limit.rlim_max = limit.rlim_cur;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) std::abort();
}

// None at all. Descriptors that the threads of the initialisation still close are also used up.
void leave_no_room() {
  leave_room_for(0, true);
  for (int i = 0; i < 100; ++i) {
    while (::dup(STDIN_FILENO) >= 0) {
    }
    sleep_ms(5);
  }
}

tuttiResult_t sum_one(tuttiComm_t comm) {
  float v = 1;
  return tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, comm, nullptr);
}

// What is wrong with an error, which must name the limit. `concerned`: this rank is the one without descriptors.
std::string judge(tuttiResult_t result, const std::string& text, bool concerned, bool in_time) {
  if (!in_time) return "late: " + text;
  const tuttiResult_t wanted = concerned ? tuttiSystemError : tuttiRemoteError;
  if (result != wanted) return "code " + std::to_string(result) + ": " + text;
  const bool told = contains(text, "RLIMIT_NOFILE") && contains(text, "ulimit -n") && contains(text, "may open ");
  return told ? "" : "without the limit: " + text;
}

// A rank that finds no descriptor for its links in the first operation.
void exhaust_in_first_operation(const char* transports, int victim, int ranks) {
  const auto outcomes = run_processes(ranks, transports, [&](tuttiComm_t comm, int rank, int) {
    if (rank == victim) leave_no_room();
    const Deadline soon = Deadline::after_ms(kSoonMs);
    const tuttiResult_t result = sum_one(comm);
    return Outcome{judge(result, tuttiGetLastError(comm), rank == victim, !soon.passed())};
  });
  INFO(transports << ", rank " << victim << " of " << ranks);
  CHECK(wrong_of(outcomes) == "");
}

// A folder for the ranks; removed at the end.
struct Folder {
  Folder() {
    std::filesystem::remove_all(path);
    std::filesystem::create_directory(path);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tutti-descriptors-" + std::to_string(::getpid()));
};

// Rank 0 makes the ids of all communicators first, and writes them to `folder`.
std::vector<tuttiUniqueId> exchange_ids(const std::filesystem::path& folder, int rank, std::size_t count) {
  std::vector<tuttiUniqueId> ids(count);
  const std::size_t bytes = count * sizeof(tuttiUniqueId);
  if (rank == 0) {
    for (tuttiUniqueId& id : ids) {
      if (tuttiGetUniqueId(&id) != tuttiSuccess) std::abort();
    }
    write_file(folder / "ids", std::string(reinterpret_cast<const char*>(ids.data()), bytes));
  } else {
    if (!wait_for_file(folder / "ids", 60'000)) std::abort();
    std::ifstream(folder / "ids", std::ios::binary).read(reinterpret_cast<char*>(ids.data()), static_cast<long>(bytes));
  }
  return ids;
}

// Two ranks make one communicator after the other and use each; rank 1 may open few more files. Returns per rank the
// first error ("" if none), or what is wrong with it.
std::vector<Outcome> run_many(const char* transports, std::size_t count, bool hard) {
  const Folder folder;
  return run_processes(2, transports, [&](tuttiComm_t, int rank, int n) {
    const std::vector<tuttiUniqueId> ids = exchange_ids(folder.path, rank, count);
    if (rank == 1) leave_room_for(16, hard);
    std::vector<tuttiComm_t> comms;
    Outcome outcome;
    for (const tuttiUniqueId& id : ids) {
      const Deadline soon = Deadline::after_ms(kSoonMs);
      tuttiComm_t comm = nullptr;
      tuttiResult_t result = tuttiCommInitRank(&comm, n, id, rank);
      if (result == tuttiSuccess) result = sum_one(comm);
      if (result != tuttiSuccess) {
        outcome.wrong = std::string(soon.passed() ? "late: " : "") + tuttiGetLastError(comm);
        break;
      }
      comms.push_back(comm);
    }
    for (const tuttiComm_t comm : comms) static_cast<void>(tuttiCommDestroy(comm));
    return outcome;
  });
}

// A rank whose standard streams are closed, like a daemon's, makes and uses a communicator.
Outcome use_without_streams(const std::filesystem::path& folder, int rank, int ranks) {
  const std::vector<tuttiUniqueId> ids = exchange_ids(folder, rank, 1);
  for (int stream = 0; stream <= STDERR_FILENO; ++stream) ::close(stream);
  tuttiComm_t comm = nullptr;
  if (tuttiCommInitRank(&comm, ranks, ids[0], rank) != tuttiSuccess || sum_one(comm) != tuttiSuccess) {
    return Outcome{tuttiGetLastError(comm)};
  }
  for (int stream = 0; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) >= 0) return Outcome{"the library uses descriptor " + std::to_string(stream)};
  }
  return Outcome{tuttiCommDestroy(comm) == tuttiSuccess ? "" : "destroy failed"};
}

}  // namespace

TEST_CASE("text written to a closed standard stream goes into no connection") {
  for (const char* transports : {"shm", "tcp"}) {
    const Folder folder;
    INFO(transports);
    CHECK(wrong_of(run_processes(2, transports, [&](tuttiComm_t, int rank, int ranks) {
            return use_without_streams(folder.path, rank, ranks);
          })) == "");
  }
}

TEST_CASE("no descriptor for a link is an error of all ranks at once, whichever side lacks it") {
  for (const char* transports : {"shm", "tcp"}) {
    exhaust_in_first_operation(transports, 0, 2);  // accepts
    exhaust_in_first_operation(transports, 1, 2);  // dials
    exhaust_in_first_operation(transports, 1, 3);
  }
}

TEST_CASE("many communicators of a process with few files end in an error that names the limit") {
  ::setenv("TUTTI_INIT_TIMEOUT_MS", "4000", 1);  // rank 1 may have no descriptor left to announce that it does not come
  for (const char* transports : {"shm", "tcp"}) {
    const auto outcomes = run_many(transports, 30, true);
    INFO(transports << ": " << outcomes[1].wrong);
    CHECK(contains(outcomes[1].wrong, "RLIMIT_NOFILE"));
    CHECK(contains(outcomes[1].wrong, "may need "));
    CHECK(!contains(outcomes[1].wrong, "late"));
    CHECK(outcomes[0].wrong != "");
  }
  ::unsetenv("TUTTI_INIT_TIMEOUT_MS");
}

TEST_CASE("a soft limit that is too low for a process's communicators is raised") {
  for (const char* transports : {"shm", "tcp"}) {
    INFO(transports);
    CHECK(wrong_of(run_many(transports, 30, false)) == "");
  }
}

}  // namespace tutti::internal::test

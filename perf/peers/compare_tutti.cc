// Worker of perf/compare for tutti.
// Usage: compare_tutti SOCKET RANK RANKS ID_FILE
// Rank 0 writes the job's unique id to ID_FILE (mode 0600: it holds the job's secret); the others read it.
#include <fcntl.h>
#include <sys/stat.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "compare_worker.h"

namespace {

constexpr int kIdWaitMs = 30'000;

struct TuttiState {
  tuttiComm_t comm = nullptr;
  int rank = 0;
  int ranks = 1;
};

int checked(tuttiResult_t result, const char* what, tuttiComm_t comm) {
  if (result == tuttiSuccess) return 0;
  const std::string text = tuttiGetLastError(comm);
  const std::string prefix = std::string(what) + ": ";
  // Many texts name the function themselves.
  fprintf(stderr, "tutti: %s%s\n", text.starts_with(prefix) ? "" : prefix.c_str(), text.c_str());
  return -1;
}

tuttiResult_t exchange(const TuttiState& state, const compare_call& call) {
  const int next = (state.rank + 1) % state.ranks;
  const int before = (state.rank + state.ranks - 1) % state.ranks;
  tuttiResult_t result = tuttiGroupStart();
  if (result != tuttiSuccess) return result;
  result = tuttiSend(call.send, call.count, tuttiFloat32, next, state.comm, nullptr);
  if (result == tuttiSuccess) {
    result = tuttiRecv(call.recv, call.count, tuttiFloat32, before, state.comm, nullptr);
  }
  const tuttiResult_t ended = tuttiGroupEnd();
  return result != tuttiSuccess ? result : ended;
}

tuttiResult_t ping_pong(const TuttiState& state, const compare_call& call) {
  const int peer = 1 - state.rank;
  const auto send = [&] { return tuttiSend(call.send, call.count, tuttiFloat32, peer, state.comm, nullptr); };
  const auto receive = [&] { return tuttiRecv(call.recv, call.count, tuttiFloat32, peer, state.comm, nullptr); };
  const tuttiResult_t result = state.rank == 0 ? send() : receive();
  if (result != tuttiSuccess) return result;
  return state.rank == 0 ? receive() : send();
}

// Blocks of different counts.
tuttiResult_t perform_varying(const TuttiState& state, const compare_call& call) {
  tuttiComm_t comm = state.comm;
  const float* send = call.send;
  float* recv = call.recv;
  const size_t* counts = call.counts;
  const size_t own = counts[state.rank];
  switch (call.collective) {
    case kCompareAllGatherV: return tuttiAllGatherV(send, own, recv, counts, nullptr, tuttiFloat32, comm, nullptr);
    case kCompareReduceScatterV: return tuttiReduceScatterV(send, recv, counts, tuttiFloat32, tuttiSum, comm, nullptr);
    case kCompareGatherV: return tuttiGatherV(send, own, recv, counts, nullptr, tuttiFloat32, 0, comm, nullptr);
    case kCompareScatterV: return tuttiScatterV(send, counts, nullptr, recv, own, tuttiFloat32, 0, comm, nullptr);
    case kCompareAllToAllV:
      return tuttiAlltoAllV(send, counts, nullptr, recv, counts, nullptr, tuttiFloat32, comm, nullptr);
    default: return tuttiInvalidUsage;
  }
}

int perform(void* state, const compare_call* call) {
  const TuttiState& tutti = *static_cast<TuttiState*>(state);
  tuttiComm_t comm = tutti.comm;
  const float* send = call->send;
  float* recv = call->recv;
  const size_t count = call->count;
  tuttiResult_t result = tuttiInvalidUsage;
  switch (call->collective) {
    case kCompareAllReduce: result = tuttiAllReduce(send, recv, count, tuttiFloat32, tuttiSum, comm, nullptr); break;
    case kCompareReduceScatter:
      result = tuttiReduceScatter(send, recv, count, tuttiFloat32, tuttiSum, comm, nullptr);
      break;
    case kCompareAllGather: result = tuttiAllGather(send, recv, count, tuttiFloat32, comm, nullptr); break;
    case kCompareBroadcast: result = tuttiBroadcast(send, recv, count, tuttiFloat32, 0, comm, nullptr); break;
    case kCompareReduce: result = tuttiReduce(send, recv, count, tuttiFloat32, tuttiSum, 0, comm, nullptr); break;
    case kCompareBarrier: result = tuttiBarrier(comm, nullptr); break;
    case kCompareGather: result = tuttiGather(send, recv, count, tuttiFloat32, 0, comm, nullptr); break;
    case kCompareScatter: result = tuttiScatter(send, recv, count, tuttiFloat32, 0, comm, nullptr); break;
    case kCompareAllToAll: result = tuttiAlltoAll(send, recv, count, tuttiFloat32, comm, nullptr); break;
    case kCompareScan: result = tuttiScan(send, recv, count, tuttiFloat32, tuttiSum, comm, nullptr); break;
    case kCompareExscan: result = tuttiExscan(send, recv, count, tuttiFloat32, tuttiSum, comm, nullptr); break;
    case kCompareSendRecv: result = exchange(tutti, *call); break;
    case kComparePingPong: result = ping_pong(tutti, *call); break;
    default: result = perform_varying(tutti, *call); break;
  }
  return result == tuttiSuccess ? 0 : checked(result, "the operation", comm);
}

float* allocate(void* state, const char* kind, size_t bytes) {
  if (strcmp(kind, "tutti") != 0) return compare_malloc(state, kind, bytes);
  void* memory = nullptr;
  if (checked(tuttiMemAlloc(&memory, bytes), "tuttiMemAlloc", nullptr) != 0) return nullptr;
  return static_cast<float*>(memory);
}

void release(void* state, const char* kind, float* memory) {
  if (strcmp(kind, "tutti") != 0) {
    compare_free(state, kind, memory);
  } else {
    checked(tuttiMemFree(memory), "tuttiMemFree", nullptr);
  }
}

// The file appears whole: it is written under another name and then renamed.
bool write_id(const std::string& path, const tuttiUniqueId& id) {
  const std::string temporary = path + ".new";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) return false;
  const bool written = write(fd, &id, sizeof id) == static_cast<ssize_t>(sizeof id);
  return close(fd) == 0 && written && rename(temporary.c_str(), path.c_str()) == 0;
}

bool read_id(const std::string& path, tuttiUniqueId* id) {
  for (int waited_ms = 0; waited_ms < kIdWaitMs; ++waited_ms) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
      const bool whole = read(fd, id, sizeof *id) == static_cast<ssize_t>(sizeof *id);
      close(fd);
      return whole;
    }
    usleep(1000);
  }
  return false;
}

int serve(const char* socket_path, int rank, int size, const std::string& id_path) {
  tuttiUniqueId id;
  if (rank == 0 && checked(tuttiGetUniqueId(&id), "tuttiGetUniqueId", nullptr) != 0) return 1;
  if (rank == 0 ? !write_id(id_path, id) : !read_id(id_path, &id)) {
    fprintf(stderr, "tutti: cannot pass the unique id through %s\n", id_path.c_str());
    return 1;
  }
  TuttiState state;
  state.rank = rank;
  state.ranks = size;
  if (checked(tuttiCommInitRank(&state.comm, size, id, rank), "tuttiCommInitRank", nullptr) != 0) return 1;
  int version_code = 0;
  if (checked(tuttiGetVersion(&version_code), "tuttiGetVersion", nullptr) != 0) return 1;
  const std::string version = std::to_string(version_code / 10000) + "." + std::to_string(version_code / 100 % 100) +
                              "." + std::to_string(version_code % 100);
  compare_library library{};
  library.name = "tutti";
  library.version = version.c_str();
  library.rank = rank;
  library.size = size;
  library.state = &state;
  library.allocate = allocate;
  library.release = release;
  library.perform = perform;
  const int status = compare_serve(socket_path, &library);
  return checked(tuttiCommDestroy(state.comm), "tuttiCommDestroy", nullptr) == 0 ? status : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: %s SOCKET RANK RANKS ID_FILE (started by perf/compare)\n", argv[0]);
    return 2;
  }
  // As the other programs here (ranks.cc).
  const char* const affinity = getenv("TUTTI_AFFINITY");
  if (affinity == nullptr || *affinity == '\0') setenv("TUTTI_AFFINITY", "start", 1);
  return serve(argv[1], atoi(argv[2]), atoi(argv[3]), argv[4]);
}

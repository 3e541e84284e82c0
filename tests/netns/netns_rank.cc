// One rank of a job across network namespaces. Usage: netns_rank RANK RANKS FOLDER [hold]
// Rank 0 leaves the unique id in FOLDER. With "hold" each rank stays connected, after its operations, from
// writing FOLDER/ready.RANK until FOLDER/go exists.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/clock.h"
#include "collectives/specs.h"

namespace {

using namespace tutti::test;  // NOLINT: this program is a test
namespace fs = std::filesystem;

bool wait_for(const fs::path& file) {
  const auto deadline = tutti::Deadline::after_ms(60'000);
  while (!fs::exists(file)) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

int complain(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), tuttiGetLastError(nullptr));
  return 1;
}

bool get_id(int rank, const fs::path& folder, tuttiUniqueId* id) {
  const fs::path file = folder / "id";
  if (rank == 0) {
    if (tuttiGetUniqueId(id) != tuttiSuccess) return false;
    const fs::path unfinished = folder / "id.new";
    std::ofstream(unfinished, std::ios::binary).write(id->internal, sizeof id->internal);
    fs::rename(unfinished, file);
    return true;
  }
  if (!wait_for(file)) return false;
  std::ifstream in(file, std::ios::binary);
  return static_cast<bool>(in.read(id->internal, sizeof id->internal));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const int rank = std::atoi(argv[1]);
  const int ranks = std::atoi(argv[2]);
  const fs::path folder = argv[3];
  tuttiUniqueId id;
  std::memset(&id, 0, sizeof id);
  tuttiComm_t comm = nullptr;
  if (!get_id(rank, folder, &id)) return complain("unique id");
  if (tuttiCommInitRank(&comm, ranks, id, rank) != tuttiSuccess) return complain("init");
  {
    Runner runner(comm, rank, ranks);
    std::string wrong = runner.run_all(every_root(ranks));
    if (wrong.empty()) wrong = runner.run_all(every_size(ranks, 1 << 20));
    if (!wrong.empty()) return complain(wrong);
  }
  if (argc > 4) {
    std::ofstream(folder / ("ready." + std::to_string(rank))) << '\n';
    if (!wait_for(folder / "go")) return complain("nobody said go");
  }
  if (tuttiCommDestroy(comm) != tuttiSuccess) return complain("destroy");
  return 0;
}

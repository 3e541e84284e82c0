// One rank of a job across network namespaces. Usage: netns_rank RANK RANKS FOLDER [hold]
// Rank 0 leaves the unique id in FOLDER. With "hold" each rank stays connected, after its operations, from
// writing FOLDER/ready.RANK until FOLDER/go exists.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "collectives/rendezvous.h"
#include "collectives/specs.h"

namespace {

using namespace tutti::internal::test;  // NOLINT: this program is a test

int complain(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), tuttiGetLastError(nullptr));
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const int rank = std::atoi(argv[1]);
  const int ranks = std::atoi(argv[2]);
  const std::filesystem::path folder = argv[3];
  tuttiComm_t comm = nullptr;
  const std::string joined = join_in_folder(folder, rank, ranks, &comm);
  if (!joined.empty()) return complain(joined);
  {
    Runner runner(comm, rank, ranks);
    std::string wrong = runner.run_all(every_root(ranks));
    if (wrong.empty()) wrong = runner.run_all(every_size(ranks, 1 << 20));
    if (!wrong.empty()) return complain(wrong);
  }
  if (argc > 4) {
    write_file(folder / ("ready." + std::to_string(rank)), "");
    if (!wait_for_file(folder / "go", 60'000)) return complain("nobody said go");
  }
  if (tuttiCommDestroy(comm) != tuttiSuccess) return complain("destroy");
  return 0;
}

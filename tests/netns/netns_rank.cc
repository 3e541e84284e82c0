// One rank of a job across network namespaces. Usage: netns_rank RANK RANKS FOLDER [hold|again]. Rank 0 writes the
// unique id to FOLDER; if TUTTI_ROOT is set, the ranks join with that. With "hold" each rank stays connected, after its
// operations, from writing FOLDER/ready.RANK until FOLDER/go exists. With "again" it then repeats its operations.
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

std::string run_operations(tuttiComm_t comm, int rank, int ranks) {
  Runner runner(comm, rank, ranks);
  std::string wrong = runner.run_all(every_root(ranks));
  return wrong.empty() ? runner.run_all(every_size(ranks, 1 << 20)) : wrong;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const int rank = std::atoi(argv[1]);
  const int ranks = std::atoi(argv[2]);
  const std::filesystem::path folder = argv[3];
  tuttiComm_t comm = nullptr;
  if (std::getenv("TUTTI_ROOT") != nullptr) {
    if (tuttiCommInitEnv(&comm, nullptr) != tuttiSuccess) return complain("tuttiCommInitEnv");
  } else if (const std::string joined = join_in_folder(folder, rank, ranks, &comm); !joined.empty()) {
    return complain(joined);
  }
  if (const std::string wrong = run_operations(comm, rank, ranks); !wrong.empty()) return complain(wrong);
  if (argc > 4) {
    write_file(folder / ("ready." + std::to_string(rank)), "");
    if (!wait_for_file(folder / "go", 300'000)) return complain("FOLDER/go did not appear");
    const bool again = std::string(argv[4]) == "again";
    const std::string wrong = again ? run_operations(comm, rank, ranks) : "";
    if (!wrong.empty()) return complain(wrong);
  }
  if (tuttiCommDestroy(comm) != tuttiSuccess) return complain("destroy");
  return 0;
}

#include "rendezvous.h"

#include <cstring>
#include <fstream>
#include <thread>

#include "os/clock.h"

namespace tutti::internal::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kIdMs = 60'000;

}  // namespace

bool wait_for_file(const fs::path& file, std::int64_t ms) {
  const auto deadline = Deadline::after_ms(ms);
  while (!fs::exists(file)) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void write_file(const fs::path& file, const std::string& content) {
  fs::path unfinished = file;
  unfinished += ".new";
  std::ofstream(unfinished, std::ios::binary) << content;
  fs::rename(unfinished, file);
}

std::string join_in_folder(const fs::path& folder, int rank, int ranks, tuttiComm_t* comm) {
  tuttiUniqueId id;
  std::memset(&id, 0, sizeof id);
  const fs::path file = folder / "id";
  if (rank == 0) {
    if (tuttiGetUniqueId(&id) != tuttiSuccess) return std::string("unique id: ") + tuttiGetLastError(nullptr);
    write_file(file, std::string(id.internal, sizeof id.internal));
  } else {
    if (!wait_for_file(file, kIdMs)) return "no unique id in " + folder.string();
    std::ifstream in(file, std::ios::binary);
    if (!in.read(id.internal, sizeof id.internal)) return "cannot read " + file.string();
  }
  if (tuttiCommInitRank(comm, ranks, id, rank) != tuttiSuccess)
    return std::string("init: ") + tuttiGetLastError(nullptr);
  return {};
}

}  // namespace tutti::internal::test

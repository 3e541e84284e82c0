// One of two ranks in a guest with two NUMA nodes, which are bound to different ones. Usage: numa_rank blocking|queued
// RANK 2 FOLDER. Checks in which nodes the memory of their link is, in pages that this process uses (move_pages(2)):
// slots must be on the node of the rank that reads them, short blocks on the node of the rank that writes them. Only
// rank 0 sends data that needs slots, which distinguishes the arenas of the two. blocking: the rank is bound when it
// starts, or by TUTTI_BIND. queued: it binds its own thread beside one that may run anywhere, and the first queued
// operation makes the link. The ranks find each other through FOLDER.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "collectives/rendezvous.h"

namespace {

using namespace tutti::internal::test;  // NOLINT: this program is a test

constexpr std::size_t kPageBytes = 4096;
// The shared state of all links of a pair, and the first sides of links: kSlabPages of arena.cc each.
constexpr std::uint64_t kShortPages = 6;
constexpr std::size_t kLongBytes = 64 * 1024;
constexpr std::size_t kRounds = 40;
constexpr std::int64_t kPeerMs = 30'000;

int complain(int rank, const std::string& what) {
  std::fprintf(stderr, "rank %d: %s\n", rank, what.c_str());
  return 1;
}

// The node of the processor on which this thread runs.
int current_node() {
  unsigned cpu = 0;
  unsigned node = 0;
  return ::syscall(SYS_getcpu, &cpu, &node, nullptr) == 0 ? static_cast<int>(node) : -1;
}

// To all processors of the node: "first-last".
bool bind_to(int node) {
  std::ifstream list("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist");
  unsigned first = 0;
  unsigned last = 0;
  char dash = 0;
  if (!(list >> first >> dash >> last)) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (unsigned i = first; i <= last; ++i) CPU_SET(i, &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

// For an arena as mapped here: node and number of its pages, of short and of long blocks.
struct Pages {
  std::map<int, int> of_short;
  std::map<int, int> of_long;
};

// By inode.
std::map<std::uint64_t, Pages> arenas() {
  std::map<std::uint64_t, Pages> all;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:tutti-lanes") == std::string::npos) continue;
    unsigned long begin = 0;
    unsigned long end = 0;
    unsigned long offset = 0;
    unsigned long inode = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx %*s %lu", &begin, &end, &offset, &inode) != 4) continue;
    for (unsigned long at = begin; at < end; at += kPageBytes) {
      void* page = reinterpret_cast<void*>(at);  // NOLINT: the kernel's text
      int node = -1;
      if (::syscall(SYS_move_pages, 0, 1ul, &page, nullptr, &node, 0) != 0 || node < 0) continue;
      const bool is_short = (offset + at - begin) / kPageBytes < kShortPages;
      ++(is_short ? all[inode].of_short : all[inode].of_long)[node];
    }
  }
  return all;
}

std::string text_of(const std::map<int, int>& pages) {
  std::ostringstream text;
  for (const auto& [node, count] : pages) text << " " << count << " on node " << node;
  return text.str();
}

// Long messages of rank 0, which use slots, and short ones in both directions. Empty, or what is wrong.
std::string communicate(tuttiComm_t comm, int rank, tuttiStream_t stream) {
  std::vector<char> bytes(kLongBytes);
  float sum = 1;
  for (std::size_t i = 0; i < kRounds; ++i) {
    std::fill(bytes.begin(), bytes.end(), static_cast<char>(rank == 0 ? i : 0));
    tuttiResult_t result = rank == 0 ? tuttiSend(bytes.data(), bytes.size(), tuttiInt8, 1, comm, stream)
                                     : tuttiRecv(bytes.data(), bytes.size(), tuttiInt8, 0, comm, stream);
    sum = 1;
    if (result == tuttiSuccess) result = tuttiAllReduce(&sum, &sum, 1, tuttiFloat32, tuttiSum, comm, stream);
    if (result == tuttiSuccess && stream != nullptr) result = tuttiStreamSynchronize(stream);
    if (result != tuttiSuccess) return tuttiGetLastError(comm);
    if (sum != 2 || bytes[kLongBytes - 1] != static_cast<char>(i)) return "wrong data in round " + std::to_string(i);
  }
  return {};
}

// `nodes`: of the ranks.
std::string check_pages(const std::map<std::uint64_t, Pages>& all, const int (&nodes)[2]) {
  if (all.size() != 2) return std::to_string(all.size()) + " arenas in place of 2";
  int with_slots = 0;
  for (const auto& [inode, pages] : all) {
    const int writer = pages.of_long.empty() ? 1 : 0;
    with_slots += 1 - writer;
    std::printf("note: the arena of rank %d, on node %d: short%s; slots%s\n", writer, nodes[writer],
                text_of(pages.of_short).c_str(), text_of(pages.of_long).c_str());
    if (pages.of_short.size() != 1 || !pages.of_short.contains(nodes[writer])) return "short pages on a wrong node";
    if (writer == 1) continue;
    if (pages.of_long.size() != 1 || !pages.of_long.contains(nodes[1])) return "slots on a wrong node";
    if (pages.of_long.at(nodes[1]) < static_cast<int>(kLongBytes / kPageBytes)) return "too few slots in use";
  }
  return with_slots == 1 ? "" : "not one rank has sent what takes slots, but " + std::to_string(with_slots);
}

std::string run(tuttiComm_t comm, int rank, bool queued, const std::filesystem::path& folder) {
  tuttiStream_t stream = nullptr;
  if (queued && tuttiStreamCreate(&stream) != tuttiSuccess) return tuttiGetLastError(nullptr);
  if (std::string wrong = communicate(comm, rank, stream); !wrong.empty()) return wrong;
  if (queued && tuttiStreamDestroy(stream) != tuttiSuccess) return tuttiGetLastError(nullptr);
  int nodes[2] = {};
  nodes[rank] = current_node();
  write_file(folder / ("node." + std::to_string(rank)), std::to_string(nodes[rank]));
  const auto of_peer = folder / ("node." + std::to_string(1 - rank));
  if (!wait_for_file(of_peer, kPeerMs)) return "the peer does not tell its node";
  std::ifstream(of_peer) >> nodes[1 - rank];
  if (nodes[0] == nodes[1]) return "both ranks are on node " + std::to_string(nodes[0]);
  std::string wrong = check_pages(arenas(), nodes);
  if (!wrong.empty()) return wrong;
  return tuttiCommDestroy(comm) == tuttiSuccess ? "" : tuttiGetLastError(nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 || std::strcmp(argv[3], "2") != 0) return 2;
  const bool queued = std::strcmp(argv[1], "queued") == 0;
  const int rank = std::atoi(argv[2]);
  const std::filesystem::path folder = argv[4];
  if (queued) {
    std::thread([] { ::pause(); }).detach();
    if (!bind_to(rank)) return complain(rank, "cannot be bound");
  }
  tuttiComm_t comm = nullptr;
  std::string wrong = join_in_folder(folder, rank, 2, &comm);
  if (wrong.empty()) wrong = run(comm, rank, queued, folder);
  std::fflush(nullptr);
  ::_exit(wrong.empty() ? 0 : complain(rank, wrong));
}

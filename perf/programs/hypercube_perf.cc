// nccl-tests has a program of this name: an all-gather of sends and receives along the edges of a hypercube.
#include <cstdio>

int main() {
  constexpr int kUsageStatus = 2;
  std::fputs(
      "hypercube_perf: tutti does not have this test of nccl-tests. Run all_gather_perf, which moves the same data; "
      "with\n"
      "TUTTI_ALGORITHM=all_gather:recursive_doubling it goes along the edges of a hypercube.\n",
      stderr);
  return kUsageStatus;
}

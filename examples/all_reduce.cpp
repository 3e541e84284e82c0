// Four ranks as threads of this process. Each queues an all-reduce on a stream, computes beside it, and
// waits for the result. With Communicator::from_environment() the same code runs under a launcher.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

constexpr int kRanks = 4;
constexpr std::size_t kCount = 1 << 16;

// Whether the result is right.
bool run_rank(tutti::Communicator& comm) {
  tutti::Memory<float> gradient(kCount);  // peers on this machine read it in place
  std::fill(gradient.begin(), gradient.end(), static_cast<float>(comm.rank()));

  tutti::Stream stream;
  comm.all_reduce(gradient, tuttiAvg, &stream);
  // Other work goes here; `gradient` must not be touched.
  stream.synchronize();

  std::printf("rank %d of %d: average %g\n", comm.rank(), comm.size(), gradient[0]);
  return std::all_of(gradient.begin(), gradient.end(), [](float x) { return x == (kRanks - 1) / 2.0F; });
}

// A thread for each rank; the number of ranks that failed.
int run_all() {
  std::atomic<int> failures = 0;
  std::vector<tutti::Communicator> comms = tutti::Communicator::in_process(kRanks);
  std::vector<std::thread> threads;
  for (tutti::Communicator& comm : comms) {
    threads.emplace_back([&] {
      try {
        if (!run_rank(comm)) ++failures;
      } catch (const tutti::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

}  // namespace

int main() {
  try {
    return run_all() == 0 ? 0 : 1;
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

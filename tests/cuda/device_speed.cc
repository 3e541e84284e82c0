// How fast collectives of ranks on one CUDA device are, beside its own copies. Usage: device_speed [MIB]
// Bandwidths count the least traffic: each input read once, each output written once.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "direct_job.h"
#include "reduction/device_reduction.h"

using namespace tutti::internal;
using namespace tutti::internal::test;

namespace {

constexpr int kRounds = 7;

// The median over the rounds of the microseconds of one call. `queue` queues one call; `wait` waits for all.
double time_us(int calls, const std::function<void()>& queue, const std::function<void()>& wait) {
  std::vector<double> rounds;
  queue();
  wait();
  for (int i = 0; i < kRounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (int k = 0; k < calls; ++k) queue();
    wait();
    rounds.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() /
                     calls);
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[kRounds / 2];
}

void wait_for_device() {
  must(cudaDeviceSynchronize(), "waiting");
}

void print(const char* what, double us, double bytes, double peak_gbs) {
  const double gbs = bytes / us / 1e3;
  std::printf("%-64s %10.1f us %8.0f GB/s %5.0f %%\n", what, us, gbs, 100 * gbs / peak_gbs);
  std::fflush(stdout);
}

// Bytes a second of a copy, read and written.
double copy_gbs(std::size_t bytes) {
  const double traffic = 2.0 * static_cast<double>(bytes);
  const DeviceArray<std::byte> from(bytes);
  const DeviceArray<std::byte> to(bytes);
  const double us = time_us(
      10, [&] { must(cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice, nullptr), "copy"); },
      wait_for_device);
  std::printf("%-64s %10.1f us %8.0f GB/s\n", "cudaMemcpyAsync, device to device", us, traffic / us / 1e3);
  return traffic / us / 1e3;
}

void reductions(std::size_t bytes, double peak_gbs) {
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2,
        DataType::kFloat64, DataType::kInt8, DataType::kInt16, DataType::kInt32, DataType::kComplex64}) {
    for (const int inputs : {1, 2, 8}) {
      std::vector<DeviceArray<std::byte>> arrays;
      for (int i = 0; i <= inputs; ++i) arrays.emplace_back(bytes);
      reduction::DeviceReduction r;
      r.type = type;
      r.inputs = inputs;
      for (int i = 0; i < inputs; ++i) r.in[i] = arrays[i].get();
      r.out[0] = arrays[inputs].get();
      r.count = bytes / size_of(type);
      const double us = time_us(
          10, [&] { must(reduction::reduce_on_device(r, nullptr), "reduce"); }, wait_for_device);
      const std::string what =
          "reduction, type " + std::to_string(static_cast<int>(type)) + ", " + std::to_string(inputs) + " inputs";
      print(what.c_str(), us, static_cast<double>(bytes) * (inputs + 1), peak_gbs);
    }
  }
}

// One launch for all ranks, or a rendezvous, with this many columns of thread blocks; 0: the library's choice.
void direct(int ranks, std::size_t bytes, double peak_gbs, bool together, std::initializer_list<unsigned> columns,
            DataType type) {
  DirectJob job(ranks);
  std::vector<DeviceArray<std::byte>> in;
  std::vector<DeviceArray<std::byte>> out;
  std::vector<DirectCall> calls;
  for (int r = 0; r < ranks; ++r) {
    in.emplace_back(bytes);
    out.emplace_back(bytes);
    DirectCall& call = calls.emplace_back(job.call(r, in.back().get()));
    call.out[static_cast<std::size_t>(r)] = out.back().get();
    call.count = bytes / size_of(type);
    call.type = type;
    call.element_bytes = size_of(type);
  }
  DirectCall all = calls[0];
  all.rank = -1;
  for (int r = 0; r < ranks; ++r) {
    all.in[static_cast<std::size_t>(r)] = in[static_cast<std::size_t>(r)].get();
    all.out[static_cast<std::size_t>(r)] = out[static_cast<std::size_t>(r)].get();
  }
  for (const unsigned c : columns) {
    if (!together && c * static_cast<unsigned>(ranks) > job.kernels().most_resident_blocks()) continue;
    const auto queue = [&] {
      if (together) return job.launch_in(all, c, job.streams[0].get());
      for (const DirectCall& call : calls) job.launch(call, c);
    };
    const std::string what = std::string("direct all-reduce, ") + (together ? "together, " : "rendezvous, ") +
                             std::to_string(ranks) + " ranks, type " + std::to_string(static_cast<int>(type)) + ", " +
                             std::to_string(bytes) + " B, columns " + std::to_string(c);
    print(what.c_str(), time_us(bytes > 1 << 20 ? 10 : 100, queue, [&] { job.finish(); }),
          2.0 * static_cast<double>(bytes) * ranks, peak_gbs);
  }
}

// With graphs of many calls, so that the host's launches do not count; compared with an empty kernel.
void direct_latency(int ranks, std::size_t bytes) {
  constexpr int kCalls = 100;
  DirectJob job(ranks);
  std::vector<DeviceArray<std::byte>> in;
  std::vector<cudaGraphExec_t> graphs;
  std::vector<cudaGraphExec_t> empty;
  for (int r = 0; r < ranks; ++r) {
    in.emplace_back(bytes);
    DirectCall call = job.call(r, in.back().get());
    call.count = bytes / sizeof(float);
    graphs.push_back(job.capture(call, kCalls));
    if (r > 0) continue;
    call.collective = Collective::kBarrier;
    call.ranks = 1;
    call.rank = -1;
    empty.push_back(job.capture(call, kCalls));
  }
  const double us = time_us(
      5, [&] { job.replay(graphs); }, [&] { job.finish(); });
  const double empty_us = time_us(
      5, [&] { job.replay(empty); }, [&] { job.finish(); });
  std::printf("direct all-reduce in a graph, %d ranks, %zu B: %.2f us; a kernel that does nothing: %.2f us\n", ranks,
              bytes, us / kCalls, empty_us / kCalls);
  for (const cudaGraphExec_t graph : graphs) must(cudaGraphExecDestroy(graph), "destroy");
  for (const cudaGraphExec_t graph : empty) must(cudaGraphExecDestroy(graph), "destroy");
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t bytes = (argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 256) << 20;
  try {
    cudaDeviceProp properties{};
    must(cudaGetDeviceProperties(&properties, 0), "no CUDA device");
    std::printf("%s, %d multiprocessors; %zu B\n", properties.name, properties.multiProcessorCount, bytes);
    const double peak_gbs = copy_gbs(bytes);
    reductions(bytes, peak_gbs);
    for (const int ranks : {2, 4, 8}) {
      direct(ranks, bytes, peak_gbs, true, {0, 8, 16, 24, 32, 64, 128}, DataType::kFloat32);
      direct(ranks, bytes, peak_gbs, false, {8, 16, 24, 32, 64}, DataType::kFloat32);
    }
    for (const DataType type : {DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kInt8, DataType::kFloat64})
      direct(4, bytes, peak_gbs, true, {0}, type);
    for (const std::size_t small : {std::size_t{8}, std::size_t{65'536}, std::size_t{1} << 20}) {
      direct(2, small, peak_gbs, true, {0}, DataType::kFloat32);
      direct(2, small, peak_gbs, false, {1, 4, 16}, DataType::kFloat32);
    }
    for (const int ranks : {2, 4, 8}) {
      for (const std::size_t small : {std::size_t{8}, std::size_t{1024}, std::size_t{8192}})
        direct_latency(ranks, small);
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "device_speed: %s\n", e.what());
    return 1;
  }
  return 0;
}

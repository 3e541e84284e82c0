// Worker of perf/compare for Gloo, over TCP on the loopback interface.
// Usage: compare_gloo SOCKET RANK RANKS DIRECTORY (an empty directory that all ranks share)
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compare_worker.h"

namespace {

// Gloo registers buffers in its options. They are made once per run of calls, as a careful user would.
struct GlooState {
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::function<void()> operation;
};

std::function<void()> all_reduce(const std::shared_ptr<gloo::Context>& context, const compare_call& call) {
  auto options = std::make_shared<gloo::AllreduceOptions>(context);
  options->setInput(const_cast<float*>(call.send), call.count);
  options->setOutput(call.recv, call.count);
  options->setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  return [options] { gloo::allreduce(*options); };
}

std::function<void()> all_gather(const std::shared_ptr<gloo::Context>& context, const compare_call& call) {
  auto options = std::make_shared<gloo::AllgatherOptions>(context);
  options->setInput(const_cast<float*>(call.send), call.count);
  options->setOutput(call.recv, call.count * static_cast<size_t>(context->size));
  return [options] { gloo::allgather(*options); };
}

std::function<void()> broadcast(const std::shared_ptr<gloo::Context>& context, const compare_call& call) {
  auto options = std::make_shared<gloo::BroadcastOptions>(context);
  options->setRoot(0);
  options->setOutput(call.recv, call.count);
  return [options] { gloo::broadcast(*options); };
}

std::function<void()> reduce(const std::shared_ptr<gloo::Context>& context, const compare_call& call) {
  auto options = std::make_shared<gloo::ReduceOptions>(context);
  options->setRoot(0);
  options->setInput(const_cast<float*>(call.send), call.count);
  options->setOutput(call.recv, call.count);
  options->setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  return [options] { gloo::reduce(*options); };
}

std::function<void()> gather(const std::shared_ptr<gloo::Context>& context, const compare_call& call) {
  auto options = std::make_shared<gloo::GatherOptions>(context);
  options->setRoot(0);
  options->setInput(const_cast<float*>(call.send), call.count);
  if (context->rank == 0) options->setOutput(call.recv, call.count * static_cast<size_t>(context->size));
  return [options] { gloo::gather(*options); };
}

std::function<void()> scatter(const std::shared_ptr<gloo::Context>& context, const compare_call& call) {
  auto options = std::make_shared<gloo::ScatterOptions>(context);
  options->setRoot(0);
  if (context->rank == 0) {
    std::vector<float*> blocks;
    for (int rank = 0; rank < context->size; ++rank) {
      blocks.push_back(const_cast<float*>(call.send) + static_cast<size_t>(rank) * call.count);
    }
    options->setInputs(blocks, call.count);
  }
  options->setOutput(call.recv, call.count);
  return [options] { gloo::scatter(*options); };
}

std::function<void()> all_to_all(const std::shared_ptr<gloo::Context>& context, const compare_call& call) {
  auto options = std::make_shared<gloo::AlltoallOptions>(context);
  const size_t elements = call.count * static_cast<size_t>(context->size);
  options->setInput(const_cast<float*>(call.send), elements);
  options->setOutput(call.recv, elements);
  return [options] { gloo::alltoall(*options); };
}

std::function<void()> barrier(const std::shared_ptr<gloo::Context>& context) {
  auto options = std::make_shared<gloo::BarrierOptions>(context);
  return [options] { gloo::barrier(*options); };
}

int prepare(void* state, const compare_call* call) {
  auto* gloo_state = static_cast<GlooState*>(state);
  const std::shared_ptr<gloo::Context> context = gloo_state->context;
  gloo_state->operation = nullptr;
  switch (call->collective) {
    case kCompareAllReduce: gloo_state->operation = all_reduce(context, *call); break;
    case kCompareAllGather: gloo_state->operation = all_gather(context, *call); break;
    case kCompareBroadcast: gloo_state->operation = broadcast(context, *call); break;
    case kCompareReduce: gloo_state->operation = reduce(context, *call); break;
    case kCompareBarrier: gloo_state->operation = barrier(context); break;
    case kCompareGather: gloo_state->operation = gather(context, *call); break;
    case kCompareScatter: gloo_state->operation = scatter(context, *call); break;
    case kCompareAllToAll: gloo_state->operation = all_to_all(context, *call); break;
    // This version of Gloo has no scans, and no reduce-scatter in its current interface. Its functions for blocks of
    // different counts, and its sends and receives, are not measured.
    default: return -1;
  }
  return 0;
}

int perform(void* state, const compare_call*) {
  try {
    static_cast<GlooState*>(state)->operation();
    return 0;
  } catch (const std::exception& error) {
    fprintf(stderr, "gloo: %s\n", error.what());
    return -1;
  }
}

int serve(const char* socket_path, int rank, int size, const std::string& directory) {
  GlooState state;
  gloo::transport::tcp::attr attributes;
  attributes.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(directory);
  state.context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  state.context->connectFullMesh(store, device);

  const std::string version = std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
                              std::to_string(GLOO_VERSION_PATCH);
  compare_library library{};
  library.name = "gloo";
  library.version = version.c_str();
  library.rank = rank;
  library.size = size;
  library.state = &state;
  library.allocate = compare_malloc;
  library.release = compare_free;
  library.prepare = prepare;
  library.perform = perform;
  const int status = compare_serve(socket_path, &library);
  state.operation = nullptr;  // its buffers belong to the context, which goes next
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: %s SOCKET RANK RANKS DIRECTORY (started by perf/compare)\n", argv[0]);
    return 2;
  }
  try {
    return serve(argv[1], std::stoi(argv[2]), std::stoi(argv[3]), argv[4]);
  } catch (const std::exception& error) {
    fprintf(stderr, "gloo: %s\n", error.what());
    return 1;
  }
}

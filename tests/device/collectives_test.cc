// Collectives, sends and receives on device memory give the same bytes as on host memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/types.h"
#include "catch_compat.h"
#include "device_rig.h"
#include "reference/reduction.h"
#include "sanitizers.h"

using namespace tutti::internal::test;

namespace {

// One call of one rank; `stream`: the device's, null on the host.
struct Arguments {
  const void* send;
  void* recv;
  std::size_t count;
  tuttiDataType_t type;
  tuttiRedOp_t op;
  int root;
  tuttiComm_t comm;
  void* stream;
};
struct Kind {
  const char* name;
  tuttiResult_t (*call)(const Arguments& a);
  bool input_blocks;   // the input has a block for each rank
  bool output_blocks;  // the output has a block for each rank
  bool combines;
  bool prefixes;                         // of the ranks before
  std::ptrdiff_t (*in_place)(int rank);  // blocks from the input to the output of a call in place; null: not allowed
};

std::ptrdiff_t same(int /*rank*/) {
  return 0;
}
std::ptrdiff_t own_of_input(int rank) {
  return rank;
}
std::ptrdiff_t own_of_output(int rank) {
  return -rank;
}

const std::array<Kind, 10> kKinds = {{
    {"all_reduce",
     [](const Arguments& a) { return tuttiAllReduce(a.send, a.recv, a.count, a.type, a.op, a.comm, a.stream); }, false,
     false, true, false, same},
    {"broadcast",
     [](const Arguments& a) { return tuttiBroadcast(a.send, a.recv, a.count, a.type, a.root, a.comm, a.stream); },
     false, false, false, false, same},
    {"reduce",
     [](const Arguments& a) { return tuttiReduce(a.send, a.recv, a.count, a.type, a.op, a.root, a.comm, a.stream); },
     false, false, true, false, same},
    {"all_gather", [](const Arguments& a) { return tuttiAllGather(a.send, a.recv, a.count, a.type, a.comm, a.stream); },
     false, true, false, false, own_of_output},
    {"reduce_scatter",
     [](const Arguments& a) { return tuttiReduceScatter(a.send, a.recv, a.count, a.type, a.op, a.comm, a.stream); },
     true, false, true, false, own_of_input},
    {"gather",
     [](const Arguments& a) { return tuttiGather(a.send, a.recv, a.count, a.type, a.root, a.comm, a.stream); }, false,
     true, false, false, nullptr},
    {"scatter",
     [](const Arguments& a) { return tuttiScatter(a.send, a.recv, a.count, a.type, a.root, a.comm, a.stream); }, true,
     false, false, false, nullptr},
    {"alltoall", [](const Arguments& a) { return tuttiAlltoAll(a.send, a.recv, a.count, a.type, a.comm, a.stream); },
     true, true, false, false, same},
    {"scan", [](const Arguments& a) { return tuttiScan(a.send, a.recv, a.count, a.type, a.op, a.comm, a.stream); },
     false, false, true, true, same},
    {"exscan", [](const Arguments& a) { return tuttiExscan(a.send, a.recv, a.count, a.type, a.op, a.comm, a.stream); },
     false, false, true, true, same},
}};

std::size_t size_of_type(tuttiDataType_t type) {
  switch (type) {
    case tuttiInt8:
    case tuttiUint8:
    case tuttiFloat8e4m3:
    case tuttiFloat8e5m2:
    case tuttiBool: return 1;
    case tuttiFloat16:
    case tuttiBfloat16:
    case tuttiInt16:
    case tuttiUint16: return 2;
    case tuttiInt64:
    case tuttiUint64:
    case tuttiFloat64:
    case tuttiComplex64: return 8;
    case tuttiComplex128: return 16;
    default: return 4;
  }
}

// Bytes without a NaN in any type, by Knuth's linear congruential generator (MMIX). They repeat, because they take
// long under sanitizers, but no two pieces are equal.
Bytes input_of(int rank, std::size_t bytes, unsigned seed) {
  constexpr std::size_t kPeriod = 65'521;  // a prime
  std::uint64_t state = seed * 1000 + static_cast<unsigned>(rank);
  Bytes all(bytes);
  for (std::size_t i = 0; i < std::min(bytes, kPeriod); ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    all[i] = std::byte((state >> 58) % 48);
  }
  for (std::size_t done = kPeriod; done < bytes; done += kPeriod) {
    std::memcpy(all.data() + done, all.data(), std::min(kPeriod, bytes - done));
  }
  return all;
}

using tutti::internal::test::equal;
bool equal(const std::vector<Bytes>& a, const std::vector<Bytes>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Bytes& x, const Bytes& y) { return equal(x, y); });
}

struct Case {
  const Kind* kind;
  int ranks;
  std::size_t count;
  tuttiDataType_t type;
  tuttiRedOp_t op;
  int root;
  bool in_place;
  bool in_graph = false;
};

// Runs the calls of `call` through a graph in the stream.
void replay(const DeviceJob& job, int device, const TestStream& stream, const std::function<void()>& call) {
  const TestDriver& driver = TestDriver::get();
  const UseDevice use(device);
  Driver::Graph graph = nullptr;
  Driver::Graph made = nullptr;
  TestDriver::must(driver.begin_capture(stream.handle(), 1), "capture");
  call();
  TestDriver::must(driver.end_capture(stream.handle(), &graph), "capture");
  TestDriver::must(driver.instantiate(&made, graph, 0), "instantiate");
  TestDriver::must(driver.destroy_graph(graph), "destroy");
  TestDriver::must(driver.upload(made, stream.handle()), "upload");
  stream.wait();
  job.all_come();
  TestDriver::must(driver.launch(made, stream.handle()), "launch");
  stream.wait();
  job.all_come();
  TestDriver::must(driver.destroy_exec(made), "destroy");
}

// The output of each rank afterwards; in place: the one buffer.
std::vector<Bytes> run(DeviceJob& job, const Case& c) {
  std::vector<Bytes> results(static_cast<std::size_t>(c.ranks));
  const std::size_t block = c.count * size_of_type(c.type);
  const auto n = static_cast<std::size_t>(c.ranks);
  const std::size_t in = c.kind->input_blocks ? n * block : block;
  const std::size_t out = c.kind->output_blocks ? n * block : block;
  job.each([&](int r) {
    const int device = job.device(r);
    const std::ptrdiff_t offset = c.in_place ? c.kind->in_place(r) * static_cast<std::ptrdiff_t>(block) : 0;
    Bytes send = input_of(r, in, 7);
    Bytes recv = input_of(r, out, 8);
    Bytes one = input_of(r, std::max(in, out), 9);
    const std::size_t send_at = offset < 0 ? static_cast<std::size_t>(-offset) : 0;
    const std::size_t recv_at = offset > 0 ? static_cast<std::size_t>(offset) : 0;
    const auto call = [&](std::byte* from, std::byte* to, void* stream) {
      check_success(c.kind->call({from, to, c.count, c.type, c.op, c.root, job.comm(r), stream}), job.comm(r));
    };
    Bytes& result = results[static_cast<std::size_t>(r)];
    if (device < 0) {
      c.in_place ? call(one.data() + send_at, one.data() + recv_at, nullptr) : call(send.data(), recv.data(), nullptr);
      result = c.in_place ? one : recv;
      return;
    }
    const TestStream stream(device);
    const DeviceBytes device_send(device, send);
    const DeviceBytes device_recv(device, recv);
    const DeviceBytes device_one(device, one);
    const auto on_device = [&] {
      c.in_place ? call(device_one.data() + send_at, device_one.data() + recv_at, stream.get())
                 : call(device_send.data(), device_recv.data(), stream.get());
    };
    c.in_graph ? replay(job, device, stream, on_device) : on_device();
    stream.wait();
    result = c.in_place ? device_one.get() : device_recv.get();
    if (!c.in_place && !equal(device_send.get(), send)) throw std::runtime_error("the input has changed");
  });
  return results;
}

// The results if one kernel runs the call: it combines in the order of ranks, while the host's algorithms use other
// orders. `results`: the host's.
void combine_in_order(const Case& c, std::vector<Bytes>* results) {
  using tutti::internal::DataType;
  using tutti::internal::ReduceOp;
  const auto one_of = [](int values, int wanted, auto&& from) {
    int value = 0;
    while (value < values && tutti::internal::public_value(from(value)) != wanted) ++value;
    return from(value);
  };
  const auto type = one_of(tutti::internal::kDataTypes, c.type, [](int v) { return static_cast<DataType>(v); });
  const auto op = one_of(tutti::internal::kReduceOps, c.op, [](int v) { return static_cast<ReduceOp>(v); });
  const std::size_t block = c.count * size_of_type(c.type);
  const std::size_t bytes = c.kind->input_blocks ? block * static_cast<std::size_t>(c.ranks) : block;
  const auto count = bytes / size_of_type(c.type);
  Bytes sum = input_of(0, bytes, c.in_place ? 9 : 7);
  for (int r = 1; r < c.ranks; ++r) {
    tutti::internal::reduction::combine_reference(type, op, sum.data(), sum.data(),
                                                  input_of(r, bytes, c.in_place ? 9 : 7).data(), count);
  }
  if (op == ReduceOp::kAvg) {
    tutti::internal::reduction::finish_reference(type, sum.data(), count, static_cast<std::size_t>(c.ranks));
  }
  const bool rooted = std::string(c.kind->name) == "reduce";
  for (int r = 0; r < c.ranks; ++r) {
    if (rooted && r != c.root) continue;
    const std::size_t at = c.kind->input_blocks ? static_cast<std::size_t>(r) * block : 0;
    std::byte* const to = (*results)[static_cast<std::size_t>(r)].data() + (c.in_place ? at : 0);
    std::copy_n(sum.data() + at, block, to);
  }
}

bool is_one_device(const DeviceJob& job) {
  for (int r = 1; r < job.ranks(); ++r) {
    if (job.device(r) != job.device(0)) return false;
  }
  return true;
}

void compare(DeviceJob& device, DeviceJob& host, const Case& c) {
  INFO(c.kind->name << ", " << c.ranks << " ranks, count " << c.count << ", type " << c.type << ", op " << c.op
                    << ", root " << c.root << (c.in_place ? ", in place" : "") << (c.in_graph ? ", in a graph" : ""));
  // On a rank without a result the output stays unchanged, on the host as well.
  const std::vector<Bytes> expected = run(host, c);
  const std::vector<Bytes> got = run(device, c);
  bool same_bytes = equal(got, expected);
  if (is_one_device(device) && c.kind->combines && !c.kind->prefixes) {
    // By the kernel; or as on the host, if a thread was late.
    std::vector<Bytes> in_order = expected;
    combine_in_order(c, &in_order);
    same_bytes = equal(got, in_order) || (same_bytes && !c.in_graph);
  }
  CHECK(same_bytes);
}

// `fewer` under a sanitizer, which makes everything many times slower.
std::vector<int> rank_counts(std::vector<int> all, std::vector<int> fewer) {
  return kAnySanitizer ? fewer : all;
}

}  // namespace

TEST_CASE("every collective, types and operators") {
  need_device();
  const int ranks = GENERATE(from_range(rank_counts({1, 2, 3, 4}, {1, 3})));
  DeviceJob device(ranks);
  DeviceJob host(ranks, true);
  for (const Kind& kind : kKinds) {
    for (const bool in_place : {false, true}) {
      if (in_place && kind.in_place == nullptr) continue;
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{77}, std::size_t{5000}}) {
        compare(device, host, {&kind, ranks, count, tuttiFloat32, tuttiSum, ranks - 1, in_place});
      }
      // Threads hand over a call alike for every type and operator.
      if (kThreadSanitizer) continue;
      for (const tuttiDataType_t type : {tuttiInt8, tuttiUint64, tuttiFloat16, tuttiBfloat16, tuttiFloat64,
                                         tuttiFloat8e4m3, tuttiInt16, tuttiComplex128}) {
        compare(device, host, {&kind, ranks, 130, type, kind.combines ? tuttiProd : tuttiSum, 0, in_place});
      }
    }
    if (!kind.combines || kThreadSanitizer) continue;
    for (const tuttiRedOp_t op : {tuttiMax, tuttiMin, tuttiBor, tuttiLand}) {
      compare(device, host, {&kind, ranks, 130, tuttiInt32, op, 0, false});
    }
  }
  compare(device, host, {&kKinds[0], ranks, 33, tuttiFloat32, tuttiAvg, 0, true});
}

TEST_CASE("every collective in a graph") {
  need_device();
  const int ranks = GENERATE(from_range(rank_counts({1, 3}, {3})));
  DeviceJob device(ranks);
  DeviceJob host(ranks, true);
  for (const Kind& kind : kKinds) {
    for (const bool in_place : {false, true}) {
      if (in_place && kind.in_place == nullptr) continue;
      for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{5001}, std::size_t{40'000}}) {
        compare(device, host, {&kind, ranks, count, tuttiInt32, tuttiSum, ranks - 1, in_place, true});
      }
      compare(device, host,
              {&kind, ranks, 77, tuttiFloat8e5m2, kind.combines ? tuttiProd : tuttiSum, 0, in_place, true});
    }
  }
}

// With integers: pieces may be combined in another order than the whole.
TEST_CASE("long vectors pass in pieces") {
  need_device();
  // ThreadSanitizer looks at the threads that hand over the pieces, which are the same in place and for more ranks.
  const int ranks = GENERATE(from_range(kThreadSanitizer ? std::vector{2} : std::vector{2, 3}));
  DeviceJob device(ranks);
  DeviceJob host(ranks, true);
  for (const Kind& kind : kKinds) {
    if (ranks > 2 && !kind.combines) continue;
    for (const bool in_place : {false, true}) {
      if (in_place && (kind.in_place == nullptr || ranks > 2 || kThreadSanitizer)) continue;
      compare(device, host, {&kind, ranks, 1'300'017, tuttiInt32, tuttiSum, ranks - 1, in_place});
    }
  }
}

TEST_CASE("a different count is detected although the first pieces are equal") {
  need_device();
  DeviceJob job(2);
  std::array<tuttiResult_t, 2> ended{};
  std::array<std::string, 2> texts;
  job.each([&](int r) {
    const std::size_t count = r == 0 ? 4'000'000 : 5'000'000;
    const DeviceBytes buffer(job.device(r), count * 4);
    const TestStream stream(job.device(r));
    check_success(
        tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiFloat32, tuttiSum, job.comm(r), stream.get()),
        job.comm(r));
    stream.wait();
    check_success(tuttiCommGetAsyncError(job.comm(r), &ended[static_cast<std::size_t>(r)]), job.comm(r));
    texts[static_cast<std::size_t>(r)] = tuttiGetLastError(job.comm(r));
  });
  for (std::size_t r = 0; r < 2; ++r) {
    INFO(texts[r]);
    CHECK(ended[r] == tuttiMismatch);
    CHECK(texts[r].find("4000000") != std::string::npos);
    CHECK(texts[r].find("5000000") != std::string::npos);
  }
}

TEST_CASE("blocks of varying counts leave the gaps between them unchanged") {
  need_device();
  constexpr int kRanks = 3;
  // In elements of 4 bytes: rank r's block has 5 + r, with gaps between blocks.
  const std::array<std::size_t, kRanks> counts = {5, 6, 7};
  const std::array<std::size_t, kRanks> places = {2, 20, 40};
  std::array<std::vector<Bytes>, 2> results;
  for (const bool on_host : {false, true}) {
    DeviceJob job(kRanks, on_host);
    std::vector<Bytes>& all = results[on_host ? 1 : 0];
    all.resize(std::size_t{kRanks} * 4);
    job.each([&](int r) {
      const auto own = static_cast<std::size_t>(r);
      for (std::size_t which = 0; which < 4; ++which) {
        Bytes send = input_of(r, 50 * 4, 1);
        Bytes recv = input_of(r, 50 * 4, 2);
        const auto call = [&](void* from, void* to, void* stream) {
          tuttiComm_t comm = job.comm(r);
          switch (which) {
            case 0:
              return tuttiAllGatherV(from, counts[own], to, counts.data(), places.data(), tuttiInt32, comm, stream);
            case 1: return tuttiReduceScatterV(from, to, counts.data(), tuttiInt32, tuttiSum, comm, stream);
            case 2:
              return tuttiGatherV(from, counts[own], to, counts.data(), places.data(), tuttiInt32, 1, comm, stream);
            default:
              return tuttiScatterV(from, counts.data(), places.data(), to, counts[own], tuttiInt32, 2, comm, stream);
          }
        };
        if (on_host) {
          check_success(call(send.data(), recv.data(), nullptr), job.comm(r));
          all[own * 4 + which] = recv;
          continue;
        }
        const DeviceBytes from(job.device(r), send);
        const DeviceBytes to(job.device(r), recv);
        const TestStream stream(job.device(r));
        check_success(call(from.data(), to.data(), stream.get()), job.comm(r));
        stream.wait();
        all[own * 4 + which] = to.get();
      }
    });
  }
  const bool same_bytes = results[0] == results[1];
  CHECK(same_bytes);
}

TEST_CASE("user-defined operators, and scalars in device memory") {
  need_device();
  DeviceJob job(2);
  job.each([&](int r) {
    const int device = job.device(r);
    tuttiComm_t comm = job.comm(r);
    const TestStream stream(device);
    const auto floats = [](std::vector<float> values) {
      Bytes bytes(values.size() * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      return bytes;
    };
    const DeviceBytes scalar(device, floats({r == 0 ? 2.0F : 10.0F}));
    float of_host = r == 0 ? 2.0F : 10.0F;
    const DeviceBytes buffer(device, floats({1, 2, 3}));
    tuttiRedOp_t scaled{};
    check_success(tuttiRedOpCreatePreMulSum(&scaled, scalar.data(), tuttiFloat32, tuttiScalarDevice, comm), comm);
    check_success(tuttiAllReduce(buffer.data(), buffer.data(), 3, tuttiFloat32, scaled, comm, stream.get()), comm);
    stream.wait();
    if (buffer.get() != floats({12, 24, 36})) throw std::runtime_error("not the scaled sum");
    check_success(tuttiRedOpDestroy(scaled, comm), comm);
    check_success(tuttiRedOpCreatePreMulSum(&scaled, &of_host, tuttiFloat32, tuttiScalarDevice, comm), comm);
    buffer.set(floats({1, 2, 3}));
    check_success(tuttiAllReduce(buffer.data(), buffer.data(), 3, tuttiFloat32, scaled, comm, stream.get()), comm);
    stream.wait();
    if (buffer.get() != floats({12, 24, 36})) throw std::runtime_error("not the scaled sum");
    check_success(tuttiRedOpDestroy(scaled, comm), comm);
    tuttiRedOp_t first{};
    const auto keep_first = [](const void* in, void* inout, size_t count, tuttiDataType_t, void*) {
      std::memcpy(inout, in, count * sizeof(float));
    };
    check_success(tuttiRedOpCreate(&first, keep_first, nullptr, 0, comm), comm);
    buffer.set(floats({r == 0 ? 1.0F : 2.0F, 5, 6}));
    check_success(tuttiAllReduce(buffer.data(), buffer.data(), 3, tuttiFloat32, first, comm, stream.get()), comm);
    check_success(tuttiRedOpDestroy(first, comm), comm);
    stream.wait();
    if (buffer.get() != floats({1, 5, 6})) throw std::runtime_error("not what the operator gives");
  });
}

TEST_CASE("groups of calls and transfers") {
  need_device();
  constexpr int kRanks = 3;
  DeviceJob job(kRanks);
  job.each([&](int r) {
    const int device = job.device(r);
    tuttiComm_t comm = job.comm(r);
    const TestStream one(device);
    const TestStream two(device);
    const Bytes own = input_of(r, 9'000'000, 3);
    const DeviceBytes send(device, own);
    const DeviceBytes recv(device, own.size());
    std::vector<DeviceBytes> sums;
    for (int i = 0; i < 20; ++i) sums.emplace_back(device, Bytes(100, std::byte(r + i)));
    check_success(tuttiGroupStart(), comm);
    for (int i = 0; i < 20; ++i) {
      std::byte* const at = sums[static_cast<std::size_t>(i)].data();
      check_success(tuttiAllReduce(at, at, 100, tuttiUint8, tuttiSum, comm, i % 2 == 0 ? one.get() : two.get()), comm);
    }
    check_success(tuttiSend(send.data(), own.size(), tuttiUint8, (r + 1) % kRanks, comm, one.get()), comm);
    check_success(tuttiRecv(recv.data(), own.size(), tuttiUint8, (r + 2) % kRanks, comm, one.get()), comm);
    check_success(tuttiGroupEnd(), comm);
    one.wait();
    if (!equal(recv.get(), input_of((r + 2) % kRanks, own.size(), 3))) throw std::runtime_error("other bytes arrived");
    two.wait();
    for (int i = 0; i < 20; ++i) {
      if (sums[static_cast<std::size_t>(i)].get() != Bytes(100, std::byte(3 * i + 3)))
        throw std::runtime_error("another sum");
    }
    // One single transfer in each direction, through the default stream, which the ranks of a device share.
    if (job.device(0) == job.device(1)) return;
    const UseDevice use(device);
    if (r == 0) check_success(tuttiSend(send.data(), 1000, tuttiUint8, 1, comm, nullptr), comm);
    if (r == 1) check_success(tuttiRecv(recv.data(), 1000, tuttiUint8, 0, comm, nullptr), comm);
    TestDriver::must(TestDriver::get().stream_synchronize(nullptr), "synchronize");
    const Bytes got = recv.get();
    const Bytes sent = input_of(0, own.size(), 3);
    if (r == 1 && !std::equal(got.begin(), got.begin() + 1000, sent.begin())) throw std::runtime_error("other bytes");
  });
}

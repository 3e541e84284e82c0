// Flat programs on a CUDA device, the ranks' kernels beside each other on one: every algorithm does what its schedule
// says.
#include <cstring>

#include "algorithms/catalog.h"
#include "algorithms/prove.h"
#include "base/clock.h"
#include "catch_compat.h"
#include "device_job.h"
#include "interpreter.h"
#include "reduction/reference.h"

using namespace tutti::internal;
using namespace tutti::internal::test;
using algorithms::AlgorithmEntry;
using algorithms::World;
using schedule::Run;
using schedule::Schedule;

namespace {

constexpr double kLongSeconds = 60;

std::vector<Schedule> schedules_of(const AlgorithmEntry& entry, const World& world, int root) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < world.ranks; ++r) schedules.push_back(make_schedule(entry, world, r, root).value());
  return schedules;
}

std::vector<std::byte> bytes_of(const schedule::Vector& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(std::uint32_t));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Numbers of 32 bits, which are added: what the host's interpreter makes of them.
void compare(const AlgorithmEntry& entry, const World& world, int root, const JobShape& shape) {
  const std::vector<Schedule> schedules = schedules_of(entry, world, root);
  std::mt19937 random(static_cast<unsigned>(root + world.ranks));
  std::vector<schedule::Vector> numbers(schedules.size(),
                                        schedule::Vector(schedules[0].shape.blocks * shape.block_elements));
  std::vector<std::vector<std::byte>> inputs;
  for (schedule::Vector& v : numbers) {
    for (std::uint32_t& x : v) x = static_cast<std::uint32_t>(random());
    inputs.push_back(bytes_of(v));
  }
  const Run run{shape.block_elements, 0, shape.block_elements, shape.in_place, schedule::Order::kAny, 1};
  auto expected = interpret(schedules, numbers, run);
  INFO(name_of(entry.collective) << " " << entry.name << ", " << world.ranks << " ranks, root " << root << ", block "
                                 << shape.block_elements << ", in place " << shape.in_place << ", channels "
                                 << shape.channels);
  REQUIRE(expected.is_ok());
  DeviceJob job(schedules, inputs, shape);
  if (job.strands() > executor::most_resident_strands(shape.type)) return;
  job.start();
  REQUIRE(job.finish(kLongSeconds));
  CHECK_FALSE(job.has_mismatch());
  const auto outputs = job.outputs();
  for (std::size_t r = 0; r < outputs.size(); ++r) CHECK((outputs[r] == bytes_of(expected.value()[r])));
}

const AlgorithmEntry& ring() {
  return *algorithms::find(Collective::kAllReduce, "ring");
}

}  // namespace

TEST_CASE("every algorithm, on numbers") {
  int root = 0;
  for (const AlgorithmEntry& entry : algorithms::catalog()) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      int worlds = 0;
      for (const World& world : algorithms::worlds_to_prove(entry, ranks)) {
        if (++worlds > 2) break;
        JobShape shape;
        root = (root + 1) % ranks;
        for (const std::size_t elements : {std::size_t{0}, std::size_t{1}, std::size_t{700}, std::size_t{5'001}}) {
          shape.block_elements = elements;
          shape.in_place = elements == 700 && input_is_output(entry.collective);
          compare(entry, world, root, shape);
        }
      }
    }
  }
}

TEST_CASE("channels share the slices") {
  for (const char* name : {"ring", "recursive_doubling", "recursive_halving"}) {
    const AlgorithmEntry* const entry = algorithms::find(Collective::kAllReduce, name);
    if (entry == nullptr) continue;
    for (const int ranks : {2, 4, 8}) {
      for (const unsigned channels : {2u, 3u, 8u}) {
        JobShape shape;
        shape.block_elements = 100'003;
        shape.channels = channels;
        shape.slot_bytes = 8192;
        compare(*entry, World{ranks, {}}, 0, shape);
      }
    }
  }
}

TEST_CASE("every datatype and operator in an all-reduce of two ranks") {
  const std::vector<Schedule> schedules = schedules_of(ring(), World{2, {}}, 0);
  for (int t = 0; t < kDataTypes; ++t) {
    for (int o = 0; o < kReduceOps; ++o) {
      JobShape shape;
      shape.type = static_cast<DataType>(t);
      shape.op = static_cast<ReduceOp>(o);
      if (!supports(shape.type, shape.op)) continue;
      shape.divisor = shape.op == ReduceOp::kAvg ? 2 : 0;
      shape.block_elements = 3'001;
      shape.channels = 2;
      const std::size_t bytes = shape.block_elements * size_of(shape.type);
      const std::vector<std::vector<std::byte>> inputs = {random_bytes(bytes, 1), random_bytes(bytes, 2)};
      std::vector<std::byte> wanted(bytes);
      reduction::combine_reference(shape.type, shape.op, wanted.data(), inputs[0].data(), inputs[1].data(),
                                   shape.block_elements);
      if (shape.divisor != 0)
        reduction::finish_reference(shape.type, wanted.data(), shape.block_elements, shape.divisor);
      INFO("type " << t << ", op " << o);
      DeviceJob job(schedules, inputs, shape);
      job.start();
      REQUIRE(job.finish(kLongSeconds));
      for (const auto& output : job.outputs()) CHECK((output == wanted));
    }
  }
}

TEST_CASE("lanes go on from operation to operation") {
  JobShape shape;
  shape.block_elements = 4'000;
  shape.channels = 2;
  const std::vector<Schedule> schedules = schedules_of(ring(), World{4, {}}, 0);
  const std::vector<std::vector<std::byte>> inputs(4, bytes_of(schedule::Vector(4 * shape.block_elements, 7)));
  DeviceJob job(schedules, inputs, shape);
  for (int i = 0; i < 200; ++i) job.start();
  REQUIRE(job.finish(kLongSeconds));
  const auto wanted = bytes_of(schedule::Vector(4 * shape.block_elements, 28));
  for (const auto& output : job.outputs()) CHECK((std::equal(wanted.begin(), wanted.begin() + 4000, output.begin())));
}

TEST_CASE("a kernel whose peer never comes ends when it is told to") {
  JobShape shape;
  shape.block_elements = 1'000;
  const std::vector<Schedule> schedules = schedules_of(ring(), World{2, {}}, 0);
  DeviceJob job(schedules, std::vector<std::vector<std::byte>>(2, random_bytes(4'000, 1)), shape);
  const std::size_t first[] = {0};
  job.start(first);
  CHECK_FALSE(job.finish(0.2));
}

TEST_CASE("a peer that calls something else is noticed") {
  JobShape shape;
  shape.block_elements = 1'000;
  const std::vector<Schedule> schedules = schedules_of(ring(), World{2, {}}, 0);
  DeviceJob job(schedules, std::vector<std::vector<std::byte>>(2, random_bytes(4'000, 1)), shape);
  transport::Fingerprint other;
  other.sequence = 1;
  job.set_fingerprint(1, other);
  job.start();
  (void)job.finish(1);
  CHECK(job.has_mismatch());
}

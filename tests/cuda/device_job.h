// One operation of several ranks on one CUDA device, by their flat programs.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "device_rig.h"
#include "executor/cuda/device_strands.h"
#include "schedule/schedule.h"

namespace tutti::internal::test {

struct JobShape {
  DataType type = DataType::kUint32;
  ReduceOp op = ReduceOp::kSum;
  std::uint32_t divisor = 0;
  std::size_t block_elements = 0;
  bool in_place = false;
  unsigned channels = 1;
  std::uint32_t slot_bytes = 1024;
  std::uint32_t slot_count = 2;
};

class DeviceJob {
 public:
  // inputs: of each rank, its whole vector. Scratch and outputs are filled with schedule::kUntouched.
  DeviceJob(std::span<const schedule::Schedule> schedules, const std::vector<std::vector<std::byte>>& inputs,
            const JobShape& shape);
  DeviceJob(const DeviceJob&) = delete;
  DeviceJob& operator=(const DeviceJob&) = delete;

  [[nodiscard]] unsigned strands() const;  // of all ranks and channels
  void set_fingerprint(std::size_t rank, const transport::Fingerprint& fingerprint);
  // Queues it on the streams of the ranks. May be called again when all are done: lanes go on where they were.
  void start(std::span<const std::size_t> ranks);
  void start();
  // See test::finish().
  bool finish(double seconds) { return test::finish(streams_, control_, seconds); }
  void stop() { control_.stop(); }
  [[nodiscard]] bool has_mismatch() const { return control_.get()->mismatch != 0; }
  [[nodiscard]] std::vector<std::vector<std::byte>> outputs() const;
  [[nodiscard]] cudaStream_t stream(std::size_t rank) const { return streams_[rank].get(); }

 private:
  struct Wire {
    DeviceArray<executor::FlatCounter> counters{2};
    DeviceArray<executor::FlatHeader> headers;
    DeviceArray<std::byte> slots;
  };
  struct Rank {
    executor::FlatProgram program;
    std::unique_ptr<DeviceArray<executor::FlatStep>> steps;
    std::unique_ptr<DeviceArray<executor::FlatWait>> waits;
    std::unique_ptr<DeviceArray<std::uint32_t>> first_step;
    std::unique_ptr<DeviceArray<executor::FlatLaneEnd>> lanes;  // of all channels
    std::unique_ptr<DeviceArray<executor::FlatCounter>> progress;
    std::vector<DeviceArray<std::byte>> buffers;
    std::vector<executor::FlatCall> calls;
    std::unique_ptr<DeviceArray<executor::FlatCall>> device_calls;
  };
  void make_rank(std::size_t rank, const schedule::Schedule& schedule, const std::vector<std::byte>& input);
  void make_lanes(std::size_t rank);
  Wire& wire(int from, int to, unsigned channel);

  const JobShape shape_;
  std::map<std::pair<std::pair<int, int>, unsigned>, std::unique_ptr<Wire>> wires_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<DeviceStreamOwner> streams_;
  Control control_;
};

}  // namespace tutti::internal::test

// One collective call on one rank: buffers with guards, known data, the call, the comparison.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/types.h"
#include "tutti/tutti.h"

namespace tutti::internal::test {

struct Spec {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::size_t count = 1;
  bool in_place = false;
  bool registered = false;   // memory from tuttiMemAlloc
  std::size_t misalign = 0;  // bytes past a 64-byte boundary; may differ between ranks
  std::size_t first = 0;     // the element of the patterns with which the data begin

  [[nodiscard]] std::string text() const;
};

// Memory that grows and is reused, so that a thousand trials do not map memory a thousand times.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();
  // At least `bytes`, 64-byte aligned; its contents are lost. Null if memory is missing.
  std::byte* get(std::size_t bytes, bool registered);

 private:
  void release();
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  bool registered_ = false;
};

// REQUIRES: prepare, then issue, then check after the operation is complete.
class Trial {
 public:
  Trial(const Spec& spec, int rank, int ranks) : spec_(spec), rank_(rank), ranks_(ranks) {}

  // `send` and `recv` outlive the trial.
  void prepare(Memory* send, Memory* recv);
  tuttiResult_t issue(tuttiComm_t comm, void* stream);
  // Empty, or what is wrong.
  [[nodiscard]] std::string check() const;
  // Of the bytes this rank received: equal on all ranks for an all-reduce.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct Window {
    std::byte* data = nullptr;  // null: the argument is ignored and NULL is passed
    std::size_t bytes = 0;
  };
  [[nodiscard]] Window open(Memory* memory, std::size_t bytes) const;
  [[nodiscard]] std::string check_guards(const Window& w, const char* name) const;
  [[nodiscard]] std::string check_input() const;
  [[nodiscard]] std::string check_output() const;
  [[nodiscard]] std::size_t elements_sent() const;
  [[nodiscard]] std::size_t elements_received() const;
  [[nodiscard]] std::size_t size() const { return size_of(spec_.type); }
  [[nodiscard]] std::size_t own() const { return static_cast<std::size_t>(rank_) * spec_.count; }
  [[nodiscard]] const CollectiveInfo& info() const { return info_of(spec_.collective); }
  // Whether this rank's buffers are used.
  [[nodiscard]] bool gives() const { return has_any(info().input, rank_, spec_.root); }
  [[nodiscard]] bool receives() const { return has_any(info().output, rank_, spec_.root); }
  // The operator that determines this trial's data; collectives that only move data use that of the sum.
  [[nodiscard]] ReduceOp op() const { return reduces(spec_.collective) ? spec_.op : ReduceOp::kSum; }

  Spec spec_;
  int rank_;
  int ranks_;
  Window send_window_;
  Window recv_window_;
  std::byte* send_ = nullptr;  // as passed
  std::byte* recv_ = nullptr;
};

// Prepares, issues (blocking) and checks; empty, or what is wrong. `digest` may be null.
class Runner {
 public:
  Runner(tuttiComm_t comm, int rank, int ranks) : comm_(comm), rank_(rank), ranks_(ranks) {}
  std::string run(const Spec& spec, std::uint64_t* digest = nullptr);
  // All of them, up to the first error.
  std::string run_all(const std::vector<Spec>& specs);

 private:
  tuttiComm_t comm_;
  int rank_;
  int ranks_;
  Memory send_[2];  // malloc, registered
  Memory recv_[2];
};

}  // namespace tutti::internal::test

// The copies of an operation (packing.h), in order with the operations of its channel: each operation reads what those
// before it have written.
#pragma once

#include <tutti/tutti.h>

#include <exception>
#include <memory>
#include <utility>

#include "packing.h"

namespace tutti_torch {

// Either queued in a stream, around the call of the operation, or run in the thread that runs the operation.
class Copies : public std::enable_shared_from_this<Copies> {
 public:
  explicit Copies(Packing packing) : packing_(std::move(packing)) {}
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  ~Copies() { (void)tuttiEventDestroy(moved_); }

  // Before the call. If that fails, nothing is queued.
  tuttiResult_t queue_pack(tuttiStream_t stream);
  // After the call: fills the outputs if the operation succeeds. finish() reports a failure.
  void queue_unpack(tuttiStream_t stream);
  // In this thread. finish() reports a failure.
  void pack();
  // The operation has succeeded: fills the outputs, unless the stream has. Throws the error of a copy.
  void finish();

 private:
  tuttiResult_t launch(tuttiStream_t stream, tuttiHostFn_t function);
  void unpack();

  const Packing packing_;
  tuttiEvent_t moved_ = nullptr;  // after the call in the stream; null: the copies are not queued
  bool unpacked_ = false;
  std::exception_ptr error_;
};

}  // namespace tutti_torch

#include "copies.h"

#include <c10/util/Exception.h>

#include <memory>

#include "python_exit.h"

namespace tutti_torch {
namespace {

using CopiesPtr = std::shared_ptr<Copies>;

// Takes the reference that launch() has made.
CopiesPtr take(void* data) {
  const std::unique_ptr<CopiesPtr> held(static_cast<CopiesPtr*>(data));
  return std::move(*held);
}

}  // namespace

// The function holds a separate reference: if the call after it is refused, nothing else keeps the copies alive.
tuttiResult_t Copies::launch(tuttiStream_t stream, tuttiHostFn_t function) {
  auto held = std::make_unique<CopiesPtr>(shared_from_this());
  const tuttiResult_t result = tuttiLaunchHostFunc(stream, function, held.get());
  if (result == tuttiSuccess) (void)held.release();
  return result;
}

tuttiResult_t Copies::queue_pack(tuttiStream_t stream) {
  if (const tuttiResult_t result = tuttiEventCreate(&moved_); result != tuttiSuccess) return result;
  return launch(stream, [](void* data) {
    auto copies = take(data);
    copies->pack();
    PythonExit::release(std::move(copies));
  });
}

void Copies::queue_unpack(tuttiStream_t stream) {
  if (!packing_.has_outputs()) {
    unpacked_ = true;
    return;
  }
  if (tuttiEventRecord(moved_, stream) != tuttiSuccess) return;
  (void)launch(stream, [](void* data) {
    auto copies = take(data);
    if (tuttiEventQuery(copies->moved_) == tuttiSuccess) copies->unpack();
    PythonExit::release(std::move(copies));
  });
}

void Copies::pack() {
  try {
    packing_.pack();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void Copies::unpack() {
  if (error_ != nullptr) return;
  try {
    packing_.unpack();
    unpacked_ = true;
  } catch (...) {
    error_ = std::current_exception();
  }
}

void Copies::finish() {
  if (moved_ == nullptr) unpack();
  if (error_ != nullptr) std::rethrow_exception(error_);
  TORCH_CHECK(unpacked_, "tutti: the outputs were not filled, because the process exits or has no memory left");
}

}  // namespace tutti_torch

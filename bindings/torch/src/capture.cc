#include "capture.h"

#include <dlfcn.h>

#include <atomic>

namespace tutti_torch {
namespace {

constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr int kNotCapturing = 0;

struct Driver {
  int (*is_capturing)(void* stream, int* status) = nullptr;
  int (*exchange_mode)(int* mode) = nullptr;
};

// Null where the process has not loaded one. Never closed.
const Driver* find_driver() {
  static std::atomic<const Driver*> found{nullptr};
  if (const Driver* const known = found) return known;
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  const auto find = [&]<class Function>(const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(::dlsym(library, name));
    return *function != nullptr;
  };
  Driver driver;
  if (!find("cuStreamIsCapturing", &driver.is_capturing) ||
      !find("cuThreadExchangeStreamCaptureMode", &driver.exchange_mode)) {
    return nullptr;
  }
  static const Driver kept = driver;
  found = &kept;
  return &kept;
}

}  // namespace

bool is_capturing(const c10::Stream& stream) {
  const Driver* const driver = find_driver();
  int status = kNotCapturing;
  return driver != nullptr && driver->is_capturing(stream.native_handle(), &status) == 0 && status != kNotCapturing;
}

AsksInCaptures::AsksInCaptures() : mode_(kRelaxed), exchanged_(false) {
  if (const Driver* const driver = find_driver()) exchanged_ = driver->exchange_mode(&mode_) == 0;
}

AsksInCaptures::~AsksInCaptures() {
  if (exchanged_) (void)find_driver()->exchange_mode(&mode_);
}

}  // namespace tutti_torch

// Whose memory a communicator's buffers are in, as settings and messages name it.
#pragma once

#include <string>

#include "base/status.h"

namespace tutti::internal::memory {

// No device: memory of the host.
inline constexpr int kHost = -1;

// What a setting names: "host" or empty, "cuda" (the calling thread's current device) or "cuda:N".
// kInvalidArgument for any other name; kUnhandledCudaError if there is no CUDA driver.
Result<int> find_device(const std::string& name);
// "cuda:1", "host".
std::string name_of_device(int ordinal);
// Whether `name` is such a name, and whether one of a CUDA device. They ask no driver.
Status check_device_name(const std::string& name);
bool is_device_name(const std::string& name);

}  // namespace tutti::internal::memory

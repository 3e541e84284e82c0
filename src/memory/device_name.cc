#include "memory/device_name.h"

#include <fmt/core.h>

#include <optional>
#include <string_view>

#include "base/config.h"
#include "memory/cuda_driver.h"

namespace tutti::internal::memory {
namespace {

constexpr int kMostOrdinal = 4095;

// The number behind "cuda:"; nothing if there is none.
std::optional<int> ordinal_in(const std::string& name) {
  constexpr std::string_view kPrefix = "cuda:";
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const auto number = parse_integer(name.substr(kPrefix.size()), 0, kMostOrdinal);
  if (!number) return std::nullopt;
  return static_cast<int>(*number);
}

}  // namespace

Status check_device_name(const std::string& name) {
  if (name.empty() || name == "host" || name == "cuda" || ordinal_in(name)) return {};
  return Status::invalid_argument(fmt::format("\"{}\" is not host, cuda or cuda:N", name));
}

bool is_device_name(const std::string& name) {
  return name == "cuda" || ordinal_in(name).has_value();
}

std::string name_of_device(int ordinal) {
  return ordinal == kHost ? "host" : fmt::format("cuda:{}", ordinal);
}

Result<int> find_device(const std::string& name) {
  if (Status s = check_device_name(name); !s.is_ok()) return s;
  if (name.empty() || name == "host") return kHost;
  auto driver = CudaDriver::load();
  if (!driver.is_ok()) return driver.status();
  if (const auto ordinal = ordinal_in(name)) return *ordinal;
  int device = 0;
  const auto current = (*driver)->current_device(&device);
  // As the CUDA runtime has it.
  if (current == CudaDriver::kInvalidContext) return 0;
  if (Status s = (*driver)->check(current, "the current device"); !s.is_ok()) return s;
  return device;
}

}  // namespace tutti::internal::memory

// Part of tutti/tutti.hpp: errors as exceptions, and the owner of a handle.
#ifndef TUTTI_ERROR_HPP_
#define TUTTI_ERROR_HPP_

#include <stdexcept>
#include <string>
#include <utility>

#include "tutti/communicator.h"
#include "tutti/types.h"

namespace tutti {

// A tuttiResult_t other than tuttiSuccess, with the full text of what happened.
class Error : public std::runtime_error {
 public:
  // Of a text that is empty, tuttiGetErrorString's.
  Error(tuttiResult_t result, const std::string& text)
      : std::runtime_error(text.empty() ? tuttiGetErrorString(result) : text), result_(result) {}
  // What the C API returned.
  [[nodiscard]] tuttiResult_t result() const noexcept { return result_; }

 private:
  tuttiResult_t result_;
};

// Throws unless `result` is tuttiSuccess. `comm`: whose error it is; null for the calling thread's.
inline void check(tuttiResult_t result, tuttiComm_t comm = nullptr) {
  if (result != tuttiSuccess) throw Error(result, tuttiGetLastError(comm));
}

namespace detail {

// Owns a handle; Free is called once, and its result dropped.
template <class Handle, tuttiResult_t (*Free)(Handle)>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle handle) noexcept : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    if (this != &other) reset(std::exchange(other.handle_, nullptr));
    return *this;
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() { reset(nullptr); }
  void reset(Handle handle) noexcept {
    if (handle_ != nullptr) (void)Free(handle_);
    handle_ = handle;
  }
  [[nodiscard]] Handle get() const noexcept { return handle_; }
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, nullptr); }

 private:
  Handle handle_ = nullptr;
};

// tuttiSuccess: true; tuttiInProgress: false; else throws.
inline bool completed(tuttiResult_t result) {
  if (result == tuttiInProgress) return false;
  check(result);
  return true;
}

}  // namespace detail

}  // namespace tutti

#endif  // TUTTI_ERROR_HPP_

// Errors as values. Success is a null pointer: no allocation, one compare.
//
// A Status is never ignored ([[nodiscard]]), never thrown, and crosses every internal interface.
// The C API turns it into a tuttiResult_t plus the communicator's last error text.
//
// Making an error allocates and so may throw; copying and moving one never does. Exceptions of the language and its
// library (no memory, no thread) become a Status where a thread or an operation begins: guarded().
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::internal {

// Values equal the public tuttiResult_t: NCCL's, and tutti's own from 1000.
enum class Code : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,
  kAborted = 1000,
  kMismatch = 1001,
};

// The code of a number from outside: kInternalError if no code has it.
Code code_of(int number);
// The name users know: "tuttiRemoteError" and so on.
const char* code_name(Code code);

// One pointer, null for success, because it is returned through every level of each operation.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : Status(code, std::move(message), false) {}
  Status(const Status& other) noexcept : detail_(other.detail_) {
    if (detail_ != nullptr) detail_->owners.fetch_add(1, std::memory_order_relaxed);
  }
  Status(Status&& other) noexcept : detail_(std::exchange(other.detail_, nullptr)) {}
  Status& operator=(Status other) noexcept {
    std::swap(detail_, other.detail_);
    return *this;
  }
  ~Status() {
    if (detail_ != nullptr) [[unlikely]]
      release();
  }

  static Status ok() { return {}; }
  // kSystemError, without allocating.
  static Status out_of_memory() noexcept;
  // The status of the current exception: no memory and no thread are kSystemError, all others are defects. REQUIRES:
  // called in a handler.
  static Status of_exception() noexcept;
  // Appends strerror(error_number) to `what`, and for a lack of descriptors the limit.
  static Status system(const std::string& what, int error_number);
  static Status invalid_argument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
  static Status invalid_usage(std::string message) { return {Code::kInvalidUsage, std::move(message)}; }
  static Status internal(std::string message) { return {Code::kInternalError, std::move(message)}; }
  static Status remote(std::string message) { return {Code::kRemoteError, std::move(message)}; }
  static Status timeout(std::string message) { return {Code::kTimeout, std::move(message)}; }
  static Status aborted(std::string message) { return {Code::kAborted, std::move(message)}; }
  static Status mismatch(std::string message) { return {Code::kMismatch, std::move(message)}; }

  [[nodiscard]] bool is_ok() const { return detail_ == nullptr; }
  [[nodiscard]] Code code() const { return detail_ ? detail_->code : Code::kSuccess; }
  // Made by system() because this process or machine has no descriptor or memory left: no error of a peer, and perhaps
  // temporary.
  [[nodiscard]] bool is_exhaustion() const { return detail_ && detail_->exhaustion; }
  // Empty on success.
  [[nodiscard]] const std::string& message() const;

  // The same code with "context: " before the message, unless the message already begins with it. Success stays
  // success. If there is no memory for the longer text, the message stays. With a literal, success allocates nothing.
  [[nodiscard]] Status with_context(std::string_view context) const noexcept;
  // The same text with another code, if there is memory for that. REQUIRES: not ok.
  [[nodiscard]] Status with_code(Code code) const noexcept;

 private:
  struct Detail {
    Code code;
    std::string message;
    bool exhaustion;
    mutable std::atomic<std::uint32_t> owners{1};
  };
  Status(Code code, std::string message, bool exhaustion) : detail_(new Detail{code, std::move(message), exhaustion}) {}
  void release() noexcept;

  const Detail* detail_ = nullptr;
};

// Runs `body`, which returns a Status, and returns its exceptions as a Status.
template <class Body>
Status guarded(Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return Status::of_exception();
  }
}

// A value, or the Status that says why there is none. The value is stored inside: success allocates nothing.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit on purpose

  [[nodiscard]] bool is_ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  // REQUIRES: is_ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  T& operator*() { return *value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

// Runs `body`, which returns a Result, and returns its exceptions as the Status.
template <class Body>
auto guarded_result(Body&& body) noexcept -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return Status::of_exception();
  }
}

}  // namespace tutti::internal

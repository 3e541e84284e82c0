// Errors as values. Success is a null pointer: no allocation, one compare.
//
// A Status is never ignored ([[nodiscard]]), never thrown, and crosses every internal interface.
// The C API turns it into a tuttiResult_t plus the communicator's last error text.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace tutti {

// Values equal the public tuttiResult_t.
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
  kAborted = 9,
  kMismatch = 10,
};

// The name users know: "tuttiRemoteError" and so on.
const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : detail_(std::make_unique<Detail>(Detail{code, std::move(message)})) {}
  Status(const Status& other) : detail_(other.detail_ ? std::make_unique<Detail>(*other.detail_) : nullptr) {}
  Status(Status&&) noexcept = default;
  Status& operator=(const Status& other) {
    if (this != &other) detail_ = other.detail_ ? std::make_unique<Detail>(*other.detail_) : nullptr;
    return *this;
  }
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  static Status ok() { return {}; }
  // Appends strerror(error_number) to `what`.
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
  // Empty on success.
  [[nodiscard]] const std::string& message() const;

  // The same code with "context: " before the message. Success stays success.
  [[nodiscard]] Status with_context(const std::string& context) const;

 private:
  struct Detail {
    Code code;
    std::string message;
  };
  std::unique_ptr<Detail> detail_;
};

// A value or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::make_unique<T>(std::move(value))) {}  // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {}               // NOLINT: implicit on purpose

  [[nodiscard]] bool is_ok() const { return value_ != nullptr; }
  [[nodiscard]] const Status& status() const { return status_; }
  // REQUIRES: is_ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return value_.get(); }
  T& operator*() { return *value_; }

 private:
  Status status_;
  std::unique_ptr<T> value_;
};

}  // namespace tutti

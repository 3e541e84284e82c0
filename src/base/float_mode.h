// The floating-point mode of a thread: how results are rounded, whether denormal numbers are flushed to zero, and which
// exceptions trap. A program may change it in only one rank, even unintentionally: code compiled with -ffast-math
// flushes denormals. The library's own arithmetic runs in the default mode, so that all ranks get the same bits.
// User-defined functions run in the program's mode.
//
// The library does not use the x87. For unknown processors, the mode counts as the default.
#pragma once

#include <cstdint>

namespace tutti::internal {

class FloatMode {
 public:
  // The default one: to nearest, with denormals, without traps.
  constexpr FloatMode() = default;
  // The calling thread's. About a nanosecond.
  [[nodiscard]] static FloatMode current() { return FloatMode(read() & ~kFlags); }
  // In the calling thread. The flags of exceptions that have occurred are cleared.
  void set() const;
  [[nodiscard]] bool is_default() const { return control_ == kDefault; }
  friend bool operator==(const FloatMode&, const FloatMode&) = default;

 private:
#if defined(__x86_64__)
  using Control = std::uint32_t;
  static constexpr Control kDefault = 0x1f80;  // all exceptions are masked
  static constexpr Control kFlags = 0x3f;      // exceptions that have occurred: not part of the mode
  static Control read() {
    return __builtin_ia32_stmxcsr();
  }
#elif defined(__aarch64__)
  using Control = std::uint64_t;
  static constexpr Control kDefault = 0;
  static constexpr Control kFlags = 0;  // they have a register of their own
  static Control read() {
    Control control = 0;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
#else
  using Control = std::uint32_t;
  static constexpr Control kDefault = 0;
  static constexpr Control kFlags = 0;
  static Control read() {
    return kDefault;
  }
#endif
  static void write(Control control);
  friend class InFloatMode;
  constexpr explicit FloatMode(Control control) : control_(control) {}

  Control control_ = kDefault;
};

// While it exists, the calling thread is in `mode`; then it returns to the previous mode and flags. The compiler may
// move arithmetic out of its scope, so put the arithmetic into a function that is not inlined.
class InFloatMode {
 public:
  explicit InFloatMode(FloatMode mode = {}) : before_(FloatMode::read()) {
    if ((before_ & ~FloatMode::kFlags) != mode.control_) [[unlikely]] {
      changed_ = true;
      mode.set();
    }
  }
  InFloatMode(const InFloatMode&) = delete;
  InFloatMode& operator=(const InFloatMode&) = delete;
  ~InFloatMode() {
    if (changed_) [[unlikely]]
      FloatMode::write(before_);
  }

 private:
  const FloatMode::Control before_;
  bool changed_ = false;
};

}  // namespace tutti::internal

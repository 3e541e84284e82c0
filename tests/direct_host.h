// Direct collectives (device/direct.h) by threads of the host: each thread is a thread block.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "device/direct.h"
#include "os/clock.h"
#include "reduction/reduction.h"

namespace tutti::internal::test {

// `Reach`: the host's address of `bytes` bytes at an address of a call.
template <class Reach>
class HostBlock {
 public:
  HostBlock(int column, int columns, int row, Reach reach)
      : column_(column), columns_(columns), row_(row), reach_(std::move(reach)) {}
  [[nodiscard]] int row() const { return row_; }
  [[nodiscard]] int column() const { return column_; }
  const std::byte** from() { return from_.data(); }
  std::byte** to() { return to_.data(); }
  template <class F>
  static void each(int n, F&& f) {
    for (int i = 0; i < n; ++i) f(i);
  }
  static void sync() {}
  static bool all(bool own) { return own; }
  // A waiting thread must not keep the others from the processor.
  static std::uint64_t load(const std::uint64_t& place) {
    std::this_thread::yield();
    return std::atomic_ref(const_cast<std::uint64_t&>(place)).load(std::memory_order_acquire);
  }
  static void store(std::uint64_t& place, std::uint64_t value) {
    std::atomic_ref(place).store(value, std::memory_order_release);
  }
  static std::uint64_t add(std::uint64_t& place, std::uint64_t value) {
    return std::atomic_ref(place).fetch_add(value, std::memory_order_acq_rel);
  }
  static std::uint64_t set_bits(std::uint64_t& place, std::uint64_t bits) {
    return std::atomic_ref(place).fetch_or(bits, std::memory_order_acq_rel);
  }
  static bool exchange(std::uint64_t& place, std::uint64_t expected, std::uint64_t value) {
    return std::atomic_ref(place).compare_exchange_strong(expected, value, std::memory_order_acq_rel);
  }
  static bool told(const DirectControl& control) {
    return std::atomic_ref(const_cast<std::uint32_t&>(control.stop)).load() != 0;
  }
  static void stop(DirectControl& control) { std::atomic_ref(control.stop).store(1); }
  static void report(const DirectCall& call, DirectOutcome outcome, int peer) {
    std::atomic_ref<std::uint64_t> report(call.control->reports[static_cast<std::size_t>(call.rank)]);
    std::uint64_t none = 0;
    (void)report.compare_exchange_strong(none, pack_report(outcome, peer, call.number));
  }
  static std::uint64_t now_ns() { return static_cast<std::uint64_t>(internal::now_ns()); }
  void combine(const DirectCall& call, int inputs, int outputs, std::size_t count) {
    const auto [begin, end] = own_part(count);
    const std::size_t size = size_of(call.type);
    const std::size_t bytes = (end - begin) * size;
    if (bytes == 0) return;
    const reduction::Kernels& kernels = reduction::kernels(call.type, call.op);
    // The inputs may be outputs.
    std::vector<std::byte> value(bytes);
    std::memcpy(value.data(), at(from_[0], begin * size, bytes), bytes);
    for (int i = 1; i < inputs; ++i) {
      kernels.combine(value.data(), value.data(), at(from_[static_cast<std::size_t>(i)], begin * size, bytes),
                      end - begin);
    }
    if (call.divisor != 0) kernels.finish(value.data(), end - begin, call.divisor);
    for (int o = 0; o < outputs; ++o) {
      std::memcpy(at(to_[static_cast<std::size_t>(o)], begin * size, bytes), value.data(), bytes);
    }
  }
  void move(int outputs, std::size_t bytes) {
    const auto [begin, end] = own_part(bytes);
    if (begin == end) return;
    for (int o = 0; o < outputs; ++o) {
      std::memmove(at(to_[static_cast<std::size_t>(o)], begin, end - begin), at(from_[0], begin, end - begin),
                   end - begin);
    }
  }
  void exchange(std::size_t bytes) {
    const auto [begin, end] = own_part(bytes);
    if (begin == end) return;
    const std::byte* const one = at(from_[0], begin, end - begin);
    const std::vector<std::byte> kept(one, one + (end - begin));
    std::memmove(at(to_[1], begin, kept.size()), at(from_[1], begin, kept.size()), kept.size());
    std::memcpy(at(to_[0], begin, kept.size()), kept.data(), kept.size());
  }

 private:
  [[nodiscard]] std::pair<std::size_t, std::size_t> own_part(std::size_t all) const {
    const auto n = static_cast<std::size_t>(columns_);
    const auto i = static_cast<std::size_t>(column_);
    return {all / n * i + std::min(i, all % n), all / n * (i + 1) + std::min(i + 1, all % n)};
  }
  template <class Byte>
  Byte* at(Byte* base, std::size_t offset, std::size_t bytes) const {
    return reach_(const_cast<std::byte*>(base) + offset, bytes);
  }

  const int column_;
  const int columns_;
  const int row_;
  const Reach reach_;
  std::array<const std::byte*, kMostDirectRanks> from_{};
  std::array<std::byte*, kMostDirectRanks> to_{};
};

// All blocks of a launch, one after the other: in a rendezvous a block waits only for those with the same number.
template <class Reach>
void run_launch(const DirectCall& call, int columns, int rows, Reach reach) {
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      HostBlock block(column, columns, row, reach);
      run_directly(call, block);
    }
  }
}

}  // namespace tutti::internal::test

#include "sim/world/fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace tutti::internal::sim {
namespace {

// Address space: only touched pages use memory.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;

// Of ended fibers, for later ones.
std::vector<std::byte*> free_stacks;

// The page below it cannot be accessed.
std::byte* take_stack() {
  if (!free_stacks.empty()) {
    std::byte* const stack = free_stacks.back();
    free_stacks.pop_back();
    return stack;
  }
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const mapped = ::mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapped == MAP_FAILED || ::mprotect(mapped, page, PROT_NONE) != 0) std::abort();
  return static_cast<std::byte*>(mapped) + page;
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(take_stack()) {
  ::getcontext(&own_);
  own_.uc_stack.ss_sp = stack_;
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  ::makecontext(&own_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
}

Fiber::~Fiber() {
  free_stacks.push_back(stack_);
}

// makecontext(3) passes only integers.
void Fiber::enter(unsigned high, unsigned low) {
  const auto self = static_cast<std::uintptr_t>(high) << 32 | low;
  reinterpret_cast<Fiber*>(self)->run();
}

void Fiber::run() {
  end_switch(nullptr);
  body_();
  finished_ = true;
  yield();
  std::abort();  // no thread resumes it
}

void Fiber::resume() {
  void* kept = nullptr;
  begin_switch(&kept, stack_, kStackBytes);
  exchange(&exceptions_);
  ::swapcontext(&resumer_, &own_);
  exchange(&exceptions_);
#ifdef __SANITIZE_ADDRESS__
  ::__sanitizer_finish_switch_fiber(kept, nullptr, nullptr);
#endif
}

void Fiber::yield() {
  // For a finished fiber nothing is kept.
  begin_switch(finished_ ? nullptr : &fake_stack_, resumer_stack_, resumer_bytes_);
  ::swapcontext(&own_, &resumer_);
  end_switch(fake_stack_);
}

void Fiber::begin_switch([[maybe_unused]] void** own, [[maybe_unused]] const void* stack,
                         [[maybe_unused]] std::size_t bytes) {
#ifdef __SANITIZE_ADDRESS__
  ::__sanitizer_start_switch_fiber(own, stack, bytes);
#endif
}

// In the fiber: remembers the stack from which it was entered.
void Fiber::end_switch([[maybe_unused]] void* own) {
#ifdef __SANITIZE_ADDRESS__
  ::__sanitizer_finish_switch_fiber(own, &resumer_stack_, &resumer_bytes_);
#endif
}

void Fiber::exchange(Exceptions* kept) {
  auto* const now = reinterpret_cast<Exceptions*>(abi::__cxa_get_globals());
  std::swap(*now, *kept);
}

}  // namespace tutti::internal::sim

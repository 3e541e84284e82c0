#include "sim/world/fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Pushes the registers that a function preserves, stores the stack pointer in *from, and continues at `to`, which a
// call of it, or Fiber::Fiber(), has stored. swapcontext(3) would ask the kernel for the mask of signals in each call,
// and AddressSanitizer would clear the memory that describes the whole stack.
extern "C" void tutti_switch_stacks(void** from, void* to);

#if defined(__x86_64__)
asm(R"(
  .text
  .hidden tutti_switch_stacks
  .globl tutti_switch_stacks
  .type tutti_switch_stacks, @function
tutti_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size tutti_switch_stacks, . - tutti_switch_stacks
)");
#elif defined(__aarch64__)
asm(R"(
  .text
  .hidden tutti_switch_stacks
  .globl tutti_switch_stacks
  .type tutti_switch_stacks, %function
tutti_switch_stacks:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
  .size tutti_switch_stacks, . - tutti_switch_stacks
)");
#else
#error "tutti_switch_stacks() is not written for this processor"
#endif

namespace tutti::internal::sim {
namespace {

// Address space: only touched pages use memory.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;

#if defined(__x86_64__)
// As if a function that returns nowhere had called enter(): its address is the seventh word that a switch pops.
constexpr std::size_t kFirstWords = 8;
constexpr std::size_t kEntryWord = 6;
#else
constexpr std::size_t kFirstWords = 20;
constexpr std::size_t kEntryWord = 11;  // x30
#endif

Fiber* beginning = nullptr;  // the fiber that is resumed for the first time

// Of ended fibers, for later ones.
std::vector<std::byte*> free_stacks;

// The page below it cannot be accessed.
std::byte* take_stack() {
  if (!free_stacks.empty()) {
    std::byte* const stack = free_stacks.back();
    free_stacks.pop_back();
#ifdef __SANITIZE_ADDRESS__
    // The frames of the ended fiber have not been left.
    __asan_unpoison_memory_region(stack, kStackBytes);
#endif
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
  auto* const words = reinterpret_cast<std::uintptr_t*>(stack_ + kStackBytes) - kFirstWords;
  std::fill_n(words, kFirstWords, 0);
  words[kEntryWord] = reinterpret_cast<std::uintptr_t>(&Fiber::enter);
  own_ = words;
}

Fiber::~Fiber() {
  free_stacks.push_back(stack_);
}

void Fiber::enter() {
  beginning->run();
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
  beginning = this;
  tutti_switch_stacks(&resumer_, own_);
  exchange(&exceptions_);
#ifdef __SANITIZE_ADDRESS__
  ::__sanitizer_finish_switch_fiber(kept, nullptr, nullptr);
#endif
}

void Fiber::yield() {
  // For a finished fiber nothing is kept.
  begin_switch(finished_ ? nullptr : &fake_stack_, resumer_stack_, resumer_bytes_);
  tutti_switch_stacks(&own_, resumer_);
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

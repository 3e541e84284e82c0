#include "base/service_thread.h"

#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>

#include "base/control_group.h"
#include "base/float_mode.h"
#include "os/kernel.h"

namespace tutti::internal {
namespace {

void* run(void* argument) {
  const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

}  // namespace

Status start_thread(pthread_t* thread, void* (*body)(void*), void* argument, std::size_t stack_bytes) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, stack_bytes);
  sigset_t blocked;
  sigset_t before;
  ::sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) ::sigdelset(&blocked, fault);
  // The new thread inherits the mask and the floating-point mode.
  const InFloatMode standard;
  ::pthread_sigmask(SIG_SETMASK, &blocked, &before);
  int error = os::kernel().pthread_create(thread, &attributes, body, argument);
  // A program with very large thread-local variables needs the default stack.
  if (error == EINVAL) error = os::kernel().pthread_create(thread, nullptr, body, argument);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (error == 0) return {};
  const Status status = Status::system("cannot start a thread", error);
  return {status.code(), status.message() + thread_advice(error)};
}

Status ServiceThread::start(std::function<void()> body, std::size_t stack_bytes) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  if (Status s = start_thread(&thread_, run, owned.get(), stack_bytes); !s.is_ok()) return s;
  static_cast<void>(owned.release());
  running_ = true;
  return {};
}

void ServiceThread::join() {
  if (std::exchange(running_, false)) os::kernel().pthread_join(thread_);
}

}  // namespace tutti::internal

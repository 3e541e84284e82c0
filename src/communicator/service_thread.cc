#include "communicator/service_thread.h"

#include <cerrno>
#include <csignal>
#include <memory>
#include <utility>

namespace tutti {
namespace {

// Address space, not memory: pages count when touched. Not the system's minimum of 16 KiB, since the
// C library places the thread-local variables of all loaded libraries on this stack as well.
constexpr std::size_t kStackBytes = std::size_t{256} << 10;

void* run(void* argument) {
  const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

}  // namespace

Status ServiceThread::start(std::function<void()> body) {
  auto owned = std::make_unique<std::function<void()>>(std::move(body));
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = ::pthread_create(&thread_, &attributes, run, owned.get());
  // A program with very large thread-local variables needs the default stack.
  if (error == EINVAL) error = ::pthread_create(&thread_, nullptr, run, owned.get());
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  ::pthread_attr_destroy(&attributes);
  if (error != 0) return Status::system("cannot start a thread", error);
  static_cast<void>(owned.release());
  running_ = true;
  return {};
}

void ServiceThread::join() {
  if (std::exchange(running_, false)) ::pthread_join(thread_, nullptr);
}

void ServiceThread::detach() {
  if (std::exchange(running_, false)) ::pthread_detach(thread_);
}

}  // namespace tutti

#include "os/kernel.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

namespace tutti::internal::os {
namespace {

class RealKernel final : public Kernel {
 public:
  constexpr RealKernel() = default;

  int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                     void* argument) override {
    return ::pthread_create(thread, attributes, body, argument);
  }
  void pthread_join(pthread_t thread) override { ::pthread_join(thread, nullptr); }

  pid_t getpid() override { return ::getpid(); }
  int gethostname(char* name, std::size_t size) override { return ::gethostname(name, size); }
  ssize_t getrandom(void* data, std::size_t size) override { return ::getrandom(data, size, 0); }
  int getifaddrs(ifaddrs** list) override { return ::getifaddrs(list); }
  void freeifaddrs(ifaddrs* list) override { ::freeifaddrs(list); }

  int close(int fd) override { return ::close(fd); }
  int poll(pollfd* entries, nfds_t count, int timeout_ms) override { return ::poll(entries, count, timeout_ms); }
  int epoll_create() override { return ::epoll_create1(EPOLL_CLOEXEC); }
  int epoll_ctl(int set, int operation, int fd, epoll_event* event) override {
    return ::epoll_ctl(set, operation, fd, event);
  }
  int epoll_wait(int set, epoll_event* events, int most) override { return ::epoll_wait(set, events, most, 0); }
  int eventfd() override { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
  // Fails only if the counter is at its limit, and then it is readable.
  void eventfd_write(int fd) override { (void)::eventfd_write(fd, 1); }
  // Fails if there was no write.
  void eventfd_read(int fd) override {
    eventfd_t count = 0;
    (void)::eventfd_read(fd, &count);
  }

  int socket(int family, int type) override { return ::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }
  int bind(int fd, const sockaddr* address, socklen_t length) override { return ::bind(fd, address, length); }
  int listen(int fd, int backlog) override { return ::listen(fd, backlog); }
  int accept(int fd) override { return ::accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }
  int connect(int fd, const sockaddr* address, socklen_t length) override { return ::connect(fd, address, length); }
  int getsockname(int fd, sockaddr* address, socklen_t* length) override { return ::getsockname(fd, address, length); }
  int getpeername(int fd, sockaddr* address, socklen_t* length) override { return ::getpeername(fd, address, length); }
  int getsockopt(int fd, int level, int name, void* value, socklen_t* length) override {
    return ::getsockopt(fd, level, name, value, length);
  }
  int setsockopt(int fd, int level, int name, const void* value, socklen_t length) override {
    return ::setsockopt(fd, level, name, value, length);
  }
  ssize_t send(int fd, const void* data, std::size_t size) override { return ::send(fd, data, size, MSG_NOSIGNAL); }
  ssize_t recv(int fd, void* data, std::size_t size) override { return ::recv(fd, data, size, 0); }
  ssize_t sendmsg(int fd, const msghdr* message) override { return ::sendmsg(fd, message, MSG_NOSIGNAL); }
  ssize_t recvmsg(int fd, msghdr* message) override { return ::recvmsg(fd, message, 0); }
  int shutdown(int fd, int how) override { return ::shutdown(fd, how); }
};

// Never destroyed: threads of the application may call until the process has ended.
union Kept {
  constexpr Kept() : kernel() {}
  ~Kept() {}
  RealKernel kernel;
};
constinit Kept real;
constinit Kernel* in_use = &real.kernel;

}  // namespace

Kernel& kernel() {
  return *in_use;
}

void replace_kernel(Kernel* simulated) {
  in_use = simulated != nullptr ? simulated : &real.kernel;
}

}  // namespace tutti::internal::os

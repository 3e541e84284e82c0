// The kernel's calls for joining, the control tree, failure handling and their sockets: descriptors, threads, and the
// identity of process and host. They go through Kernel, which tests replace by a simulated network of simulated
// processes (tests/sim/world.h). Time and locks are in scheduler.h. Calls that only data paths, transports and the
// binding of processors make are not here.
//
// Names, arguments, results and errno are those of the system's calls. All sockets and events are non-blocking and
// close-on-exec.
//
// Threads: any.
#pragma once

#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cstddef>

namespace tutti::internal::os {

class Kernel {
 public:
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;

  virtual int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                             void* argument) = 0;
  virtual void pthread_join(pthread_t thread) = 0;

  virtual pid_t getpid() = 0;
  virtual int gethostname(char* name, std::size_t size) = 0;
  virtual ssize_t getrandom(void* data, std::size_t size) = 0;
  virtual int getifaddrs(ifaddrs** list) = 0;
  virtual void freeifaddrs(ifaddrs* list) = 0;

  virtual int close(int fd) = 0;
  virtual int poll(pollfd* entries, nfds_t count, int timeout_ms) = 0;
  virtual int epoll_create() = 0;
  virtual int epoll_ctl(int set, int operation, int fd, epoll_event* event) = 0;
  virtual int epoll_wait(int set, epoll_event* events, int most) = 0;  // returns at once
  virtual int eventfd() = 0;
  virtual void eventfd_write(int fd) = 0;  // adds 1
  virtual void eventfd_read(int fd) = 0;

  virtual int socket(int family, int type) = 0;
  virtual int bind(int fd, const sockaddr* address, socklen_t length) = 0;
  virtual int listen(int fd, int backlog) = 0;
  virtual int accept(int fd) = 0;
  virtual int connect(int fd, const sockaddr* address, socklen_t length) = 0;
  virtual int getsockname(int fd, sockaddr* address, socklen_t* length) = 0;
  virtual int getpeername(int fd, sockaddr* address, socklen_t* length) = 0;
  virtual int getsockopt(int fd, int level, int name, void* value, socklen_t* length) = 0;
  virtual int setsockopt(int fd, int level, int name, const void* value, socklen_t length) = 0;
  virtual ssize_t send(int fd, const void* data, std::size_t size) = 0;  // without SIGPIPE
  virtual ssize_t recv(int fd, void* data, std::size_t size) = 0;
  virtual ssize_t sendmsg(int fd, const msghdr* message) = 0;  // without SIGPIPE
  virtual ssize_t recvmsg(int fd, msghdr* message) = 0;
  virtual int shutdown(int fd, int how) = 0;

 protected:
  Kernel() = default;
};

// The real one, unless a test has replaced it.
Kernel& kernel();
// Null: the real one. REQUIRES: no other thread of the library runs.
void replace_kernel(Kernel* simulated);

}  // namespace tutti::internal::os

/* A rank of a job whose trace is explained. Usage: traced_rank HOW RANK: all ranks reduce many times; that rank
 * computes for 5 ms before each reduction (late), or what it sends passes at kSlowBytesPerS (slow), if the messages are
 * long. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum {
  kCount = 64 * 1024,
  kCalls = 40,
  kSlowCalls = 12,
  kLongBytes = 2048,
  kSlowBytesPerS = 10 * 1000 * 1000,
  kBurstBytes = 65536
};

static int slow = 0;

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* How much of a message the slow link takes now; 0: it is full, and the library sleeps, for some milliseconds because
 * no event ends that. */
static size_t room(size_t bytes) {
  static double free_bytes = 0;
  static double last_s = 0;
  const double now = now_s();
  free_bytes += (now - last_s) * kSlowBytesPerS;
  last_s = now;
  if (free_bytes > kBurstBytes) free_bytes = kBurstBytes;
  if (free_bytes < 0.25 * kBurstBytes) return 0;
  if ((double)bytes > free_bytes) bytes = (size_t)free_bytes;
  free_bytes -= (double)bytes;
  return bytes;
}

/* In place of those of the C library, also for libtutti. */
__attribute__((visibility("default"))) ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  if (slow && bytes >= kLongBytes && (bytes = room(bytes)) == 0) {
    errno = EAGAIN;
    return -1;
  }
  return syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  struct msghdr part = *message;
  struct iovec pieces[2];
  if (slow && message->msg_iovlen == 2 && message->msg_iov[1].iov_len >= kLongBytes) {
    memcpy(pieces, message->msg_iov, sizeof pieces);
    pieces[1].iov_len = room(pieces[1].iov_len);
    if (pieces[1].iov_len == 0) {
      errno = EAGAIN;
      return -1;
    }
    part.msg_iov = pieces;
  }
  return syscall(SYS_sendmsg, fd, &part, flags);
}

int main(int argc, char** argv) {
  static float values[kCount];
  tuttiComm_t comm = NULL;
  int rank = 0;
  if (argc != 3 || tuttiCommInitEnv(&comm, NULL) != tuttiSuccess) return 1;
  tuttiCommUserRank(comm, &rank);
  const int chosen = rank == atoi(argv[2]);
  if (tuttiAllReduce(values, values, kCount, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) return 1;
  slow = chosen && strcmp(argv[1], "slow") == 0;
  const int calls = strcmp(argv[1], "slow") == 0 ? kSlowCalls : kCalls;
  for (int i = 0; i < calls; ++i) {
    if (chosen && strcmp(argv[1], "late") == 0) usleep(5000);
    if (tuttiAllReduce(values, values, kCount, tuttiFloat32, tuttiSum, comm, NULL) != tuttiSuccess) return 1;
  }
  return tuttiCommDestroy(comm) == tuttiSuccess ? 0 : 1;
}

// Part of tutti/tutti.hpp: calls that are started together.
#ifndef TUTTI_GROUP_HPP_
#define TUTTI_GROUP_HPP_

#include <cstdio>
#include <exception>

#include "tutti/collectives.h"
#include "tutti/communicator.h"
#include "tutti/error.hpp"

namespace tutti {

// What the thread calls in its life is started together when it ends (tuttiGroupStart, tuttiGroupEnd):
//   tutti::Group group;
//   comm.send(mine, right);
//   comm.recv(theirs, left);
//   group.end();
// The thread that makes it ends it. Groups may be nested; the outermost starts the calls.
class Group {
 public:
  Group() : exceptions_(std::uncaught_exceptions()) { check(tuttiGroupStart()); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  // Ends the group, if end() has not. If an exception leaves the block, nothing of the group is started. A destructor
  // cannot throw: it writes an error to standard error.
  ~Group() {
    if (ended_) return;
    const bool failed = std::uncaught_exceptions() > exceptions_;
    // A call that is refused: then the group starts nothing.
    if (failed) (void)tuttiBarrier(nullptr, nullptr);
    const tuttiResult_t result = tuttiGroupEnd();
    if (result != tuttiSuccess && !failed) std::fprintf(stderr, "tutti: %s\n", tuttiGetLastError(nullptr));
  }
  // Starts the calls. With host memory and without streams it returns when they are complete.
  void end() {
    ended_ = true;
    check(tuttiGroupEnd());
  }

 private:
  int exceptions_;
  bool ended_ = false;
};

}  // namespace tutti

#endif  // TUTTI_GROUP_HPP_

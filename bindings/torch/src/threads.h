// The binding's own threads.
#pragma once

#include <c10/util/Exception.h>

#include <system_error>
#include <thread>
#include <utility>

namespace tutti_torch {

// Throws c10::Error that names the limits if there can be no more threads.
template <class Body>
std::thread start_thread(Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& e) {
    TORCH_CHECK(false, "cannot start a thread: ", e.what(),
                ". Raise the limit that is reached: pids.max of the control group (--pids-limit of a container, "
                "TasksMax= of a systemd unit), ulimit -u or kernel.threads-max; `tutti doctor` shows them");
  }
}

}  // namespace tutti_torch

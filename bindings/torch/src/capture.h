// Streams that a CUDA graph captures. torch has no words for them that serve any device in all its versions, so the
// driver is asked, where the process has one.
#pragma once

#include <c10/core/Stream.h>

namespace tutti_torch {

// Any thread.
bool is_capturing(const c10::Stream& stream);

// While it lives this thread may ask for events that no graph has captured, though a stream captures: else the question
// is an error, and ends the capture.
class AsksInCaptures {
 public:
  AsksInCaptures();
  AsksInCaptures(const AsksInCaptures&) = delete;
  AsksInCaptures& operator=(const AsksInCaptures&) = delete;
  ~AsksInCaptures();

 private:
  int mode_;        // the thread's, while this has another
  bool exchanged_;  // it has
};

}  // namespace tutti_torch

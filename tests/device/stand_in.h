// The objects of the stand-in for the CUDA driver (stand_in.cc): devices, streams, graphs, and injected failures.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

#include "memory/cuda_driver.h"

namespace tutti::internal::stand_in {

using Driver = tutti::internal::memory::CudaDriver;
using Address = Driver::Address;

inline constexpr int kSuccess = 0;
inline constexpr int kInvalidValue = 1;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kInvalidDevice = 101;
inline constexpr int kInvalidHandle = 400;
inline constexpr int kNotFound = 500;
inline constexpr int kLaunchFailed = 719;
inline constexpr int kCaptureInvalidated = 901;
inline constexpr int kCapturedEvent = 907;
inline constexpr int kCaptureWrongThread = 908;

struct Block {
  std::size_t bytes;
  std::byte* alias;  // the host's address of it
  int device;
  int fd;  // of its memory, through which other processes access it
};

struct Graph;
// A stream runs its work in order, in its own thread; while it captures, the work of its graph is collected.
struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  bool busy = false;
  bool ends = false;
  Graph* captures = nullptr;
  std::uint64_t capture = 0;  // its number
  bool global = false;        // its capture forbids calls to other threads
  bool invalid = false;       // a forbidden call was made
  std::thread::id captured_by;
  std::thread thread;
};
struct Event {
  // In a capture: its number, and its graph.
  std::uint64_t capture = 0;
  Graph* graph = nullptr;
  std::atomic<std::uint64_t> recorded{0};
  std::atomic<std::uint64_t> reached{0};
};
struct UserObject {
  void* data;
  Driver::HostFunction destroy;
  std::atomic<unsigned> references;
};
struct Graph {
  std::vector<std::function<void()>> nodes;
  std::vector<std::shared_ptr<void>> objects;
};

inline std::mutex state_mutex;
inline std::map<Address, Block> blocks;
inline std::set<void*> pinned;
inline std::atomic<int> live{0};
inline std::atomic<int> global_captures{0};
inline std::atomic<std::uint64_t> captures{0};
inline std::atomic<bool> broken{false};
inline std::atomic<int> failures{0};              // how often a device has become broken
inline std::atomic<int> calls_until_failure{-1};  // below 0: none fails
inline thread_local std::vector<int> contexts;    // devices, the current one last
inline thread_local int capture_mode = 0;
inline thread_local int own_captures = 0;  // captures that this thread has begun and that forbid calls
inline thread_local bool in_host_function = false;

inline int devices() {
  const char* const text = std::getenv("STAND_IN_DEVICES");
  return text != nullptr ? std::atoi(text) : 2;
}

// Held by every call, and exclusively by one that frees memory.
inline std::shared_mutex driver_mutex;
inline std::mutex streams_mutex;
inline std::set<Stream*> streams;

// A forbidden call ends the captures that forbid it.
inline int refuse_in_captures() {
  const std::lock_guard all(streams_mutex);
  for (Stream* const stream : streams) {
    const std::lock_guard lock(stream->mutex);
    if (stream->global || stream->captured_by == std::this_thread::get_id()) stream->invalid = true;
  }
  return Driver::kFirstOfCaptures;
}

// Every call begins with this.
inline int enter(bool forbidden_in_captures = false) {
  if (in_host_function) {
    std::fputs("stand-in: a function that a stream calls has called the driver\n", stderr);
    std::abort();
  }
  if (broken) return kLaunchFailed;
  if (calls_until_failure >= 0 && calls_until_failure-- == 0) return kOutOfMemory;
  if (!forbidden_in_captures || capture_mode == Driver::kCaptureRelaxed) return kSuccess;
  const bool forbidden = own_captures > 0 || (global_captures > 0 && capture_mode == Driver::kCaptureGlobal);
  return forbidden ? refuse_in_captures() : kSuccess;
}

// The host's address of the bytes: host memory, or the alias of a device's memory. Null beyond a block's end.
inline std::byte* reach(Address address, std::size_t bytes) {
  const std::lock_guard lock(state_mutex);
  auto at = blocks.upper_bound(address);
  if (at != blocks.begin()) {
    --at;
    const Address offset = address - at->first;
    if (offset < at->second.bytes) return bytes <= at->second.bytes - offset ? at->second.alias + offset : nullptr;
  }
  return reinterpret_cast<std::byte*>(address);
}

inline void work(Stream& stream) {
  for (;;) {
    std::function<void()> next;
    {
      std::unique_lock lock(stream.mutex);
      stream.busy = false;
      stream.changed.notify_all();
      stream.changed.wait(lock, [&] { return stream.ends || !stream.queue.empty(); });
      if (stream.queue.empty()) return;
      next = std::move(stream.queue.front());
      stream.queue.pop_front();
      stream.busy = true;
    }
    next();
  }
}

inline Stream* make_stream() {
  auto* const stream = new Stream;
  {
    const std::lock_guard lock(streams_mutex);
    streams.insert(stream);
  }
  stream->thread = std::thread([stream] { work(*stream); });
  return stream;
}

// Null is the default stream of the current device.
inline Stream* stream_of(Driver::Stream handle) {
  if (handle != nullptr) return reinterpret_cast<Stream*>(handle);
  static auto* defaults = new std::map<int, Stream*>;
  const std::lock_guard lock(state_mutex);
  Stream*& stream = (*defaults)[contexts.empty() ? 0 : contexts.back()];
  if (stream == nullptr) stream = make_stream();
  return stream;
}

inline int submit(Driver::Stream handle, std::function<void()> what) {
  if (handle == nullptr && contexts.empty()) return Driver::kInvalidContext;
  Stream& stream = *stream_of(handle);
  const std::lock_guard lock(stream.mutex);
  if (stream.captures != nullptr) {
    stream.captures->nodes.push_back(std::move(what));
  } else {
    stream.queue.push_back(std::move(what));
    stream.changed.notify_all();
  }
  return kSuccess;
}

inline void wait_for(Stream& stream) {
  std::unique_lock lock(stream.mutex);
  stream.changed.wait(lock, [&] { return stream.queue.empty() && !stream.busy; });
}

}  // namespace tutti::internal::stand_in

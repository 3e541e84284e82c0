#include "departures.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <vector>

namespace tutti_torch {
namespace {

// A store in a folder that has been removed waits for that folder until its timeout.
constexpr std::chrono::milliseconds kLongest{1000};

std::string key_of(int rank) {
  return "left/" + std::to_string(rank);
}

}  // namespace

void announce_departure(c10d::Store& store, int rank) {
  try {
    const auto timeout = store.getTimeout();
    if (timeout > kLongest) store.setTimeout(kLongest);
    try {
      store.set(key_of(rank), std::vector<std::uint8_t>{1});
    } catch (const std::exception&) {
    }
    // Not unless this thread has changed it: the timeout that it has read may be another thread's short one.
    if (timeout > kLongest) store.setTimeout(timeout);
  } catch (const std::exception&) {
  }
}

std::string told_of_departure(c10d::Store& store, int rank) {
  try {
    if (!store.check({key_of(rank)})) return {};
  } catch (const std::exception&) {
    return {};
  }
  return "Connection closed by peer: rank " + std::to_string(rank) + " has left the process group";
}

}  // namespace tutti_torch

// How the operations of Backend begin.
#pragma once

#include <ATen/record_function.h>

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "backend.h"

namespace tutti_torch {

// As one group of tutti's.
inline tuttiResult_t call_together(const std::vector<Call>& calls, tuttiComm_t comm, void* stream) {
  if (const tuttiResult_t result = tuttiGroupStart(); result != tuttiSuccess) return result;
  tuttiResult_t first = tuttiSuccess;
  for (const Call& call : calls) {
    const tuttiResult_t result = call(comm, stream);
    if (first == tuttiSuccess) first = result;
  }
  const tuttiResult_t result = tuttiGroupEnd();
  return first != tuttiSuccess ? first : result;
}

template <class Find, class Make>
WorkPtr Backend::run_in(Find find, Make make) {
  std::shared_ptr<Channel> channel;
  Operation operation;
  try {
    channel = find();
    operation = make();
    check_one_device(operation.name, operation.inputs, operation.outputs);
    if (operation.alone && is_coalescing()) refuse(operation.name, "cannot be coalesced");
  } catch (const std::exception&) {
    return end_refused(channel);
  }
  const auto begin_it = [&] {
    return channel != nullptr ? begin(channel, std::move(operation)) : begin_on_device(std::move(operation));
  };
  return at::hasCallbacks() ? begin_in_profile(operation, begin_it) : begin_it();
}

template <class Make>
WorkPtr Backend::run(at::Device device, Make make) {
  return run_in([&] { return device.is_cpu() ? collectives_ : nullptr; }, std::move(make));
}

}  // namespace tutti_torch

// How the operations of Backend begin.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <string_view>
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

template <class Make>
WorkPtr Backend::run_in(const std::shared_ptr<Channel>& channel, Make make) {
  Operation operation;
  try {
    operation = make();
    check_one_device(operation.name, operation.inputs, operation.outputs);
  } catch (const c10::Error& e) {
    std::string_view why = e.what_without_backtrace();
    if (why.starts_with("tutti ")) why.remove_prefix(6);
    channel->refuse(std::string(why));
    stop_coalescing();
    throw;
  }
  return begin(channel, std::move(operation));
}

template <class Make>
WorkPtr Backend::run_on_device(Make make) {
  Operation operation;
  try {
    operation = make();
    check_one_device(operation.name, operation.inputs, operation.outputs);
  } catch (const c10::Error&) {
    stop_coalescing();
    throw;
  }
  return begin_on_device(std::move(operation));
}

template <class Make>
WorkPtr Backend::run(at::Device device, Make make) {
  return device.is_cpu() ? run_in(collectives_, std::move(make)) : run_on_device(std::move(make));
}

}  // namespace tutti_torch

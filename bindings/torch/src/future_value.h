// The value of an operation's future: its outputs.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <cstddef>
#include <vector>

#include "tensors.h"

namespace tutti_torch {

// lists: that the outputs were given in, all of one length. A list of tensors for one of them, else a list of lists.
inline c10::TypePtr future_type(std::size_t lists) {
  const auto one = c10::ListType::create(c10::TensorType::get());
  return lists == 1 ? one : c10::ListType::create(one);
}

inline c10::IValue future_value(const Tensors& outputs, std::size_t lists) {
  if (lists == 1) return {outputs};
  const auto each = static_cast<std::ptrdiff_t>(outputs.size() / lists);
  std::vector<Tensors> all;
  for (auto at = outputs.begin(); at != outputs.end(); at += each) all.emplace_back(at, at + each);
  return {all};
}

}  // namespace tutti_torch

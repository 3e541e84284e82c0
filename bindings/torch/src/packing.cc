#include "packing.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>

namespace tutti_torch {
namespace {

std::uintptr_t address_of(const at::Tensor& tensor) {
  return reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
}

// 0 if all are empty.
std::uintptr_t lowest_address(const Tensors& tensors) {
  std::uintptr_t lowest = UINTPTR_MAX;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) lowest = std::min(lowest, address_of(tensor));
  }
  return lowest == UINTPTR_MAX ? 0 : lowest;
}

// Behind the last element. REQUIRES: not empty.
std::uintptr_t end_of(const at::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return address_of(tensor) + (static_cast<std::uintptr_t>(last) + 1) * tensor.element_size();
}

// Of those that are not empty, by address.
std::vector<std::size_t> order_of(const Tensors& tensors) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].numel() > 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return address_of(tensors[a]) < address_of(tensors[b]); });
  return order;
}

// Whether strides alone show that no two elements of the tensor share memory.
bool has_nested_strides(const at::Tensor& tensor) {
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;  // stride, size
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1) dims.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t extent = 1;
  for (const auto& [stride, size] : dims) {
    if (stride < extent) return false;
    extent += stride * (size - 1);
  }
  return true;
}

// Calls visit(address) for each element until that returns false; whether it never did.
template <class Visit>
bool visit_elements(const at::Tensor& tensor, Visit visit) {
  const auto bytes = static_cast<std::int64_t>(tensor.element_size());
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.dim()));
  std::uintptr_t at = address_of(tensor);
  for (std::int64_t left = tensor.numel(); left > 0; --left) {
    if (!visit(at)) return false;
    for (std::int64_t d = tensor.dim() - 1; d >= 0; --d) {
      std::int64_t& i = index[static_cast<std::size_t>(d)];
      at += static_cast<std::uintptr_t>(tensor.stride(d) * bytes);
      if (++i < tensor.size(d)) break;
      at -= static_cast<std::uintptr_t>(tensor.stride(d) * bytes * tensor.size(d));
      i = 0;
    }
  }
  return true;
}

using Pair = std::pair<std::size_t, std::size_t>;

// The tensors of which an element was at this address when one of `last` was found there, too.
Pair owners_of(const Tensors& tensors, const std::vector<std::size_t>& chain, std::size_t last,
               std::uintptr_t address) {
  const auto bytes = static_cast<std::uintptr_t>(tensors[last].element_size());
  for (const std::size_t i : chain) {
    const bool apart = i == last || visit_elements(tensors[i], [&](std::uintptr_t at) {
                         return at + bytes <= address || address + bytes <= at;
                       });
    if (!apart || i == last) return std::minmax(i, last);
  }
  return {last, last};
}

// Of tensors whose memory is interleaved: marks the memory of each element.
std::optional<Pair> find_shared_elements(const Tensors& tensors, const std::vector<std::size_t>& chain,
                                         std::uintptr_t end) {
  const std::uintptr_t begin = address_of(tensors[chain.front()]);
  const auto bytes = static_cast<std::uintptr_t>(tensors[chain.front()].element_size());
  const bool aligned = std::all_of(chain.begin(), chain.end(),
                                   [&](std::size_t i) { return (address_of(tensors[i]) - begin) % bytes == 0; });
  const std::uintptr_t unit = aligned ? bytes : 1;
  std::vector<bool> taken((end - begin + unit - 1) / unit);
  for (const std::size_t i : chain) {
    std::uintptr_t shared = 0;
    const bool apart = visit_elements(tensors[i], [&](std::uintptr_t at) {
      for (std::uintptr_t u = (at - begin) / unit; u < (at - begin + bytes) / unit; ++u) {
        if (taken[u]) return shared = at, false;
        taken[u] = true;
      }
      return true;
    });
    if (!apart) return owners_of(tensors, chain, i, shared);
  }
  return std::nullopt;
}

// For tensors that leave no gap between the lowest and the highest of their addresses.
std::optional<Pair> find_shared(const Tensors& tensors, const std::vector<std::size_t>& chain, std::uintptr_t end) {
  const auto is_contiguous = [&](std::size_t i) { return tensors[i].is_contiguous(); };
  const std::size_t first = chain.front();
  if (chain.size() == 1 && (is_contiguous(first) || has_nested_strides(tensors[first]))) return std::nullopt;
  if (std::all_of(chain.begin(), chain.end(), is_contiguous)) return std::minmax(chain[0], chain[1]);
  return find_shared_elements(tensors, chain, end);
}

[[noreturn]] void refuse_shared(const std::string& operation, const Tensors& tensors, const Pair& shared) {
  const auto [first, second] = shared;
  if (first != second) {
    // One wrong list often has both faults, and gloo names the sizes first.
    const auto other = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const at::Tensor& one) { return one.numel() != tensors.front().numel(); });
    std::string size;
    if (other != tensors.end()) {
      size =
          c10::str(", and output tensor ", other - tensors.begin(), " has sizes ", other->sizes(), ", output tensor 0 ",
                   tensors.front().sizes(), " (invalid tensor size if the ranks' tensors have one size)");
    }
    refuse(operation, c10::str("output tensors ", first, " and ", second, " share memory", size));
  }
  const at::Tensor& tensor = tensors[first];
  refuse(operation, c10::str("elements of an output tensor share memory: it has sizes ", tensor.sizes(),
                             " and strides ", tensor.strides(), ". Give a clone() of it"));
}

// Its memory is what is moved: contiguous, and neither conjugated nor negated lazily.
bool lies_as_moved(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

}  // namespace

void copy_elements(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() == 0) return;
  if (to.device().is_cpu() && lies_as_moved(to) && lies_as_moved(from)) {
    std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes());
    return;
  }
  // As tutti writes memory: unseen by autograd, and also where a thread is not in the inference mode of the tensor.
  const at::AutoDispatchBelowADInplaceOrView below;
  to.copy_(from.sizes() == to.sizes() ? from : from.contiguous().view(to.sizes()), true);
}

void check_apart(const std::string& operation, const Tensors& tensors) {
  std::vector<std::size_t> chain;
  std::uintptr_t end = 0;
  const auto check_chain = [&] {
    if (chain.empty()) return;
    if (const auto shared = find_shared(tensors, chain, end)) refuse_shared(operation, tensors, *shared);
  };
  for (const std::size_t i : order_of(tensors)) {
    if (address_of(tensors[i]) >= end) {
      check_chain();
      chain.clear();
    }
    chain.push_back(i);
    end = std::max(end, end_of(tensors[i]));
  }
  check_chain();
}

std::vector<bool> find_overlapping(const Tensors& tensors) {
  std::vector<bool> overlapping(tensors.size());
  std::uintptr_t end = 0;
  for (const std::size_t i : order_of(tensors)) {
    overlapping[i] = address_of(tensors[i]) < end;
    if (!overlapping[i]) end = end_of(tensors[i]);
  }
  return overlapping;
}

bool overlap(const Tensors& tensors, const Tensors& others, const at::Tensor* except) {
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
    std::size_t side;
  };
  std::vector<Range> ranges;
  const auto add = [&](const at::Tensor& tensor, std::size_t side) {
    const bool has_memory = tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_meta();
    if (has_memory && tensor.numel() > 0) ranges.push_back({address_of(tensor), end_of(tensor), side});
  };
  for (const at::Tensor& tensor : tensors) add(tensor, 0);
  for (const at::Tensor& tensor : others) {
    if (except == nullptr || !tensor.is_same(*except)) add(tensor, 1);
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::array<std::uintptr_t, 2> ends{};
  for (const Range& range : ranges) {
    if (range.begin < ends[1 - range.side]) return true;
    ends[range.side] = std::max(ends[range.side], range.end);
  }
  return false;
}

// ---- Packing ------------------------------------------------------------------------------------

namespace {

// Whether all of a list can be blocks as they are, or together with copies.
bool are_aligned(const Tensors& tensors) {
  const bool all_lie = std::all_of(tensors.begin(), tensors.end(), lies_as_moved);
  const std::uintptr_t base = all_lie ? lowest_address(tensors) : 0;
  const std::size_t bytes = moved(tensors.front()).bytes();
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.numel() == 0 || !lies_as_moved(tensor) || (address_of(tensor) - base) % bytes == 0;
  });
}

}  // namespace

// From the memory that the tensor has now, also if it gets another one meanwhile.
void Packing::copy_before(const at::Tensor& copy, const at::Tensor& tensor) {
  add_step([copy, from = tensor.detach()] { copy_elements(copy, from); });
}

at::Tensor Packing::join(const Tensors& tensors) {
  std::int64_t all = 0;
  for (const at::Tensor& tensor : tensors) all += tensor.numel();
  const at::Tensor result = at::empty({all}, tensors.front().options());
  keep(result);
  std::int64_t at = 0;
  for (const at::Tensor& tensor : tensors) {
    copy_before(result.narrow(0, at, tensor.numel()).view(tensor.sizes()), tensor);
    at += tensor.numel();
  }
  return result;
}

at::Tensor Packing::copy_for_writing(const at::Tensor& tensor) {
  const at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
  fill(tensor, copy);
  return copy;
}

at::Tensor Packing::copy_for_reading(const at::Tensor& tensor) {
  const at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
  keep(copy);
  copy_before(copy, tensor);
  return copy;
}

at::Tensor Packing::read(const at::Tensor& tensor, bool copies) {
  return lies_as_moved(tensor) && !copies ? tensor : copy_for_reading(tensor);
}

Tensors Packing::read(const Tensors& tensors, bool copies) {
  const bool aligned = !copies && are_aligned(tensors);
  Tensors packed;
  packed.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) packed.push_back(aligned ? read(tensor) : copy_for_reading(tensor));
  return packed;
}

at::Tensor Packing::write(const std::string& operation, const at::Tensor& tensor) {
  if (lies_as_moved(tensor)) return tensor;
  check_apart(operation, {tensor});
  return copy_for_writing(tensor);
}

Tensors Packing::write(const std::string& operation, const Tensors& tensors) {
  check_apart(operation, tensors);
  const bool aligned = are_aligned(tensors);
  Tensors packed;
  packed.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    packed.push_back(aligned && lies_as_moved(tensor) ? tensor : copy_for_writing(tensor));
  }
  return packed;
}

at::Tensor Packing::update(const std::string& operation, const at::Tensor& tensor, bool copies) {
  if (lies_as_moved(tensor) && !copies) return tensor;
  check_apart(operation, {tensor});
  const at::Tensor copy = copy_for_writing(tensor);
  copy_before(copy, tensor);
  return copy;
}

void Packing::fill(const at::Tensor& output, const at::Tensor& from) {
  keep(from);
  // The memory that it has now, also if it gets another one meanwhile.
  outputs_.push_back({output.detach(), from});
}

void Packing::append(Packing other) {
  kept_.insert(kept_.end(), other.kept_.begin(), other.kept_.end());
  steps_.insert(steps_.end(), other.steps_.begin(), other.steps_.end());
  outputs_.insert(outputs_.end(), other.outputs_.begin(), other.outputs_.end());
}

void Packing::pack() const {
  for (const auto& step : steps_) step();
}

void Packing::unpack() const {
  for (const Output& output : outputs_) copy_elements(output.tensor, output.copy);
}

// ---- Blocks -------------------------------------------------------------------------------------

Blocks::Blocks(const Tensors& tensors) : moved_(tutti_torch::moved(tensors.front())) {
  const std::uintptr_t lowest = lowest_address(tensors);
  base_ = reinterpret_cast<void*>(lowest);
  for (const at::Tensor& tensor : tensors) {
    counts_.push_back(moved_.count(tensor));
    displacements_.push_back(tensor.numel() == 0 ? 0 : (address_of(tensor) - lowest) / moved_.bytes());
  }
}

}  // namespace tutti_torch

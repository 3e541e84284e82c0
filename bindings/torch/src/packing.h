// The memory that tutti moves for the tensors of an operation.
//
// Elements are moved in the order of their indices, whatever the strides of a tensor are: ranks do not know each
// other's strides. A contiguous tensor is moved from and to where it lies. Any other tensor is moved through a
// contiguous copy, as is one that torch conjugates or negates lazily. pack() and unpack() fill the copies and the
// outputs, right before and after the operation: the operations of a channel see each other's results.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tensors.h"

namespace tutti_torch {

// By index, between tensors of one type and number of elements. On a device in the current stream.
void copy_elements(const at::Tensor& to, const at::Tensor& from);

// Tensors that are written: no two elements share memory, of one tensor or of two.
void check_apart(const std::string& operation, const Tensors& tensors);
// For each tensor, whether its memory may overlap that of another one which is not marked.
std::vector<bool> find_overlapping(const Tensors& tensors);
// Whether the memory of any of `tensors` may overlap that of any of `others`. `except`, one of `others`
// or null, is left out.
bool overlap(const Tensors& tensors, const Tensors& others, const at::Tensor* except = nullptr);

class Packing {
 public:
  // The tensor that is moved in place of the caller's. In lists, also a copy of a tensor whose distance to the others
  // is not a multiple of the element size, because Blocks counts in elements. `copies`: always a copy.
  at::Tensor read(const at::Tensor& tensor, bool copies = false);
  Tensors read(const Tensors& tensors, bool copies = false);
  at::Tensor write(const std::string& operation, const at::Tensor& tensor);
  Tensors write(const std::string& operation, const Tensors& tensors);
  // Read and written.
  at::Tensor update(const std::string& operation, const at::Tensor& tensor, bool copies = false);

  // Memory that the operation needs until its end, beside its tensors.
  void keep(at::Tensor tensor) { kept_.push_back(std::move(tensor)); }
  // Contiguous memory for the tensors; pack() copies them into it.
  at::Tensor join(const Tensors& tensors);
  // pack() calls it, after what was added before. It must keep the memory that it reads: give it detached tensors.
  void add_step(std::function<void()> step) { steps_.push_back(std::move(step)); }
  // The output is a copy of `from`, which the operation writes.
  void fill(const at::Tensor& output, const at::Tensor& from);
  void append(Packing other);
  [[nodiscard]] const Tensors& kept() const { return kept_; }
  [[nodiscard]] bool is_empty() const { return steps_.empty() && outputs_.empty(); }
  [[nodiscard]] bool has_outputs() const { return !outputs_.empty(); }
  // Fills what the operation reads. On a device in the current stream.
  void pack() const;
  // Fills the outputs. On a device in the current stream.
  void unpack() const;

 private:
  void copy_before(const at::Tensor& copy, const at::Tensor& tensor);
  at::Tensor copy_for_reading(const at::Tensor& tensor);
  at::Tensor copy_for_writing(const at::Tensor& tensor);

  struct Output {
    at::Tensor tensor;
    at::Tensor copy;
  };
  Tensors kept_;
  std::vector<std::function<void()>> steps_;
  std::vector<Output> outputs_;
};

// Packed tensors of one type, as blocks with displacements from the lowest address: nothing is joined.
class Blocks {
 public:
  Blocks() = default;
  // REQUIRES: not empty; what Packing returned.
  explicit Blocks(const Tensors& tensors);

  [[nodiscard]] void* base() const { return base_; }
  [[nodiscard]] const Moved& moved() const { return moved_; }
  [[nodiscard]] const std::size_t* counts() const { return counts_.data(); }
  [[nodiscard]] const std::size_t* displacements() const { return displacements_.data(); }

 private:
  void* base_ = nullptr;
  Moved moved_;
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> displacements_;
};

}  // namespace tutti_torch

// The sum of sparse tensors, such as gradients of embeddings: all ranks' elements, gathered and added up by each.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "backend.h"

namespace tutti_torch {
namespace {

constexpr const char* kName = "all_reduce of sparse tensors";

// Several tensors of one rank are added up as those of several ranks. Refuses what torch cannot add up, which torch
// finds out only where two elements have one index.
at::Tensor added_up(const Tensors& tensors) {
  at::Tensor sum = tensors.front();
  try {
    const at::Tensor two = at::zeros({2}, at::TensorOptions(sum.scalar_type()));
    (void)at::sparse_coo_tensor(at::zeros({1, 2}, at::kLong), two, {1}).coalesce();
    for (std::size_t i = 1; i < tensors.size(); ++i) sum = sum + tensors[i];
    return sum.coalesce();
  } catch (const c10::Error& e) {
    refuse(kName,
           c10::str("torch cannot add up tensors of type ", sum.scalar_type(), ": ", e.what_without_backtrace()));
  }
}

// The properties that must be equal on all ranks.
std::string shape_of(const at::Tensor& tensor) {
  return c10::str("sizes ", tensor.sizes(), ", ", tensor.sparse_dim(), " sparse and ", tensor.dense_dim(),
                  " dense dimensions and type ", tensor.scalar_type());
}

// Every rank's first message.
struct Told {
  std::int64_t rows = 0;
  std::int64_t shape = 0;  // a hash of shape_of()
  std::int64_t length = 0;
  [[nodiscard]] bool is_like(const Told& other) const { return shape == other.shape && length == other.length; }
};
constexpr std::size_t kToldWords = sizeof(Told) / sizeof(std::int64_t);

// All ranks come here together, and stay in step.
tuttiResult_t refuse_shapes(const std::string& own, const std::vector<Told>& told, tuttiComm_t comm) {
  std::vector<std::size_t> lengths;
  for (const Told& one : told) lengths.push_back(static_cast<std::size_t>(one.length));
  std::string all(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
  const tuttiResult_t result =
      tuttiAllGatherV(own.data(), own.size(), all.data(), lengths.data(), nullptr, tuttiUint8, comm, nullptr);
  if (result != tuttiSuccess) return result;
  std::size_t rank = 0;
  std::size_t at = 0;
  while (told[rank].is_like(told.front())) at += lengths[rank++];
  throw RefusedByAll(c10::str("the ranks' tensors differ: rank 0 has one with ", all.substr(0, lengths[0]), ", rank ",
                              rank, " one with ", all.substr(at, lengths[rank]),
                              ". Give tensors of the same sizes and type on all ranks"));
}

// The rows of all ranks, in the order of ranks.
tuttiResult_t gather_rows(const at::Tensor& rows, const std::vector<Told>& told, tuttiComm_t comm, at::Tensor* all) {
  std::vector<std::int64_t> sizes = rows.sizes().vec();
  const Moved what = moved(rows);
  std::size_t row = what.per_element;
  for (std::size_t d = 1; d < sizes.size(); ++d) row *= static_cast<std::size_t>(sizes[d]);
  std::vector<std::size_t> elements;
  sizes[0] = 0;
  for (const Told& one : told) {
    sizes[0] += one.rows;
    elements.push_back(static_cast<std::size_t>(one.rows) * row);
  }
  *all = at::empty(sizes, rows.options());
  return tuttiAllGatherV(rows.data_ptr(), what.count(rows), all->data_ptr(), elements.data(), nullptr, what.type, comm,
                         nullptr);
}

tuttiResult_t add_up(const at::Tensor& own, tuttiComm_t comm, int ranks, at::Tensor* sum) {
  const at::NoGradGuard no_grad;
  const std::string shape = shape_of(own);
  const Told mine{own._nnz(), static_cast<std::int64_t>(std::hash<std::string>()(shape)),
                  static_cast<std::int64_t>(shape.size())};
  std::vector<Told> told(static_cast<std::size_t>(ranks));
  tuttiResult_t result = tuttiAllGather(&mine, told.data(), kToldWords, tuttiInt64, comm, nullptr);
  if (result != tuttiSuccess) return result;
  const bool alike = std::all_of(told.begin(), told.end(), [&](const Told& one) { return one.is_like(told.front()); });
  if (!alike) return refuse_shapes(shape, told, comm);
  at::Tensor indices;
  at::Tensor values;
  // Rows of either, so that those of a rank lie together.
  result = gather_rows(own.indices().t().contiguous(), told, comm, &indices);
  if (result == tuttiSuccess) result = gather_rows(own.values().contiguous(), told, comm, &values);
  if (result == tuttiSuccess) *sum = at::sparse_coo_tensor(indices.t(), values, own.sizes()).coalesce();
  return result;
}

}  // namespace

// In the calling thread, whatever the caller wants: what comes second needs what came first.
Backend::Operation Backend::all_reduce_sparse(const Tensors& tensors, const c10d::AllreduceOptions& opts) const {
  const at::NoGradGuard no_grad;
  const at::Tensor& first = tensors.front();
  if (!first.device().is_cpu()) refuse(kName, c10::str("only supports CPU tensors, got one on ", first.device()));
  if (opts.reduceOp.op_ != c10d::ReduceOp::SUM) refuse(kName, "unsupported reduction operation: can only add up");
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const at::Tensor& other = tensors[i];
    if (other.layout() != first.layout()) refuse(kName, c10::str("invalid tensor layout at index ", i));
    if (other.scalar_type() != first.scalar_type()) refuse(kName, c10::str("invalid tensor type at index ", i));
    if (other.sizes() != first.sizes()) refuse(kName, c10::str("invalid tensor size at index ", i));
  }
  Operation operation(c10d::OpType::_ALLREDUCE_SPARSE, kName, "tutti:all_reduce_sparse", tensors, tensors, opts);
  operation.async = false;
  operation.alone = true;
  operation.timeout = c10d::kUnsetTimeout;
  auto sum = std::make_shared<at::Tensor>();
  operation.call = [own = added_up(tensors), sum, ranks = size_](tuttiComm_t comm, void* /*stream*/) {
    return add_up(own, comm, ranks, sum.get());
  };
  operation.after = [tensors, sum] {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& tensor : tensors) tensor.copy_(*sum);
  };
  return operation;
}

}  // namespace tutti_torch

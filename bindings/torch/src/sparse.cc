// The sum of sparse tensors, such as gradients of embeddings: all ranks' elements, gathered and added up by each.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "backend.h"

namespace tutti_torch {
namespace {

constexpr const char* kName = "all_reduce of sparse tensors";

// What every rank has, row by row; `counts` are in rows.
tuttiResult_t gather_rows(const at::Tensor& rows, const std::vector<std::int64_t>& counts, tuttiComm_t comm,
                          at::Tensor* all) {
  std::vector<std::int64_t> sizes = rows.sizes().vec();
  sizes[0] = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  *all = at::empty(sizes, rows.options());
  const Moved what = moved(rows);
  std::size_t row = what.per_element;
  for (std::size_t d = 1; d < sizes.size(); ++d) row *= static_cast<std::size_t>(sizes[d]);
  std::vector<std::size_t> elements;
  for (const std::int64_t count : counts) elements.push_back(static_cast<std::size_t>(count) * row);
  return tuttiAllGatherV(rows.data_ptr(), what.count(rows), all->data_ptr(), elements.data(), nullptr, what.type, comm,
                         nullptr);
}

tuttiResult_t add_up(const at::Tensor& tensor, tuttiComm_t comm, int ranks, at::Tensor* sum) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = tensor.coalesce();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks));
  const std::int64_t count = own._nnz();
  tuttiResult_t result = tuttiAllGather(&count, counts.data(), 1, tuttiInt64, comm, nullptr);
  at::Tensor indices;
  at::Tensor values;
  // Rows of either, so that those of a rank lie together.
  if (result == tuttiSuccess) result = gather_rows(own.indices().t().contiguous(), counts, comm, &indices);
  if (result == tuttiSuccess) result = gather_rows(own.values().contiguous(), counts, comm, &values);
  if (result == tuttiSuccess) *sum = at::sparse_coo_tensor(indices.t(), values, tensor.sizes()).coalesce();
  return result;
}

}  // namespace

// In the calling thread, whatever the caller wants: what comes second needs what came first. Several tensors of one
// rank are added up as those of several ranks.
Backend::Operation Backend::all_reduce_sparse(const Tensors& tensors, const c10d::AllreduceOptions& opts) const {
  const at::NoGradGuard no_grad;
  at::Tensor own = tensors.front();
  if (!own.device().is_cpu()) refuse(kName, c10::str("only supports CPU tensors, got one on ", own.device()));
  if (opts.reduceOp.op_ != c10d::ReduceOp::SUM) refuse(kName, "unsupported reduction operation: can only add up");
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const at::Tensor& other = tensors[i];
    if (other.layout() != own.layout()) refuse(kName, c10::str("invalid tensor layout at index ", i));
    if (other.scalar_type() != own.scalar_type()) refuse(kName, c10::str("invalid tensor type at index ", i));
    if (other.sizes() != own.sizes()) refuse(kName, c10::str("invalid tensor size at index ", i));
    own = own + other;
  }
  Operation operation(c10d::OpType::_ALLREDUCE_SPARSE, kName, "tutti:all_reduce_sparse", tensors, tensors, opts);
  operation.async = false;
  operation.alone = true;
  operation.timeout = c10d::kUnsetTimeout;
  auto sum = std::make_shared<at::Tensor>();
  operation.call = [own, sum, ranks = size_](tuttiComm_t comm, void* /*stream*/) {
    return add_up(own, comm, ranks, sum.get());
  };
  operation.after = [tensors, sum] {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& tensor : tensors) tensor.copy_(*sum);
  };
  return operation;
}

}  // namespace tutti_torch

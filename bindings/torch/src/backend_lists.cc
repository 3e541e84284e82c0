// Collectives of Backend in which one rank has several tensors in a list: of one type and number of elements, as with
// gloo. Each counts as if it came from another rank.
#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>

#include "backend.h"

namespace tutti_torch {
namespace {

constexpr const char* kAllReduce = "all_reduce";
constexpr const char* kAllGather = "all_gather";

// Combines what this rank has, in `sum`. REQUIRES: combines(op).
void combine(const at::Tensor& sum, const at::Tensor& other, c10d::ReduceOp::RedOpType op) {
  const at::AutoDispatchBelowADInplaceOrView below;
  switch (op) {
    case c10d::ReduceOp::SUM: sum.add_(other); return;
    case c10d::ReduceOp::PRODUCT: sum.mul_(other); return;
    case c10d::ReduceOp::MIN: sum.copy_(at::minimum(sum, other)); return;
    case c10d::ReduceOp::MAX: sum.copy_(at::maximum(sum, other)); return;
    case c10d::ReduceOp::BAND: sum.bitwise_and_(other); return;
    case c10d::ReduceOp::BOR: sum.bitwise_or_(other); return;
    case c10d::ReduceOp::BXOR: sum.bitwise_xor_(other); return;
    default: return;
  }
}

bool combines(c10d::ReduceOp::RedOpType op) {
  return op != c10d::ReduceOp::AVG && op != c10d::ReduceOp::PREMUL_SUM && op != c10d::ReduceOp::UNUSED;
}

// Refuses what torch cannot combine, before the operation begins: the ranks would combine what this one has not.
void check_combines(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op) {
  if (!combines(op)) refuse(kAllReduce, "AVG and PREMUL_SUM take one tensor of each rank: call it for each tensor");
  try {
    const at::Tensor one = at::zeros({1}, tensor.options());
    combine(one, one, op);
  } catch (const c10::Error& e) {
    refuse(kAllReduce, c10::str("torch cannot combine several tensors of type ", tensor.scalar_type(),
                                " of one rank: ", e.what_without_backtrace(), ". Call it for each tensor"));
  }
}

Tensors flattened(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace

Backend::Operation Backend::all_reduce_list(const Tensors& tensors, const c10d::AllreduceOptions& opts) {
  check_alike(kAllReduce, tensors, tensors.front());
  check_apart(kAllReduce, tensors);
  check_combines(tensors.front(), opts.reduceOp.op_);
  Packing packing;
  const at::Tensor sum = packing.join({tensors.front()}).view(tensors.front().sizes());
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    packing.add_step(
        [sum, other = tensors[i].detach(), op = opts.reduceOp.op_] { combine(sum, other.reshape(sum.sizes()), op); });
  }
  Operation operation = all_reduce(sum, opts);
  operation.packing.append(std::move(packing));
  operation.inputs = tensors;
  operation.outputs = tensors;
  for (const at::Tensor& tensor : tensors) operation.packing.fill(tensor, sum);
  return operation;
}

Backend::Operation Backend::broadcast_list(const Tensors& tensors, const c10d::BroadcastOptions& opts) const {
  constexpr const char* kName = "broadcast";
  check_alike(kName, tensors, tensors.front());
  check_apart(kName, tensors);
  const at::Tensor root_tensor = tensors[static_cast<std::size_t>(opts.rootTensor)];
  Operation operation(c10d::OpType::BROADCAST, kName, "tutti:broadcast", tensors, tensors, opts);
  const at::Tensor packed = opts.rootRank == rank_ ? operation.read(root_tensor) : operation.write(root_tensor);
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_same(root_tensor)) operation.packing.fill(tensor, packed);
  }
  operation.call = [data = packed.data_ptr(), what = moved(packed), count = moved(packed).count(packed),
                    root = static_cast<int>(opts.rootRank)](tuttiComm_t comm, void* stream) {
    return tuttiBcast(data, count, what.type, root, comm, stream);
  };
  return operation;
}

// Each output list gets the tensors of all ranks, those of one rank next to each other.
Backend::Operation Backend::all_gather_list(const std::vector<Tensors>& outputs, const Tensors& inputs,
                                            const c10d::AllgatherOptions& opts) const {
  const std::size_t all = inputs.size() * static_cast<std::size_t>(size_);
  check_alike(kAllGather, inputs, inputs.front());
  for (const Tensors& list : outputs) check_alike(kAllGather, list, inputs.front());
  const Tensors all_outputs = flattened(outputs);
  check_apart(kAllGather, all_outputs);
  Operation operation(c10d::OpType::ALLGATHER, kAllGather, "tutti:all_gather", inputs, all_outputs, opts);
  operation.lists = outputs.size();
  const at::Tensor own = operation.packing.join(inputs);
  const at::Tensor everyones = at::empty({own.numel() * size_}, own.options());
  for (std::size_t i = 0; i < all_outputs.size(); ++i) {
    const std::int64_t count = inputs.front().numel();
    operation.packing.fill(all_outputs[i], everyones.narrow(0, static_cast<std::int64_t>(i % all) * count, count));
  }
  operation.call = [from = own.data_ptr(), to = everyones.data_ptr(), what = moved(own), count = moved(own).count(own)](
                       tuttiComm_t comm, void* stream) {
    return tuttiAllGather(from, to, count, what.type, comm, stream);
  };
  return operation;
}

}  // namespace tutti_torch

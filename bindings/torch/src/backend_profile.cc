// What profiles have of Backend's operations beside their ranges: the event record_param_comms, as NCCL's backend has
// it. Kineto, HTA and Chakra find the operation's parameters there.
#include <ATen/record_function.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <tuple>
#include <vector>

#include "backend.h"

namespace tutti_torch {
namespace {

using Sizes = std::vector<std::int64_t>;

Sizes sizes_of(const Tensors& tensors) {
  Sizes sizes;
  for (const at::Tensor& tensor : tensors) sizes.push_back(tensor.numel());
  return sizes;
}

std::int64_t elements_of(const Tensors& tensors) {
  std::int64_t all = 0;
  for (const at::Tensor& tensor : tensors) all += tensor.numel();
  return all;
}

// NCCL's backend has these names; others are the operation's own.
std::string name_in_profiles(c10d::OpType type, std::string_view name, bool has_splits) {
  switch (type) {
    case c10d::OpType::ALLREDUCE: return "allreduce";
    case c10d::OpType::_ALLREDUCE_SPARSE: return "allreduce_sparse";
    case c10d::OpType::_ALLGATHER_BASE: return "_allgather_base";
    case c10d::OpType::_REDUCE_SCATTER_BASE: return "_reduce_scatter_base";
    case c10d::OpType::ALLTOALL_BASE: return has_splits ? "all_to_allv" : "all_to_all";
    case c10d::OpType::COALESCED:
      if (name.starts_with("all_reduce")) return "allreduce_coalesced";
      if (name == "all_gather") return "allgather_into_tensor_coalesced";
      if (name == "reduce_scatter") return "reduce_scatter_tensor_coalesced";
      return std::string(name);
    default: return std::string(name);
  }
}

// The ranks of a group in the default group, as the event has them: it lists none if the step is not positive.
struct Ranks {
  int first = 0;
  int step = 1;
};

Ranks ranks_in_profiles(const std::vector<int>& ranks) {
  Ranks result{ranks.front(), ranks.size() > 1 ? ranks[1] - ranks[0] : 1};
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] - ranks[i - 1] != result.step) result.step = -1;
  }
  return result;
}

}  // namespace

WorkPtr Backend::begin_in_profile(const Operation& operation, const std::function<WorkPtr()>& begin) {
  const Tensors& inputs = operation.inputs;
  const Tensors& outputs = operation.outputs;
  auto [input_splits, output_splits] = operation.splits;
  const bool has_splits = !input_splits.empty() || !output_splits.empty();
  const std::string name = name_in_profiles(operation.type, operation.name, has_splits);
  if (operation.type == c10d::OpType::ALLTOALL) {
    input_splits = sizes_of(inputs);
    output_splits = sizes_of(outputs);
  }
  // A rank that only sends, or only receives, has the tensors of one side.
  std::int64_t received = elements_of(outputs);
  std::int64_t sent = elements_of(inputs);
  if (inputs.empty()) sent = received * (operation.type == c10d::OpType::SCATTER ? size_ : 1);
  if (outputs.empty()) received = sent * (operation.type == c10d::OpType::GATHER ? size_ : 1);
  int rank = operation.root >= 0 ? operation.root : rank_;
  if (operation.type == c10d::OpType::SEND) rank = operation.route.to;
  if (operation.type == c10d::OpType::RECV) rank = operation.route.from;
  const Ranks ranks = ranks_in_profiles(global_ranks());
  const auto group = std::make_tuple(pg_uid_, pg_desc_);
  const auto number = static_cast<std::int64_t>(Recorder::get().next(record_group(), operation.route));
  const bool is_message = c10d::isP2POp(operation.type);
  const auto sequence = std::make_tuple(number, is_message);
  if (inputs.empty() && outputs.empty()) {
    RECORD_PARAM_COMMS(sequence, group, rank, std::string(name), sent, received, at::kByte, input_splits, output_splits,
                       ranks.first, ranks.step, size_);
    return begin();
  }
  // NCCL's backend has the tensors of a message on both sides.
  const Tensors& any = inputs.empty() ? outputs : inputs;
  const Tensors& from = is_message ? any : inputs;
  const Tensors& to = is_message ? any : outputs;
  RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(sequence, group, from, to, rank, std::string(name), sent, received,
                                        any.front().scalar_type(), input_splits, output_splits, ranks.first, ranks.step,
                                        size_, operation.async);
  return begin();
}

}  // namespace tutti_torch

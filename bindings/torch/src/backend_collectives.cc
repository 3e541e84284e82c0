// The collectives of Backend. Lists of tensors are blocks wherever they lie: nothing is copied together, but the input
// lists of reductions.
#include <ATen/record_function.h>

#include <algorithm>
#include <numeric>

#include "backend.h"
#include "run.h"

namespace tutti_torch {
namespace {

constexpr const char* kAllReduce = "all_reduce";
constexpr const char* kAllGather = "all_gather";
constexpr const char* kReduceScatter = "reduce_scatter";
constexpr const char* kAllToAll = "all_to_all";

// The ranks' tensors as this rank has them in the first of the lists.
const Tensors& check_blocks(const char* name, const std::vector<Tensors>& lists, std::size_t ranks, const char* which) {
  if (lists.size() != 1) {
    refuse(name, c10::str("requires a single-element ", which, " list containing a list with ", ranks, " tensors"));
  }
  if (lists.front().size() != ranks) {
    const char* const begins_sentence = *which == 'i' ? "Input" : "Output";  // as in gloo's text
    refuse(name, c10::str("Incorrect ", which, " list size ", lists.front().size(), ". ", begins_sentence,
                          " list size should be ", ranks, ", same as size of the process group."));
  }
  return lists.front();
}

// As many lists as inputs, each with a tensor for every input of every rank.
void check_gathered(const char* name, const std::vector<Tensors>& lists, std::size_t inputs, std::size_t ranks) {
  if (lists.size() != inputs) refuse(name, "requires input/output tensor lists to have the same length");
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (lists[i].size() == inputs * ranks) continue;
    refuse(name, c10::str("invalid output tensor list at index ", i, " (expected length ", inputs * ranks, ", got ",
                          lists[i].size(), ")"));
  }
}

void check_no_blocks(const char* name, const std::vector<Tensors>& lists, const char* which) {
  const bool none = lists.empty() || (lists.size() == 1 && lists.front().empty());
  if (!none) refuse(name, c10::str("requires empty ", which, " on non-root"));
}

// One tensor of equal blocks: `whole` has `ranks` times the elements of `block`.
void check_whole(const char* name, const at::Tensor& whole, const at::Tensor& block, std::size_t ranks) {
  check_same_type(name, {whole}, block);
  if (static_cast<std::size_t>(whole.numel()) == static_cast<std::size_t>(block.numel()) * ranks) return;
  refuse(name, c10::str("the larger tensor has ", whole.numel(), " elements, which should be ", ranks, " times the ",
                        block.numel(), " of the smaller one"));
}

// The blocks of an all-to-all in one tensor: splits are along the first dimension, and equal if there are none.
struct Splits {
  std::vector<std::size_t> counts;
  bool equal = true;
};

Splits splits_of(const char* name, const at::Tensor& tensor, const std::vector<std::int64_t>& splits, std::size_t ranks,
                 const char* which) {
  const std::int64_t rows = tensor.dim() == 0 ? tensor.numel() : tensor.size(0);
  const std::size_t per_element = moved(tensor).per_element;
  const auto row = static_cast<std::size_t>(rows == 0 ? 0 : tensor.numel() / rows) * per_element;
  Splits result;
  if (splits.empty()) {
    if (rows % static_cast<std::int64_t>(ranks) != 0) {
      refuse(name,
             c10::str("Tensor's dim 0 does not divide equally across group size: ", which, " has ", rows, " rows"));
    }
    result.counts.assign(ranks, static_cast<std::size_t>(rows) / ranks * row);
    return result;
  }
  const bool fits = splits.size() == ranks && std::accumulate(splits.begin(), splits.end(), std::int64_t{0}) == rows &&
                    std::all_of(splits.begin(), splits.end(), [](std::int64_t n) { return n >= 0; });
  if (!fits) refuse(name, c10::str("Split sizes doesn't match total dim 0 size: ", which, " has ", rows, " rows"));
  for (const std::int64_t n : splits) result.counts.push_back(static_cast<std::size_t>(n) * row);
  result.equal = false;
  return result;
}

// Whether this rank's block begins where the whole has it.
bool is_own_block(const at::Tensor& block, const at::Tensor& whole, int rank) {
  return block.data_ptr() ==
         static_cast<const char*>(whole.data_ptr()) + static_cast<std::size_t>(rank) * block.nbytes();
}

// The outputs that inputs have to be compared with.
Tensors written_by(const Tensors& outputs, const Tensors& inputs) {
  return overlap(inputs, outputs) ? outputs : Tensors();
}

}  // namespace

WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  return run(device_of(tensors), [&] {
    constexpr const char* kName = "broadcast";
    check_root(kName, opts.rootRank, size_);
    check_root_tensor(kName, opts.rootTensor, tensors);
    if (tensors.size() > 1) return broadcast_list(tensors, opts);
    const at::Tensor tensor = check_single(kName, tensors);
    Operation operation(c10d::OpType::BROADCAST, kName, "tutti:broadcast", {tensor}, {tensor}, opts);
    const at::Tensor packed = opts.rootRank == rank_ ? operation.read(tensor) : operation.write(tensor);
    operation.call = [data = packed.data_ptr(), what = moved(tensor), count = moved(tensor).count(tensor),
                      root = static_cast<int>(opts.rootRank)](tuttiComm_t comm, void* stream) {
      return tuttiBcast(data, count, what.type, root, comm, stream);
    };
    return operation;
  });
}

Backend::Operation Backend::all_reduce(const at::Tensor& tensor, const c10d::AllreduceOptions& opts, bool copies) {
  check_tensor(kAllReduce, tensor);
  Operation operation(c10d::OpType::ALLREDUCE, kAllReduce, "tutti:all_reduce", {tensor}, {tensor}, opts);
  operation.call = [data = operation.packing.update(kAllReduce, tensor, copies).data_ptr(),
                    count = static_cast<std::size_t>(tensor.numel()), type = reduced_type(kAllReduce, tensor),
                    op = Operator(kAllReduce, opts.reduceOp, tensor)](tuttiComm_t comm, void* stream) mutable {
    return op.use(comm,
                  [&](tuttiRedOp_t red_op) { return tuttiAllReduce(data, data, count, type, red_op, comm, stream); });
  };
  return operation;
}

WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return run(device_of(tensors), [&] {
    if (!tensors.empty() && tensors.front().is_sparse()) return all_reduce_sparse(tensors, opts);
    if (tensors.size() > 1) return all_reduce_list(tensors, opts);
    return all_reduce(check_single(kAllReduce, tensors), opts);
  });
}

WorkPtr Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  return run(device_of(tensors), [&] {
    constexpr const char* kName = "all_reduce_coalesced";
    if (tensors.empty()) refuse(kName, "requires non-empty tensor list");
    check_layout(kName, tensors, tensors.front());
    for (const at::Tensor& tensor : tensors) {
      if (tensor.scalar_type() != tensors.front().scalar_type()) refuse(kName, "tensors must all have the same type");
    }
    check_same_type(kName, tensors, tensors.front());
    // Operations that run together must not share memory: a tensor that is given twice, or overlaps another one, is
    // moved through a copy.
    const std::vector<bool> copies = find_overlapping(tensors);
    std::vector<Operation> operations;
    for (std::size_t i = 0; i < tensors.size(); ++i) operations.push_back(all_reduce(tensors[i], opts, copies[i]));
    return together(std::move(operations));
  });
}

WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  return run(device_of(tensors), [&] {
    constexpr const char* kName = "reduce";
    check_root(kName, opts.rootRank, size_);
    check_root_tensor(kName, opts.rootTensor, tensors);
    const at::Tensor tensor = check_single(kName, tensors);
    Operation operation(c10d::OpType::REDUCE, kName, "tutti:reduce", {tensor}, {tensor}, opts);
    const at::Tensor packed = opts.rootRank == rank_ ? operation.update(tensor) : operation.read(tensor);
    operation.call = [data = packed.data_ptr(), count = static_cast<std::size_t>(tensor.numel()),
                      type = reduced_type(kName, tensor), op = Operator(kName, opts.reduceOp, tensor),
                      root = static_cast<int>(opts.rootRank)](tuttiComm_t comm, void* stream) mutable {
      return op.use(
          comm, [&](tuttiRedOp_t red_op) { return tuttiReduce(data, data, count, type, red_op, root, comm, stream); });
    };
    return operation;
  });
}

// ---- Gathering ----------------------------------------------------------------------------------

Backend::Operation Backend::all_gather(const at::Tensor& output, const at::Tensor& input,
                                       const c10d::AllgatherOptions& opts, const Tensors& written) const {
  check_tensor(kAllGather, input);
  check_tensor(kAllGather, output);
  check_whole(kAllGather, output, input, static_cast<std::size_t>(size_));
  Operation operation(c10d::OpType::_ALLGATHER_BASE, kAllGather, "tutti:all_gather", {input}, {output}, opts);
  const bool copies = overlap({input}, written, is_own_block(input, output, rank_) ? &output : nullptr);
  operation.call = [from = operation.read(input, copies).data_ptr(), to = operation.write(output).data_ptr(),
                    what = moved(input), count = moved(input).count(input)](tuttiComm_t comm, void* stream) {
    return tuttiAllGather(from, to, count, what.type, comm, stream);
  };
  return operation;
}

WorkPtr Backend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  return run(device_of(Tensors{input}), [&] { return all_gather(output, input, opts, {output}); });
}

WorkPtr Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& opts) {
  return run(device_of(inputs), [&] {
    if (outputs.empty() || outputs.size() != inputs.size()) refuse(kAllGather, "requires as many outputs as inputs");
    const Tensors written = written_by(outputs, inputs);
    std::vector<Operation> operations;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      operations.push_back(all_gather(outputs[i], inputs[i], opts, written));
    }
    return together(std::move(operations));
  });
}

Backend::Operation Backend::all_gather_blocks(const Tensors& outputs, const at::Tensor& input,
                                              const c10d::AllgatherOptions& opts, const Tensors& written) const {
  check_tensor(kAllGather, input);
  check_same_type(kAllGather, outputs, input);
  const at::Tensor& own = outputs[static_cast<std::size_t>(rank_)];
  check_alike(kAllGather, {own}, input);
  Operation operation(c10d::OpType::ALLGATHER, kAllGather, "tutti:all_gather", {input}, outputs, opts);
  // With counts also where all are the same: other ranks' tensors may lie otherwise.
  const bool copies = overlap({input}, written, is_own_block(input, own, 0) ? &own : nullptr);
  operation.call = [from = operation.read(input, copies).data_ptr(), blocks = operation.write(outputs),
                    count = moved(input).count(input)](tuttiComm_t comm, void* stream) {
    return tuttiAllGatherV(from, count, blocks.base(), blocks.counts(), blocks.displacements(), blocks.moved().type,
                           comm, stream);
  };
  return operation;
}

WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  return run(device_of(inputs), [&] {
    if (inputs.empty()) refuse(kAllGather, "requires non-empty input tensor list");
    check_gathered(kAllGather, outputs, inputs.size(), static_cast<std::size_t>(size_));
    if (inputs.size() > 1) return all_gather_list(outputs, inputs, opts);
    return all_gather_blocks(outputs.front(), inputs.front(), opts, outputs.front());
  });
}

// outputs[r] holds what rank r has in its inputs.
WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& opts) {
  return run(device_of(inputs), [&] {
    if (inputs.empty()) refuse(kAllGather, "requires non-empty input tensor list");
    if (outputs.size() != static_cast<std::size_t>(size_))
      refuse(kAllGather, "output lists should be equal to world size");
    Tensors written;
    for (const Tensors& of_rank : outputs) written.insert(written.end(), of_rank.begin(), of_rank.end());
    written = written_by(written, inputs);
    std::vector<Operation> operations;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensors blocks;
      for (const Tensors& of_rank : outputs) {
        if (of_rank.size() != inputs.size()) refuse(kAllGather, "an output list has not as many tensors as the inputs");
        blocks.push_back(of_rank[i]);
      }
      check_same_type(kAllGather, blocks, inputs[i]);
      for (std::size_t r = 0; r < blocks.size(); ++r) {
        if (blocks[r].numel() == inputs[i].numel()) continue;
        refuse(kAllGather, c10::str("invalid size of output tensor at index ", r, " (expected ", inputs[i].sizes(),
                                    ", got ", blocks[r].sizes(), ")"));
      }
      operations.push_back(all_gather_blocks(blocks, inputs[i], opts, written));
    }
    return together(std::move(operations));
  });
}

WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  return run(device_of(inputs), [&] {
    constexpr const char* kName = "gather";
    check_root(kName, opts.rootRank, size_);
    const at::Tensor input = check_single(kName, inputs, " input");
    Operation operation(c10d::OpType::GATHER, kName, "tutti:gather", {input}, {}, opts);
    Blocks blocks;        // the root's
    bool copies = false;  // see all_gather()
    if (opts.rootRank == rank_) {
      operation.outputs = check_blocks(kName, outputs, static_cast<std::size_t>(size_), "output");
      check_same_type(kName, operation.outputs, input);
      const at::Tensor& own = operation.outputs[static_cast<std::size_t>(rank_)];
      check_alike(kName, {own}, input);
      copies = overlap({input}, operation.outputs, is_own_block(input, own, 0) ? &own : nullptr);
      blocks = operation.write(operation.outputs);
    } else {
      check_no_blocks(kName, outputs, "output");
    }
    operation.call = [from = operation.read(input, copies).data_ptr(), what = moved(input),
                      count = moved(input).count(input), blocks,
                      root = static_cast<int>(opts.rootRank)](tuttiComm_t comm, void* stream) {
      return tuttiGatherV(from, count, blocks.base(), blocks.counts(), blocks.displacements(), what.type, root, comm,
                          stream);
    };
    return operation;
  });
}

WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) {
  return run(device_of(outputs), [&] {
    constexpr const char* kName = "scatter";
    check_root(kName, opts.rootRank, size_);
    const at::Tensor output = check_single(kName, outputs, " output");
    Operation operation(c10d::OpType::SCATTER, kName, "tutti:scatter", {}, {output}, opts);
    Blocks blocks;  // the root's
    if (opts.rootRank == rank_) {
      operation.inputs = check_blocks(kName, inputs, static_cast<std::size_t>(size_), "input");
      check_same_type(kName, operation.inputs, output);
      const at::Tensor& own = operation.inputs[static_cast<std::size_t>(rank_)];
      check_alike(kName, {own}, output);
      const bool copies = overlap({output}, operation.inputs, is_own_block(own, output, 0) ? &own : nullptr);
      blocks = operation.read(operation.inputs, copies);
    } else {
      check_no_blocks(kName, inputs, "input");
    }
    operation.call = [to = operation.write(output).data_ptr(), what = moved(output),
                      count = moved(output).count(output), blocks,
                      root = static_cast<int>(opts.rootRank)](tuttiComm_t comm, void* stream) {
      return tuttiScatterV(blocks.base(), blocks.counts(), blocks.displacements(), to, count, what.type, root, comm,
                           stream);
    };
    return operation;
  });
}

// ---- Reduce-scatter -----------------------------------------------------------------------------

Backend::Operation Backend::reduce_scatter_whole(const at::Tensor& output, const at::Tensor& input,
                                                 const c10d::ReduceScatterOptions& opts, const Tensors& written) const {
  check_tensor(kReduceScatter, output);
  check_tensor(kReduceScatter, input);
  check_whole(kReduceScatter, input, output, static_cast<std::size_t>(size_));
  Operation operation(c10d::OpType::_REDUCE_SCATTER_BASE, kReduceScatter, "tutti:reduce_scatter", {input}, {output},
                      opts);
  const bool copies = overlap({input}, written, is_own_block(output, input, rank_) ? &output : nullptr);
  operation.call = [from = operation.read(input, copies).data_ptr(), to = operation.write(output).data_ptr(),
                    count = static_cast<std::size_t>(output.numel()), type = reduced_type(kReduceScatter, output),
                    op = Operator(kReduceScatter, opts.reduceOp, output)](tuttiComm_t comm, void* stream) mutable {
    return op.use(comm,
                  [&](tuttiRedOp_t red_op) { return tuttiReduceScatter(from, to, count, type, red_op, comm, stream); });
  };
  return operation;
}

WorkPtr Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  return run(device_of(Tensors{output}), [&] { return reduce_scatter_whole(output, input, opts, {output}); });
}

WorkPtr Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                 const c10d::ReduceScatterOptions& opts) {
  return run(device_of(outputs), [&] {
    if (outputs.empty() || outputs.size() != inputs.size())
      refuse(kReduceScatter, "requires as many outputs as inputs");
    const Tensors written = written_by(outputs, inputs);
    std::vector<Operation> operations;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      operations.push_back(reduce_scatter_whole(outputs[i], inputs[i], opts, written));
    }
    return together(std::move(operations));
  });
}

// Blocks may have sizes of their own, as their ranks' outputs.
WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                const c10d::ReduceScatterOptions& opts) {
  return run(device_of(outputs), [&] {
    const at::Tensor output = check_single(kReduceScatter, outputs, " output");
    const Tensors& blocks = check_blocks(kReduceScatter, inputs, static_cast<std::size_t>(size_), "input");
    check_same_type(kReduceScatter, blocks, output);
    check_alike(kReduceScatter, {blocks[static_cast<std::size_t>(rank_)]}, output);
    std::vector<std::size_t> counts;
    for (const at::Tensor& block : blocks) counts.push_back(static_cast<std::size_t>(block.numel()));
    Operation operation(c10d::OpType::REDUCE_SCATTER, kReduceScatter, "tutti:reduce_scatter", blocks, {output}, opts);
    const at::Tensor whole = operation.packing.join(blocks);
    operation.call = [from = whole.data_ptr(), to = operation.write(output).data_ptr(), counts,
                      type = reduced_type(kReduceScatter, output),
                      op = Operator(kReduceScatter, opts.reduceOp, output)](tuttiComm_t comm, void* stream) mutable {
      return op.use(comm, [&](tuttiRedOp_t red_op) {
        return tuttiReduceScatterV(from, to, counts.data(), type, red_op, comm, stream);
      });
    };
    return operation;
  });
}

// ---- All-to-all ---------------------------------------------------------------------------------

WorkPtr Backend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                               std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& opts) {
  return run(device_of(Tensors{input}), [&] {
    check_tensor(kAllToAll, input);
    check_same_type(kAllToAll, {output}, input);
    const auto ranks = static_cast<std::size_t>(size_);
    const Splits to = splits_of(kAllToAll, output, output_splits, ranks, "the output");
    const Splits from = splits_of(kAllToAll, input, input_splits, ranks, "the input");
    if (to.equal && from.equal) check_alike(kAllToAll, {output}, input);
    Operation operation(c10d::OpType::ALLTOALL_BASE, kAllToAll, "tutti:all_to_all", {input}, {output}, opts);
    if (at::hasCallbacks()) operation.splits = {input_splits, output_splits};
    const bool in_place = is_own_block(input, output, 0) && to.counts == from.counts;
    const bool copies = !in_place && overlap({input}, {output});
    // With counts also if they are equal: those of other ranks may differ.
    operation.call = [in = operation.read(input, copies).data_ptr(), out = operation.write(output).data_ptr(), to, from,
                      type = moved(input).type](tuttiComm_t comm, void* stream) {
      return tuttiAlltoAllV(in, from.counts.data(), nullptr, out, to.counts.data(), nullptr, type, comm, stream);
    };
    return operation;
  });
}

WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  return run(device_of(outputs), [&] {
    const auto ranks = static_cast<std::size_t>(size_);
    if (outputs.size() != ranks || inputs.size() != ranks) {
      refuse(kAllToAll, c10::str("requires lists of ", ranks, " tensors, got ", outputs.size(), " outputs and ",
                                 inputs.size(), " inputs"));
    }
    check_same_type(kAllToAll, inputs, inputs.front());
    check_same_type(kAllToAll, outputs, inputs.front());
    Operation operation(c10d::OpType::ALLTOALL, kAllToAll, "tutti:all_to_all", inputs, outputs, opts);
    const bool in_place = std::equal(inputs.begin(), inputs.end(), outputs.begin(),
                                     [](const at::Tensor& input, const at::Tensor& output) {
                                       return is_own_block(input, output, 0) && input.numel() == output.numel();
                                     });
    const bool copies = !in_place && overlap(inputs, outputs);
    operation.call = [to = operation.write(outputs), from = operation.read(inputs, copies)](tuttiComm_t comm,
                                                                                            void* stream) {
      return tuttiAlltoAllV(from.base(), from.counts(), from.displacements(), to.base(), to.counts(),
                            to.displacements(), to.moved().type, comm, stream);
    };
    return operation;
  });
}

// ---- Barriers -----------------------------------------------------------------------------------

WorkPtr Backend::barrier(const c10d::BarrierOptions& opts) {
  wait_for_current_streams();
  return run(at::kCPU, [&] {
    Operation operation(c10d::OpType::BARRIER, "barrier", "tutti:barrier", {}, {}, opts);
    operation.call = [](tuttiComm_t comm, void* stream) { return tuttiBarrier(comm, stream); };
    return operation;
  });
}

}  // namespace tutti_torch

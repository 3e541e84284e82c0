// The collectives of the C API: check arguments, translate errors.
#include <fmt/core.h>

#include <cstdint>
#include <utility>

#include "api/groups.h"
#include "api/handles.h"
#include "api/operations.h"
#include "api/public_types.h"
#include "api/varying_calls.h"

namespace tutti::internal::api {
namespace {

Status check_types(const Call& call) {
  if (Status s = check_elements(call.type, call.opaque, call.count); !s.is_ok()) return s;
  if (call.custom == nullptr && static_cast<unsigned>(call.op) >= kReduceOps) {
    return Status::invalid_argument("operator is not a tuttiRedOp_t");
  }
  if (call.op == ReduceOp::kPreMulSum && call.type != call.custom->type) {
    return Status::invalid_argument(fmt::format("the operator was created for datatype {}, but the call uses {}",
                                                name_of(call.custom->type), name_of(call.type)));
  }
  if (combines(call.collective) && !supports(call.type, call.op)) {
    return Status::invalid_argument(
        fmt::format("operator {} is not defined for datatype {}{}", name_of(call.op), name_of(call.type, call.opaque),
                    call.type == DataType::kOpaque ? ". Create an operator with tuttiRedOpCreate" : ""));
  }
  if (call.op == ReduceOp::kAvg && combines_prefixes(call.collective)) {
    return Status::invalid_argument(
        fmt::format("operator {} is not defined for {}", name_of(call.op), name_of(call.collective)));
  }
  return {};
}

// Buffers of a call on this rank: where they begin and how many bytes they hold; 0 if ignored.
struct Extents {
  std::size_t send = 0;
  std::size_t recv = 0;
};

Extents extents(const Call& call, std::size_t block, int ranks, int rank) {
  const CollectiveInfo& info = info_of(call.collective);
  const auto bytes = [&](Holds holds) {
    return has_any(holds, rank, call.root) ? block * blocks_in(holds, call.collective, ranks) : 0;
  };
  return {bytes(info.input), bytes(info.output)};
}

// Whether recvbuff begins where the in-place rule requires it.
bool overlap_allowed(const Call& call, std::size_t block, int rank) {
  const auto send = reinterpret_cast<std::uintptr_t>(call.send);
  const auto recv = reinterpret_cast<std::uintptr_t>(call.recv);
  return recv - send == static_cast<std::uintptr_t>(in_place_offset(call.collective, block, rank));
}

Status refuse_overlap(const Call& call, std::size_t block, int rank) {
  const auto send = reinterpret_cast<std::uintptr_t>(call.send);
  const auto recv = reinterpret_cast<std::uintptr_t>(call.recv);
  const std::ptrdiff_t in_place = in_place_offset(call.collective, block, rank);
  const std::string_view form = gives_own_block(call.collective)  ? " (sendbuff = recvbuff + rank * count)"
                                : gets_own_block(call.collective) ? " (recvbuff = sendbuff + rank * count)"
                                                                  : " (recvbuff = sendbuff)";
  return Status::invalid_argument(
      fmt::format("sendbuff and recvbuff overlap: recvbuff - sendbuff is {} bytes, and in place it must be {}{}",
                  static_cast<std::ptrdiff_t>(recv - send), in_place, form));
}

Status check_buffers(const Call& call, int ranks, int rank) {
  std::size_t block = 0;
  std::size_t whole = 0;
  if (__builtin_mul_overflow(call.count, element_bytes_of(call), &block) ||
      __builtin_mul_overflow(block, static_cast<std::size_t>(ranks), &whole) || whole > SIZE_MAX / 2) {
    return Status::invalid_argument(fmt::format("count {} of {} for {} ranks overflows the address space", call.count,
                                                name_of(call.type, call.opaque), ranks));
  }
  const Extents e = extents(call, block, ranks, rank);
  if (e.send != 0 && call.send == nullptr) return Status::invalid_argument("sendbuff is NULL");
  if (e.recv != 0 && call.recv == nullptr) return Status::invalid_argument("recvbuff is NULL");
  const auto send = reinterpret_cast<std::uintptr_t>(call.send);
  const auto recv = reinterpret_cast<std::uintptr_t>(call.recv);
  // An ignored buffer may be anywhere.
  const bool overlap = e.send != 0 && e.recv != 0 && send < recv + e.recv && recv < send + e.send;
  return overlap && !overlap_allowed(call, block, rank) ? refuse_overlap(call, block, rank) : Status();
}

Status check(const Call& call, const Communicator& comm) {
  if (Status s = check_types(call); !s.is_ok()) return s;
  if (call.root < 0 || call.root >= comm.ranks()) {
    return Status::invalid_argument(fmt::format("root {} is not a rank of {}", call.root, comm.ranks()));
  }
  if (call.varying != nullptr) return check_varying(call, comm.ranks(), comm.rank());
  if (call.count == 0 || !has_data(call.collective)) return {};
  return check_buffers(call, comm.ranks(), comm.rank());
}

Status enqueue(const Call& call, Communicator& comm, void* stream) {
  auto found = streams().find(number_of(stream));
  return found.is_ok() ? comm.enqueue(call, **found) : found.status();
}

// `op`: the program's value. The communicator keeps the operator alive.
Status name_operator(Call* call, Communicator& comm, tuttiRedOp_t op) {
  return is_made(static_cast<int>(op)) ? comm.set_operator(call, static_cast<int>(op)) : Status();
}

// The same for a call before which operations of other threads may run.
Status name_operator(Call* call, Communicator& comm, tuttiRedOp_t op, std::shared_ptr<const CustomOperator>* custom) {
  if (!is_made(static_cast<int>(op))) return {};
  auto found = comm.operators().find(static_cast<int>(op));
  if (!found.is_ok()) return found.status();
  *custom = std::move(*found);
  call->op = (*custom)->kind;
  call->custom = custom->get();
  return {};
}

// The arguments that a call passes as numbers.
struct Named {
  tuttiDataType_t datatype = tuttiUint8;
  tuttiRedOp_t op = tuttiSum;
};

Status name_and_check(Call* call, Communicator& comm, Named named) {
  Status status = name_datatype(call, comm, named.datatype);
  if (status.is_ok()) status = name_operator(call, comm, named.op);
  return status.is_ok() ? check(*call, comm) : status;
}

// Adds the call to the thread's group.
[[gnu::noinline]] tuttiResult_t submit_to(GroupCalls* group, const Call& call, tuttiComm_t comm, void* stream,
                                          Named named) {
  return defer(group, comm, stream, name_of(call.collective), [&](Communicator& c, Batch* batch) {
    Call& kept = batch->calls.emplace_back(call);
    std::shared_ptr<const CustomOperator> custom;
    if (Status s = name_datatype(&kept, c, named.datatype); !s.is_ok()) return s;
    if (Status s = name_operator(&kept, c, named.op, &custom); !s.is_ok()) return s;
    if (custom != nullptr) batch->operators.push_back(std::move(custom));
    if (Status s = check(kept, c); !s.is_ok()) return s;
    if (call.varying == nullptr) return Status();
    batch->counts.push_back(std::make_shared<VaryingCopy>(call, c.ranks(), c.rank()));
    kept.varying = &batch->counts.back()->counts();
    return Status();
  });
}

// The common part of every collective: enters the communicator, checks the call, and runs or queues it.
tuttiResult_t submit(Call&& call, tuttiComm_t comm, void* stream, Named named) noexcept try {
  if (InOperator::here()) [[unlikely]]
    return refuse_in_operator(name_of(call.collective));
  if (GroupCalls* const group = current_group(); group != nullptr) [[unlikely]]
    return submit_to(group, call, comm, stream, named);
  const Operating operating(number_of(comm));
  if (!operating.status().is_ok()) [[unlikely]]
    return report_refused(operating.status().with_context(name_of(call.collective)), comm);
  Communicator& c = *operating;
  Status status = name_and_check(&call, c, named);
  if (status.is_ok()) [[likely]] {
    if (c.device_backend() != nullptr) [[unlikely]]
      status = c.enqueue_in_stream(call, stream);
    else
      status = stream == nullptr ? c.run(call) : enqueue(call, c, stream);
    if (status.is_ok()) [[likely]]
      return tuttiSuccess;
  }
  return report_of(status, &c, name_of(call.collective));
} catch (...) {
  return report(Status::of_exception());  // operations convert their own exceptions into failures
}

// The same for blocks of equal size.
[[gnu::noinline]] tuttiResult_t submit_slowly(Collective collective, const void* send, void* recv, std::size_t count,
                                              Named named, int root, tuttiComm_t comm, void* stream) noexcept {
  const ReduceOp op = has_data(collective) ? op_of(named.op) : ReduceOp::kMax;
  return submit({collective, send, recv, count, type_of(named.datatype), op, root}, comm, stream, named);
}

// The rest of a call that has begun on the fast path.
[[gnu::noinline]] tuttiResult_t go_on(Communicator& communicator, Collective collective) noexcept try {
  const Status status = communicator.go_on_repeated();
  return status.is_ok() ? tuttiSuccess : report_of(status, &communicator, name_of(collective));
} catch (...) {
  return report(Status::of_exception());
}

// First checks whether the call repeats a recent one. Everything else is in separate functions, so that this one uses
// few registers.
[[gnu::always_inline]] inline tuttiResult_t submit_uniform(Collective collective, const void* send, void* recv,
                                                           std::size_t count, Named named, int root, tuttiComm_t comm,
                                                           void* stream) noexcept {
  ThreadRecord* const record = this_thread_if_known();
  if (record != nullptr && record->group == nullptr && !record->in_operator && stream == nullptr) [[likely]] {
    const QuicklyOperating operating(record, number_of(comm));
    Communicator* const communicator = operating.get();
    if (communicator != nullptr) [[likely]] {
      const std::uint64_t types =
          std::uint64_t{static_cast<unsigned>(named.datatype)} << 32 | std::uint64_t{static_cast<unsigned>(named.op)};
      const auto type_and_op = [=] {
        return std::pair(type_of(named.datatype), has_data(collective) ? op_of(named.op) : ReduceOp::kMax);
      };
      switch (communicator->repeat(collective, types, count, root, send, recv, type_and_op)) {
        [[likely]] case Operations::Repeated::kDone : return tuttiSuccess;
        case Operations::Repeated::kBegun: return go_on(*communicator, collective);
        case Operations::Repeated::kNo: break;
      }
    }
  }
  return submit_slowly(collective, send, recv, count, named, root, comm, stream);
}

// One function for all collectives except the all-reduce: programs mix them, so it stays in the processor's cache.
[[gnu::noinline]] tuttiResult_t submit(Collective collective, const void* send, void* recv, std::size_t count,
                                       Named named, int root, tuttiComm_t comm, void* stream) noexcept {
  return submit_uniform(collective, send, recv, count, named, root, comm, stream);
}

}  // namespace
}  // namespace tutti::internal::api

using tutti::internal::Call;
using tutti::internal::Collective;
using tutti::internal::DataType;
using tutti::internal::ReduceOp;
using tutti::internal::VaryingCounts;
using tutti::internal::api::op_of;
using tutti::internal::api::submit;
using tutti::internal::api::submit_uniform;
using tutti::internal::api::type_of;

tuttiResult_t tuttiAllReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                             tuttiRedOp_t op, tuttiComm_t comm, void* stream) {
  return submit_uniform(Collective::kAllReduce, sendbuff, recvbuff, count, {datatype, op}, 0, comm, stream);
}

tuttiResult_t tuttiBroadcast(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, int root,
                             tuttiComm_t comm, void* stream) {
  return submit(Collective::kBroadcast, sendbuff, recvbuff, count, {datatype}, root, comm, stream);
}

tuttiResult_t tuttiReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t op,
                          int root, tuttiComm_t comm, void* stream) {
  return submit(Collective::kReduce, sendbuff, recvbuff, count, {datatype, op}, root, comm, stream);
}

tuttiResult_t tuttiAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, tuttiDataType_t datatype,
                             tuttiComm_t comm, void* stream) {
  return submit(Collective::kAllGather, sendbuff, recvbuff, sendcount, {datatype}, 0, comm, stream);
}

tuttiResult_t tuttiReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, tuttiDataType_t datatype,
                                 tuttiRedOp_t op, tuttiComm_t comm, void* stream) {
  return submit(Collective::kReduceScatter, sendbuff, recvbuff, recvcount, {datatype, op}, 0, comm, stream);
}

tuttiResult_t tuttiBcast(void* buff, size_t count, tuttiDataType_t datatype, int root, tuttiComm_t comm, void* stream) {
  return submit(Collective::kBroadcast, buff, buff, count, {datatype}, root, comm, stream);
}

tuttiResult_t tuttiGather(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, int root,
                          tuttiComm_t comm, void* stream) {
  return submit(Collective::kGather, sendbuff, recvbuff, count, {datatype}, root, comm, stream);
}

tuttiResult_t tuttiScatter(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, int root,
                           tuttiComm_t comm, void* stream) {
  return submit(Collective::kScatter, sendbuff, recvbuff, count, {datatype}, root, comm, stream);
}

tuttiResult_t tuttiAlltoAll(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype,
                            tuttiComm_t comm, void* stream) {
  return submit(Collective::kAllToAll, sendbuff, recvbuff, count, {datatype}, 0, comm, stream);
}

tuttiResult_t tuttiScan(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t op,
                        tuttiComm_t comm, void* stream) {
  return submit(Collective::kScan, sendbuff, recvbuff, count, {datatype, op}, 0, comm, stream);
}

tuttiResult_t tuttiExscan(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t op,
                          tuttiComm_t comm, void* stream) {
  return submit(Collective::kExscan, sendbuff, recvbuff, count, {datatype, op}, 0, comm, stream);
}

tuttiResult_t tuttiAllGatherV(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts,
                              const size_t* rdispls, tuttiDataType_t datatype, tuttiComm_t comm, void* stream) {
  const VaryingCounts varying{{}, {recvcounts, rdispls}};
  return submit(
      {Collective::kAllGatherV, sendbuff, recvbuff, sendcount, type_of(datatype), ReduceOp::kSum, 0, &varying}, comm,
      stream, {datatype});
}

tuttiResult_t tuttiReduceScatterV(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                  tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm, void* stream) {
  const VaryingCounts varying{{recvcounts, nullptr}, {}};
  return submit({Collective::kReduceScatterV, sendbuff, recvbuff, 0, type_of(datatype), op_of(op), 0, &varying}, comm,
                stream, {datatype, op});
}

tuttiResult_t tuttiAlltoAllV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls, void* recvbuff,
                             const size_t* recvcounts, const size_t* rdispls, tuttiDataType_t datatype,
                             tuttiComm_t comm, void* stream) {
  const VaryingCounts varying{{sendcounts, sdispls}, {recvcounts, rdispls}};
  return submit({Collective::kAllToAllV, sendbuff, recvbuff, 0, type_of(datatype), ReduceOp::kSum, 0, &varying}, comm,
                stream, {datatype});
}

tuttiResult_t tuttiGatherV(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts,
                           const size_t* rdispls, tuttiDataType_t datatype, int root, tuttiComm_t comm, void* stream) {
  const VaryingCounts varying{{}, {recvcounts, rdispls}};
  return submit(
      {Collective::kGatherV, sendbuff, recvbuff, sendcount, type_of(datatype), ReduceOp::kSum, root, &varying}, comm,
      stream, {datatype});
}

tuttiResult_t tuttiScatterV(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls, void* recvbuff,
                            size_t recvcount, tuttiDataType_t datatype, int root, tuttiComm_t comm, void* stream) {
  const VaryingCounts varying{{sendcounts, sdispls}, {}};
  return submit(
      {Collective::kScatterV, sendbuff, recvbuff, recvcount, type_of(datatype), ReduceOp::kSum, root, &varying}, comm,
      stream, {datatype});
}

tuttiResult_t tuttiBarrier(tuttiComm_t comm, void* stream) {
  return submit(Collective::kBarrier, nullptr, nullptr, 1, {}, 0, comm, stream);
}

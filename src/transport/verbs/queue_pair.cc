#include "transport/verbs/queue_pair.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "net/auth.h"
#include "os/held_signal.h"

namespace tutti::internal::transport::verbs {
namespace {

constexpr std::uint8_t kHopLimit = 64;
// 0.64 ms (InfiniBand specification 9.7.5.2.8): receives run out only if a peer violates the protocol.
constexpr std::uint8_t kReceiverNotReadyTimer = 12;
// Packet sequence numbers have 24 bits.
constexpr std::uint32_t kPsnMask = 0xffffff;

ibv_mtu mtu_of(int bytes) {
  if (bytes >= 4096) return IBV_MTU_4096;
  if (bytes >= 2048) return IBV_MTU_2048;
  if (bytes >= 1024) return IBV_MTU_1024;
  return bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

}  // namespace

ibv_qp_init_attr QueuePair::attributes() const {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions_->queue();
  wanted.cap.max_send_wr = kDepth;
  wanted.cap.max_recv_wr = kReceives;
  wanted.cap.max_send_sge = 2;
  wanted.cap.max_recv_sge = 1;
  wanted.cap.max_inline_data = kInlineBytes[0];
  wanted.qp_type = IBV_QPT_RC;
  return wanted;
}

Status QueuePair::create() {
  const Library& library = device().library();
  int error = 0;
  for (const std::uint32_t inline_bytes : kInlineBytes) {
    ibv_qp_init_attr wanted = attributes();
    wanted.cap.max_inline_data = inline_bytes;
    own_ = {library.create_qp(device().domain(), &wanted), library.destroy_qp};
    if (own_.get() != nullptr) {
      max_inline_ = wanted.cap.max_inline_data;
      break;
    }
    error = errno;
  }
  if (own_.get() == nullptr) {
    const Status why = Status::system("queue pair on " + device().name(), error);
    return Status(why.code(), why.message() + locked_memory_hint(error));
  }
  pair_ = own_.get();
  if (Status s = net::random_bytes(&psn_, sizeof psn_); !s.is_ok()) {
    return s;
  }
  psn_ &= kPsnMask;
  auto pkey = pkey_index();
  if (!pkey.is_ok()) return pkey.status();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = *pkey;
  attributes.port_num = static_cast<std::uint8_t>(device().port().port);
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  error = library.modify_qp(pair_, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return Status::system("initialising a queue pair on " + device().name(), error);
  return {};
}

Result<std::uint16_t> QueuePair::pkey_index() const {
  if (options_->pkey < 0) return std::uint16_t{0};
  const Device& d = device();
  ibv_port_attr port{};
  if (const int error = d.library().port_attributes(d.context(), static_cast<std::uint8_t>(d.port().port), &port)) {
    return Status::system("querying " + d.name(), error);
  }
  for (int i = 0; i < port.pkey_tbl_len; ++i) {
    __be16 pkey = 0;
    if (d.library().query_pkey(d.context(), static_cast<std::uint8_t>(d.port().port), i, &pkey) != 0) continue;
    // The top bit only distinguishes full from limited membership.
    if ((ntohs(pkey) & 0x7fff) == (options_->pkey & 0x7fff)) return static_cast<std::uint16_t>(i);
  }
  return Status::invalid_usage(fmt::format("TUTTI_VERBS: {} is not in partition {}", d.name(), options_->pkey));
}

Endpoint QueuePair::endpoint() const {
  const Port& port = device().port();
  const int mtu_bytes = options_->mtu_bytes > 0 ? std::min(options_->mtu_bytes, port.mtu_bytes) : port.mtu_bytes;
  return {pair_->qp_num, psn_, port.lid, static_cast<std::uint16_t>(mtu_bytes), port.gid};
}

Status QueuePair::connect(const Endpoint& peer) {
  if (const int error = post_receives(true)) return Status::system("posting receives on " + device().name(), error);
  return move_to_ready(peer);
}

Status QueuePair::move_to_ready(const Endpoint& peer) {
  const Port& port = device().port();
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = mtu_of(std::min<int>(endpoint().mtu_bytes, peer.mtu_bytes));
  a.dest_qp_num = peer.qpn;
  a.rq_psn = peer.psn;
  a.max_dest_rd_atomic = 1;
  a.min_rnr_timer = kReceiverNotReadyTimer;
  a.ah_attr.port_num = static_cast<std::uint8_t>(port.port);
  a.ah_attr.sl = static_cast<std::uint8_t>(options_->service_level);
  a.ah_attr.dlid = peer.lid;
  // Within one InfiniBand subnet the local identifier is enough; everything else has a global route header.
  const bool one_subnet = std::equal(port.gid.begin(), port.gid.begin() + 8, peer.gid.begin());
  if (port.fabric != Fabric::kInfiniband || !one_subnet || peer.lid == 0) {
    a.ah_attr.is_global = 1;
    std::memcpy(a.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    a.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port.gid_index);
    a.ah_attr.grh.hop_limit = kHopLimit;
    a.ah_attr.grh.traffic_class = static_cast<std::uint8_t>(options_->traffic_class);
  }
  const Library& library = device().library();
  int error = library.modify_qp(pair_, &a,
                                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) {
    return Status::system(fmt::format("connecting a queue pair on {} with GID index {}{}", device().name(),
                                      port.gid_index, device().remark()),
                          error);
  }
  a = {};
  a.qp_state = IBV_QPS_RTS;
  a.timeout = static_cast<std::uint8_t>(options_->timeout);
  a.retry_cnt = static_cast<std::uint8_t>(options_->retries);
  a.rnr_retry = kReceiverNotReadyForEver;
  a.sq_psn = psn_;
  a.max_rd_atomic = 1;
  error = library.modify_qp(
      pair_, &a,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) return Status::system("starting a queue pair on " + device().name(), error);
  return {};
}

Status QueuePair::adopt(ibv_qp* pair, std::uint32_t max_inline) {
  pair_ = pair;
  max_inline_ = max_inline;
  if (const int error = post_receives(true)) return Status::system("posting receives on " + device().name(), error);
  return {};
}

int QueuePair::post(const Write* first, const Write& last, std::uint32_t word, WorkId id) {
  std::array<ibv_send_wr, 3> requests{};
  std::array<ibv_sge, 5> sges{};
  std::size_t count = 0;
  std::size_t used = 0;
  const auto add = [&](const Write& write, ibv_wr_opcode opcode) -> ibv_send_wr& {
    ibv_send_wr& request = requests[count++];
    request.sg_list = &sges[used];
    request.num_sge = static_cast<int>(write.sges.size());
    std::size_t bytes = 0;
    for (const Sge& sge : write.sges) {
      sges[used++] = {reinterpret_cast<std::uintptr_t>(sge.address), sge.bytes, sge.lkey};
      bytes += sge.bytes;
    }
    request.opcode = opcode;
    if (bytes > 0 && is_inline(bytes) && write.sges.size() == 1) request.send_flags |= IBV_SEND_INLINE;
    request.wr.rdma.remote_addr = write.address;
    request.wr.rdma.rkey = write.rkey;
    return request;
  };
  if (first != nullptr) add(*first, IBV_WR_RDMA_WRITE);
  if (!announces_by_send()) {
    add(last, IBV_WR_RDMA_WRITE_WITH_IMM).imm_data = htonl(word);
  } else {
    if (!last.sges.empty()) add(last, IBV_WR_RDMA_WRITE);
    std::uint32_t& outgoing = attachment_.outgoing[next_outgoing_++ % kReceives];
    outgoing = htonl(word);
    const Sge sge{&outgoing, sizeof outgoing, attachment_.outgoing_lkey};
    add({std::span(&sge, 1), 0, 0}, IBV_WR_SEND);
  }
  for (std::size_t i = 0; i + 1 < count; ++i) requests[i].next = &requests[i + 1];
  posted_ += static_cast<std::uint32_t>(count);
  id = work_id(id.kind, id.index);
  ibv_send_wr& end = requests[count - 1];
  if (id.kind != WorkId::kPlain || posted_ - signalled_ >= kSignalEvery || !is_inline(sizeof(std::uint32_t))) {
    end.send_flags |= IBV_SEND_SIGNALED;
    signalled_ = posted_;
  }
  end.wr_id = id.pack();
  // An error completion has the id of its own request.
  for (std::size_t i = 0; i + 1 < count; ++i) requests[i].wr_id = work_id(WorkId::kPlain, 0).pack();
  return post(requests.data());
}

int QueuePair::post(ibv_send_wr* requests) {
  ibv_send_wr* bad = nullptr;
  if (!device().port().soft_iwarp) [[likely]]
    return ibv_post_send(pair_, requests, &bad);
  const HeldSignal peer_gone(SIGPIPE);
  return ibv_post_send(pair_, requests, &bad);
}

int QueuePair::post_marker(std::uint64_t address, std::uint32_t rkey) {
  if (marked_ == posted_ || (!announces_by_send() && signalled_ == posted_)) return 0;
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  // iWARP completes a write when TCP has taken it; it answers a read when everything before it is in the peer's memory.
  ibv_sge sink{reinterpret_cast<std::uintptr_t>(&attachment_.outgoing[next_outgoing_ % kReceives]),
               sizeof(std::uint32_t), attachment_.outgoing_lkey};
  if (announces_by_send()) {
    ++next_outgoing_;
    request.opcode = IBV_WR_RDMA_READ;
    request.sg_list = &sink;
    request.num_sge = 1;
  }
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = rkey;
  signalled_ = marked_ = ++posted_;
  request.wr_id = work_id(WorkId::kPlain, 0).pack();
  return post(&request);
}

std::uint32_t QueuePair::received(const ibv_wc& completion, std::uint16_t receive) {
  spent_[spent_count_++] = receive;
  if ((completion.wc_flags & IBV_WC_WITH_IMM) != 0) return ntohl(completion.imm_data);
  return ntohl(attachment_.received[receive]);
}

int QueuePair::post_receives(bool all) {
  if (all) {
    for (spent_count_ = 0; spent_count_ < kReceives; ++spent_count_) {
      spent_[spent_count_] = static_cast<std::uint16_t>(spent_count_);
    }
  }
  if (spent_count_ < kReceiveBatch) return 0;
  std::array<ibv_recv_wr, kReceives> requests{};
  std::array<ibv_sge, kReceives> sges{};
  for (std::uint32_t i = 0; i < spent_count_; ++i) {
    requests[i].wr_id = work_id(WorkId::kReceive, spent_[i]).pack();
    if (announces_by_send()) {
      sges[i] = {reinterpret_cast<std::uintptr_t>(&attachment_.received[spent_[i]]), sizeof(std::uint32_t),
                 attachment_.received_lkey};
      requests[i].sg_list = &sges[i];
      requests[i].num_sge = 1;
    }
    requests[i].next = i + 1 < spent_count_ ? &requests[i + 1] : nullptr;
  }
  spent_count_ = 0;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(pair_, requests.data(), &bad);
}

void QueuePair::destroy() {
  own_.reset();
  pair_ = nullptr;
}

Status completion_error(const ibv_wc& completion, const Device& device, int peer) {
  const char* hint = "";
  Code code = Code::kSystemError;
  switch (completion.status) {
    case IBV_WC_RETRY_EXC_ERR:
      hint = ": the peer does not answer";
      code = Code::kRemoteError;
      break;
    case IBV_WC_WR_FLUSH_ERR:
      hint = ": the connection has ended";
      code = Code::kRemoteError;
      break;
    case IBV_WC_RNR_RETRY_EXC_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR: code = Code::kRemoteError; break;
    default: break;
  }
  std::string vendor(16, '\0');
  vendor.resize(static_cast<std::size_t>(std::snprintf(vendor.data(), vendor.size(), "0x%x", completion.vendor_err)));
  return Status(code, fmt::format("rank {}: verbs: {} (status {}, vendor error {}) on {}{}{}", peer,
                                  device.library().wc_status_text(completion.status), completion.status, vendor,
                                  device.name(), device.remark(), hint));
}

}  // namespace tutti::internal::transport::verbs

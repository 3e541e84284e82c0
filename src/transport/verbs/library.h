// libibverbs, opened at run time: a machine without it still runs everything else.
//
// The inline verbs of <infiniband/verbs.h> (ibv_post_send, ibv_post_recv, ibv_poll_cq, ibv_req_notify_cq) call the
// driver directly; all other functions are called only through this class.
#pragma once

#include <infiniband/verbs.h>

#include "base/status.h"

namespace tutti::internal::transport::verbs {

struct Library {
  decltype(&::ibv_get_device_list) get_device_list = nullptr;
  decltype(&::ibv_free_device_list) free_device_list = nullptr;
  decltype(&::ibv_get_device_name) get_device_name = nullptr;
  decltype(&::ibv_open_device) open_device = nullptr;
  decltype(&::ibv_close_device) close_device = nullptr;
  decltype(&::ibv_query_device) query_device = nullptr;
  // For drivers without a newer function: see port_attributes().
  int (*query_old_port)(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attributes) = nullptr;
  decltype(&::ibv_query_gid) query_gid = nullptr;
  decltype(&::_ibv_query_gid_table) query_gid_table = nullptr;
  decltype(&::ibv_query_pkey) query_pkey = nullptr;
  decltype(&::ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&::ibv_dealloc_pd) dealloc_pd = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, std::size_t bytes, int access) = nullptr;
  decltype(&::ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&::ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_resize_cq) resize_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&::ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&::ibv_get_async_event) get_async_event = nullptr;
  decltype(&::ibv_ack_async_event) ack_async_event = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_modify_qp) modify_qp = nullptr;
  decltype(&::ibv_query_qp) query_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&::ibv_fork_init) fork_init = nullptr;
  decltype(&::ibv_wc_status_str) wc_status_text = nullptr;
  decltype(&::ibv_event_type_str) event_text = nullptr;

  // Does the same as ibv_query_port() of the header. 0 or an errno.
  int port_attributes(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) const;

  // Opened once per process and never closed. kSystemError names what is missing and the package that has it. Any
  // thread.
  static Result<const Library*> load();
};

}  // namespace tutti::internal::transport::verbs

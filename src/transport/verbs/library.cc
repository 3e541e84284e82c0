#include "transport/verbs/library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "base/symbol.h"
#include "os/fork.h"
#include "os/mutex.h"

namespace tutti::internal::transport::verbs {
namespace {

constexpr const char* kName = "libibverbs.so.1";

Result<Library> open() {
  void* handle = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return Status(Code::kSystemError, fmt::format("RDMA needs libibverbs, which cannot be opened ({}): install the "
                                                  "packages libibverbs1 and ibverbs-providers (rdma-core)",
                                                  why != nullptr ? why : kName));
  }
  Library l;
  const bool all =
      find_symbol(handle, "ibv_get_device_list", &l.get_device_list) &&
      find_symbol(handle, "ibv_free_device_list", &l.free_device_list) &&
      find_symbol(handle, "ibv_get_device_name", &l.get_device_name) &&
      find_symbol(handle, "ibv_open_device", &l.open_device) &&
      find_symbol(handle, "ibv_close_device", &l.close_device) &&
      find_symbol(handle, "ibv_query_device", &l.query_device) &&
      find_symbol(handle, "ibv_query_port", &l.query_old_port) && find_symbol(handle, "ibv_query_gid", &l.query_gid) &&
      find_symbol(handle, "_ibv_query_gid_table", &l.query_gid_table) &&
      find_symbol(handle, "ibv_query_pkey", &l.query_pkey) && find_symbol(handle, "ibv_alloc_pd", &l.alloc_pd) &&
      find_symbol(handle, "ibv_dealloc_pd", &l.dealloc_pd) && find_symbol(handle, "ibv_reg_mr", &l.reg_mr) &&
      find_symbol(handle, "ibv_dereg_mr", &l.dereg_mr) &&
      find_symbol(handle, "ibv_create_comp_channel", &l.create_comp_channel) &&
      find_symbol(handle, "ibv_destroy_comp_channel", &l.destroy_comp_channel) &&
      find_symbol(handle, "ibv_create_cq", &l.create_cq) && find_symbol(handle, "ibv_resize_cq", &l.resize_cq) &&
      find_symbol(handle, "ibv_destroy_cq", &l.destroy_cq) &&
      find_symbol(handle, "ibv_get_cq_event", &l.get_cq_event) &&
      find_symbol(handle, "ibv_ack_cq_events", &l.ack_cq_events) &&
      find_symbol(handle, "ibv_get_async_event", &l.get_async_event) &&
      find_symbol(handle, "ibv_ack_async_event", &l.ack_async_event) &&
      find_symbol(handle, "ibv_create_qp", &l.create_qp) && find_symbol(handle, "ibv_modify_qp", &l.modify_qp) &&
      find_symbol(handle, "ibv_query_qp", &l.query_qp) && find_symbol(handle, "ibv_destroy_qp", &l.destroy_qp) &&
      find_symbol(handle, "ibv_fork_init", &l.fork_init) &&
      find_symbol(handle, "ibv_wc_status_str", &l.wc_status_text) &&
      find_symbol(handle, "ibv_event_type_str", &l.event_text);
  if (!all) {
    const char* why = ::dlerror();
    return Status(Code::kSystemError, fmt::format("RDMA needs a newer libibverbs (rdma-core 32 or later): {}",
                                                  why != nullptr ? why : "a function is missing"));
  }
  // Pinned pages must stay private to this process across fork(2); does nothing on kernels that guarantee it.
  (void)l.fork_init();
  return l;
}

// Made when this library is loaded, because ibv_fork_init() must not run in several threads at a time.
ForkMutex& mutex = *new ForkMutex;
const Result<Library>* library TUTTI_GUARDED_BY(mutex) = nullptr;  // never destroyed

}  // namespace

Result<const Library*> Library::load() {
  const MutexLock lock(mutex);
  if (library == nullptr) library = new Result<Library>(open());
  if (!library->is_ok()) return library->status();
  return &library->value();
}

int Library::port_attributes(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) const {
  *attributes = {};
  verbs_context* const operations = verbs_get_ctx_op(context, query_port);
  if (operations != nullptr) return operations->query_port(context, port, attributes, sizeof *attributes);
  return query_old_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(attributes));
}

}  // namespace tutti::internal::transport::verbs

// Replaces the verbs transport in builds without the headers of libibverbs and librdmacm.
#include "transport/verbs/ports/devices.h"
#include "transport/verbs/rdma_context.h"

namespace tutti::internal::transport::verbs {

static Status absent() {
  return {Code::kSystemError,
          "this build of tutti has no RDMA. Install libibverbs-dev and librdmacm-dev, configure with -Dverbs=enabled "
          "and rebuild"};
}

Result<std::vector<Finding>> find_ports(const Options&, const std::vector<int>&, const Roots&) {
  return absent();
}

Status check_library() {
  return absent();
}

Result<std::vector<Port>> choose_ports(const Options&, const std::vector<int>&) {
  return absent();
}

Result<std::shared_ptr<RdmaContext>> RdmaContext::open(const Options&, const std::vector<int>&) {
  return absent();
}

}  // namespace tutti::internal::transport::verbs

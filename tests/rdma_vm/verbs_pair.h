// Two links of the verbs transport in one process, connected as two ranks would, on the devices that TUTTI_VERBS
// names.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/transport.h"
#include "transport/verbs/rdma_context.h"

namespace tutti::internal::rdma_vm {

struct LinkPair {
  std::unique_ptr<transport::Link> a;  // of rank 0
  std::unique_ptr<transport::Link> b;  // of rank 1
};
// Throws std::runtime_error with the Status that says why not.
LinkPair connect_links();

}  // namespace tutti::internal::rdma_vm

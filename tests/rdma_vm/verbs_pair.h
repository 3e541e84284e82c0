// Links of the verbs transport in one process, connected like two ranks, on the devices that TUTTI_VERBS names.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/transport.h"
#include "transport/verbs/options.h"
#include "transport/verbs/rdma_context.h"

namespace tutti::internal::rdma_vm {

struct LinkPair {
  std::unique_ptr<transport::Link> a;  // of rank 0
  std::unique_ptr<transport::Link> b;  // of rank 1
};

// Two ranks in a communicator, with possibly several links between them. All functions throw std::runtime_error with
// the error's Status.
class TwoRanks {
 public:
  TwoRanks();
  LinkPair connect();

 private:
  transport::verbs::Options options_;
  std::shared_ptr<transport::verbs::RdmaContext> contexts_[2];
  std::shared_ptr<transport::verbs::LinkSet> sets_[2];
};

// The only links of their communicator.
LinkPair connect_links();

}  // namespace tutti::internal::rdma_vm

// Sends and receives of tensors that torch's dispatcher hands to no backend: sparse, quantized, nested and MKL-DNN's.
// Inside batch_isend_irecv, an exception of the dispatcher would leave the group's list of coalesced calls open. So the
// backend refuses these tensors itself: at the end of the list.
#include <torch/library.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "backend.h"

namespace tutti_torch {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

// Other backends keep the error of the dispatcher.
c10::intrusive_ptr<c10d::Backend> backend_of(const char* name, const at::TensorList& tensors, const Group& group) {
  auto backend = group->getBackend(tensors.front().device().type());
  if (backend->getBackendName() == "tutti") return backend;
  C10_THROW_ERROR(NotImplementedError, c10::str("c10d::", name, " takes no ", tensors.front().toString(),
                                                " with the backend ", backend->getBackendName()));
}

WorkPtr send(at::TensorList tensors, const Group& group, std::int64_t to, std::int64_t tag) {
  Tensors all = tensors.vec();
  return backend_of("send", tensors, group)->send(all, static_cast<int>(to), static_cast<int>(tag));
}

WorkPtr recv(at::TensorList tensors, const Group& group, std::int64_t from, std::int64_t tag) {
  Tensors all = tensors.vec();
  return backend_of("recv_", tensors, group)->recv(all, static_cast<int>(from), static_cast<int>(tag));
}

std::vector<torch::Library> registered_messages() {
  using c10::DispatchKey;
  std::vector<torch::Library> all;
  for (const DispatchKey key :
       {DispatchKey::SparseCPU, DispatchKey::SparseCsrCPU, DispatchKey::QuantizedCPU, DispatchKey::MkldnnCPU,
        DispatchKey::NestedTensorCPU, DispatchKey::SparseCUDA, DispatchKey::SparseCsrCUDA, DispatchKey::QuantizedCUDA,
        DispatchKey::NestedTensorCUDA, DispatchKey::AutogradNestedTensor}) {
    all.emplace_back(torch::Library::IMPL, "c10d", key, __FILE__, __LINE__);
    all.back().impl("send", &send);
    all.back().impl("recv_", &recv);
  }
  return all;
}

// As long as the process: torch unloads no backend.
const auto* const registered = new std::vector<torch::Library>(registered_messages());

}  // namespace
}  // namespace tutti_torch

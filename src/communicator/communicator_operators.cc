// How a call gets the operator that the program has made for it.
#include <utility>

#include "communicator/communicator.h"

namespace tutti::internal {

Status Communicator::set_operator(Call* call, int handle) {
  auto found = operators_.find(handle);
  if (!found.is_ok()) return found.status();
  named_operator_ = std::move(*found);
  call->op = named_operator_->kind;
  call->custom = named_operator_.get();
  return {};
}

}  // namespace tutti::internal

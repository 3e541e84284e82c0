// The links of one communicator over the devices of an open context, and their shared state.
//
// Threads: as the communicator.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/status.h"
#include "memory/registration.h"
#include "os/clock.h"
#include "os/unique_fd.h"
#include "transport/transport.h"
#include "transport/verbs/completions.h"
#include "transport/verbs/connection.h"
#include "transport/verbs/exchange.h"
#include "transport/verbs/open_context.h"
#include "transport/verbs/rdma_context.h"

namespace tutti::internal::transport::verbs {

class OpenLinkSet final : public LinkSet, public std::enable_shared_from_this<OpenLinkSet> {
 public:
  explicit OpenLinkSet(std::shared_ptr<OpenContext> context)
      : context_(std::move(context)), registrations_(context_->registrations()) {}

  Result<std::unique_ptr<Link>> connect(UniqueFd socket, bool lower, const PeerPorts& peer, Deadline deadline) override;
  // Tests everything that a link needs, on the port that is used first.
  Status probe();

 private:
  Result<std::unique_ptr<Connection>> make_connection(const PeerPorts& peer, const std::vector<std::size_t>& own);
  static Status connect_by_exchange(Connection& connection, const ConnectionInfo& peer);
  static void note_rails(Connection& connection, const ConnectionInfo& peer);

  const std::shared_ptr<OpenContext> context_;
  memory::RegistrationUser registrations_;
  Completions completions_;
};

}  // namespace tutti::internal::transport::verbs

// Two ranks connected by RDMA: see wire.h for the wire format, connection.h for the connection.
//
// Threads: as transport.h says.
#pragma once

#include <memory>
#include <span>

#include "memory/registration.h"
#include "transport/plain.h"
#include "transport/transport.h"
#include "transport/verbs/connection.h"
#include "transport/verbs/recv.h"
#include "transport/verbs/send.h"

namespace tutti::internal::transport::verbs {

class VerbsLink final : public PlainLink {
 public:
  VerbsLink(std::unique_ptr<Connection> connection, memory::RegistrationUser& registrations, bool any_memory);
  // The last messages may not have reached the peer, and a destroyed queue pair resends nothing.
  ~VerbsLink() override;

  SendLane& send() override { return send_; }
  RecvLane& recv() override { return recv_; }
  bool arm() override { return connection_->arm(); }
  void disarm() override { connection_->completions().disarm(); }
  [[nodiscard]] std::span<const int> wait_fds() const override { return {&wait_fd_, 1}; }
  void begin_operation(MemoryUse /*use*/) override { registrations_.begin_operation(); }
  // Without queue pairs no device reads sent memory or writes advertised memory.
  void revoke() noexcept override { connection_->close(revoked_); }
  bool flushed() override { return connection_->flushed(); }
  void send_leave_notice() override { connection_->send_leave_notice(); }
  [[nodiscard]] Connection& connection() { return *connection_; }

 private:
  std::unique_ptr<Connection> connection_;
  const int wait_fd_;
  memory::RegistrationUser& registrations_;
  VerbsSend send_;
  VerbsRecv recv_;
  const Status revoked_ =
      Status::remote("the link was revoked after a failed operation");  // made while there is memory
};

// The connection keeps the owner of `registrations` alive. `any_memory`: user memory can be registered.
std::unique_ptr<Link> make_link(std::unique_ptr<Connection> connection, memory::RegistrationUser& registrations,
                                bool any_memory);

}  // namespace tutti::internal::transport::verbs

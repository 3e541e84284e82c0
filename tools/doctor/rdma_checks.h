// Checks for problems that stop or slow RDMA, each with the fix.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "transport/verbs/ports/devices.h"

namespace tutti::internal::tools {

// libibverbs and librdmacm.
Checks check_libraries();
// The kernel's files: the devices, access to them and to the connection manager.
Checks check_devices(const transport::verbs::Roots& roots);
// One port: its state, or what else is the matter with it.
Check check_port(const transport::verbs::Finding& finding);
// Only of usable RoCE ports: which GID there is. Nothing for others.
std::optional<Check> check_gid(const transport::verbs::Finding& finding);
// Only of usable RoCE ports: whether its interface allows the largest path MTU.
std::optional<Check> check_mtu(const transport::verbs::Roots& roots, const transport::verbs::Finding& finding);
// The driver's counters of lost and repeated packets, and the visible state of congestion control.
std::optional<Check> check_losses(const transport::verbs::Roots& roots, const transport::verbs::Finding& finding);
std::optional<Check> check_congestion_control(const transport::verbs::Roots& roots,
                                              const transport::verbs::Finding& finding, int traffic_class);
// RLIMIT_MEMLOCK in bytes, nothing for none; `privileged`: CAP_IPC_LOCK lifts it.
Check check_locked_memory(std::optional<std::uint64_t> limit_bytes, bool privileged);
// Of this process.
Check check_own_locked_memory();
// Whether user memory can stay registered between operations.
Check check_registration_cache();

}  // namespace tutti::internal::tools

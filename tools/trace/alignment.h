// The clocks of all hosts of a job, from the operations that connect them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "observe/trace_reader.h"
#include "tools/trace/members.h"

namespace tutti::internal::tools {

// By TracedProcess::machine. No rank ends an operation before the rank begins of which it needs data: each operation of
// ranks of two hosts bounds the difference of their clocks. The middle of what all operations allow counts.
std::map<std::string, HostShift> align(const std::vector<observe::TracedProcess>& processes);

}  // namespace tutti::internal::tools

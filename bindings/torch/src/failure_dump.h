// Writes the flight record when an operation fails, as NCCL's backend does on a timeout.
#pragma once

namespace tutti_torch {

// If TORCH_FR_DUMP_TEMP_FILE is set, or TORCH_NCCL_DEBUG_INFO_TEMP_FILE: writes the flight record of this process to
// the file of that name with the rank behind it, once in a process: what fails later is mostly a consequence. Returns
// when the file is complete. May take Python's lock. Any thread; throws nothing.
void dump_after_failure();

}  // namespace tutti_torch

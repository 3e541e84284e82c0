// The processes that a user of tutti diagnose or tutti report names.
#pragma once

#include <string>
#include <vector>

#include "observe/reader.h"

namespace tutti::internal::tools {

struct Read {
  observe::SeenProcesses seen;  // `others` also has why a place was not read
  bool has_folders = false;
};

// Ids of processes, and folders of TUTTI_FLIGHT_RECORDER. Empty: all processes of this host.
Read read_places(const std::vector<std::string>& places);

}  // namespace tutti::internal::tools

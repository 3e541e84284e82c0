#include "places.h"

#include <algorithm>
#include <climits>
#include <iterator>
#include <utility>

#include "base/config.h"

namespace tutti::internal::tools {

Read read_places(const std::vector<std::string>& places) {
  Read read;
  if (places.empty()) read.seen = observe::read_all_processes();
  for (const std::string& place : places) {
    const auto pid = parse_integer(place, 1, INT_MAX);
    observe::SeenProcesses found;
    Status status;
    if (pid) {
      auto process = observe::read_process(static_cast<int>(*pid));
      status = process.status();
      if (status.is_ok()) found.processes.push_back(std::move(*process));
    } else {
      auto folder = observe::read_folder(place);
      status = folder.status();
      if (status.is_ok()) found = std::move(*folder);
      read.has_folders = true;
    }
    if (!status.is_ok()) read.seen.others.push_back(status.message());
    std::move(found.processes.begin(), found.processes.end(), std::back_inserter(read.seen.processes));
    std::move(found.others.begin(), found.others.end(), std::back_inserter(read.seen.others));
    read.seen.unreadable += found.unreadable;
  }
  return read;
}

}  // namespace tutti::internal::tools

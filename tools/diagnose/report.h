// A page for a browser about some communicators: what is wrong, who waits for whom, and the last operations as a
// timeline.
#pragma once

#include <string>
#include <vector>

#include "monitor/diagnosis.h"
#include "observe/reader.h"

namespace tutti::internal::tools {

// HTML that needs no other file, no script and no network. `findings`: those of diagnose(processes). `heading`: the
// first line under the title.
std::string html_report(const std::vector<observe::SeenProcess>& processes,
                        const std::vector<monitor::CommunicatorFindings>& findings, const std::string& heading);

}  // namespace tutti::internal::tools

// The picture that --plot asks for. A Python program draws it, tutti_plot, which lies beside this one.
#pragma once

#include <string>

#include "base/status.h"

namespace tutti::internal::perf {

// Whether pictures can be drawn. Without Python or matplotlib: kInvalidUsage, with the fix. Takes a second. `option` is
// the option that asks for a picture; `results` names where else the results are.
Status check_plot(const std::string& option, const std::string& results);
// Draws the results, a JSON object as -J and tutti simulate write it, into the file; "-" is standard output. `format`:
// svg, png or pdf; empty: what the file's suffix says.
Status draw_plot(const std::string& path, const std::string& json, const std::string& format = "");

}  // namespace tutti::internal::perf

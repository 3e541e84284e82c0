// The picture that --plot asks for. A Python program draws it, tutti_plot, which lies beside this one.
#pragma once

#include <string>

#include "base/status.h"

namespace tutti::internal::perf {

// Whether pictures can be drawn: kInvalidUsage, with the remedy, without Python or matplotlib. Takes a second.
Status check_plot();
// Draws the results, a JSON object as -J writes it, into the file, whose suffix says in which format.
Status draw_plot(const std::string& path, const std::string& json);

}  // namespace tutti::internal::perf

// Bus bandwidth against size as an SVG drawing, both axes logarithmic; no other program is needed.
#pragma once

#include <vector>

#include "base/status.h"
#include "output_file.h"
#include "report.h"

namespace tutti::internal::perf {

// One line per datatype, operator, root and mode. Rows of no bytes are left out.
Status write_plot(OutputFile& file, const std::vector<Row>& rows);

}  // namespace tutti::internal::perf

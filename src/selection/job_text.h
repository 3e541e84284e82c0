// A job as a text in a trace: what the predictions of its operations come from.
#pragma once

#include <string>

#include "base/status.h"
#include "selection/job_model.h"
#include "topology/graph.h"
#include "topology/routes.h"

namespace tutti::internal::selection {

struct DescribedJob {
  topology::Graph graph;
  topology::MachineCosts costs;
  topology::Sharing sharing;
};

std::string text_of(const JobModel& model);
// Also of a text that no model gave. kInvalidArgument: it is not such a text.
Result<DescribedJob> read_job(const std::string& text);

}  // namespace tutti::internal::selection

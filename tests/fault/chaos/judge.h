// What is wrong with how a round has ended.
#pragma once

#include <string>
#include <vector>

#include "board.h"

namespace tutti::internal::test::chaos {

struct Finding {
  std::string kind;
  std::string text;
  bool defect = true;  // else it is only counted
};

// REQUIRES: all processes have ended. `statuses`: as of waitpid, by process.
std::vector<Finding> judge(const Round& round, const InProcessControl& board, const std::vector<int>& statuses);

// Where every rank is and what it has met.
std::string text_of(const Round& round, const InProcessControl& board);

}  // namespace tutti::internal::test::chaos

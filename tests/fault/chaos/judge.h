// What is wrong with the end of a round.
#pragma once

#include <string>
#include <vector>

#include "board.h"

namespace tutti::internal::test::chaos {

struct Finding {
  std::string kind;
  std::string text;
  bool defect = true;  // otherwise it is only counted
};

// REQUIRES: all processes have ended. `statuses`: as of waitpid, by process.
std::vector<Finding> judge(const Round& round, const InProcessControl& board, const std::vector<int>& statuses);

// The position of every rank and its errors.
std::string text_of(const Round& round, const InProcessControl& board);

}  // namespace tutti::internal::test::chaos

// The flags and variables of nccl-tests that the programs take beside their own. Some change the measurement, some
// state what these programs do anyway; the programs refuse the rest and say what to do instead.
#pragma once

#include <string>

#include "options.h"

namespace tutti::internal::perf {

// The flags as they were written.
struct NcclTestsWords {
  std::string aggregate = "1";  // or "malloc" or "tutti", for --memory
  std::string memory;           // or "0" and "1", for --memory_report
  int parallel_init = 0;
  int average = 3;
  int report_cputime = 0;
  int report_timestamps = 0;
  int local_register = 0;
  int stream_null = 0;
  int memory_report = 0;
  int cta_policy = 0;
  int device_implementation = 0;
  int device_cta_count = 0;
};

void add_nccl_tests_flags(CLI::App& app, NcclTestsWords& words, Options& options);

// Of a flag or a variable that is refused, throws CLI::ValidationError.
void interpret_nccl_tests(const CLI::App& app, const NcclTestsWords& words, Options& options);

}  // namespace tutti::internal::perf

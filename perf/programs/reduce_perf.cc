#include "perf/harness/program.h"

int main(int argc, char** argv) {
  return tutti::internal::perf::run_program(tutti::internal::Collective::kReduce, argc, argv);
}

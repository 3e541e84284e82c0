#include "program.h"

int main(int argc, char** argv) {
  return tutti::perf::run_program(tutti::Collective::kReduce, argc, argv);
}

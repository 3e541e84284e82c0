#include "stacks.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

namespace tutti::internal::test::chaos {
namespace {

namespace fs = std::filesystem;

bool print_by_gdb(pid_t pid) {
  std::cout.flush();
  const std::string target = std::to_string(pid);
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) {
    ::dup2(STDOUT_FILENO, STDERR_FILENO);
    ::execlp("timeout", "timeout", "-s", "KILL", "60", "gdb", "-batch", "-p", target.c_str(), "-ex",
             "thread apply all bt 30", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

void print_stacks(pid_t pid) {
  std::cout << "stacks of process " << pid << "\n";
  if (print_by_gdb(pid)) return;
  std::error_code gone;
  for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    for (const char* file : {"comm", "wchan", "syscall", "stack"}) {
      std::ifstream in(task.path() / file);
      std::cout << file << ": " << in.rdbuf() << "\n";
      std::cout.clear();  // an empty file is not an error
    }
  }
}

}  // namespace tutti::internal::test::chaos

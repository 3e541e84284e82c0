// From which process on the environment's variables have the values that they have in this process: launchers that
// start each other leave their variables to all that follow, and the last one is what started this process.
//
// Threads: any.
#pragma once

#include <span>
#include <vector>

namespace tutti::internal {

struct Inheritance {
  // How many processes (this one, its parent, the parent's parent and so on) were started with these values. 0: this
  // process has set them itself.
  int generations = 0;
  // False: the kernel does not show how the next ancestor was started. The number is the least that there can be.
  bool known = true;
};

// For each group of names, that of the variable in it that was set last; variables that are not set do not count.
std::vector<Inheritance> inheritance_of(std::span<const std::vector<const char*>> groups);

}  // namespace tutti::internal

// The ancestor from which on the environment's variables have their values of this process. If launchers start each
// other, their variables stay in the environment of all later processes; the last launcher started this process.
//
// Threads: any.
#pragma once

#include <span>
#include <vector>

namespace tutti::internal {

struct Inheritance {
  // The number of processes (this one, its parent, the parent's parent and so on) that were started with these values.
  // 0: this process has set them itself.
  int generations = 0;
  // False: the kernel does not show the environment of the next ancestor, so the number is a lower bound.
  bool known = true;
};

// For each group of names: the inheritance of the variable that was set last; unset variables are ignored.
std::vector<Inheritance> inheritance_of(std::span<const std::vector<const char*>> groups);

}  // namespace tutti::internal

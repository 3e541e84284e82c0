// A variable of the environment that is set for a time.
#pragma once

#include <cstdlib>
#include <string>

namespace tutti::internal::test {

// Set while it lives. `name` outlives it.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

}  // namespace tutti::internal::test

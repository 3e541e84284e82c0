// A folder that exists for a time.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "catch_compat.h"

namespace tutti::internal::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = "/tmp/tutti_test_XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace tutti::internal::test

// A folder with the kernel's files of an artificial machine: /sys and /dev. Removed with this object.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "catch_compat.h"

namespace tutti::internal::test {

class MadeTree {
 public:
  MadeTree() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti.XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    root_ = name;
    std::filesystem::create_directories(root_ / "sys");
    std::filesystem::create_directories(root_ / "dev");
  }
  ~MadeTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  MadeTree(const MadeTree&) = delete;
  MadeTree& operator=(const MadeTree&) = delete;

  // A file with one line, and the folders above it.
  void write(const std::string& path, const std::string& line) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << line << "\n";
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(root_ / path); }
  [[nodiscard]] std::string sys() const { return root_ / "sys"; }
  [[nodiscard]] std::string dev() const { return root_ / "dev"; }
  [[nodiscard]] const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
};

}  // namespace tutti::internal::test

#include "os/kernel_files.h"

#include <array>
#include <cstddef>
#include <fstream>

namespace tutti::internal {

std::string contents_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 4096> piece{};
  while (file.read(piece.data(), piece.size()) || file.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  return file.bad() ? std::string() : text;
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return file.bad() ? std::string() : line;
}

}  // namespace tutti::internal

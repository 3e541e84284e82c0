// Sizes on the command lines of the programs: 8, 4K, 1.5G.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <optional>
#include <string>

namespace tutti::internal::perf {

// "8", "4K", "64M", "1.5G", "1T", "1P", also "4KB" and "4KiB", in bytes (powers of 1024), or nothing.
std::optional<std::size_t> parse_bytes(const std::string& text);
// What is wrong with a text that is not a size.
std::string not_a_size(const std::string& text);

// For CLI::Option::transform(): replaces a size by its number of bytes.
class SizeValue : public CLI::Validator {
 public:
  SizeValue();
};

}  // namespace tutti::internal::perf

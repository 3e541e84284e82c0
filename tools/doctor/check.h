// The result of one check of `tutti doctor`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::internal::tools {

// kFail: what was asked for cannot be used. kWarn: it can, but worse than it could, or not by everybody.
enum class Verdict : std::uint8_t { kOk, kWarn, kFail };

struct Check {
  Verdict verdict = Verdict::kOk;
  std::string what;   // "memory lock limit"
  std::string found;  // "8 MiB"
  std::string fix;    // empty: nothing to be done
};
using Checks = std::vector<Check>;

// "1.5 GiB".
std::string size_text(std::uint64_t bytes);

}  // namespace tutti::internal::tools

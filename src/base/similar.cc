#include "base/similar.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace tutti::internal {
namespace {

constexpr std::size_t kMostEdits = 4;         // from a name to the probably intended one; fewer for short names
constexpr std::size_t kLettersForAnEdit = 3;  // one more for each three letters
constexpr std::size_t kLeastPart = 3;         // letters from which on the beginning or end of a name is recognised

// Only its letters and digits, in lower case.
std::string bare(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c != '-' && c != '_') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

// How many letters must be changed, added, taken away, or exchanged with the next one (optimal string alignment).
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({changed, last[j] + 1, row[j - 1] + 1});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string_view most_similar(std::string_view name, std::span<const std::string_view> names) {
  const std::string text = bare(name);
  std::size_t least = std::numeric_limits<std::size_t>::max();
  std::string_view nearest;
  for (const std::string_view each : names) {
    const std::string other = bare(each);
    const bool part = text.size() >= kLeastPart && (other.starts_with(text) || other.ends_with(text));
    const std::size_t distance = other == text ? 0 : part ? 1 : edits(text, other);
    if (distance < least) least = distance, nearest = each;
  }
  const std::size_t most = std::clamp<std::size_t>(text.size() / kLettersForAnEdit, 1, kMostEdits);
  // A name in which every letter is wrong is similar to none.
  return least <= most && least < std::max<std::size_t>(text.size(), 1) ? nearest : std::string_view();
}

std::string meant_text(std::string_view name, std::span<const std::string_view> names) {
  const std::string_view nearest = most_similar(name, names);
  return nearest.empty() ? std::string() : fmt::format("; is {} meant?", nearest);
}

}  // namespace tutti::internal

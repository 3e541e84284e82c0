#include "size_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tools/drawing/picture.h"

namespace tutti::internal::tools {
namespace {

std::size_t fastest(const SizeTable::Row& row) {
  return static_cast<std::size_t>(std::min_element(row.us.begin(), row.us.end()) - row.us.begin());
}

}  // namespace

std::vector<BestFrom> best_of(const SizeTable& table) {
  std::vector<BestFrom> best;
  for (const SizeTable::Row& row : table.rows) {
    const std::size_t now = fastest(row);
    if (std::isinf(row.us[now]) || (!best.empty() && best.back().algorithm == now)) continue;
    best.push_back({row.bytes, now});
  }
  return best;
}

std::string to_text(const SizeTable& table) {
  constexpr std::size_t kLeastWidth = 10;
  const auto width = [&](std::size_t column) { return std::max(kLeastWidth, table.algorithms[column].size()); };
  std::string text = fmt::format("{:>14}", "size (B)");
  // One place more is for the star.
  for (std::size_t i = 0; i < table.algorithms.size(); ++i) {
    text += fmt::format("  {:>{}} ", table.algorithms[i], width(i));
  }
  text.pop_back();
  text += '\n';
  for (const SizeTable::Row& row : table.rows) {
    text += fmt::format("{:>14}", row.bytes);
    const std::size_t best = fastest(row);
    for (std::size_t i = 0; i < row.us.size(); ++i) {
      const std::string cell = std::isinf(row.us[i]) ? "-" : fmt::format("{:.2f}", row.us[i]);
      text += fmt::format("  {:>{}}{}", cell, width(i), i == best && cell != "-" ? '*' : ' ');
    }
    while (text.back() == ' ') text.pop_back();
    text += '\n';
  }
  std::string list;
  for (const BestFrom& one : best_of(table)) {
    list += fmt::format("{}{} from {} on", list.empty() ? "" : ", ", table.algorithms[one.algorithm],
                        text_of_bytes(static_cast<double>(one.bytes)));
  }
  return text + fmt::format("\n* the best: {}\n", list);
}

}  // namespace tutti::internal::tools

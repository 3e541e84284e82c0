// Suggestions for unknown names of settings, subcommands, flags, collectives, algorithms.
//
// Threads: any; nothing here has state.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tutti::internal {

// The name in `names` that is most similar to `name`: with another case, "-" or "_", incomplete, or with a few wrong
// letters. Empty: none is similar.
std::string_view most_similar(std::string_view name, std::span<const std::string_view> names);

// "; is NAME meant?" with the most similar one; empty if none is similar.
std::string meant_text(std::string_view name, std::span<const std::string_view> names);

}  // namespace tutti::internal

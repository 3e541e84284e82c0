// What was probably meant by a name that is not known: of settings, subcommands, flags, collectives, algorithms.
//
// Threads: any; nothing here has state.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tutti::internal {

// Of the names the one that is most like `name`: written otherwise (case, "-" and "_"), begun, or with a few letters
// wrong. Empty: none is like it.
std::string_view most_similar(std::string_view name, std::span<const std::string_view> names);

// "; is NAME meant?" with the most similar one; empty where none is.
std::string meant_text(std::string_view name, std::span<const std::string_view> names);

}  // namespace tutti::internal

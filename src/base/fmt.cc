// The library part of fmt::format (<fmt/core.h>), compiled into this library. So libtutti.so needs no libfmt.so, and a
// program that uses it may have another version of fmt. Its symbols are hidden like the rest of this code.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

#include <string>

namespace tutti::internal {
namespace {

// Keeps the inline function, which the compiler would otherwise omit as unused.
[[gnu::used]] std::string (*const kept)(fmt::string_view, fmt::format_args) = fmt::vformat;

}  // namespace
}  // namespace tutti::internal

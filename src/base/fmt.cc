// What fmt::format (<fmt/core.h>) calls of its library, compiled into this one, once. So libtutti.so needs no
// libfmt.so: who embeds it may have another version of that, and needs none where it runs. It is as hidden as the rest
// of this code.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

#include <string>

namespace tutti::internal {
namespace {

// The compiler leaves out inline functions that nobody uses.
[[gnu::used]] std::string (*const kept)(fmt::string_view, fmt::format_args) = fmt::vformat;

}  // namespace
}  // namespace tutti::internal

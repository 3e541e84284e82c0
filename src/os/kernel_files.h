// Small files of the kernel, under /proc and /sys. A process may end while its file is read: then read() fails, and
// std::istreambuf_iterator would throw. These functions return an empty text.
#pragma once

#include <string>

namespace tutti::internal {

// The whole file. Empty if there is none, or if it cannot be read to its end.
std::string contents_of(const std::string& path);
// Without its end of line. Empty as above.
std::string first_line_of(const std::string& path);

}  // namespace tutti::internal

#include "calls/descriptions.h"

#include <new>
#include <string_view>

namespace tutti::internal {
namespace {

// Allocates no memory: the name fits the internal buffer of std::string, except reduce_scatter_v, which is cut.
std::string short_name(Collective collective) {
  return std::string(std::string_view(name_of(collective)).substr(0, 14));
}

}  // namespace

std::string describe(const Call& call, const transport::Fingerprint& fingerprint, bool others) noexcept {
  try {
    return executor::describe(fingerprint) + (others ? " and others of its group" : "");
  } catch (const std::bad_alloc&) {
    return short_name(call.collective);
  }
}

std::string describe(std::span<const Transfer> transfers) noexcept {
  try {
    return describe(transfers.front()) + (transfers.size() > 1 ? " and others of its group" : "");
  } catch (const std::bad_alloc&) {
    return transfers.front().sends ? "send" : "recv";  // fits the internal buffer of std::string
  }
}

std::string lines_within(const std::vector<std::string>& lines, std::size_t room) {
  std::string text;
  for (const std::string& line : lines) {
    if (&line != &lines.front()) {
      if (text.size() + 1 + line.size() + 1 > room) break;
      text += '\n';
    }
    text += line;
  }
  return text;
}

const char* name_of(const Batch& batch) {
  if (batch.calls.size() + batch.transfers.size() != 1) return "group";
  if (batch.calls.size() == 1) return name_of(batch.calls.front().collective);
  return batch.transfers.front().sends ? "send" : "recv";
}

}  // namespace tutti::internal

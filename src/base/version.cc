#include "base/version.h"

namespace tutti::internal {

const char* library_version() {
  return TUTTI_VERSION_TEXT;
}

}  // namespace tutti::internal

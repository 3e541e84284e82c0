#include "base/version.h"

namespace tutti::internal {

const char* library_version() {
  return TUTTI_VERSION;
}

}  // namespace tutti::internal

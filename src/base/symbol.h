// Looks up functions in libraries that are opened at run time.
#pragma once

#include <dlfcn.h>

namespace tutti::internal {

// Stores the function with that name. False if the library, a handle of dlopen(3), does not have it: dlerror(3) then
// has the reason.
template <class Function>
bool find_symbol(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

}  // namespace tutti::internal

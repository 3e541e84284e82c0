// Functions of libraries that are opened at run time.
#pragma once

#include <dlfcn.h>

namespace tutti::internal {

// Stores the function of that name. False if the library, a handle of dlopen(3), has none: dlerror(3) then says so.
template <class Function>
bool find_symbol(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

}  // namespace tutti::internal

// The entries of a folder.
#pragma once

#include <dirent.h>

#include <memory>
#include <string>

namespace tutti::internal::observe {

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

// Null: errno says why.
inline Folder open_folder(const std::string& path) {
  return Folder(::opendir(path.c_str()));
}

}  // namespace tutti::internal::observe

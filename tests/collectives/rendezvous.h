// Ranks that were started one by one find each other through a shared folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tutti/tutti.h"

namespace tutti::internal::test {

// False if it does not appear within `ms`.
bool wait_for_file(const std::filesystem::path& file, std::int64_t ms);

// Writes the file in one step, so that a reader never sees a part of it.
void write_file(const std::filesystem::path& file, const std::string& content);

// Rank 0 makes the unique id and leaves it in `folder`, which must be new; the others wait for it up to a minute.
// Empty, or what is wrong.
std::string join_in_folder(const std::filesystem::path& folder, int rank, int ranks, tuttiComm_t* comm);

}  // namespace tutti::internal::test

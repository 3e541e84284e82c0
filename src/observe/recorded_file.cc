#include "observe/recorded_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "observe/folder.h"
#include "os/held_signal.h"
#include "os/kernel.h"

namespace tutti::internal::observe {
namespace {

constexpr std::string_view kPrefix = "tutti-";
// Earlier processes with the same id, and those of other containers.
constexpr int kMostNames = 1000;

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Where the file system has no locks, readers do without.
void lock(int fd) {
  struct flock wanted = whole_file();
  (void)::fcntl(fd, F_OFD_SETLK, &wanted);
}

Result<std::string> absolute(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) return Status::system("making " + folder, errno);
  struct FreeText {
    void operator()(char* text) const { std::free(text); }
  };
  const std::unique_ptr<char, FreeText> path(::realpath(folder.c_str(), nullptr));
  if (path == nullptr) return Status::system(folder, errno);
  return std::string(path.get());
}

}  // namespace

Result<RecordedFile> make_recorded(const std::string& folder, std::string_view kind) {
  auto where = absolute(folder);
  if (!where.is_ok()) return where.status();
  std::array<char, HOST_NAME_MAX + 1> host{};
  (void)os::kernel().gethostname(host.data(), host.size() - 1);
  const std::string base = fmt::format("{}/{}{}-{}", *where, kPrefix, host.data(), ::getpid());
  for (int i = 1; i <= kMostNames; ++i) {
    RecordedFile file;
    file.path = base + (i == 1 ? "" : fmt::format("-{}", i)) + "." + std::string(kind);
    file.fd = UniqueFd(::open(file.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file.fd.valid() && errno != EEXIST) return Status::system("making " + file.path, errno);
    if (!file.fd.valid()) continue;
    lock(file.fd.get());
    return file;
  }
  return Status::system(fmt::format("{} has {} files of processes with this id", folder, kMostNames), EEXIST);
}

Status allocate_file(int fd, std::size_t at, std::size_t bytes) {
  const HeldSignal over_the_limit(SIGXFSZ);  // RLIMIT_FSIZE
  // Where the file system cannot (EOPNOTSUPP), the C library writes zeros.
  const int error = ::posix_fallocate(fd, static_cast<off_t>(at), static_cast<off_t>(bytes));
  return error == 0 ? Status() : Status::system("allocating a file", error);
}

bool is_recorded(std::string_view path, std::string_view kind) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.size() > kPrefix.size() + kind.size() + 1 && name.substr(0, kPrefix.size()) == kPrefix &&
         name.substr(name.size() - kind.size()) == kind && name[name.size() - kind.size() - 1] == '.';
}

Result<std::vector<std::string>> find_recorded(const std::string& folder, std::string_view kind) {
  const Folder open = open_folder(folder);
  if (open == nullptr) {
    if (errno == ENOENT || errno == ENOTDIR) return Status::invalid_argument("there is no folder " + folder);
    return Status::system(folder, errno);
  }
  std::vector<std::string> paths;
  while (const dirent* const entry = ::readdir(open.get())) {
    if (is_recorded(entry->d_name, kind)) paths.push_back(folder + "/" + entry->d_name);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_being_written(int fd) {
  struct flock found = whole_file();
  return ::fcntl(fd, F_OFD_GETLK, &found) == 0 && found.l_type != F_UNLCK;
}

}  // namespace tutti::internal::observe

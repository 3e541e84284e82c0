#include "output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tutti::internal::perf {

OutputFile::OutputFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<OutputFile> OutputFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return Status::system("cannot write " + path, errno);
  return OutputFile(path, fd);
}

Status OutputFile::write(const std::string& text) {
  struct stat about {};
  // A pipe or a device has nothing to cut off.
  if (::fstat(fd_, &about) == 0 && S_ISREG(about.st_mode) && ::ftruncate(fd_, 0) != 0) {
    return Status::system("cannot write " + path_, errno);
  }
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(fd_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Status::system("cannot write " + path_, errno);
    done += static_cast<std::size_t>(written);
  }
  // What a file system refuses late, it says here.
  const int fd = std::exchange(fd_, -1);
  return ::close(fd) == 0 ? Status::ok() : Status::system("cannot write " + path_, errno);
}

}  // namespace tutti::internal::perf

#include "output_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tutti::internal::perf {
namespace {

constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC;
constexpr mode_t kMode = 0666;
constexpr int kMostNames = 10'000;

}  // namespace

OutputFile::OutputFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {
  struct stat about {};
  struct stat output {};
  if (::fstat(fd_, &about) != 0 || !S_ISREG(about.st_mode)) return;
  replaces_ = true;
  if (::fstat(STDOUT_FILENO, &output) != 0 || about.st_dev != output.st_dev || about.st_ino != output.st_ino) return;
  // "/dev/stdout" of an output that goes to a file: behind what else is printed.
  replaces_ = ::dup3(STDOUT_FILENO, fd_, O_CLOEXEC) < 0;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      replaces_(other.replaces_),
      appended_(other.appended_),
      held_(std::move(other.held_)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<OutputFile> OutputFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), kFlags, kMode);
  if (fd < 0) return Status::system("cannot write " + path, errno);
  return OutputFile(path, fd);
}

Result<OutputFile> OutputFile::open_beside(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) == 0 && (!S_ISREG(about.st_mode) || about.st_size == 0)) return open(path);
  std::string name = path;
  for (int number = 0; number < kMostNames; ++number) {
    const int fd = ::open(name.c_str(), kFlags | O_EXCL, kMode);
    if (fd >= 0) return OutputFile(std::move(name), fd);
    if (errno != EEXIST) return Status::system("cannot write " + name, errno);
    name = fmt::format("{}.{}", path, number);
  }
  return Status::invalid_usage(fmt::format("there are {} files beside {} already: name another one", kMostNames, path));
}

Status OutputFile::write(const std::string& text, off_t offset) {
  for (std::size_t done = 0; done < text.size();) {
    const char* const begin = text.data() + done;
    const ssize_t written = replaces_ ? ::pwrite(fd_, begin, text.size() - done, offset + static_cast<off_t>(done))
                                      : ::write(fd_, begin, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Status::system("cannot write " + path_, errno);
    done += static_cast<std::size_t>(written);
  }
  return Status::ok();
}

Status OutputFile::append(const std::string& text, const std::string& end) {
  if (!replaces_) {
    held_ += text;
    return Status::ok();
  }
  const off_t offset = std::exchange(appended_, appended_ + static_cast<off_t>(text.size()));
  return write(text + end, offset);
}

Status OutputFile::close() {
  const Status written = write(held_, 0);
  // Some file systems report a failed write only here.
  const int fd = std::exchange(fd_, -1);
  const bool closed = ::close(fd) == 0;
  return closed || !written.is_ok() ? written : Status::system("cannot write " + path_, errno);
}

}  // namespace tutti::internal::perf

// Metrics in files.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "monitor/metrics_duties.h"
#include "monitor/metrics_periodic.h"
#include "monitor/prometheus.h"
#include "os/unique_fd.h"

namespace tutti::internal::monitor {
namespace {

// A process rewrites its file each interval, unless it is stopped.
constexpr std::int64_t kLeastStaleS = 600;
constexpr int kIntervalsUntilStale = 10;

Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Status::system("write", errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

// No link: others may be allowed to write to the folder.
Result<UniqueFd> open_file(const std::string& path, int how) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | how, 0644));
  if (!fd.valid()) return Status::system("open", errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return Status::system("open", EINVAL);
  return fd;
}

// The part of the names of a host's files before the process.
std::string prefix_of(const MetricsWriter& writer) {
  std::string host = writer.host;
  std::replace(host.begin(), host.end(), '/', '_');
  return "tutti-" + host + "-";
}

// The rest. Containers with the host's name may have the same process ids: their files also have the number of the
// namespace in which the process has that id.
std::string name_of_process(const MetricsWriter& writer) {
  constexpr ino_t kNamespaceOfHost = 0xEFFFFFFC;  // PROC_PID_INIT_INO of the kernel
  struct stat own {};
  const bool apart = ::stat("/proc/self/ns/pid", &own) == 0 && own.st_ino != kNamespaceOfHost;
  return std::to_string(writer.pid) + (apart ? fmt::format(".{}", own.st_ino) : "");
}

class PrometheusFile final : public PeriodicDuty {
 public:
  PrometheusFile(const std::string& directory, const MetricsWriter& writer)
      : PeriodicDuty(writer, "TUTTI_METRICS: " + directory),
        directory_(directory),
        prefix_(prefix_of(writer)),
        path_(fmt::format("{}/{}{}{}", directory, prefix_, name_of_process(writer), kEnd)),
        new_path_(path_ + ".new") {
    const Status removed = guarded([this] { return remove_stale(), Status(); });
    (void)removed;
  }
  ~PrometheusFile() override {
    (void)::unlink(path_.c_str());
    (void)::unlink(new_path_.c_str());
  }

 private:
  static constexpr std::string_view kEnd = ".prom";

  Status write() override {
    auto own = read_own(writer().pid);
    if (!own.is_ok()) return own.status();
    Status written = write_new(prometheus_text(*own));
    if (written.is_ok() && std::rename(new_path_.c_str(), path_.c_str()) != 0) {
      written = Status::system("rename", errno);
    }
    if (!written.is_ok()) (void)::unlink(new_path_.c_str());
    return written;
  }

  Status write_new(const std::string& text) const {
    auto fd = open_file(new_path_, O_TRUNC);
    return fd.is_ok() ? write_all(fd->get(), text) : fd.status();
  }

  // Files of processes that were killed: their values would be taken for present ones.
  void remove_stale() const {
    DIR* const folder = ::opendir(directory_.c_str());
    if (folder == nullptr) return;
    const std::int64_t stale_s =
        std::max<std::int64_t>(kLeastStaleS, kIntervalsUntilStale * writer().interval_ms / 1000);
    while (const dirent* const entry = ::readdir(folder)) {
      std::string_view name = entry->d_name;
      if (!name.starts_with(prefix_) || !name.ends_with(kEnd)) continue;
      const std::string_view pid = name.substr(prefix_.size(), name.size() - prefix_.size() - kEnd.size());
      if (pid.empty() || pid.find_first_not_of("0123456789.") != std::string_view::npos) continue;
      struct stat info {};
      if (::fstatat(::dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (std::time(nullptr) - info.st_mtime > stale_s) (void)::unlinkat(::dirfd(folder), entry->d_name, 0);
    }
    ::closedir(folder);
  }

  const std::string directory_;
  const std::string prefix_;
  const std::string path_;
  const std::string new_path_;
};

class LinesFile final : public PeriodicDuty {
 public:
  LinesFile(const std::string& directory, const MetricsWriter& writer)
      : PeriodicDuty(writer, "TUTTI_METRICS: " + directory),
        path_(fmt::format("{}/{}{}.jsonl", directory, prefix_of(writer), name_of_process(writer))),
        lines_(writer) {}
  ~LinesFile() override { write_last(); }

 private:
  // Opened each time: another program may move the file away meanwhile.
  Status write() override {
    auto lines = lines_.next();
    for (std::size_t i = 0; lines.is_ok() && i < lines->size() && pending_.size() < kMostPendingBytes; ++i) {
      pending_ += (*lines)[i];
    }
    Status written = pending_.empty() ? Status() : append();
    if (written.is_ok()) pending_.clear();
    return lines.is_ok() ? written : lines.status();
  }

  // All that is pending, or nothing: half a line would spoil the next one.
  Status append() {
    auto fd = open_file(path_, O_APPEND);
    struct stat before {};
    if (!fd.is_ok()) return fd.status();
    if (::fstat(fd->get(), &before) != 0) return Status::system("fstat", errno);
    Status written = write_all(fd->get(), pending_);
    if (!written.is_ok() && ::ftruncate(fd->get(), before.st_size) != 0) {
      return Status::system(written.message() + ", and then ftruncate", errno);
    }
    return written;
  }

  static constexpr std::size_t kMostPendingBytes = std::size_t{1} << 20;

  const std::string path_;
  LinesOfProcess lines_;
  std::string pending_;  // what could not be written yet; if it is too much, later lines are lost
};

}  // namespace

Result<std::unique_ptr<Duty>> make_prometheus_file(const std::string& directory, const MetricsWriter& writer) {
  return std::unique_ptr<Duty>(std::make_unique<PrometheusFile>(directory, writer));
}

Result<std::unique_ptr<Duty>> make_lines_file(const std::string& directory, const MetricsWriter& writer) {
  return std::unique_ptr<Duty>(std::make_unique<LinesFile>(directory, writer));
}

}  // namespace tutti::internal::monitor

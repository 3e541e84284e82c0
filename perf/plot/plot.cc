#include "plot.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "os/unique_fd.h"

namespace tutti::internal::perf {
namespace {

// A file in memory that holds `text`, to be read from its beginning.
Result<UniqueFd> memory_file(const std::string& text) {
  UniqueFd file(::memfd_create("tutti-plot", MFD_CLOEXEC));
  if (!file.valid()) return Status::system("memfd_create", errno);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(file.get(), text.data() + done, text.size() - done);
    if (written < 0) return Status::system("writing the results for the drawing program", errno);
    done += static_cast<std::size_t>(written);
  }
  if (::lseek(file.get(), 0, SEEK_SET) != 0) return Status::system("lseek", errno);
  return file;
}

std::string whole_text(int fd) {
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t n = 0; (n = ::pread(fd, piece.data(), piece.size(), static_cast<off_t>(text.size()))) > 0;) {
    text.append(piece.data(), static_cast<std::size_t>(n));
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// Runs tutti_plot with the arguments, which reads `input`. Not ok, with what it has said, if it fails.
Status run_plot(std::vector<std::string> arguments, const std::string& input) {
  std::error_code none;
  const std::filesystem::path script =
      std::filesystem::read_symlink("/proc/self/exe", none).replace_filename("tutti_plot");
  if (::access(script.c_str(), R_OK) != 0) {
    return Status::system(script.string() + ", which draws the picture and lies beside this program", errno);
  }
  Result<UniqueFd> in = memory_file(input);
  if (!in.is_ok()) return in.status();
  Result<UniqueFd> said = memory_file("");
  if (!said.is_ok()) return said.status();
  arguments.insert(arguments.begin(), {"python3", script.string()});
  std::vector<char*> words;
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in->get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, said->get(), STDERR_FILENO);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, words.front(), &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return Status::system("starting python3, which draws with matplotlib (Debian: python3-matplotlib)", error);
  int ended = 0;
  while (::waitpid(child, &ended, 0) < 0) {
    if (errno != EINTR) return Status::system("waiting for python3", errno);
  }
  if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0) return Status::ok();
  const std::string why = whole_text(said->get());
  return {Code::kSystemError, why.empty() ? "tutti_plot has failed" : why};
}

}  // namespace

Status check_plot(const std::string& option, const std::string& results) {
  const Status status = run_plot({"--check"}, "");
  if (status.is_ok()) return status;
  return Status::invalid_usage(option + " cannot draw here; " + results +
                               " can be drawn elsewhere, by tutti_plot: " + status.message());
}

Status draw_plot(const std::string& path, const std::string& json, const std::string& format) {
  std::vector<std::string> arguments{"--output", path};
  if (!format.empty()) arguments.insert(arguments.end(), {"--format", format});
  return run_plot(std::move(arguments), json);
}

}  // namespace tutti::internal::perf

#include "merged_output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "os/clock.h"

namespace tutti::internal::tools {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;
constexpr std::size_t kLongestLine = std::size_t{64} << 10;
// A terminal shows a line that has not ended, such as a prompt, when nothing has been added to it for so long.
constexpr int kPromptMs = 200;
constexpr int kNobody = -1;
constexpr int kLauncher = -2;

// Like the terminal `like`, but passes on every byte unchanged. Invalid if the system has no terminal left.
OutputPipe open_terminal(int like) {
  OutputPipe pipe;
  UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, 128> name{};
  if (!master.valid() || ::grantpt(master.get()) != 0 || ::unlockpt(master.get()) != 0 ||
      ::ptsname_r(master.get(), name.data(), name.size()) != 0) {
    return pipe;
  }
  UniqueFd slave(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios mode{};
  if (!slave.valid() || ::tcgetattr(slave.get(), &mode) != 0) return pipe;
  ::cfmakeraw(&mode);
  if (::tcsetattr(slave.get(), TCSANOW, &mode) != 0) return pipe;
  winsize size{};
  if (::ioctl(like, TIOCGWINSZ, &size) == 0) ::ioctl(slave.get(), TIOCSWINSZ, &size);
  pipe.source = std::move(master);
  pipe.sink = std::move(slave);
  return pipe;
}

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Result<OutputPipe> open_output_pipe(int destination) {
  if (::isatty(destination) == 1) {
    OutputPipe terminal = open_terminal(destination);
    if (terminal.source.valid()) return terminal;
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status::system("pipe", errno);
  OutputPipe pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  // The program's end waits, as programs expect.
  if (::fcntl(pipe.source.get(), F_SETFL, O_NONBLOCK) != 0) return Status::system("fcntl", errno);
  return pipe;
}

MergedOutput::MergedOutput(int destination, bool labelled)
    : destination_(destination), labelled_(labelled), terminal_(::isatty(destination) == 1), unfinished_(kNobody) {}

void MergedOutput::add(int rank, UniqueFd source) {
  sources_.push_back({rank, std::move(source)});
}

void MergedOutput::say(const std::string& line) {
  emit(kLauncher, line + "\n");
}

void MergedOutput::watch(std::vector<pollfd>* entries, int* timeout_ms) {
  const auto wake_in = [timeout_ms](int ms) { *timeout_ms = *timeout_ms < 0 ? ms : std::min(*timeout_ms, ms); };
  waits_to_write_ = !unwritten_.empty();
  if (waits_to_write_) {
    destination_entry_ = entries->size();
    entries->push_back({destination_, POLLOUT, 0});
    return;
  }
  if (last_ && !sources_.empty()) wake_in(0);
  for (Source& source : sources_) {
    source.entry = entries->size();
    entries->push_back({source.fd.get(), POLLIN, 0});
    if (terminal_ && !source.line.empty()) wake_in(kPromptMs);
  }
}

// Whole lines are emitted, and what would become too long.
void MergedOutput::read(Source& source) {
  std::array<char, kReadBytes> bytes;
  const ssize_t got = ::read(source.fd.get(), bytes.data(), bytes.size());
  if (got < 0 && would_block(errno) && !last_) return;
  if (got <= 0) {  // a terminal ends with EIO
    emit(source.rank, source.line);
    source.ended = true;
    return;
  }
  source.read_ns = now_ns();
  std::string_view text(bytes.data(), static_cast<std::size_t>(got));
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    source.line.append(text.substr(0, end + 1));
    emit(source.rank, source.line);
    source.line.clear();
    text.remove_prefix(end + 1);
  }
  source.line.append(text);
  if (source.line.size() < kLongestLine) return;
  emit(source.rank, source.line);
  source.line.clear();
}

// The next part of a line continues it if no other source has written in between; otherwise it starts a new line.
void MergedOutput::emit(int rank, std::string_view text) {
  if (text.empty() || broken_) return;
  const bool goes_on = unfinished_ == rank;
  if (unfinished_ != kNobody && !goes_on) unwritten_ += '\n';
  if (!goes_on && labelled_ && rank != kLauncher) unwritten_.append("[").append(std::to_string(rank)).append("] ");
  unwritten_ += text;
  unfinished_ = text.back() == '\n' ? kNobody : rank;
}

void MergedOutput::forget() {
  unwritten_.clear();
  written_ = 0;
}

// Not more at once than a pipe that is ready takes without waiting.
int MergedOutput::write_some() {
  const std::size_t bytes = std::min<std::size_t>(unwritten_.size() - written_, PIPE_BUF);
  const ssize_t put = ::write(destination_, unwritten_.data() + written_, bytes);
  if (put >= 0) {
    written_ += static_cast<std::size_t>(put);
    if (written_ == unwritten_.size()) forget();
    return 0;
  }
  if (would_block(errno)) return 0;
  const int error = errno;
  broken_ = true;
  forget();
  return error;
}

int MergedOutput::serve(const std::vector<pollfd>& entries) {
  if (waits_to_write_) return entries[destination_entry_].revents == 0 ? 0 : write_some();
  const std::int64_t now = now_ns();
  for (std::size_t left = sources_.size(); left > 0 && unwritten_.size() < kReadBytes; --left) {
    Source source = std::move(sources_.front());
    sources_.pop_front();
    if (last_ || entries[source.entry].revents != 0) read(source);
    if (terminal_ && !source.line.empty() && now - source.read_ns >= kPromptMs * std::int64_t{1'000'000}) {
      emit(source.rank, source.line);
      source.line.clear();
    }
    if (!source.ended) sources_.push_back(std::move(source));
  }
  return 0;
}

}  // namespace tutti::internal::tools

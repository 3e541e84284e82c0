#include "base/log.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <climits>
#include <cstdint>
#include <vector>

#include "base/config.h"

namespace tutti::internal::log {
namespace {

constexpr std::array<std::string_view, 4> kLevels = {"error", "warn", "info", "debug"};  // by the values of Level

bool is_control(char c) {
  constexpr char kDelete = 0x7f;
  return (c >= 0 && c < ' ') || c == kDelete;
}

Level level_from_environment() {
  const auto text = environment_variable("TUTTI_LOG");
  return text ? level_named(*text).value_or(Level::kWarn) : Level::kWarn;
}

// The ranks in this process's log lines. Earlier versions are kept, because another thread may be using them.
struct Ranks {
  std::uint64_t job;
  std::vector<int> ranks;  // ascending
  std::string text;
  const Ranks* before;
};
std::atomic<const Ranks*> process_ranks{nullptr};

// "rank 3 ", "ranks 0-3 ", "ranks 0,2 ".
std::string text_of(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {} ", ranks.front());
  if (ranks.back() - ranks.front() == static_cast<int>(ranks.size()) - 1) {
    return fmt::format("ranks {}-{} ", ranks.front(), ranks.back());
  }
  std::string text;
  for (const int rank : ranks) text += fmt::format("{}{}", text.empty() ? "ranks " : ",", rank);
  return text + " ";
}

// Does not use the C library's time functions, whose locks may be held in a forked child.
std::string time_text() {
  using namespace std::chrono;
  const auto now = floor<milliseconds>(system_clock::now());
  const auto day = floor<days>(now);
  const year_month_day date(day);
  const hh_mm_ss<milliseconds> time(now - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), time.hours().count(),
                     time.minutes().count(), time.seconds().count(), time.subseconds().count());
}

// A file accepts lines of any length without blocking. A write of up to PIPE_BUF bytes to a writable pipe is atomic and
// does not block; longer writes may block, also on a terminal.
bool stderr_is_file() {
  struct stat info {};
  return ::fstat(STDERR_FILENO, &info) == 0 && S_ISREG(info.st_mode);
}

// Cuts to at most `most` bytes, and says how many are missing. Does not cut inside a character of UTF-8.
void cut(std::string* text, std::size_t most) {
  constexpr std::size_t kMostMarkBytes = 40;  // the mark below with the longest number has 37
  if (text->size() <= most) return;
  std::size_t kept = most - kMostMarkBytes;
  while (kept > 0 && (static_cast<unsigned char>((*text)[kept]) & 0xC0) == 0x80) --kept;
  const std::size_t missing = text->size() - kept;
  text->resize(kept);
  *text += fmt::format(" ... ({} bytes more)", missing);
}

}  // namespace

bool add_rank(std::uint64_t job, int rank) {
  const Ranks* known = process_ranks.load();
  for (;;) {
    if (known != nullptr && known->job != job) return false;
    auto ranks = known == nullptr ? std::vector<int>() : known->ranks;
    const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (at != ranks.end() && *at == rank) return true;
    ranks.insert(at, rank);
    const std::string text = text_of(ranks);
    const auto* const next = new Ranks{job, std::move(ranks), text, known};
    if (process_ranks.compare_exchange_strong(known, next)) return true;
    delete next;
  }
}

std::optional<Level> level_named(std::string_view name) {
  for (std::size_t i = 0; i < kLevels.size(); ++i) {
    const bool same = std::equal(name.begin(), name.end(), kLevels[i].begin(), kLevels[i].end(),
                                 [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
    if (same) return static_cast<Level>(i);
  }
  return std::nullopt;
}

bool has_controls(std::string_view text) {
  return std::any_of(text.begin(), text.end(), is_control);
}

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) shown += is_control(c) ? fmt::format("\\x{:02x}", c) : std::string(1, c);
  return shown;
}

// No guarded static: a forked child would wait for a thread that does not exist in it.
bool enabled(Level level) {
  static std::atomic<int> most{-1};
  int value = most.load(std::memory_order_relaxed);
  if (value < 0) {
    value = static_cast<int>(level_from_environment());
    most.store(value, std::memory_order_relaxed);
  }
  return static_cast<int>(level) <= value;
}

// Never blocks on standard error, because other ranks rely on the answers of this process's threads. If it accepts no
// line now, the line is dropped, and the next line says how many were.
void write(Level level, const std::string& line) {
  static std::atomic<unsigned> lost{0};
  pollfd p{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&p, 1, 0) <= 0 || (p.revents & POLLOUT) == 0) {
    ++lost;
    return;
  }
  utsname host{};
  (void)::uname(&host);
  const Ranks* const ranks = process_ranks.load();
  const std::string begin = fmt::format("{} {} tutti[{}] {}", time_text(), host.nodename, ::getpid(),
                                        ranks == nullptr ? std::string() : ranks->text);
  std::string text = begin + std::string(kLevels[static_cast<std::size_t>(level)]) + ": " + printable(line);
  const std::size_t most = stderr_is_file() ? SIZE_MAX : PIPE_BUF;
  cut(&text, most - 1);
  text += "\n";
  const unsigned before = lost.exchange(0);
  const std::string gap =
      before == 0 ? ""
                  : fmt::format("{}warn: {} earlier log lines were dropped (standard error was not being read)\n",
                                begin, before);
  if (gap.size() + text.size() <= most) {
    text.insert(0, gap);
  } else {
    lost += before;
  }
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace tutti::internal::log

// Which process writes a file that other processes read, and when: a part of the file's header.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

namespace tutti::internal::observe {

struct Origin {
  std::int64_t pid;  // a forked child has its parent's files open
  // Of one moment: with those of another, they give the speed of the counter.
  std::uint64_t ticks;
  std::int64_t monotonic_ns;  // CLOCK_MONOTONIC
  std::int64_t realtime_ns;   // CLOCK_REALTIME
  std::array<char, 64> host;
  std::array<char, 32> version;  // of the library
  std::array<char, 16> program;  // the name of the process's command
  // From /proc: of the kernel that runs; of the process, which tells it from later ones with its id; and of the
  // namespace in which the process has that id.
  std::array<char, 40> boot;
  std::uint64_t start_time;
  std::uint64_t pid_namespace;
};

// /proc/PID/stat: the name of the process's command, which may have any bytes, and what follows, which begins with its
// state. Nothing: there is no such process. `pid`: a number, or "self". Any thread.
struct ProcessStat {
  std::string name;
  std::string fields;
};
std::optional<ProcessStat> stat_of(const std::string& pid);

// This process, now. Any thread.
void set_origin(Origin* origin);

// Machines may share a name, and one has another clock after each boot: what has the same text has the same clock.
std::string machine_of(const Origin& origin);
bool of_this_machine(const Origin& origin);
// Of this reader: may it know whether the process of the origin lives?
enum class Life : std::uint8_t { kUnknown, kLives, kEnded };
Life life_of(const Origin& origin);

// The number by which /proc knows this process, which calls itself `own`. It is another one if /proc is that of an
// outer namespace, as after `unshare --pid` without --mount-proc.
int number_in_proc(int own);

// For a terminal: text of another process may have any bytes.
template <std::size_t size>
std::string text_of(const std::array<char, size>& text) {
  std::string printable(text.data(), ::strnlen(text.data(), size));
  std::replace_if(
      printable.begin(), printable.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return printable;
}

}  // namespace tutti::internal::observe

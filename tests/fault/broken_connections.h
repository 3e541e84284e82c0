// Breaks the TCP connections of links between ranks that are threads of this process.
#pragma once

#include <cstddef>
#include <random>
#include <set>
#include <vector>

namespace tutti::internal::test {

class Connections {
 public:
  // Later connections of this process are those of links. Called after the ranks have joined and before their first
  // operation: the control tree makes no more connections while no rank dies.
  Connections();

  enum class How {
    kEnd,    // as shutdown(2) of both directions: the other side finds the end of the stream
    kReset,  // as `ss -K`: this side finds an error, the other side is reset. Needs CAP_NET_ADMIN
  };
  // Whether the system allows it.
  [[nodiscard]] static bool can(How how);
  // The descriptors of connected sockets of links, of both sides.
  [[nodiscard]] std::vector<int> all() const;
  // Breaks the connection of one of them. It may be closed meanwhile.
  static void break_one(int fd, How how);
  // Breaks one that `random` chooses. False: there is none.
  bool break_any(How how, std::minstd_rand& random) const;
  void break_all(How how) const;

 private:
  std::set<unsigned long> others_;  // inode numbers
};

}  // namespace tutti::internal::test

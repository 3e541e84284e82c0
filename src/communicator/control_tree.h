// The ControlTree over sockets. See bootstrap.h for what it promises.
//
// Messages, each a frame: gather (a subtree's bytes, upwards), all (everybody's bytes, downwards),
// notice (a failure), goodbye (a rank calls nothing more, and what it has called), calls (of a rank that waits for
// long or is asked, upwards), compare (all ranks are to tell their calls), and those by which ranks find out who has
// not arrived (control_inquiry.cc). Notices, goodbyes and compares are forwarded to every neighbour but the one they
// came from; a tree has no cycles, so each reaches every rank once.
//
// What it cannot do: a rank that has left splits the tree, and its parts hear no more of each other.
// Ranks leave when a job ends, all of them within a short time, so no other paths are kept. A rank that
// is waited for from another part is noticed by the data connections and the operation's deadline.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "communicator/bootstrap.h"

namespace tutti {

struct TreeNeighbour {
  int rank = -1;
  bool is_parent = false;
  std::string who;  // "rank 3 (host a, pid 77)"
  UniqueFd socket;
};

// REQUIRES: at most one parent; none for rank 0; tree_children() as the other neighbours.
std::unique_ptr<ControlTree> make_socket_tree(int rank, int ranks, std::vector<TreeNeighbour> neighbours);

}  // namespace tutti

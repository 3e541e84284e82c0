// The exchange over the control tree while the communicator is made.
#include <algorithm>
#include <climits>
#include <utility>

#include "bootstrap/rank_list.h"
#include "bootstrap/root_service.h"
#include "bootstrap/socket_tree.h"
#include "net/socket.h"

namespace tutti::internal::control {
namespace {

// The deadline passes everywhere at once, but the error should come from the rank that stands right
// above the culprit. So whoever is further away lets it speak first, by so much for each level.
constexpr std::int64_t kGraceMs = 100;

Deadline later(Deadline deadline, int levels) {
  const std::int64_t left_ms = deadline.left_ms(INT_MAX);
  return levels <= 0 ? deadline : Deadline::after_ms(left_ms + levels * kGraceMs);
}

}  // namespace

// Moves messages until `finished` and all is sent, or a failure is known. One that comes behind what is waited for
// does not end the wait: watch() tells of it.
Status SocketTree::pump(const std::function<bool()>& finished, Deadline deadline) {
  net::PollSet set;
  for (;;) {
    const bool enough = finished();
    if (enough && all_sent()) return {};
    if (!enough && !early_failure_.is_ok()) return early_failure_;
    if (deadline.passed()) return Status::timeout("");
    set.clear(1000);
    set.wake_at(deadline);
    std::vector<std::pair<Neighbour*, std::size_t>> entries;
    for (Neighbour& neighbour : neighbours_) {
      if (!neighbour.socket.valid()) continue;
      const int events = neighbour.writer.empty() ? POLLIN : POLLIN | POLLOUT;
      entries.emplace_back(&neighbour, set.add(neighbour.socket.get(), static_cast<short>(events)));
    }
    if (Status s = set.wait(); !s.is_ok()) return s;
    for (const auto& [neighbour, entry] : entries) {
      if (set.ready(entry) == 0 || !neighbour->socket.valid()) continue;
      if ((set.ready(entry) & POLLOUT) != 0) flush(neighbour);
      if ((set.ready(entry) & ~POLLOUT) != 0) read_from(neighbour);
    }
    if (early_failure_.is_ok() && !early_departed_.empty() && !finished()) {
      return Status::remote(list_ranks({early_departed_.front()}) + " left during the initialisation");
    }
  }
}

// Up the tree, then down again.
Status SocketTree::exchange(Parts* parts, Deadline deadline) {
  Neighbour* parent = nullptr;
  std::vector<Neighbour*> children;
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.is_parent) parent = &neighbour;
    if (!neighbour.is_parent) children.push_back(&neighbour);
  }
  gathering_ = true;
  const auto has_mail = [](const Neighbour* neighbour) { return !neighbour->inbox.empty(); };
  const Deadline for_children = later(deadline, levels_below(rank_, ranks_) - 1);
  const Deadline for_parent = later(deadline, levels_below(0, ranks_) + 1);
  Status s = pump([&] { return std::all_of(children.begin(), children.end(), has_mail); }, for_children);
  if (s.code() == Code::kTimeout) {
    std::vector<int> silent;
    for (const Neighbour* child : children) {
      if (child->inbox.empty()) silent.push_back(child->rank);
    }
    return too_late(silent);
  }
  if (!s.is_ok()) return s;
  for (Neighbour* child : children) {
    parts->merge(child->inbox.front());
    child->inbox.pop_front();
  }
  if (parent != nullptr) {
    parent->writer.queue(pack_parts(Kind::kGather, *parts));
    s = pump([&] { return has_mail(parent); }, for_parent);
    if (s.code() == Code::kTimeout) return too_late({parent->rank});
    if (!s.is_ok()) return s;
    *parts = std::move(parent->inbox.front());
    parent->inbox.pop_front();
  }
  const std::string all = children.empty() ? "" : pack_parts(Kind::kAll, *parts);
  for (Neighbour* child : children) child->writer.queue(all);
  gathering_ = false;
  pass_on_kept();
  s = pump([] { return true; }, deadline);
  return s.code() == Code::kTimeout ? too_late(tree_children(rank_, ranks_)) : s;
}

Status SocketTree::hear_last(const Status& otherwise) {
  for (Neighbour& neighbour : neighbours_) read_from(&neighbour);
  return early_failure_.is_ok() ? otherwise : early_failure_;
}

Status SocketTree::too_late(const std::vector<int>& waited_for) {
  if (!early_failure_.is_ok()) return early_failure_;
  return Status::timeout("timed out during the initialisation, waiting for " + list_ranks(waited_for));
}

Result<std::vector<std::string>> SocketTree::all_gather(const std::string& mine, Deadline deadline) {
  Parts parts;
  parts[rank_] = mine;
  Status s = exchange(&parts, deadline);
  if (s.is_ok() && static_cast<int>(parts.size()) != ranks_) s = Status::internal("a rank is missing in all_gather");
  if (!s.is_ok()) {
    announce_failure(s);
    return s;
  }
  std::vector<std::string> result;
  result.reserve(parts.size());
  for (auto& [rank, bytes] : parts) result.push_back(std::move(bytes));
  return result;
}

}  // namespace tutti::internal::control

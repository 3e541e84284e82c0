// The connections of this rank to its neighbours in the control tree, and the frames queued for them.
//
// send() and the flood functions queue frames; flush() or the end of the thread's round sends them.
//
// Threads: the tree's only.
#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "control/job_view.h"
#include "control/neighbour.h"
#include "net/socket.h"

namespace tutti::internal::control {

class Neighbours {
 public:
  // The view outlives it. `silence_ms`: the limit of net::is_silent().
  Neighbours(const JobView& view, std::int64_t silence_ms) : view_(view), silence_ms_(silence_ms) {}
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  Neighbour& add(TreeNeighbour made);
  // Null: this rank has no parent that can receive messages.
  [[nodiscard]] Neighbour* parent();
  [[nodiscard]] bool has_parent() const;
  [[nodiscard]] bool has_children() const;
  // Whether the rank is one.
  [[nodiscard]] bool has(int rank) const;
  // The neighbours that can receive messages.
  [[nodiscard]] std::vector<Neighbour*> listeners();
  [[nodiscard]] std::list<Neighbour>& all() { return all_; }

  void send(const std::string& frame, Neighbour* to);
  // To every neighbour except one.
  void flood(const std::string& frame, const Neighbour* except);
  // The same, to the neighbours that lead to members.
  void flood_to(const std::string& members, const std::string& frame, const Neighbour* except);
  // To all neighbours below this rank except one.
  void send_down(const std::string& frame, const Neighbour* except);
  // Whether members are, or may be, behind that neighbour: if ranks have moved, any neighbour may lead to them.
  // `members`: as in CommName.
  [[nodiscard]] bool leads_to(const std::string& members, const Neighbour& neighbour) const;
  void flush();
  [[nodiscard]] bool all_sent() const;
  // Whether a neighbour has received this rank's bye and forwarded it, or leaves as well and will do so.
  [[nodiscard]] bool any_knows_bye() const;

  void prepare(net::PollSet* set);
  // How often look_for_silence() should be called.
  [[nodiscard]] std::int64_t silence_look_ms() const { return net::silence_look_ms(silence_ms_); }
  // Marks connections as ended if their hosts acknowledge nothing any more.
  void look_for_silence();
  // Ends this side of the connection to a neighbour when all other neighbours have ended theirs: then there is nothing
  // more to forward to it.
  void end_sides();
  void close_all();
  void remove_closed();

 private:
  static void flush(Neighbour* neighbour);
  static void end_side(Neighbour* neighbour);

  const JobView& view_;
  const std::int64_t silence_ms_;
  std::list<Neighbour> all_;
  std::int64_t next_look_ns_ = 0;  // for silent hosts
};

}  // namespace tutti::internal::control

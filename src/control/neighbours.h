// The connections of this rank to its neighbours in the control tree, and what waits to be sent over them.
//
// Frames are queued by send() and the flood functions, and leave with flush(), or at the end of the thread's round.
//
// Threads: the tree's alone.
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
  // Null: this rank has no parent that can be told anything.
  [[nodiscard]] Neighbour* parent();
  [[nodiscard]] bool has_parent() const;
  [[nodiscard]] bool has_children() const;
  // The neighbours that can be told anything.
  [[nodiscard]] std::vector<Neighbour*> listeners();
  [[nodiscard]] std::list<Neighbour>& all() { return all_; }

  void send(const std::string& frame, Neighbour* to);
  // To every neighbour but one.
  void flood(const std::string& frame, const Neighbour* except);
  // The same to those that lead to members.
  void flood_to(const std::string& members, const std::string& frame, const Neighbour* except);
  // To all below this rank but one.
  void send_down(const std::string& frame, const Neighbour* except);
  // Whether members are behind that neighbour, or may be: where ranks have moved, any may. `members`: as in CommName.
  [[nodiscard]] bool leads_to(const std::string& members, const Neighbour& neighbour) const;
  void flush();
  [[nodiscard]] bool all_sent() const;

  void prepare(net::PollSet* set);
  // How often look_for_silence() is worth a call.
  [[nodiscard]] std::int64_t silence_look_ms() const { return net::silence_look_ms(silence_ms_); }
  // Marks connections as ended whose hosts acknowledge nothing any more.
  void look_for_silence();
  // Towards a neighbour, when all the others have ended their sides: nothing more will have to be passed on to it.
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

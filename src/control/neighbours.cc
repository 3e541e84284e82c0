#include "control/neighbours.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "control/control_messages.h"
#include "control/tree_shape.h"
#include "os/clock.h"
#include "os/kernel.h"

namespace tutti::internal::control {

Neighbour& Neighbours::add(TreeNeighbour made) {
  net::watch_silence(made.stream.get(), silence_ms_);
  return all_.emplace_back(std::move(made));
}

Neighbour* Neighbours::parent() {
  const auto found = std::find_if(all_.begin(), all_.end(),
                                  [](const Neighbour& neighbour) { return neighbour.is_parent && neighbour.hears(); });
  return found == all_.end() ? nullptr : &*found;
}

bool Neighbours::has_parent() const {
  return std::any_of(all_.begin(), all_.end(),
                     [](const Neighbour& neighbour) { return neighbour.is_parent && neighbour.hears(); });
}

bool Neighbours::has_children() const {
  return std::any_of(all_.begin(), all_.end(),
                     [](const Neighbour& neighbour) { return !neighbour.is_parent && neighbour.hears(); });
}

bool Neighbours::has(int rank) const {
  return std::any_of(all_.begin(), all_.end(),
                     [rank](const Neighbour& neighbour) { return neighbour.rank == rank && neighbour.stream.valid(); });
}

std::vector<Neighbour*> Neighbours::listeners() {
  std::vector<Neighbour*> result;
  for (Neighbour& neighbour : all_) {
    if (neighbour.hears()) result.push_back(&neighbour);
  }
  return result;
}

void Neighbours::send(const std::string& frame, Neighbour* to) {
  if (to->hears()) to->writer.queue(frame);
}

void Neighbours::flood(const std::string& frame, const Neighbour* except) {
  for (Neighbour& neighbour : all_) {
    if (&neighbour != except) send(frame, &neighbour);
  }
}

void Neighbours::flood_to(const std::string& members, const std::string& frame, const Neighbour* except) {
  for (Neighbour& neighbour : all_) {
    if (&neighbour != except && leads_to(members, neighbour)) send(frame, &neighbour);
  }
}

void Neighbours::send_down(const std::string& frame, const Neighbour* except) {
  for (Neighbour& neighbour : all_) {
    if (!neighbour.is_parent && &neighbour != except) send(frame, &neighbour);
  }
}

bool Neighbours::leads_to(const std::string& members, const Neighbour& neighbour) const {
  if (members.empty() || !view_.attachments().empty()) return true;
  if (!neighbour.is_parent) return any_member(members, tree_below(neighbour.rank, view_.ranks()));
  return any_member(members, RankSet(0, view_.ranks()).without(tree_below(view_.rank(), view_.ranks())));
}

// A neighbour that leaves may rely on the receipt, so the frames that this rank has forwarded for it are sent first.
void Neighbours::flush() {
  for (Neighbour& neighbour : all_) flush(&neighbour);
  if (!all_sent()) return;
  for (Neighbour& neighbour : all_) {
    if (neighbour.receipt != Neighbour::Receipt::kOwed) continue;
    neighbour.receipt = Neighbour::Receipt::kSent;
    if (!neighbour.shut) neighbour.writer.queue(pack_bye(neighbour.rank));
    flush(&neighbour);
  }
}

// A broken connection is detected when it is read, because it may still contain a last message.
void Neighbours::flush(Neighbour* neighbour) {
  if (!neighbour->stream.valid()) return;
  if (!neighbour->writer.empty() && !neighbour->writer.flush(&neighbour->stream).is_ok()) {
    neighbour->writer = net::FrameWriter();
  }
  const bool has_receipt = neighbour->receipt == Neighbour::Receipt::kSent;
  if (neighbour->parting && has_receipt && neighbour->writer.empty()) end_side(neighbour);
}

void Neighbours::end_side(Neighbour* neighbour) {
  if (!std::exchange(neighbour->shut, true)) os::kernel().shutdown(neighbour->stream.get(), SHUT_WR);
}

bool Neighbours::any_knows_bye() const {
  return std::any_of(all_.begin(), all_.end(), [](const Neighbour& neighbour) {
    return neighbour.knows_bye || (neighbour.said_bye && !neighbour.parting);
  });
}

bool Neighbours::all_sent() const {
  return std::all_of(all_.begin(), all_.end(),
                     [](const Neighbour& neighbour) { return !neighbour.stream.valid() || neighbour.writer.empty(); });
}

void Neighbours::prepare(net::PollSet* set) {
  for (Neighbour& neighbour : all_) {
    neighbour.polled = neighbour.stream.valid();
    const int events = neighbour.writer.empty() ? POLLIN : POLLIN | POLLOUT;
    if (neighbour.polled) neighbour.entry = set->add(neighbour.stream, static_cast<short>(events));
  }
}

// A host that is gone does not end its connections. Missing acknowledgements of data or of the kernel's keepalive
// probes reveal it.
void Neighbours::look_for_silence() {
  const std::int64_t now = now_ns();
  if (now < next_look_ns_) return;
  next_look_ns_ = now + net::silence_look_ms(silence_ms_) * kNsPerMs;
  for (Neighbour& neighbour : all_) {
    if (neighbour.stream.valid() && net::is_silent(neighbour.stream.get(), silence_ms_))
      neighbour.ended = neighbour.silent = true;
  }
}

void Neighbours::end_sides() {
  for (Neighbour& neighbour : all_) {
    const bool last = std::all_of(all_.begin(), all_.end(), [&](const Neighbour& other) {
      return &other == &neighbour || !other.stream.valid() || other.ended;
    });
    const bool sent = neighbour.writer.empty() && neighbour.receipt != Neighbour::Receipt::kOwed;
    if (last && neighbour.stream.valid() && sent) end_side(&neighbour);
  }
}

void Neighbours::close_all() {
  for (Neighbour& neighbour : all_) neighbour.close();
}

void Neighbours::remove_closed() {
  all_.remove_if([](const Neighbour& neighbour) { return !neighbour.stream.valid(); });
}

}  // namespace tutti::internal::control

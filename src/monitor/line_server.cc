#include "monitor/line_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "os/clock.h"
#include "os/kernel.h"

namespace tutti::internal::monitor {
namespace {

std::int64_t ns_of_ms(std::int64_t ms) {
  return ms * kNsPerMs;
}

}  // namespace

LineServer::~LineServer() {
  for (Client& client : clients_) close(&client);
}

// A forked child may have a copy of the socket, so that closing alone would end nothing.
void LineServer::close(Client* client) {
  os::kernel().shutdown(client->fd.get(), SHUT_RDWR);
  client->fd.reset();
}

bool LineServer::has_line(const Client& client) {
  return client.line.find('\n') != std::string::npos;
}

bool LineServer::hears(const Client& client) {
  const Conversation& said = *client.conversation;
  return !said.ended_ && !said.busy_ && !client.input_over && said.pending_bytes() < kMostPendingBytes;
}

void LineServer::prepare(net::PollSet* set) {
  listener_.prepare(set);
  const std::int64_t now = now_ns();
  for (Client& client : clients_) {
    const Conversation& said = *client.conversation;
    const bool lingers = client.lingers_ns != 0;
    const bool sends = !lingers && said.pending_bytes() > 0;
    // A whole line may lie in client.line from the time in which lines were not heard.
    const bool reads = lingers || hears(client);
    const auto events = static_cast<short>((reads ? POLLIN : 0) | (sends ? POLLOUT : 0));
    client.polled = true;
    client.entry = set->add(client.fd.get(), events);
    if (reads && has_line(client)) set->wake_at(Deadline::after_ms(0));
    if (!lingers && !sends) continue;
    const std::int64_t end_ns = lingers ? client.lingers_ns + ns_of_ms(kLingerMs) : client.moved_ns + ns_of_ms(kReadMs);
    set->wake_at(Deadline::after_ms(std::max<std::int64_t>(0, (end_ns - now) / kNsPerMs + 1)));
  }
}

void LineServer::advance(const net::PollSet& set) {
  const std::int64_t now = now_ns();
  for (auto at = clients_.begin(); at != clients_.end();) {
    Client& client = *at;
    const short ready = client.polled ? set.ready(client.entry) : short{0};
    // POLLHUP: it neither sends nor reads any more.
    const bool is_gone = (ready & (POLLERR | POLLNVAL)) != 0 || (client.lingers_ns == 0 && (ready & POLLHUP) != 0);
    bool lives = !is_gone;
    if (lives && (ready & (POLLIN | POLLHUP)) != 0) lives = receive(&client);
    if (lives && client.lingers_ns == 0) lives = hear_lines(&client) && send(&client, now);
    if (lives && client.lingers_ns != 0) {
      lives = !client.input_over && now < client.lingers_ns + ns_of_ms(kLingerMs);
    }
    if (!lives) {
      close(&client);
      at = clients_.erase(at);
    } else {
      ++at;
    }
  }
  take_new(set);
}

// One piece at a time, so that no client holds up the others.
bool LineServer::receive(Client* client) {
  const bool lingers = client->lingers_ns != 0;
  if (!lingers && !hears(*client)) return true;
  std::array<char, 4096> bytes{};
  const std::size_t most = lingers ? bytes.size() : Conversation::kMostLineBytes + 2 - client->line.size();
  // It has a whole line already.
  if (most == 0) return true;
  const ssize_t got = os::kernel().recv(client->fd.get(), bytes.data(), most);
  if (got < 0) return net::would_block(errno) || errno == EINTR;
  if (got == 0) client->input_over = true;
  if (!lingers) client->line.append(bytes.data(), static_cast<std::size_t>(got));
  return true;
}

void LineServer::hear(Client* client, std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  client->conversation->hear(line);
}

// Removes the rest of a line that is heard already. False: there is too much of it.
bool LineServer::cut_line(Client* client) {
  if (client->cut_bytes == 0) return true;
  const std::size_t end = client->line.find('\n');
  client->cut_bytes += std::min(end, client->line.size());
  client->line.erase(0, end == std::string::npos ? end : end + 1);
  if (end != std::string::npos) client->cut_bytes = 0;
  return client->cut_bytes <= Conversation::kMostCutBytes;
}

// False: a line is too long.
bool LineServer::hear_lines(Client* client) {
  Conversation& said = *client->conversation;
  if (!cut_line(client)) return false;
  std::size_t begin = 0;
  while (!said.ended_ && !said.busy_ && said.pending_bytes() < kMostPendingBytes) {
    const std::size_t end = client->line.find('\n', begin);
    if (end == std::string::npos) break;
    hear(client, std::string_view(client->line).substr(begin, end - begin));
    begin = end + 1;
  }
  client->line.erase(0, begin);
  if (has_line(*client) || client->line.size() <= Conversation::kMostLineBytes) return true;
  if (!said.cuts_lines_ || said.ended_) return said.ended_;
  hear(client, std::string_view(client->line).substr(0, Conversation::kMostLineBytes));
  client->cut_bytes = client->line.size();
  client->line.clear();
  return true;
}

bool LineServer::send(Client* client, std::int64_t now) {
  Conversation& said = *client->conversation;
  while (said.pending_bytes() > 0) {
    const ssize_t sent = os::kernel().send(client->fd.get(), said.out_.data() + said.sent_, said.pending_bytes());
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && !net::would_block(errno)) return false;
    if (sent <= 0) break;
    said.sent_ += static_cast<std::size_t>(sent);
    client->moved_ns = now;
  }
  if (said.pending_bytes() > 0) {
    if (said.lasting_ && said.pending_bytes() > kMostNewsBytes) return false;
    return now < client->moved_ns + ns_of_ms(kReadMs);
  }
  said.out_.clear();
  said.out_.shrink_to_fit();
  said.sent_ = 0;
  client->moved_ns = now;
  // A client that has sent its commands, and sends nothing more, gets its answers.
  if (!said.ended_) return !client->input_over || said.busy_ || has_line(*client);
  // Closing at once, with input that was not read, would take from the client what it has not read yet.
  os::kernel().shutdown(client->fd.get(), SHUT_WR);
  client->lingers_ns = now;
  return !client->input_over;
}

// False: all clients are young, or last.
bool LineServer::make_room() {
  if (clients_.size() < kMostClients) return true;
  const std::int64_t now = now_ns();
  const auto old = std::find_if(clients_.begin(), clients_.end(), [now](const Client& client) {
    return !client.conversation->lasting_ && now - client.since_ns >= ns_of_ms(kLeastAgeMs);
  });
  if (old == clients_.end()) return false;
  close(&*old);
  clients_.erase(old);
  return true;
}

void LineServer::take_new(const net::PollSet& set) {
  for (UniqueFd& fd : listener_.accept(set)) {
    if (!make_room()) return;  // the others close as well
    Client client;
    client.fd = std::move(fd);
    client.conversation = start_();
    client.since_ns = client.moved_ns = now_ns();
    clients_.push_back(std::move(client));
  }
}

void LineServer::each(const std::function<void(Conversation&)>& visit) {
  for (Client& client : clients_) {
    if (!client.conversation->ended_) visit(*client.conversation);
  }
}

}  // namespace tutti::internal::monitor

// Serves clients that send lines of text. Whatever they send, or do not read, it uses bounded memory and few
// descriptors, and never waits for them.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "monitor/listener.h"
#include "net/socket.h"
#include "os/unique_fd.h"

namespace tutti::internal::monitor {

// What one client says and gets.
class Conversation {
 public:
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;
  virtual ~Conversation() = default;
  // A line of at most kMostLineBytes, without its end ("\n" or "\r\n"). A longer one closes the connection.
  virtual void hear(std::string_view line) = 0;
  static constexpr std::size_t kMostLineBytes = 1024;
  // Longer ones are heard as well, without what is too long: up to kMostCutBytes.
  void cut_lines() { cuts_lines_ = true; }
  static constexpr std::size_t kMostCutBytes = std::size_t{64} << 10;

  // For the client. After more than kMostPendingBytes that it has not read, it hears nothing further, and only what
  // answers its lines so far is kept.
  void say(std::string_view text) { out_ += text; }
  // The connection closes when the client has read what was said. No further line is heard.
  void end() { ended_ = true; }
  // Until it is false again, no further line is heard.
  void set_busy(bool busy) { busy_ = busy; }
  // The client waits for news: it may be silent without limit, and is not closed in favour of others.
  void set_lasting() { lasting_ = true; }
  [[nodiscard]] bool lasting() const { return lasting_; }
  // Not yet sent.
  [[nodiscard]] std::size_t pending_bytes() const { return out_.size() - sent_; }

 protected:
  Conversation() = default;

 private:
  friend class LineServer;
  std::string out_;
  std::size_t sent_ = 0;
  bool ended_ = false;
  bool busy_ = false;
  bool lasting_ = false;
  bool cuts_lines_ = false;
};

class LineServer {
 public:
  static constexpr std::size_t kMostClients = 64;
  static constexpr std::size_t kMostLasting = 32;
  static constexpr std::size_t kMostPendingBytes = std::size_t{64} << 10;  // with more, the client is not heard
  static constexpr std::size_t kMostNewsBytes = std::size_t{1} << 20;      // for a lasting client
  static constexpr std::int64_t kReadMs = 30'000;   // a client that reads nothing for this time is closed
  static constexpr std::int64_t kLingerMs = 2000;   // the client's time to close after the end
  static constexpr std::int64_t kLeastAgeMs = 100;  // with kMostClients, a new client replaces one that is older

  // start(): the conversation with a new client.
  using Start = std::function<std::unique_ptr<Conversation>()>;
  LineServer(Listener listener, Start start) : listener_(std::move(listener)), start_(std::move(start)) {}
  LineServer(const LineServer&) = delete;
  LineServer& operator=(const LineServer&) = delete;
  ~LineServer();

  // In a poll loop: prepare(set), set.wait(), advance(set).
  void prepare(net::PollSet* set);
  void advance(const net::PollSet& set);
  // All conversations that have not ended.
  void each(const std::function<void(Conversation&)>& visit);
  [[nodiscard]] std::size_t clients() const { return clients_.size(); }

 private:
  struct Client {
    UniqueFd fd;
    std::unique_ptr<Conversation> conversation;
    std::int64_t since_ns = 0;    // when it was accepted
    std::int64_t moved_ns = 0;    // when it last read something, or had read all
    std::int64_t lingers_ns = 0;  // when the last byte was sent after the end; 0: not yet
    std::string line;             // received, and not yet a whole line
    std::size_t cut_bytes = 0;    // of a line that is heard already, and has not ended; 0: none
    bool input_over = false;      // it will send nothing more
    std::size_t entry = 0;
    bool polled = false;
  };
  using Clients = std::list<Client>;
  void take_new(const net::PollSet& set);
  bool make_room();
  [[nodiscard]] static bool has_line(const Client& client);
  [[nodiscard]] static bool hears(const Client& client);
  // False: the connection is over.
  static bool receive(Client* client);
  static bool hear_lines(Client* client);
  static void hear(Client* client, std::string_view line);
  static bool cut_line(Client* client);
  static bool send(Client* client, std::int64_t now);
  static void close(Client* client);

  Listener listener_;
  const Start start_;
  Clients clients_;  // oldest first
};

}  // namespace tutti::internal::monitor

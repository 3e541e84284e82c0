#include "monitor/ras.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/event_fd.h"
#include "base/log.h"
#include "monitor/job_reading.h"
#include "monitor/line_server.h"
#include "monitor/live_communicators.h"
#include "monitor/ras_events.h"
#include "monitor/ras_report.h"
#include "observe/origin.h"
#include "os/clock.h"
#include "os/kernel.h"

namespace tutti::internal::monitor {
namespace {

constexpr std::int64_t kNewsMs = 1000;
// Reading takes at most a tenth of a processor, however many clients ask: they wait, and share one reading.
constexpr std::int64_t kLeastReadMs = 20;
constexpr std::int64_t kShare = 10;
// A report that waits for other hosts.
constexpr std::int64_t kDefaultTimeoutMs = 5000;
constexpr std::int64_t kLeastPatienceMs = 250;
constexpr std::int64_t kMostPatienceMs = 5000;
constexpr std::int64_t kSpareMs = 1000;                             // for the answers to arrive
constexpr std::int64_t kSurveyValidMs = 1000;                       // the next report may use its answers
constexpr int kMostSurveyed = 8192;                                 // ranks of a communicator
constexpr std::size_t kMostPendingReports = std::size_t{64} << 20;  // that clients have not read yet

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

bool same_word(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), same_letter);
}

// Removes the word from the beginning of the line.
bool take_word(std::string_view word, std::string_view* line) {
  if (line->size() < word.size() || !same_word(line->substr(0, word.size()), word)) return false;
  line->remove_prefix(word.size());
  return true;
}

// That the calling thread has used.
std::int64_t processor_ns() {
  timespec used{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::int64_t{used.tv_sec} * 1'000'000'000 + used.tv_nsec;
}

std::int64_t ms_until(std::int64_t when_ns) {
  return std::max<std::int64_t>(0, (when_ns - now_ns()) / kNsPerMs + 1);
}

class RasServer;

class RasConversation final : public Conversation {
 public:
  explicit RasConversation(RasServer& server) : server_(server) {}
  void hear(std::string_view line) override;
  [[nodiscard]] bool wants_report() const { return wants_report_; }
  [[nodiscard]] std::int64_t timeout_ms() const { return timeout_ms_; }
  [[nodiscard]] std::int64_t asked_ns() const { return asked_ns_; }
  void report(const JobReading& reading);
  void tell(const RasEvent& event, const std::string& time) {
    if ((groups_ & event.group) != 0) say(json_ ? event.json(time) : event.text(time));
  }

 private:
  void ask_for_report(bool verbose) {
    wants_report_ = true;
    asked_ns_ = now_ns();
    verbose_ = verbose;
    set_busy(true);
  }
  void monitor(std::string_view groups);
  void refuse(std::string_view why, std::string_view what) {
    say(fmt::format("ERROR: {} {}\n", why, log::printable(what)));
  }

  RasServer& server_;
  bool json_ = false;
  bool verbose_ = false;
  bool wants_report_ = false;
  std::int64_t timeout_ms_ = kDefaultTimeoutMs;
  std::int64_t asked_ns_ = 0;
  unsigned groups_ = 0;
};

// The ranks on other hosts, asked over the control trees of the communicators.
class SurveyRound {
 public:
  explicit SurveyRound(EventFd wake) : wake_(std::move(wake)) {}

  void prepare(net::PollSet* set) {
    if (!under_way_) return;
    set->add(wake_.fd(), POLLIN);
    set->wake_at(end_);
  }
  // Asks for the ranks that the reading lacks, unless that has just been done.
  void begin(const JobReading& reading, std::int64_t timeout_ms) {
    if (under_way_ || now_ns() < valid_until_ns_) return;
    end_surveys();
    wake_.clear();
    asked_.clear();
    const std::int64_t patience_ms = std::clamp(timeout_ms / 2, kLeastPatienceMs, kMostPatienceMs);
    for (const auto& [id, ranks] : ranks_elsewhere(reading)) {
      const auto one = std::find_if(reading.communicators.begin(), reading.communicators.end(),
                                    [id = id](const JobCommunicator& each) { return each.id == id; });
      // A communicator that has failed asks nothing more.
      const bool can_ask = one->ranks <= kMostSurveyed && !one->findings.failed;
      if (can_ask && begin_survey(id, patience_ms, wake_.fd())) asked_.push_back(id);
    }
    under_way_ = !asked_.empty();
    end_ = Deadline::after_ms(inquiry_ms(patience_ms) + kSpareMs);
    if (!under_way_) valid_until_ns_ = now_ns() + kSurveyValidMs * kNsPerMs;
  }
  [[nodiscard]] bool under_way() const { return under_way_; }
  // Whether all answers are there, or do not come any more.
  bool is_over() {
    if (!under_way_) return true;
    wake_.clear();
    const bool complete = std::all_of(asked_.begin(), asked_.end(), [](std::uint64_t id) {
      const auto survey = survey_of(id, {});
      return !survey || survey->answer;
    });
    if (!complete && !end_.passed()) return false;
    under_way_ = false;
    valid_until_ns_ = now_ns() + kSurveyValidMs * kNsPerMs;
    return true;
  }
  // Where the ranks are that the reading lacks, and what they have answered.
  static Surveys surveys_for(const JobReading& reading) {
    Surveys surveys;
    for (const auto& [id, ranks] : ranks_elsewhere(reading)) {
      if (auto survey = survey_of(id, ranks)) surveys[id] = std::move(*survey);
    }
    return surveys;
  }

 private:
  const EventFd wake_;
  std::vector<std::uint64_t> asked_;
  bool under_way_ = false;
  Deadline end_ = Deadline::after_ms(0);
  std::int64_t valid_until_ns_ = 0;
};

class RasServer final : public Duty {
 public:
  RasServer(Listener listener, EventFd wake)
      : server_(std::move(listener), [this] { return std::make_unique<RasConversation>(*this); }),
        round_(std::move(wake)) {}
  ~RasServer() override { end_surveys(); }

  void prepare(net::PollSet* set) override {
    server_.prepare(set);
    round_.prepare(set);
    if (waits_to_read_) set->wake_at(Deadline::after_ms(ms_until(next_read_ns_)));
    if (watch_.has_begun()) set->wake_at(Deadline::after_ms(std::max<std::int64_t>(0, ms_to_news())));
  }

  void advance(const net::PollSet& set) override {
    server_.advance(set);
    answer();
    tell_news();
  }

  // False: too many clients do this already.
  bool begin_watch() {
    if (count_lasting() >= LineServer::kMostLasting) return false;
    if (!watch_.has_begun()) read_for_news();
    return true;
  }

 private:
  void read(const Surveys& surveys = {}) {
    read_begun_ns_ = now_ns();
    const std::int64_t before_ns = processor_ns();
    reading_ = read_jobs(observe::number_in_proc(os::kernel().getpid()), surveys);
    const std::int64_t cost_ns = processor_ns() - before_ns;
    next_read_ns_ = now_ns() + std::max(kLeastReadMs * kNsPerMs, (kShare - 1) * cost_ns);
  }

  // Never with a reading that was begun before a client asked: a rank may have been stopped meanwhile.
  void answer() {
    waits_to_read_ = false;
    std::int64_t timeout_ms = 0;  // of the clients that ask; 0: none does
    std::int64_t asked_ns = 0;
    server_.each([&](Conversation& each) {
      const auto& conversation = static_cast<RasConversation&>(each);
      if (!conversation.wants_report()) return;
      timeout_ms = std::max(timeout_ms, conversation.timeout_ms());
      asked_ns = std::max(asked_ns, conversation.asked_ns());
    });
    if (timeout_ms == 0) {
      // Also if the clients that asked have gone: answers would keep the thread awake.
      static_cast<void>(round_.is_over());
      return;
    }
    if (!round_.under_way()) {
      if (read_begun_ns_ < asked_ns) {
        waits_to_read_ = now_ns() < next_read_ns_;
        if (waits_to_read_) return;
        read();
      }
      if (ranks_elsewhere(reading_).empty()) return report();
      round_.begin(reading_, timeout_ms);
    }
    if (!round_.is_over()) return;
    read(SurveyRound::surveys_for(reading_));
    report();
  }

  void report() {
    std::size_t pending = 0;
    server_.each([&](Conversation& each) { pending += each.pending_bytes(); });
    server_.each([&](Conversation& each) {
      auto& conversation = static_cast<RasConversation&>(each);
      if (!conversation.wants_report()) return;
      if (pending > kMostPendingReports) {
        conversation.say("ERROR: too many clients have not read their reports\n");
        return conversation.end();
      }
      const std::size_t before = conversation.pending_bytes();
      conversation.report(reading_);
      pending += conversation.pending_bytes() - before;
    });
  }

  [[nodiscard]] std::int64_t ms_to_news() const { return kNewsMs - (now_ns() - watched_ns_) / kNsPerMs; }

  std::vector<RasEvent> read_for_news() {
    watched_ns_ = now_ns();
    if (watched_ns_ >= next_read_ns_) read();
    // A process that could not be read has not ended.
    if (!reading_.complete && watch_.has_begun()) return {};
    return watch_.compare(reading_);
  }

  void tell_news() {
    if (!watch_.has_begun()) return;
    if (count_lasting() == 0) return watch_.end();
    if (ms_to_news() > 0) return;
    const std::vector<RasEvent> events = read_for_news();
    const std::string time = ras_time();
    for (const RasEvent& event : events) {
      server_.each([&](Conversation& each) { static_cast<RasConversation&>(each).tell(event, time); });
    }
  }

  std::size_t count_lasting() {
    std::size_t count = 0;
    server_.each([&](Conversation& each) { count += each.lasting() ? 1 : 0; });
    return count;
  }

  LineServer server_;
  SurveyRound round_;
  JobReading reading_;
  std::int64_t read_begun_ns_ = 0;
  std::int64_t next_read_ns_ = 0;  // not earlier
  bool waits_to_read_ = false;
  RasWatch watch_;
  std::int64_t watched_ns_ = 0;
};

void RasConversation::hear(std::string_view line) {
  const std::string_view whole = line;
  if (take_word("client protocol ", &line)) return say("SERVER PROTOCOL 2\n");
  if (take_word("timeout ", &line)) {
    const auto seconds = parse_integer(std::string(line), 0, INT_MAX);
    if (!seconds) return refuse("Invalid timeout value", line);
    timeout_ms_ = *seconds == 0 ? kDefaultTimeoutMs : *seconds * 1000;
    return say("OK\n");
  }
  if (take_word("set format ", &line)) {
    const bool known = same_word(line, "json") || same_word(line, "text");
    if (!known) return refuse("Invalid format", line);
    json_ = same_word(line, "json");
    return say("OK\n");
  }
  if (same_word(line, "status")) return ask_for_report(false);
  if (same_word(line, "verbose status")) return ask_for_report(true);
  if (same_word(line, "monitor")) return monitor("");
  if (take_word("monitor ", &line)) return monitor(line);
  refuse("Unknown command", whole);
}

void RasConversation::monitor(std::string_view groups) {
  unsigned wanted = 0;
  while (groups.starts_with(' ')) groups.remove_prefix(1);
  while (!groups.empty()) {
    const std::string_view group = groups.substr(0, groups.find(','));
    groups.remove_prefix(std::min(groups.size(), group.size() + 1));
    if (same_word(group, "lifecycle")) {
      wanted |= kLifecycle;
    } else if (same_word(group, "trace")) {
      wanted |= kTrace;
    } else if (same_word(group, "all")) {
      wanted |= kLifecycle | kTrace;
    } else {
      return refuse("Invalid event group", group);
    }
  }
  if (!lasting() && !server_.begin_watch()) return say("ERROR: Too many clients monitor\n");
  set_lasting();
  groups_ = wanted == 0 ? kLifecycle : wanted;
  say("OK\n");
}

void RasConversation::report(const JobReading& reading) {
  wants_report_ = false;
  say(json_ ? ras_json(reading) : ras_text(reading, verbose_));
  end();
}

}  // namespace

std::unique_ptr<Duty> make_ras() {
  const auto address = environment_variable("TUTTI_RAS_ADDR");
  if (!address) return nullptr;
  auto wake = EventFd::create();
  auto listener = wake.is_ok() ? Listener::open(*address, kRasGreeting) : Result<Listener>(wake.status());
  if (listener.is_ok()) return std::make_unique<RasServer>(std::move(*listener), std::move(*wake));
  log::warn(fmt::format("TUTTI_RAS_ADDR: {}. The job runs without this server", listener.status().message()));
  return nullptr;
}

}  // namespace tutti::internal::monitor

// The communicators of this process, through which the monitor asks the ranks of other hosts what they do.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/control_tree.h"
#include "os/mutex.h"

namespace tutti::internal::monitor {

struct PeerPlace {
  std::string host;
  int pid = -1;  // as that process knows it
};

// What the monitor asks of a communicator.
class Surveyor {
 public:
  Surveyor(const Surveyor&) = delete;
  Surveyor& operator=(const Surveyor&) = delete;
  virtual ~Surveyor() = default;
  [[nodiscard]] virtual PeerPlace place_of(int rank) const = 0;
  // The ranks that have died without leaving, as far as this rank knows, in rising order.
  [[nodiscard]] virtual std::vector<int> dead() const = 0;
  // Asks all ranks to report themselves. The answer comes to deliver_survey() inquiry_ms(patience_ms) later, or never.
  virtual void ask_all(std::int64_t patience_ms) = 0;

 protected:
  Surveyor() = default;
};

// While it exists, the monitor may call the surveyor. `id`: Epoch::public_id().
class LiveCommunicator {
 public:
  LiveCommunicator(std::uint64_t id, Surveyor& surveyor);
  LiveCommunicator(const LiveCommunicator&) = delete;
  LiveCommunicator& operator=(const LiveCommunicator&) = delete;
  // Waits for a call of the surveyor.
  ~LiveCommunicator();

 private:
  friend class LiveCommunicators;
  const std::uint64_t id_;
  Surveyor& surveyor_;
};

// What a communicator knows of its ranks.
struct Survey {
  std::map<int, PeerPlace> places;  // of the ranks that were asked for
  std::vector<int> dead;
  bool asked = false;
  std::optional<Answer> answer;  // nothing: it has not come
};

// Asks the communicator. Its answer makes `wake_fd`, an eventfd, readable. False: the process does not have it.
bool begin_survey(std::uint64_t id, std::int64_t patience_ms, int wake_fd);
// With the places of these ranks. Nothing: the process does not have the communicator any more.
std::optional<Survey> survey_of(std::uint64_t id, const std::vector<int>& ranks);
// Forgets all answers, and makes no descriptor readable any more.
void end_surveys();
// The answer to a question for all.
void deliver_survey(std::uint64_t id, const Answer& answer);

}  // namespace tutti::internal::monitor

// Missing ranks: the control tree's answers, and the warnings that rank 0 logs about them.
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <ostream>

#include "catch_compat.h"
#include "communicator/stalls.h"
#include "join/in_process.h"
#include "unit/join/ranks.h"

using namespace tutti::internal;
using tutti::internal::test::Child;
using tutti::internal::test::eventually;
using tutti::internal::test::on_threads;

namespace tutti::internal {

// For messages of the test framework.
std::ostream& operator<<(std::ostream& out, const Absence& absence) {
  return out << "rank " << absence.rank << (absence.silent ? " silent" : "") << " behind " << absence.sequence
             << (absence.inside ? " inside" : "");
}

}  // namespace tutti::internal

namespace {

constexpr std::int64_t kLongMs = 60'000;
constexpr std::int64_t kPatienceMs = 500;
constexpr std::int64_t kAnswerMs = 4 * kPatienceMs;

// A rank inside an operation that records the answers that it receives.
struct Asker {
  std::shared_ptr<FailureState> failure = std::make_shared<FailureState>();
  std::mutex mutex;
  Whereabouts where{17, true};  // guarded by mutex
  std::vector<Answer> answers;  // guarded by mutex
  std::vector<Answer> surveys;  // to questions for all; guarded by mutex
  std::string report;           // what it tells then; constant
  Job job;                      // its thread writes the answers

  void stand_at(Whereabouts at) {
    const std::lock_guard lock(mutex);
    where = at;
  }
  Status watch() {
    Witness witness{[this] {
                      const std::lock_guard lock(mutex);
                      return where;
                    },
                    [this](const Answer& answer) {
                      const std::lock_guard lock(mutex);
                      answers.push_back(answer);
                    }};
    witness.report = [this] { return report; };
    witness.surveyed = [this](const Answer& answer) {
      const std::lock_guard lock(mutex);
      surveys.push_back(answer);
    };
    return job.tree->watch(failure, std::move(witness));
  }
  void ask_for_all(std::int64_t patience_ms = kPatienceMs) {
    Question question;
    question.sequence = 6;
    question.patience_ms = patience_ms;
    question.all = true;
    job.tree->ask(question);
  }
  std::size_t count_surveys() {
    const std::lock_guard lock(mutex);
    return surveys.size();
  }
  void ask(std::uint32_t sequence = 17) {
    Question question;
    question.sequence = sequence;
    question.patience_ms = kPatienceMs;
    job.tree->ask(question);
  }
  std::size_t count() {
    const std::lock_guard lock(mutex);
    return answers.size();
  }
  std::vector<Absence> absent() {
    if (!eventually([&] { return count() != 0; })) return {{-1, false, 0}};
    const std::lock_guard lock(mutex);
    return answers.back().absent;
  }
  // Asks again until a rank is found: on a loaded machine reports may come too late for an answer, which then names
  // fewer ranks, and an answer may not come at all.
  std::vector<Absence> found() {
    std::size_t heard = 0;
    for (int attempt = 0; attempt < 40; ++attempt) {
      if (eventually([&] { return count() > heard; }, kAnswerMs)) {
        if (std::vector<Absence> last = absent(); !last.empty()) return last;
        heard = count();
      }
      ask();
    }
    return {{-1, false, 0}};
  }
  // Asks again until the answer is `expected`, for the same reason. The last answer, or one that names other ranks.
  std::vector<Absence> asked_until(const std::vector<Absence>& expected, std::uint32_t sequence = 17) {
    std::vector<Absence> last{{-1, false, 0}};
    for (int attempt = 0; attempt < 40 && last != expected; ++attempt) {
      const std::size_t heard = count();
      ask(sequence);
      if (!eventually([&] { return count() > heard; }, kAnswerMs)) continue;
      const std::lock_guard lock(mutex);
      if (answers.back().question.sequence != sequence) continue;
      last = answers.back().absent;
      const auto is_expected = [&](const Absence& one) {
        return std::find(expected.begin(), expected.end(), one) != expected.end();
      };
      if (!std::all_of(last.begin(), last.end(), is_expected)) break;
    }
    return last;
  }
};

using Askers = std::vector<std::unique_ptr<Asker>>;

Askers make_askers(int ranks) {
  Askers askers;
  for (int rank = 0; rank < ranks; ++rank) askers.push_back(std::make_unique<Asker>());
  return askers;
}

Status join_and_watch(const UniqueIdBytes& id, int rank, int ranks, Asker* asker) {
  Settings settings;
  settings.interface = "lo";
  const Deadline deadline = Deadline::after_ms(kLongMs);
  Result<Job> job = join(id, rank, ranks, settings, deadline);
  if (!job.is_ok()) return job.status();
  asker->job = std::move(job).value();
  Result<std::vector<std::string>> all = asker->job.tree->all_gather("x", deadline);
  return all.is_ok() ? asker->watch() : all.status();
}

UniqueIdBytes make_id() {
  Settings settings;
  settings.interface = "lo";
  Result<UniqueIdBytes> id = create_unique_id(settings);
  REQUIRE(id.is_ok());
  return *id;
}

// Ranks that are threads; `victim` joins elsewhere.
void join_all(const UniqueIdBytes& id, Askers& askers, int victim = -1) {
  const int ranks = static_cast<int>(askers.size());
  std::vector<Status> statuses(askers.size());
  on_threads(ranks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank != victim) statuses[r] = join_and_watch(id, rank, ranks, askers[r].get());
  });
  for (const Status& status : statuses) {
    INFO(status.message());
    REQUIRE(status.is_ok());
  }
}

void join_in_process(Askers& askers) {
  Result<std::vector<Job>> jobs = make_in_process_jobs(static_cast<int>(askers.size()));
  REQUIRE(jobs.is_ok());
  for (std::size_t r = 0; r < askers.size(); ++r) {
    askers[r]->job = std::move(jobs.value()[r]);
    REQUIRE(askers[r]->watch().is_ok());
  }
}

Answer absent(std::vector<Absence> ranks, std::uint32_t sequence = 17) {
  Answer answer;
  answer.question.sequence = sequence;
  answer.absent = std::move(ranks);
  return answer;
}

std::vector<PeerInfo> peers(int count) {
  std::vector<PeerInfo> result(static_cast<std::size_t>(count));
  for (int rank = 0; rank < count; ++rank) {
    PeerInfo& peer = result[static_cast<std::size_t>(rank)];
    peer.hostname.assign(1, 'a');
    peer.pid = 100 + rank;
  }
  return result;
}

}  // namespace

TEST_CASE("a stopped process is found by all ranks that are left, and no other is blamed", "[fork]") {
  const int victim = GENERATE(0, 1, 5, 20);
  const int only_asker = GENERATE(-1, 19);  // or all ask
  const UniqueIdBytes id = make_id();
  Askers askers = make_askers(22);
  const Child child([&] {
    Asker asker;
    if (!join_and_watch(id, victim, 22, &asker).is_ok()) return 1;
    ::sleep(120);
    return 0;
  });
  join_all(id, askers, victim);
  child.kill(SIGSTOP);
  for (int rank = 0; rank < 22; ++rank) {
    if (rank != victim && (only_asker < 0 || rank == only_asker)) askers[static_cast<std::size_t>(rank)]->ask();
  }
  for (int rank = 0; rank < 22; ++rank) {
    // A question does not pass a silent rank: in each part, only the ranks that have asked receive an answer.
    if (rank == victim || (only_asker >= 0 && rank != only_asker)) continue;
    INFO("rank " << rank << " of those left by " << victim);
    CHECK(askers[static_cast<std::size_t>(rank)]->found() == std::vector<Absence>{{victim, true, 0}});
  }
  child.kill(SIGCONT);
}

TEST_CASE("missing ranks are found, and those that are ahead or in the operation are not") {
  const bool sockets = GENERATE(true, false);
  Askers askers = make_askers(13);
  askers[0]->stand_at({17, false});  // has completed it
  askers[3]->stand_at({16, false});
  askers[7]->stand_at({12, true});  // in an earlier operation
  askers[9]->stand_at({0, false});
  askers[12]->stand_at({19, false});
  if (sockets) {
    join_all(make_id(), askers);
  } else {
    join_in_process(askers);
  }
  const std::vector<Absence> missing{{3, false, 16}, {7, false, 12, true}, {9, false, 0}};
  for (const std::size_t rank : {std::size_t{0}, std::size_t{4}, std::size_t{11}}) {
    CHECK(askers[rank]->asked_until(missing) == missing);
  }
}

TEST_CASE("missing ranks are found when operation numbers wrap around") {
  const bool sockets = GENERATE(true, false);
  Askers askers = make_askers(5);
  for (auto& asker : askers) asker->stand_at({1, true});
  askers[2]->stand_at({UINT32_MAX, false});
  askers[3]->stand_at({2, false});
  if (sockets) {
    join_all(make_id(), askers);
  } else {
    join_in_process(askers);
  }
  const std::vector<Absence> missing{{2, false, UINT32_MAX}};
  CHECK(askers[1]->asked_until(missing, 1) == missing);
  for (auto& asker : askers) asker->stand_at({UINT32_MAX, true});
  askers[4]->stand_at({0, false});  // ahead
  CHECK(askers[1]->asked_until({}, UINT32_MAX).empty());
}

TEST_CASE("questions of all ranks at a time are few answers, and the next question has its own") {
  Askers askers = make_askers(9);
  join_all(make_id(), askers);
  for (auto& asker : askers) asker->ask();
  for (auto& asker : askers) CHECK(asker->absent().empty());
  for (auto& asker : askers) CHECK(asker->count() <= 3);
  for (auto& asker : askers) asker->stand_at({18, true});
  askers[2]->stand_at({17, false});
  const std::size_t before = askers[8]->count();
  askers[8]->ask(18);
  REQUIRE(eventually([&] { return askers[8]->count() > before; }));
  CHECK(askers[8]->absent() == std::vector<Absence>{{2, false, 17}});
}

TEST_CASE("the death of a rank leaves no question unanswered") {
  Askers askers = make_askers(6);
  join_all(make_id(), askers);
  askers[1]->job.tree->leave();
  REQUIRE(eventually([&] { return askers[5]->failure->departed(1); }));
  askers[5]->ask();  // whose parent has left
  CHECK(askers[5]->absent().empty());
  askers[0]->ask();
  CHECK(askers[0]->absent().empty());
}

TEST_CASE("a question for all is answered by all, beside a question about missing ranks") {
  Askers askers = make_askers(6);
  for (std::size_t r = 0; r < askers.size(); ++r) askers[r]->report = "report " + std::to_string(r);
  askers[2]->stand_at({16, false});
  join_all(make_id(), askers);
  std::vector<Absence> expected;
  for (int r = 0; r < 6; ++r) {
    const bool late = r == 2;
    expected.push_back({r, false, late ? 16U : 17U, !late, "report " + std::to_string(r)});
  }
  std::vector<Absence> last;
  // On a loaded machine reports may come too late for an answer.
  for (int attempt = 0; attempt < 40 && last != expected; ++attempt) {
    const std::size_t heard = askers[5]->count_surveys();
    askers[5]->ask();
    askers[5]->ask_for_all();
    askers[4]->ask_for_all();
    if (!eventually([&] { return askers[5]->count_surveys() > heard; }, kAnswerMs)) continue;
    const std::lock_guard lock(askers[5]->mutex);
    CHECK(askers[5]->surveys.back().question.all);
    last = askers[5]->surveys.back().absent;
  }
  CHECK(last == expected);
  // If all answer, the answer does not wait until patience_ms are over.
  const std::size_t heard = askers[3]->count_surveys();
  askers[3]->ask_for_all(kLongMs);
  CHECK(eventually([&] { return askers[3]->count_surveys() > heard; }));
  {
    const std::lock_guard lock(askers[3]->mutex);
    CHECK(askers[3]->surveys.back().absent == expected);
  }
  const std::vector<Absence> missing{{2, false, 16}};
  CHECK(askers[1]->asked_until(missing) == missing);
  for (const auto& asker : askers) {
    const std::lock_guard lock(asker->mutex);
    for (const Answer& answer : asker->answers) CHECK_FALSE(answer.question.all);
  }
}

TEST_CASE("the text about missing ranks") {
  const auto p = peers(9);
  CHECK(describe_absence(absent({}), p) == "");
  CHECK(describe_absence(absent({{5, false, 16}}), p) ==
        "rank 5 (host a, pid 105) has not called operation 17 (its last was 16)");
  CHECK(describe_absence(absent({{5, false, 0}}), p) ==
        "rank 5 (host a, pid 105) has not called operation 17 (nor any before)");
  CHECK(describe_absence(absent({{2, false, 16}, {3, false, 16}, {4, false, 1}}), p) ==
        "ranks 2-4 have not called operation 17");
  CHECK(describe_absence(absent({{1, true, 0}, {8, false, 16}}), p) ==
        "rank 1 (host a, pid 101) is silent: its process does not answer on the control connection; "
        "rank 8 (host a, pid 108) has not called operation 17 (its last was 16)");
  CHECK(describe_absence(absent({{5, false, 16, true}}), p) == "rank 5 (host a, pid 105) is still in operation 16");
  // Numbers wrap around after 2^32.
  Answer wrapped = absent({{4, false, 0, true}, {5, false, UINT32_MAX, true}});
  wrapped.question.sequence = 1;
  CHECK(describe_absence(wrapped, p) == "rank 5 (host a, pid 105) is still in operation 4294967295");
  // Rank 4 may wait for rank 5, and both for rank 6.
  CHECK(describe_absence(absent({{4, false, 16, true}, {5, false, 15, true}}), p) ==
        "rank 5 (host a, pid 105) is still in operation 15");
  CHECK(describe_absence(absent({{5, false, 15, true}, {6, false, 14}}), p) ==
        "rank 6 (host a, pid 106) has not called operation 17 (its last was 14)");
  // Rank 6 has completed the operation in which rank 5 is.
  CHECK(describe_absence(absent({{4, false, 15, true}, {5, false, 15, true}, {6, false, 15}}), p) ==
        "rank 6 (host a, pid 106) has not called operation 17 (its last was 15); "
        "ranks 4, 5 are still in operation 15");
  CHECK(describe_absence(absent({{1, true, 0}, {5, false, 16, true}}), p) ==
        "rank 1 (host a, pid 101) is silent: its process does not answer on the control connection");
  CHECK(describe_absence(absent({{1, true, 0}, {2, true, 0}}), p) ==
        "ranks 1, 2 are silent: their processes do not answer on the control connections");
}

TEST_CASE("a warning is logged once per wait, then every minute") {
  NoticeClock clock(10'000);
  const std::vector<Absence> third{{3, false, 16}};
  CHECK(clock.due(absent(third), 100'000));
  CHECK_FALSE(clock.due(absent(third), 100'400));      // another rank asks about the same wait
  CHECK_FALSE(clock.due(absent(third, 18), 101'000));  // a rank that is ahead asks
  CHECK_FALSE(clock.due(absent({}, 18), 101'000));     // so soon after, it cannot be another wait
  CHECK(clock.due(absent(third), 160'000));            // a minute later
  CHECK_FALSE(clock.due(absent(third, 18), 160'100));
  CHECK(clock.due(absent({{4, false, 17}}, 18), 175'000));  // another wait
  CHECK_FALSE(clock.due(absent({{4, false, 17}}, 18), 176'000));
}

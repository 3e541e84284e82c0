#include "sim/world/job.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

namespace tutti::internal::sim {
namespace {

constexpr std::int64_t kJoinMs = 60'000;
constexpr std::int64_t kFinishMs = 1000;

Settings quiet() {
  Settings settings;
  settings.wait_notice_ms = 0;
  settings.init_timeout_ms = kJoinMs;
  return settings;
}

}  // namespace

std::vector<int> ranks_named(const std::string& text) {
  static constexpr std::string_view kRank = "rank ";
  std::vector<int> result;
  for (std::size_t at = text.find(kRank); at != std::string::npos; at = text.find(kRank, at)) {
    at += kRank.size();
    int rank = 0;
    if (std::from_chars(text.data() + at, text.data() + text.size(), rank).ec == std::errc()) result.push_back(rank);
  }
  return result;
}

JobWorld::JobWorld(int ranks, const WorldOptions& options, Work work)
    : work_(std::move(work)), records_(static_cast<std::size_t>(ranks)), world_(options) {
  for (int rank = 0; rank < ranks; ++rank) {
    this->rank(rank).process = world_.start(fmt::format("rank {}", rank), [this, rank] { live(rank); });
  }
}

Status JobWorld::join_job(int rank, Job* job) {
  RankRecord& self = this->rank(rank);
  if (rank == 0) {
    Result<UniqueIdBytes> id = create_unique_id(quiet());
    if (!id.is_ok()) return id.status();
    id_ = *id;
    world_.open(&has_id_);
  }
  world_.pass(has_id_);
  if (!id_) return Status::remote("there is no unique id");
  self.phase = Phase::kJoining;
  const Deadline deadline = Deadline::after_ms(kJoinMs);
  Result<Job> joined = join(*id_, rank, ranks(), quiet(), deadline);
  if (!joined.is_ok()) return joined.status();
  *job = std::move(*joined);
  self.phase = Phase::kGathering;
  if (job->tree == nullptr) return {};  // a job of one rank
  if (Status s = job->tree->all_gather(fmt::format("part of {}", rank), deadline).status(); !s.is_ok()) return s;
  return job->tree->watch(self.failure, {});
}

void JobWorld::live(int rank) {
  RankRecord& self = this->rank(rank);
  Job job;
  self.joined = join_job(rank, &job);
  if (self.joined.is_ok()) {
    self.phase = Phase::kWatching;
    if (work_) work_(rank, &job);
    self.phase = Phase::kFinishing;
    self.all_left = job.tree == nullptr || job.tree->finish(kFinishMs);
    self.phase = Phase::kLeaving;
  }
  if (job.tree != nullptr) job.tree->leave();
  if (self.joined.is_ok()) self.phase = Phase::kLeft;
  job = {};
  self.returned = true;
  self.returned_ms = world_.elapsed_ms();
}

bool JobWorld::run(std::int64_t limit_ms) {
  // Without an id no rank has begun to join.
  static_cast<void>(world_.run_until([this] { return has_id_.is_open() || rank(0).process->dead; }, limit_ms));
  if (!has_id_.is_open()) return rank(0).process->dead;
  return run_until_each([](const RankRecord& r) { return r.returned; }, limit_ms);
}

bool JobWorld::run_to(Phase phase, std::int64_t limit_ms) {
  return run_until_each([phase](const RankRecord& r) { return r.phase >= phase || r.returned; }, limit_ms);
}

// A condition that is true stays true, so each rank is checked until then.
bool JobWorld::run_until_each(const std::function<bool(const RankRecord&)>& condition, std::int64_t limit_ms) {
  auto next = records_.begin();
  return world_.run_until(
      [&] {
        while (next != records_.end() && (next->process->dead || condition(*next))) ++next;
        return next == records_.end();
      },
      limit_ms);
}

std::string JobWorld::report() {
  std::string text = world_.report();
  constexpr int kMostReported = 24;
  for (int rank = 0; rank < std::min(ranks(), kMostReported); ++rank) {
    const RankRecord& self = this->rank(rank);
    text += fmt::format("\n  rank {}: phase {}, {}{}, {}", rank, static_cast<int>(self.phase),
                        self.returned ? "returned" : "did not return", self.process->dead ? " (killed)" : "",
                        self.error().is_ok() ? "no error" : self.error().message());
  }
  return text;
}

}  // namespace tutti::internal::sim

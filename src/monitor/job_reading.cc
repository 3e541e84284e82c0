#include "monitor/job_reading.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "monitor/rank_report.h"
#include "os/clock.h"

namespace tutti::internal::monitor {
namespace {

using observe::SeenProcess;
using observe::SeenRank;

using SilentByCommunicator = std::map<std::uint64_t, SilentRanks>;

// The communicators that the process has ranks in, with their numbers of ranks.
std::map<std::uint64_t, int> communicators_of(const std::vector<SeenProcess>& processes, int own) {
  std::map<std::uint64_t, int> ids;
  for (const SeenProcess& process : processes) {
    if (process.pid != own) continue;
    for (const SeenRank& seen : process.ranks) ids[seen.communicator] = seen.ranks;
  }
  return ids;
}

// Adds a process of another host with its rank; a process may have more of them.
void add_remote(SeenProcess process, std::size_t locals, std::vector<SeenProcess>* processes) {
  const auto same =
      std::find_if(processes->begin() + static_cast<std::ptrdiff_t>(locals), processes->end(),
                   [&](const SeenProcess& other) { return other.pid == process.pid && other.host == process.host; });
  if (same == processes->end()) return processes->push_back(std::move(process));
  same->ranks.push_back(std::move(process.ranks.front()));
}

bool has_rank(const std::vector<SeenProcess>& processes, std::uint64_t communicator, int rank) {
  return std::any_of(processes.begin(), processes.end(), [&](const SeenProcess& process) {
    return std::any_of(process.ranks.begin(), process.ranks.end(),
                       [&](const SeenRank& seen) { return seen.communicator == communicator && seen.rank == rank; });
  });
}

void add_survey(std::uint64_t id, int ranks, const Survey& survey, std::int64_t now, std::size_t locals,
                std::vector<SeenProcess>* processes, SilentByCommunicator* silent) {
  if (!survey.answer) return;
  for (const Absence& told : survey.answer->absent) {
    const auto place = survey.places.find(told.rank);
    if (place == survey.places.end() || has_rank(*processes, id, told.rank)) continue;
    if (told.silent) {
      (*silent)[id][told.rank] =
          fmt::format("rank {} (pid {} on {})", told.rank, place->second.pid, place->second.host);
    } else if (auto process = unpack_rank(told.report, id, told.rank, ranks, place->second, now)) {
      add_remote(std::move(*process), locals, processes);
    }
  }
}

void list_missing(const Surveys& surveys, const SilentByCommunicator& silent, JobCommunicator* communicator) {
  const auto survey = surveys.find(communicator->id);
  const auto unheard = silent.find(communicator->id);
  for (int rank = 0; rank < communicator->ranks; ++rank) {
    if (communicator->found.contains(rank)) continue;
    MissingRank& missing = communicator->missing[rank];
    missing.silent = unheard != silent.end() && unheard->second.contains(rank);
    if (survey == surveys.end()) continue;
    const auto place = survey->second.places.find(rank);
    if (place != survey->second.places.end()) {
      missing.host = place->second.host;
      missing.pid = place->second.pid;
    }
    missing.dead = std::binary_search(survey->second.dead.begin(), survey->second.dead.end(), rank);
  }
}

}  // namespace

JobReading reading_of(std::vector<SeenProcess> processes, int own, const Surveys& surveys) {
  const std::map<std::uint64_t, int> ids = communicators_of(processes, own);
  JobReading reading;
  for (SeenProcess& process : processes) {
    // The number of a communicator of one rank need not be unlike those of other processes.
    if (process.pid != own) std::erase_if(process.ranks, [](const SeenRank& seen) { return seen.ranks == 1; });
    const bool takes_part = std::any_of(process.ranks.begin(), process.ranks.end(),
                                        [&](const SeenRank& seen) { return ids.contains(seen.communicator); });
    if (takes_part) reading.processes.push_back(std::move(process));
  }
  SilentByCommunicator silent;
  const std::size_t locals = reading.processes.size();
  const std::int64_t now = now_ns();
  for (const auto& [id, ranks] : ids) {
    const auto survey = surveys.find(id);
    if (survey == surveys.end()) continue;
    reading.unanswered += survey->second.asked && !survey->second.answer ? 1 : 0;
    add_survey(id, ranks, survey->second, now, locals, &reading.processes, &silent);
  }
  std::map<std::uint64_t, JobCommunicator> by_id;
  for (const SeenProcess& process : reading.processes) {
    for (const SeenRank& seen : process.ranks) {
      if (!ids.contains(seen.communicator)) continue;
      JobCommunicator& communicator = by_id[seen.communicator];
      communicator.id = seen.communicator;
      communicator.ranks = seen.ranks;
      communicator.found[seen.rank] = {&process, &seen};
    }
  }
  for (CommunicatorFindings& findings : diagnose(reading.processes, kStuckMs, silent)) {
    const auto at = by_id.find(findings.id);
    if (at != by_id.end()) at->second.findings = std::move(findings);
  }
  for (auto& [id, communicator] : by_id) {
    list_missing(surveys, silent, &communicator);
    reading.communicators.push_back(std::move(communicator));
  }
  std::stable_sort(reading.communicators.begin(), reading.communicators.end(),
                   [](const JobCommunicator& a, const JobCommunicator& b) { return a.ranks > b.ranks; });
  return reading;
}

JobReading read_jobs(int own, const Surveys& surveys) {
  const std::int64_t begun_ns = now_ns();
  observe::SeenProcesses seen = observe::read_all_processes();
  JobReading reading = reading_of(std::move(seen.processes), own, surveys);
  reading.complete = seen.complete;
  reading.read_ns = now_ns();
  reading.took_ns = reading.read_ns - begun_ns;
  return reading;
}

std::map<std::uint64_t, std::vector<int>> ranks_elsewhere(const JobReading& reading) {
  std::map<std::uint64_t, std::vector<int>> elsewhere;
  for (const JobCommunicator& communicator : reading.communicators) {
    if (communicator.missing.empty()) continue;
    std::vector<int>& ranks = elsewhere[communicator.id];
    for (const auto& [rank, missing] : communicator.missing) ranks.push_back(rank);
  }
  return elsewhere;
}

}  // namespace tutti::internal::monitor

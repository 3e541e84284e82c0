// What a process knows of its jobs: the communicators that it has a rank in, with all of their ranks that the host's
// readable processes have.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "monitor/diagnosis.h"
#include "monitor/live_communicators.h"
#include "observe/reader.h"

namespace tutti::internal::monitor {

struct FoundRank {
  const observe::SeenProcess* process = nullptr;
  const observe::SeenRank* seen = nullptr;
};

// A rank of which nothing was read.
struct MissingRank {
  std::string host = "unknown";
  int pid = -1;
  bool silent = false;  // its process does not answer
  bool dead = false;
};

struct JobCommunicator {
  std::uint64_t id = 0;
  int ranks = 0;
  std::map<int, FoundRank> found;
  std::map<int, MissingRank> missing;
  CommunicatorFindings findings;
};

struct JobReading {
  std::vector<observe::SeenProcess> processes;  // that have a rank in one of the communicators
  std::vector<JobCommunicator> communicators;   // the largest first; they refer to the processes
  std::int64_t read_ns = 0;                     // CLOCK_MONOTONIC, when it was complete
  std::int64_t took_ns = 0;
  bool complete = true;  // false: this process was short of descriptors or memory
  int unanswered = 0;    // communicators that have not answered a survey
};
using Surveys = std::map<std::uint64_t, Survey>;  // by communicator

// The processes of the host, read now; `own`: the id of this process. Takes milliseconds, more if the host has many
// processes. Any thread.
JobReading read_jobs(int own, const Surveys& surveys = {});
// The same of these processes of this host, and of the ranks on other hosts that the surveys have found.
JobReading reading_of(std::vector<observe::SeenProcess> processes, int own, const Surveys& surveys = {});
// The ranks that were not found, by communicator; only of communicators that lack some.
std::map<std::uint64_t, std::vector<int>> ranks_elsewhere(const JobReading& reading);

}  // namespace tutti::internal::monitor

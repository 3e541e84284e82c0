// What ranks have measured, as lines of JSON in the form of NCCL's Inspector (format v4.0): one line for each kind and
// size of operations since the last lines, with their mean size and time. docs/metrics.md lists the keys.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "observe/measures.h"
#include "observe/reader.h"

namespace tutti::internal::monitor {

class InspectorLines {
 public:
  InspectorLines(std::string host, int pid) : host_(std::move(host)), pid_(pid) {}
  // Each ends with a newline. `ended`: taken after `live` was read. now_us: since 1970.
  std::vector<std::string> next(const std::vector<observe::SeenRank>& live,
                                const std::vector<observe::EndedMeasures>& ended, std::int64_t now_us);

 private:
  using Key = std::pair<std::uint64_t, int>;  // communicator and rank
  void add(const Key& key, int ranks, const observe::SeenMeasures& now);
  [[nodiscard]] std::string line(const Key& key, int ranks, int hosts, const observe::SeenMeasure& since) const;

  const std::string host_;
  const int pid_;
  std::map<Key, observe::SeenMeasures> told_;
  std::int64_t now_us_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace tutti::internal::monitor

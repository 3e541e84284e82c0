// Which ranks and links of a traced job were slower than the simulator predicts.
//
// A rank is late if it begins collectives long after all others, while the model has all ranks begin together. A link,
// from one rank to another, is slow if its messages took longer than predicted: the time of a message counts from the
// moment from which only the link held it up, which is when the sender's data was complete, the receiver had called the
// collective, and the message before had arrived. Machines are rarely as fast as the model: a link is compared with the
// model and with the other links of the same collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "observe/trace_reader.h"

namespace tutti::internal::tools {

struct LateRank {
  int rank = 0;
  std::size_t last = 0;  // collectives that it began after all others
  std::size_t collectives = 0;
  double late_us = 0;  // after the last but one, by the median
};

struct SlowLink {
  int from = 0;
  int to = 0;
  std::size_t slow = 0;  // collectives in which it was
  std::size_t collectives = 0;
  std::string example;      // one of them: "all_reduce of 1 MiB by ring"
  double ran_us = 0;        // of such a collective, by the median: the sum of its messages' times
  double predicted_us = 0;  // the same as predicted
};

// All links to and from it were slow, and no others.
struct SlowRank {
  int rank = 0;
  std::size_t links = 0;
  std::size_t slow = 0;  // collectives
  std::size_t collectives = 0;
  double factor = 0;  // the time of their messages over the predicted one, by the median of the links
};

struct Delays {
  std::uint64_t communicator = 0;
  int ranks = 0;
  std::size_t collectives = 0;
  std::size_t compared = 0;      // of them, with the model: those whose steps all ranks have kept
  std::string uncompared;        // why some with steps were not; empty: all were
  double factor = 0;             // the time that those took over the predicted one, by the median
  bool compared_begins = false;  // there were enough collectives for which all ranks wait, to find late ranks
  std::vector<LateRank> late;
  std::vector<SlowRank> slow_ranks;
  std::vector<SlowLink> slow_links;
  std::vector<std::string> places;  // of each rank: "pid 4711 on node7"
};

// Of each communicator with several ranks, large ones first. `number`: only of the collective with this number.
std::vector<Delays> find_delays(const std::vector<observe::TracedProcess>& processes,
                                std::optional<std::uint32_t> number);
// Sentences, a line each.
std::string text_of(const Delays& delays);

}  // namespace tutti::internal::tools

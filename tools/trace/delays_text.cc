// What find_delays() has found, in sentences.
#include <fmt/core.h>

#include <cstddef>
#include <string>

#include "tools/trace/delays.h"

namespace tutti::internal::tools {
namespace {

constexpr std::size_t kMostLinks = 8;
// Up to this factor, times are as predicted.
constexpr double kAsPredicted = 2;

std::string text_of_us(double us) {
  if (us < 1000) return fmt::format("{:.{}f} us", us, us < 10 ? 1 : 0);
  return us < 1'000'000 ? fmt::format("{:.{}f} ms", us / 1e3, us < 10'000 ? 1 : 0) : fmt::format("{:.1f} s", us / 1e6);
}

std::string times(double factor) {
  return fmt::format("{:.{}f} times", factor, factor < 10 ? 1 : 0);
}

std::string text_of(const SlowLink& link, const Delays& delays) {
  const std::string& from = delays.places[static_cast<std::size_t>(link.from)];
  const std::string& to = delays.places[static_cast<std::size_t>(link.to)];
  return fmt::format(
      "  the link from rank {} ({}) to rank {} ({}) was slow in {} of {} collectives: in {}, its messages took {} in "
      "place of {}, by the median\n",
      link.from, from, link.to, to, link.slow, link.collectives, link.example, text_of_us(link.ran_us),
      text_of_us(link.predicted_us));
}

}  // namespace

std::string text_of(const Delays& delays) {
  std::string text = fmt::format("communicator {:016x} of {} ranks: {} collectives, {} compared with the model\n",
                                 delays.communicator, delays.ranks, delays.collectives, delays.compared);
  if (!delays.uncompared.empty()) text += fmt::format("  not compared: {}\n", delays.uncompared);
  if (delays.compared > 0) {
    text += delays.factor <= kAsPredicted
                ? fmt::format("  they took as long as predicted: {} the predicted time, by the median\n",
                              times(delays.factor))
                : fmt::format("  they took {} as long as predicted, by the median\n", times(delays.factor));
  }
  for (const LateRank& late : delays.late) {
    text += fmt::format(
        "  rank {} ({}) was late: it began {} of {} collectives last, {} after the others, by the median\n", late.rank,
        delays.places[static_cast<std::size_t>(late.rank)], late.last, late.collectives, text_of_us(late.late_us));
  }
  for (const SlowRank& rank : delays.slow_ranks) {
    text += fmt::format(
        "  rank {} ({}) was slow: in {} of {} collectives, the messages of all its {} links took {} as long as "
        "predicted\n",
        rank.rank, delays.places[static_cast<std::size_t>(rank.rank)], rank.slow, rank.collectives, rank.links,
        times(rank.factor));
  }
  for (std::size_t i = 0; i < delays.slow_links.size() && i < kMostLinks; ++i) {
    text += text_of(delays.slow_links[i], delays);
  }
  if (delays.slow_links.size() > kMostLinks) {
    text += fmt::format("  and {} more links were slow\n", delays.slow_links.size() - kMostLinks);
  }
  const bool none = delays.late.empty() && delays.slow_ranks.empty() && delays.slow_links.empty();
  if (none && delays.compared_begins) {
    text +=
        delays.compared > 0 ? "  no rank was late, and no link was slower than the others\n" : "  no rank was late\n";
  } else if (none && delays.collectives > 0) {
    text += "  too few collectives for which all ranks wait, to find late ranks\n";
  }
  return text;
}

}  // namespace tutti::internal::tools

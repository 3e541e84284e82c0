#include "report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <optional>
#include <set>

#include "base/collectives.h"
#include "base/rank_list.h"
#include "executor/fingerprint.h"
#include "tools/drawing/markup.h"

namespace tutti::internal::tools {
namespace {

using monitor::CommunicatorFindings;
using monitor::describe;
using monitor::describe_awaited;
using monitor::describe_time;
using monitor::Finding;
using monitor::Member;
using monitor::Members;
using observe::SeenCall;
using observe::SeenProcess;
using observe::SeenRank;

// A circle with more ranks cannot be read; then it has those that the findings name.
constexpr std::size_t kMostInCircle = 32;
constexpr std::size_t kMostRows = 64;
constexpr double kRowHeight = 18;
constexpr double kLabelWidth = 90;
constexpr double kTimelineWidth = 900;

constexpr const char* kStyle = R"(
:root{--back:#fff;--text:#1c2430;--dim:#5d6b7c;--line:#d5dce5;--bad:#c0392b;--wait:#d68910;--good:#1e8449;--idle:#8795a5}
@media(prefers-color-scheme:dark){:root{--back:#161b22;--text:#e6edf3;--dim:#9aa7b4;--line:#30363d;--bad:#ff7b72;
--wait:#e3b341;--good:#56d364;--idle:#6e7681}}
body{background:var(--back);color:var(--text);font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em}
h1{font-size:1.5em}h2{font-size:1.2em;border-top:1px solid var(--line);padding-top:1em;margin-top:2em}
.bad{color:var(--bad);font-weight:600}.good{color:var(--good);font-weight:600}.dim{color:var(--dim)}
.look{border-left:4px solid var(--bad);padding:.5em 1em;background:color-mix(in srgb,var(--bad) 8%,transparent)}
table{border-collapse:collapse;font-size:.9em}td,th{padding:.2em .7em;border-bottom:1px solid var(--line);text-align:left}
svg{max-width:100%;height:auto}svg text{fill:var(--text);font:12px system-ui,sans-serif}
code{font-size:.95em}
)";

// Colours of the collectives, which are readable on both backgrounds.
constexpr std::array<const char*, 8> kColours{"#3b82c4", "#d2691e", "#2e9e6b", "#9b59b6",
                                              "#c2a100", "#16a3a3", "#c0507a", "#7f8c8d"};

std::string capitalised(std::string sentence) {
  if (!sentence.empty() && sentence[0] >= 'a' && sentence[0] <= 'z')
    sentence[0] = static_cast<char>(sentence[0] - 'a' + 'A');
  return sentence;
}

Members members_of(const std::vector<SeenProcess>& processes, const CommunicatorFindings& one) {
  Members members;
  for (const SeenProcess& process : processes) {
    for (const SeenRank& rank : process.ranks) {
      const bool same = rank.communicator == one.id && rank.ranks == one.ranks;
      if (same && (one.pid == 0 || one.pid == process.pid)) members[rank.rank] = {&process, &rank};
    }
  }
  return members;
}

std::set<int> suspects_of(const CommunicatorFindings& one) {
  std::set<int> ranks;
  for (const Finding& finding : one.findings) {
    if (finding.kind == Finding::Kind::kConclusion) ranks.insert(finding.ranks.begin(), finding.ranks.end());
  }
  return ranks;
}

const char* colour_of(const Member& member, bool suspect) {
  if (suspect) return "var(--bad)";
  if (member.seen == nullptr) return "none";
  if (member.wait()) return "var(--wait)";
  return member.inside() ? "var(--good)" : "var(--idle)";
}

std::string state_of(const Member& member) {
  if (member.process->ended) return member.seen->failure ? "failed, ended" : "ended";
  if (member.seen->failure) return "failed";
  if (member.process->stopped()) return "stopped";
  if (member.seen->agreement) return "in " + member.seen->agreement->call;
  return member.inside() ? "inside" : "outside";
}

// What a person can do about a rank for which others wait.
std::string advice_for(const Member& member) {
  const SeenProcess& process = *member.process;
  const std::string on = " on " + escaped(process.host);
  if (process.ended) {
    return fmt::format(
        "its process {} has ended{}. Look at the end of its own log, for the kernel's out-of-memory killer in "
        "<code>dmesg</code>, and at what its job scheduler says of it.",
        process.pid, on);
  }
  if (process.stopped()) {
    return fmt::format("its process is stopped{}: <code>kill -CONT {}</code> continues it.", on, process.pid);
  }
  if (member.seen->failure) return "its communicator has failed: the error tells why.";
  const std::string stacks = fmt::format(
      "<code>py-spy dump --pid {0}</code> shows the line of a Python program, <code>gdb -p {0} -batch -ex 'thread "
      "apply all "
      "backtrace'</code> that of another one.",
      process.pid);
  if (member.inside())
    return "it is inside an operation that others have not called: compare the order of calls. " + stacks;
  return fmt::format("it is in the program's own code{}: a data loader, a checkpoint, an exception that it catches. ",
                     on) +
         stacks;
}

class Page {
 public:
  std::string take() { return std::move(text_); }
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    text_ += fmt::format(format, std::forward<Args>(args)...);
  }

 private:
  std::string text_;
};

// Ranks on a circle; an arrow from each that waits to those for which it waits.
void draw_waits(const Members& members, const CommunicatorFindings& one, Page* page) {
  std::set<std::pair<int, int>> arrows;
  for (const auto& [rank, member] : members) {
    if (!member.wait()) continue;
    for (const int other : member.wait()->ranks) arrows.insert({rank, other});
  }
  if (arrows.empty()) return;
  const std::set<int> suspects = suspects_of(one);
  std::set<int> shown;
  for (int rank = 0; rank < one.ranks && static_cast<std::size_t>(one.ranks) <= kMostInCircle; ++rank)
    shown.insert(rank);
  if (shown.empty()) {
    for (const int rank : suspects) {
      if (shown.size() < kMostInCircle) shown.insert(rank);
    }
    for (const auto& [from, to] : arrows) {
      for (const int rank : {to, from}) {
        if (shown.size() < kMostInCircle) shown.insert(rank);
      }
    }
  }
  const double radius = std::max(90.0, 9.0 * static_cast<double>(shown.size()));
  const double middle = radius + 30;
  std::map<int, std::pair<double, double>> at;
  for (const int rank : shown) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(at.size()) / static_cast<double>(shown.size()) -
                         std::numbers::pi / 2;
    at[rank] = {middle + radius * std::cos(angle), middle + radius * std::sin(angle)};
  }
  page->add(
      "<h3>Who waits for whom</h3>\n<svg viewBox=\"0 0 {0:.0f} {0:.0f}\" width=\"{0:.0f}\" role=\"img\" "
      "aria-label=\"wait graph\">\n<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" "
      "markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0 8 4 0 8Z\" "
      "fill=\"var(--dim)\"/></marker></defs>\n",
      2 * middle);
  constexpr double kDisc = 14;
  for (const auto& [from, to] : arrows) {
    if (shown.count(from) == 0 || shown.count(to) == 0 || from == to) continue;
    const auto [x1, y1] = at[from];
    const auto [x2, y2] = at[to];
    const double length = std::hypot(x2 - x1, y2 - y1);
    const double dx = (x2 - x1) / length * kDisc;
    const double dy = (y2 - y1) / length * kDisc;
    page->add(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"var(--dim)\" "
        "marker-end=\"url(#tip)\"/>\n",
        x1 + dx, y1 + dy, x2 - dx, y2 - dy);
  }
  for (const auto& [rank, place] : at) {
    const auto member = members.find(rank);
    const Member none;
    page->add(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\" stroke=\"var(--line)\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        place.first, place.second, kDisc,
        colour_of(member == members.end() ? none : member->second, suspects.count(rank) != 0), place.first,
        place.second + 4, rank);
  }
  page->add(
      "</svg>\n<p class=\"dim\">Red: look here. Orange: waits. Green: inside an operation. Grey: outside. "
      "Empty: not read.{}</p>\n",
      static_cast<std::size_t>(one.ranks) > kMostInCircle ? " Only some of the ranks are shown." : "");
}

// The last operations of the ranks of one host, whose clock they share.
void draw_timeline(const Members& members, const std::string& host, Page* page) {
  std::vector<std::pair<int, const Member*>> rows;
  std::int64_t first = INT64_MAX;
  std::int64_t last = INT64_MIN;
  std::set<int> kinds;
  for (const auto& [rank, member] : members) {
    if (member.process->host != host || rows.size() == kMostRows) continue;
    rows.emplace_back(rank, &member);
    for (const SeenCall& call : member.seen->calls) {
      if (!call.begun_ns) continue;
      first = std::min(first, *call.begun_ns);
      last = std::max(last, call.ended_ns.value_or(*call.begun_ns));
      kinds.insert(static_cast<int>(executor::collective_of(call.call)));
    }
    if (member.inside() || member.wait()) last = std::max(last, member.now_ns());
  }
  if (first >= last) return;
  const double scale = kTimelineWidth / static_cast<double>(last - first);
  const double height = kRowHeight * static_cast<double>(rows.size());
  page->add(
      "<h3>The last operations on {}</h3>\n<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"timeline\">\n",
      escaped(host), kLabelWidth + kTimelineWidth, height + 20);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [rank, member] = rows[i];
    const double y = kRowHeight * static_cast<double>(i);
    page->add("<text x=\"0\" y=\"{:.1f}\">rank {}</text>\n", y + 13, rank);
    for (const SeenCall& call : member->seen->calls) {
      if (!call.begun_ns) continue;
      const bool open = &call == member->last() && (member->inside() || member->wait());
      const std::int64_t end = open ? last : call.ended_ns.value_or(*call.begun_ns);
      const auto kind = static_cast<std::size_t>(executor::collective_of(call.call));
      page->add(
          "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"{}><title>{}, {}</title></rect>\n",
          kLabelWidth + scale * static_cast<double>(*call.begun_ns - first), y + 2,
          std::max(1.0, scale * static_cast<double>(end - *call.begun_ns)), kRowHeight - 4,
          kColours[kind % kColours.size()], open ? " fill-opacity=\"0.5\"" : "", escaped(describe(call)),
          open ? "not complete" : describe_time((end - *call.begun_ns) / 1'000'000));
    }
  }
  page->add(
      "<text x=\"{}\" y=\"{:.1f}\">0</text><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n</svg>\n<p>",
      kLabelWidth, height + 15, kLabelWidth + kTimelineWidth, height + 15, describe_time((last - first) / 1'000'000));
  for (const int kind : kinds) {
    page->add("<span style=\"color:{}\">&#9632;</span> {} ", kColours[static_cast<std::size_t>(kind) % kColours.size()],
              kind < kCollectives ? info_of(static_cast<Collective>(kind)).name : "other");
  }
  page->add("<span class=\"dim\">Pale: not complete. Point at a block for its call.</span></p>\n");
}

void write_table(const Members& members, Page* page) {
  page->add("<h3>Ranks</h3>\n<table><tr><th>rank<th>process<th>state<th>operations<th>last collective<th>waits</tr>\n");
  for (const auto& [rank, member] : members) {
    const SeenCall* const last = member.last();
    const std::string call = member.transfer() ? describe(*member.transfer())
                             : last != nullptr ? describe(*last)
                                               : std::string();
    page->add("<tr><td>{}<td>{} {} on {}<td>{}<td>{}<td>{}<td>{}</tr>\n", rank, escaped(member.process->program),
              member.process->pid, escaped(member.process->host), escaped(state_of(member)), member.seen->number,
              escaped(call),
              member.wait() ? escaped(fmt::format("{} for {}", describe_time(member.wait()->ms),
                                                  describe_awaited(*member.wait())))
                            : std::string());
  }
  page->add("</table>\n");
}

void write_communicator(const std::vector<SeenProcess>& processes, const CommunicatorFindings& one, Page* page) {
  const Members members = members_of(processes, one);
  page->add("<h2>Communicator <code>{:016x}</code> of {} rank{}: {}</h2>\n", one.id, one.ranks,
            one.ranks == 1 ? "" : "s",
            one.failed  ? "<span class=\"bad\">has failed</span>"
            : one.stuck ? "<span class=\"bad\">stands still</span>"
                        : "<span class=\"good\">nothing stands still</span>");
  for (const Finding& finding : one.findings) {
    if (finding.kind != Finding::Kind::kConclusion) continue;
    page->add("<div class=\"look\"><strong>{}.</strong>", escaped(capitalised(finding.text)));
    constexpr std::size_t kMostAdvised = 4;
    for (std::size_t i = 0; i < std::min(finding.ranks.size(), kMostAdvised); ++i) {
      const auto member = members.find(finding.ranks[i]);
      if (member != members.end()) page->add("<p>Rank {}: {}</p>", finding.ranks[i], advice_for(member->second));
    }
    page->add("</div>\n");
  }
  page->add("<ul>\n");
  for (const Finding& finding : one.findings) {
    if (finding.kind != Finding::Kind::kConclusion) page->add("<li>{}.</li>\n", escaped(capitalised(finding.text)));
  }
  page->add("</ul>\n");
  draw_waits(members, one, page);
  std::set<std::string> hosts;
  for (const auto& [rank, member] : members) hosts.insert(member.process->host);
  for (const std::string& host : hosts) draw_timeline(members, host, page);
  write_table(members, page);
}

}  // namespace

std::string html_report(const std::vector<SeenProcess>& processes,
                        const std::vector<monitor::CommunicatorFindings>& findings, const std::string& heading) {
  Page page;
  page.add(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>tutti report</title>\n"
      "<meta name=\"viewport\" content=\"width=device-width\"/><style>{}</style></head><body>\n"
      "<h1>What the ranks do</h1>\n<p>{}</p>\n",
      kStyle, escaped(heading));
  if (findings.empty()) page.add("<p>No communicator was found.</p>\n");
  for (const CommunicatorFindings& one : findings) write_communicator(processes, one, &page);
  page.add("</body></html>\n");
  return page.take();
}

}  // namespace tutti::internal::tools

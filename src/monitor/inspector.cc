#include "monitor/inspector.h"

#include <fmt/core.h>

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/bus_factor.h"
#include "base/collectives.h"
#include "base/version.h"
#include "monitor/nccl_names.h"

namespace tutti::internal::monitor {
namespace {

using observe::SeenMeasure;
using observe::SeenMeasures;

std::string_view name_of_kind(int kind) {
  if (kind == observe::kSends) return "Send";
  return kind == observe::kReceives ? "Recv" : nccl_name(static_cast<Collective>(kind));
}

const SeenMeasure* find(const SeenMeasures& measures, const SeenMeasure& like) {
  for (const SeenMeasure& each : measures.operations) {
    if (each.kind == like.kind && each.size_class == like.size_class) return &each;
  }
  return nullptr;
}

// What has come since `before`, which may be null.
SeenMeasure difference(const SeenMeasure& now, const SeenMeasure* before) {
  SeenMeasure since = now;
  if (before == nullptr) return since;
  since.bytes -= before->bytes;
  since.ns -= before->ns;
  since.waited_ms -= before->waited_ms;
  for (std::size_t i = 0; i < observe::kBuckets; ++i) since.calls[i] -= before->calls[i];
  return since;
}

}  // namespace

std::vector<std::string> InspectorLines::next(const std::vector<observe::SeenRank>& live,
                                              const std::vector<observe::EndedMeasures>& ended, std::int64_t now_us) {
  now_us_ = now_us;
  lines_.clear();
  std::map<Key, SeenMeasures> all;
  for (const observe::SeenRank& rank : live) {
    if (!rank.measures) continue;
    const Key key{rank.communicator, rank.rank};
    add(key, rank.ranks, *rank.measures);
    all[key] = *rank.measures;
  }
  for (const auto& [key, measures] : all) told_[key] = measures;
  for (const observe::EndedMeasures& rank : ended) {
    const Key key{rank.communicator, rank.rank};
    add(key, rank.ranks, rank.measures);
    // It may still be among the live ones, for the last time or because its ring is kept.
    all[key] = rank.measures;
  }
  told_ = std::move(all);
  return std::move(lines_);
}

void InspectorLines::add(const Key& key, int ranks, const SeenMeasures& now) {
  const auto before = told_.find(key);
  for (const SeenMeasure& operation : now.operations) {
    const SeenMeasure since = difference(operation, before == told_.end() ? nullptr : find(before->second, operation));
    if (since.count() != 0) lines_.push_back(line(key, ranks, now.hosts, since));
  }
}

std::string InspectorLines::line(const Key& key, int ranks, int hosts, const SeenMeasure& since) const {
  const std::uint64_t count = since.count();
  const double us = static_cast<double>(since.ns) / 1000 / static_cast<double>(count);
  const std::uint64_t bytes = (since.bytes + count / 2) / count;
  const double gbs = since.ns == 0 ? 0 : static_cast<double>(since.bytes) / static_cast<double>(since.ns);
  const bool collective = since.kind < kCollectives;
  const double bus_gbs = collective ? gbs * bus_factor(static_cast<Collective>(since.kind), ranks) : gbs;
  nlohmann::ordered_json line;
  line["header"] = {{"id", fmt::format("{:016x}", key.first)},
                    {"comm_name", ""},
                    {"rank", key.second},
                    {"n_ranks", ranks},
                    {"nnodes", hosts}};
  line["metadata"] = {{"inspector_output_format_version", "v4.0"},
                      {"git_rev", library_version()},
                      {"rec_mechanism", "tutti"},
                      {"dump_timestamp_us", now_us_},
                      {"hostname", host_},
                      {"pid", pid_}};
  const std::string kind = collective ? "coll" : "p2p";
  nlohmann::ordered_json perf;
  perf[kind] = name_of_kind(since.kind);
  perf[kind + "_sn"] = since.last;
  if (!collective) perf["p2p_peer"] = -1;
  perf[kind + "_msg_size_bytes"] = bytes;
  perf[kind + "_exec_time_us"] = std::round(us * 1000) / 1000;
  perf[kind + "_timing_source"] = "collective_cpu";
  perf[kind + "_algobw_gbs"] = gbs;
  perf[kind + "_busbw_gbs"] = bus_gbs;
  line[kind + "_perf"] = perf;
  line["tutti"] = {{"calls", count}, {"bytes", since.bytes}, {"waited_us", since.waited_ms * 1000}};
  if (since.waited_ms != 0 && since.awaited >= 0) line["tutti"]["awaited_rank"] = since.awaited;
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace tutti::internal::monitor

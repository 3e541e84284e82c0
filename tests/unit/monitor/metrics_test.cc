// The text and the lines of metrics, and what they are measured with.
#include "monitor/metrics.h"

#include <fmt/core.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "monitor/inspector.h"
#include "monitor/prometheus.h"

namespace tutti::internal::monitor::test {
namespace {

using observe::SeenMeasure;
using observe::SeenMeasures;
using observe::SeenRank;

SeenMeasure measure(int kind, std::uint64_t bytes, std::uint64_t ns, std::uint64_t calls) {
  SeenMeasure made;
  made.kind = kind;
  made.size_class = observe::size_class(bytes);
  made.bytes = bytes * calls;
  made.ns = ns * calls;
  made.calls[observe::bucket_of(ns)] = calls;
  return made;
}

SeenRank rank_with(std::vector<SeenMeasure> operations) {
  SeenRank rank;
  rank.communicator = 0x10c9;
  rank.rank = 1;
  rank.ranks = 4;
  rank.measures = SeenMeasures{};
  rank.measures->hosts = 2;
  rank.measures->operations = std::move(operations);
  return rank;
}

std::string text_of(const SeenRank& rank) {
  observe::SeenProcess process;
  process.pid = 77;
  process.host = "node\"7";
  process.program = "train";
  process.version = "0.1.0";
  process.state = 'R';
  process.ranks.push_back(rank);
  return prometheus_text({process});
}

bool has(const std::string& text, const std::string& line) {
  return text.find(line + "\n") != std::string::npos;
}

const std::string kLabels = R"(communicator="00000000000010c9",rank="1",ranks="4",host="node\"7",pid="77")";

}  // namespace

TEST_CASE("metrics: sizes and times have classes that no value falls between") {
  for (std::size_t i = 0; i + 1 < observe::kSizeClasses; ++i) {
    CHECK(observe::size_class(observe::limit_bytes(i)) == i);
    CHECK(observe::size_class(observe::limit_bytes(i) + 1) == i + 1);
  }
  CHECK(observe::size_class(0) == 0);
  CHECK(observe::size_class(UINT64_MAX) == observe::kSizeClasses - 1);
  for (std::size_t i = 0; i + 1 < observe::kBuckets; ++i) {
    CHECK(observe::bucket_of(observe::limit_us(i) * 1000) == i);
    CHECK(observe::bucket_of(observe::limit_us(i) * 1000 + 1) == i + 1);
  }
  CHECK(observe::bucket_of(0) == 0);
  CHECK(observe::bucket_of(UINT64_MAX) == observe::kBuckets - 1);
}

TEST_CASE("metrics: measures add up, also for more late ranks than there is room for") {
  const auto measures = std::make_unique<observe::Measures>();
  observe::add(*measures, {.kind = 0, .bytes = 100, .ns = 5000, .number = 7});
  observe::add(*measures, {.kind = 0, .bytes = 200, .ns = 7000, .number = 8});
  observe::add(*measures, {.kind = observe::kReceives, .bytes = 8, .ns = 100, .number = 0});
  observe::add(*measures, 0, 100, {.ms = 0, .rank = 3});
  for (int rank = 0; rank < 40; ++rank) observe::add(*measures, 0, 100, {.ms = 60, .rank = rank});
  observe::add(*measures, 0, 100, {.ms = 100, .rank = 3});
  const SeenMeasures seen = observe::read(*measures);
  REQUIRE(seen.operations.size() == 2);
  CHECK(seen.operations[0].count() == 2);
  CHECK(seen.operations[0].bytes == 300);
  CHECK(seen.operations[0].ns == 12000);
  CHECK(seen.operations[0].last == 8);
  CHECK(seen.operations[0].waited_ms == 40 * 60 + 100);
  CHECK(seen.operations[0].awaited == 3);
  CHECK(seen.operations[1].awaited == -1);
  CHECK(seen.operations[1].kind == observe::kReceives);
  CHECK(seen.waits == 41);
  CHECK(seen.waited_ms == 40 * 60 + 100);
  REQUIRE(seen.late.size() == observe::kLateRanks);
  CHECK(seen.late[3].rank == 3);
  CHECK(seen.late[3].waits == 2);
  CHECK(seen.late[3].waited_ms == 160);
}

TEST_CASE("metrics: sent bytes by transport and host, also for more than there is room for") {
  const auto measures = std::make_unique<observe::Measures>();
  observe::set_sent(*measures, {{{"shm", "node7"}, {100, 0}}, {{"tcp", "node8"}, {200, 0}}});
  observe::set_sent(*measures,
                    {{{"shm", "node7"}, {150, 0}}, {{"tcp", "node8"}, {200, 3}}, {{"shm", "node8"}, {7, 0}}});
  SeenRank rank = rank_with({});
  rank.measures = observe::read(*measures);
  CHECK(rank.measures->sent.size() == 3);
  CHECK(has(text_of(rank), "tutti_sent_bytes_total{" + kLabels + R"(,transport="shm",peer_host="node7"} 150)"));
  CHECK(has(text_of(rank), "tutti_sent_bytes_total{" + kLabels + R"(,transport="tcp",peer_host="node8"} 200)"));
  CHECK(has(text_of(rank), "tutti_reconnects_total{" + kLabels + R"(,transport="tcp",peer_host="node8"} 3)"));
  CHECK(has(text_of(rank), "tutti_reconnects_total{" + kLabels + R"(,transport="shm",peer_host="node8"} 0)"));
  observe::AllSent many;
  for (int i = 0; i < 100; ++i) many[{"tcp", std::string(100, 'x').replace(0, 2, std::to_string(i + 10))}] = {10, 1};
  for (int i = 0; i < 2; ++i) observe::set_sent(*measures, many);
  const SeenMeasures seen = observe::read(*measures);
  REQUIRE(seen.sent.size() == observe::kSentRows);
  CHECK(seen.sent.back().host == observe::kOthers);
  CHECK(seen.sent.back().to.bytes == 10 * (100 - (observe::kSentRows - 1 - 3)));
  CHECK(seen.sent.back().to.reconnects == 100 - (observe::kSentRows - 1 - 3));
}

TEST_CASE("metrics: the text has the histogram of each collective and size") {
  const std::string text = text_of(rank_with({measure(0, 8, 2500, 10), measure(observe::kSends, 1 << 20, 70'000, 2)}));
  const std::string reduce = kLabels + R"(,collective="all_reduce",size="up_to_64B")";
  CHECK(has(text, "tutti_operation_seconds_bucket{" + reduce + R"(,le="1e-06"} 0)"));
  CHECK(has(text, "tutti_operation_seconds_bucket{" + reduce + R"(,le="4e-06"} 10)"));
  CHECK(has(text, "tutti_operation_seconds_bucket{" + reduce + R"(,le="+Inf"} 10)"));
  CHECK(has(text, "tutti_operation_seconds_count{" + reduce + "} 10"));
  CHECK(has(text, "tutti_operation_bytes_total{" + reduce + "} 80"));
  CHECK(has(text, "tutti_operation_bus_bytes_total{" + reduce + "} 120"));
  CHECK(has(text, "tutti_operation_seconds_count{" + kLabels + R"(,collective="send",size="up_to_2MiB"} 2)"));
  CHECK(has(text, "tutti_failed{" + kLabels + "} 0"));
  CHECK(has(text, R"(tutti_process_info{host="node\"7",pid="77",program="train",version="0.1.0"} 1)"));
}

TEST_CASE("metrics: a rank that does not measure has states") {
  SeenRank rank = rank_with({});
  rank.measures.reset();
  rank.inside = true;
  rank.failure = SeenRank::Failure{"gone", 0, false};
  rank.counts[0] = 7;
  rank.wait = SeenRank::Wait{1500, {2, 3}, false};
  const std::string text = text_of(rank);
  CHECK(has(text, "tutti_failed{" + kLabels + "} 1"));
  CHECK(has(text, "tutti_calls_total{" + kLabels + R"(,collective="all_reduce"} 7)"));
  CHECK(has(text, "tutti_inside{" + kLabels + "} 1"));
  CHECK(has(text, "tutti_waiting_seconds{" + kLabels + "} 1.5"));
  CHECK(has(text, "tutti_waiting_for_rank{" + kLabels + "} 2"));
  CHECK(text.find("tutti_waits_total{") == std::string::npos);
}

TEST_CASE("metrics: lines are about what has come since the last ones") {
  InspectorLines lines("node7", 77);
  SeenRank rank = rank_with({measure(0, 1000, 2000, 10)});
  std::vector<std::string> next = lines.next({rank}, {}, 5);
  REQUIRE(next.size() == 1);
  CHECK(next[0] ==
        R"({"header":{"id":"00000000000010c9","comm_name":"","rank":1,"n_ranks":4,"nnodes":2},"metadata":)"
        R"({"inspector_output_format_version":"v4.0","git_rev":"0.1.0","rec_mechanism":"tutti","dump_timestamp_us":5,)"
        R"("hostname":"node7","pid":77},"coll_perf":{"coll":"AllReduce","coll_sn":0,"coll_msg_size_bytes":1000,)"
        R"("coll_exec_time_us":2.0,"coll_timing_source":"collective_cpu","coll_algobw_gbs":0.5,"coll_busbw_gbs":0.75},)"
        R"("tutti":{"calls":10,"bytes":10000,"waited_us":0}})"
        "\n");
  CHECK(lines.next({rank}, {}, 6).empty());
  // Four more of other sizes and times, of which one waited.
  rank.measures->operations[0].waited_ms = 70;
  rank.measures->operations[0].awaited = 2;
  rank.measures->operations[0].bytes += 4 * 600;
  rank.measures->operations[0].ns += 4 * 6000;
  rank.measures->operations[0].calls[observe::bucket_of(6000)] += 4;
  next = lines.next({rank}, {}, 7);
  REQUIRE(next.size() == 1);
  CHECK(next[0].find(R"("coll_msg_size_bytes":600,"coll_exec_time_us":6.0,)") != std::string::npos);
  CHECK(next[0].find(R"("tutti":{"calls":4,"bytes":2400,"waited_us":70000,"awaited_rank":2})") != std::string::npos);
  // The communicator ends after one more.
  SeenMeasures last = *rank.measures;
  last.operations.push_back(measure(observe::kSends, 64, 1000, 1));
  next = lines.next({}, {{0x10c9, 1, 4, last}}, 8);
  REQUIRE(next.size() == 1);
  CHECK(next[0].find(R"("p2p_perf":{"p2p":"Send","p2p_sn":0,"p2p_peer":-1,"p2p_msg_size_bytes":64,)") !=
        std::string::npos);
  CHECK(lines.next({}, {}, 9).empty());
  // One that begins and ends between two readings.
  CHECK(lines.next({}, {{0x10ca, 1, 4, last}}, 10).size() == 2);
}

TEST_CASE("metrics: values of TUTTI_METRICS") {
  auto several = parse_metrics("prom:/var/lib/node_exporter,http::9400,json:out,unix:/run/agent.sock");
  REQUIRE(several.is_ok());
  REQUIRE(several->size() == 4);
  CHECK((*several)[0].kind == MetricsTarget::Kind::kPrometheusFile);
  CHECK((*several)[0].where == "/var/lib/node_exporter");
  CHECK((*several)[1].kind == MetricsTarget::Kind::kHttp);
  CHECK((*several)[1].where == ":9400");
  CHECK((*several)[2].kind == MetricsTarget::Kind::kLinesFile);
  CHECK((*several)[3].kind == MetricsTarget::Kind::kLinesSocket);
  for (const char* const wrong : {"", "prom", "prom:", "file:/tmp", "/tmp", "prom:/tmp,", ",prom:/tmp"}) {
    const auto refused = parse_metrics(wrong);
    CHECK(refused.status().code() == Code::kInvalidUsage);
    CHECK(refused.status().message().find(fmt::format("TUTTI_METRICS=\"{}\" is not prom:", wrong)) == 0);
  }
}

}  // namespace tutti::internal::monitor::test

// A plan's decisions about reading the memory of peers.
#include "executor/plan.h"

#include "catch_compat.h"
#include "unit/transport/shm_pairs.h"

namespace tutti::internal::executor {
namespace {

// The plan of a group with this many sends and receives.
std::unique_ptr<Plan> plan_transfers(transport::Link* link, std::uint32_t sends, std::uint32_t receives) {
  schedule::Schedule schedule;
  schedule.shape.collective = Collective::kAllToAll;
  schedule.shape.ranks = 2;
  schedule.shape.chunks = schedule.shape.blocks = sends + receives;
  schedule.sliceable = false;
  for (std::uint32_t i = 0; i < sends + receives; ++i) {
    schedule::Step step;
    step.kind = i < sends ? schedule::StepKind::kSend : schedule::StepKind::kRecv;
    step.chunks = 1;
    step.peer = 1;
    step.source_chunk = step.target_chunk = i < sends ? i : i - sends;
    schedule.steps.push_back(step);
  }
  return make_plan(
      "transfers", std::move(schedule), [link](int) { return link; }, 0);
}

}  // namespace

TEST_CASE("between oversubscribed ranks, short transfers in one direction are not read") {
  const transport::conformance::Pair pair = transport::conformance::processes_pair();
  const auto exchange = plan_transfers(pair.a.get(), 1, 1);
  CHECK(exchange->reading == transport::Reading::kAlways);
  CHECK(exchange->read_in_turns_bytes == 0);
  CHECK(exchange->most_read_bytes == SIZE_MAX);
  const auto [sends, receives] = GENERATE(table<std::uint32_t, std::uint32_t>({{1, 0}, {0, 1}, {2, 1}}));
  CAPTURE(sends, receives);
  const auto flow = plan_transfers(pair.a.get(), sends, receives);
  CHECK(flow->reading == transport::Reading::kFromAfar);
  CHECK(flow->read_in_turns_bytes == 128 * 1024);
  CHECK(flow->most_read_bytes == 1536 * 1024);
}

}  // namespace tutti::internal::executor

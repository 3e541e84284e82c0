#include "schedule/builder.h"

#include <vector>

#include "catch_compat.h"
#include "schedule/verify.h"

namespace tutti::internal::schedule {
namespace {

Shape all_reduce(std::int32_t ranks, std::uint32_t chunks) {
  return {Collective::kAllReduce, ranks, 0, chunks, 1};
}

std::vector<std::uint32_t> after(const Schedule& s, std::size_t i) {
  const auto d = s.dependencies_of(s.steps[i]);
  return {d.begin(), d.end()};
}

using Steps = std::vector<std::uint32_t>;

TEST_CASE("a read waits for the last writer, a write for the readers") {
  Builder b(all_reduce(3, 1), 0);
  b.send(1, {0, 1});         // 0: reads the input
  b.recv_reduce(1, {0, 1});  // 1: writes the output, which in place is the input
  b.send(2, {0, 1});         // 2: reads what 1 wrote
  b.recv(2, {0, 1});         // 3: overwrites what 2 reads; 2 has waited for 1
  const Schedule s = b.finish().value();
  REQUIRE(s.steps.size() == 4);
  CHECK(after(s, 0).empty());
  CHECK(after(s, 1) == Steps{0});
  CHECK(after(s, 2) == Steps{1});
  CHECK(after(s, 3) == Steps{2});
  CHECK(s.steps[1].source == Buffer::kInput);
  CHECK(s.steps[1].target == Buffer::kOutput);
  CHECK(s.steps[2].source == Buffer::kOutput);
  CHECK(s.scratch_chunks == 0);
}

// An all-to-all of two chunks a block in rounds, in which a rank sends first or receives first.
std::vector<Schedule> in_rounds(bool receives_first) {
  std::vector<Schedule> schedules;
  for (std::int32_t r = 0; r < 3; ++r) {
    Builder b({Collective::kAllToAll, 3, 0, 6, 3}, r);
    const auto at = [](Buffer buffer, std::int32_t rank) {
      return Builder::At{buffer, static_cast<std::uint32_t>(rank) * 2};
    };
    b.wait_for_last();  // there is no last step
    b.copy(at(Buffer::kInput, r), at(Buffer::kOutput, r), 2);
    for (std::int32_t k = 1; k < 3; ++k) {
      const std::int32_t to = (r + k) % 3;
      const std::int32_t from = (r + 3 - k) % 3;
      if (receives_first) b.recv_into(from, at(Buffer::kOutput, from), 2);
      b.wait_for_last();
      b.send_from(to, at(Buffer::kInput, to), 2);
      if (!receives_first) b.recv_into(from, at(Buffer::kOutput, from), 2);
    }
    schedules.push_back(b.finish().value());
  }
  return schedules;
}

TEST_CASE("a step can wait for all of the last one, although they share no memory") {
  const std::vector<Schedule> schedules = in_rounds(false);
  REQUIRE(schedules[0].steps.size() == 5);
  CHECK(after(schedules[0], 0).empty());
  CHECK(after(schedules[0], 1) == Steps{0});
  CHECK(after(schedules[0], 2).empty());
  CHECK(after(schedules[0], 3) == Steps{2});
  CHECK(after(schedules[0], 4).empty());
  CHECK(verify(schedules).is_ok());
  const Status stuck = verify(in_rounds(true)).status();
  INFO(stuck.message());
  CHECK(stuck.message().find("deadlock: waits without end for step 1") != std::string::npos);
}

TEST_CASE("steps of one receiving lane need no dependencies, those of two lanes do") {
  Builder b(all_reduce(3, 1), 0);
  b.recv_reduce(1, {0, 1});
  b.recv_reduce(1, {0, 1});
  b.recv_reduce(2, {0, 1}, Completes::kYes);
  const Schedule s = b.finish().value();
  CHECK(after(s, 1).empty());
  CHECK(after(s, 2) == Steps{1});
  CHECK_FALSE(s.steps[1].final);
  CHECK(s.steps[2].final);
}

TEST_CASE("values of chunks that are not kept live in scratch") {
  Builder b({Collective::kReduceScatter, 2, 0, 2, 2}, 0);
  b.recv_reduce(1, {0, 2});
  b.send(1, {1, 1});
  const Schedule s = b.finish().value();
  REQUIRE(s.steps.size() == 3);  // one receive into two targets
  CHECK(s.steps[0].target == Buffer::kOutput);
  CHECK(s.steps[1].target == Buffer::kScratch);
  CHECK(s.steps[2].source == Buffer::kScratch);
  CHECK(after(s, 2) == Steps{1});
  CHECK(s.scratch_chunks > 0);
  CHECK(s.sliceable);
}

TEST_CASE("a fold combines scratch with the value in its buffer, and is one step") {
  Builder b(all_reduce(3, 1), 0);
  b.send(1, {0, 1});                                    // 0: reads the input
  b.recv_to_scratch(1, {0, 1});                         // 1
  b.reduce_from_scratch({0, 1}, ScratchComes::kFirst);  // 2: reads the input and the scratch, writes the output
  b.send(2, {0, 1});                                    // 3
  b.recv_to_scratch(2, {0, 1});                         // 4: overwrites the scratch that 2 reads
  b.reduce_from_scratch({0, 1}, ScratchComes::kLast);   // 5: reads and writes the output
  const Schedule s = b.finish().value();
  REQUIRE(s.steps.size() == 6);
  for (const std::size_t i : {2, 5}) {
    CHECK(s.steps[i].kind == StepKind::kReduce);
    CHECK(s.steps[i].source == Buffer::kScratch);
    CHECK(s.steps[i].target == Buffer::kOutput);
    CHECK(s.steps[i].reversed == (i == 5));
  }
  CHECK(s.steps[2].operand == Buffer::kInput);
  CHECK(s.steps[5].operand == Buffer::kOutput);
  CHECK(after(s, 2) == Steps{0, 1});
  CHECK(after(s, 4) == Steps{2});
  CHECK(after(s, 5) == Steps{3, 4});
  CHECK(to_text(s).find("scratch, input -> output") != std::string::npos);
}

TEST_CASE("a copy from input to output waits for no step, and later writers wait for it and for the readers") {
  Builder b(all_reduce(3, 1), 0);
  b.send(1, {0, 1});         // 0
  b.copy_to_output({0, 1});  // 1
  b.recv_reduce(1, {0, 1});  // 2
  const Schedule s = b.finish().value();
  REQUIRE(s.steps.size() == 3);
  CHECK(s.steps[1].kind == StepKind::kCopy);
  CHECK(after(s, 1).empty());
  CHECK(after(s, 2) == Steps{0, 1});
}

TEST_CASE("finish copies the chunks that are in the input to the output") {
  Builder b({Collective::kBroadcast, 2, 0, 3, 1}, 0);
  b.send(1, {0, 3});
  const Schedule s = b.finish().value();
  REQUIRE(s.steps.size() == 2);
  CHECK(s.steps[1].kind == StepKind::kCopy);
  CHECK(s.steps[1].chunks == 3);
  CHECK(s.steps[1].dependencies == 0);
}

TEST_CASE("steps that span blocks cannot be sliced") {
  Builder b({Collective::kReduceScatter, 2, 0, 2, 2}, 0);
  b.send(1, {0, 2});
  CHECK_FALSE(b.finish().value().sliceable);
}

TEST_CASE("long ranges are cut to what a step can hold") {
  Builder b(all_reduce(2, 70000), 0);
  b.send(1, {0, 70000});
  const Schedule s = b.finish().value();
  REQUIRE(s.steps.size() == 4);
  CHECK(s.steps[0].chunks == 65535);
  CHECK(s.steps[1].source_chunk == 65535);
  CHECK(s.steps[1].chunks == 70000 - 65535);
}

TEST_CASE("defects of a generator are reported") {
  const auto fails = [](auto generate) {
    Builder b({Collective::kBroadcast, 3, 0, 2, 1}, 1);
    generate(b);
    return b.finish().status().code() == Code::kInternalError;
  };
  CHECK(fails([](Builder& b) { b.send(0, {0, 1}); }));                     // no value
  CHECK(fails([](Builder& b) { b.recv(0, {0, 1}); }));                     // chunk 1 never comes
  CHECK(fails([](Builder& b) { b.recv(0, {0, 3}); }));                     // no such chunk
  CHECK(fails([](Builder& b) { b.recv(0, {0, 2}), b.send(1, {0, 1}); }));  // to itself
  CHECK(fails([](Builder& b) { b.recv(0, {0, 2}), b.send(3, {0, 1}); }));  // no such rank
  CHECK(fails([](Builder& b) { b.recv(0, {0, 2}), b.send(2, {0, 0}); }));  // nothing
  CHECK_FALSE(fails([](Builder& b) { b.recv(0, {0, 2}); }));
}

// Two ranks exchange their vectors; each receives into scratch and reduces.
std::vector<Schedule> folded_exchange() {
  std::vector<Schedule> schedules;
  for (std::int32_t r = 0; r < 2; ++r) {
    Builder b(all_reduce(2, 1), r);
    b.send(1 - r, {0, 1});                                                                                // 0
    b.recv_to_scratch(1 - r, {0, 1});                                                                     // 1
    b.reduce_from_scratch({0, 1}, r == 0 ? ScratchComes::kLast : ScratchComes::kFirst, Completes::kYes);  // 2
    schedules.push_back(b.finish().value());
  }
  return schedules;
}

TEST_CASE("the verifier checks in which order a fold combines, if that is asked for") {
  std::vector<Schedule> schedules = folded_exchange();
  CHECK(verify(schedules, Order::kRanks).is_ok());
  schedules[0].steps[2].reversed = false;
  CHECK(verify(schedules).is_ok());
  const std::string why = verify(schedules, Order::kRanks).status().message();
  CHECK(why.find("rank 0, step 2 (reduce, chunk 0): combines ranks 1 to 1 with 0 to 0") != std::string::npos);
  schedules[0].steps[0].reversed = true;
  CHECK(verify(schedules).status().message().find("reversed operands but combines nothing") != std::string::npos);
}

TEST_CASE("of a received value and the own one that of the lower rank comes first") {
  Builder b(all_reduce(3, 1), 1);
  b.recv_reduce(0, {0, 1});
  b.recv_reduce(2, {0, 1});
  b.recv_reduce_into(0, {Buffer::kOutput, 0}, {Buffer::kOutput, 0}, 1);
  const Schedule s = b.finish().value();
  CHECK(s.steps[0].reversed);
  CHECK_FALSE(s.steps[1].reversed);
  CHECK(s.steps[2].reversed);
  CHECK(to_text(s).find("recv_reduce from 0     chunk 0  received, input -> output") != std::string::npos);
  CHECK(to_text(s).find("recv_reduce from 2     chunk 0  output, received -> output") != std::string::npos);
}

TEST_CASE("the verifier checks what a fold reads") {
  CHECK(verify(folded_exchange()).is_ok());
  const auto message = [](auto change) {
    std::vector<Schedule> schedules = folded_exchange();
    change(schedules[1]);
    return verify(schedules).status().message();
  };
  const auto operand = [&](Buffer b) { return message([b](Schedule& s) { s.steps[2].operand = b; }); };
  CHECK(operand(Buffer::kScratch).find("with itself") != std::string::npos);
  CHECK(operand(Buffer::kOutput).find("never written") != std::string::npos);
  // A second fold that reads the input again, which is already overwritten in place.
  const std::string twice = message([](Schedule& s) { s.steps.push_back(s.steps[2]); });
  CHECK(twice.find("reads an input that is overwritten by step 2, in place") != std::string::npos);
  // Scratch used as the operand must be waited for, like a source.
  const std::string early = message([](Schedule& s) {
    s.steps[2].source = Buffer::kInput;
    s.steps[2].operand = Buffer::kScratch;
    s.steps[2].dependencies = 1;  // on step 0 only
  });
  CHECK(early.find("reads without waiting for the write of step 1") != std::string::npos);
}

TEST_CASE("the verifier sees ranks of which some would run in slices") {
  std::vector<Schedule> schedules = folded_exchange();
  schedules[1].sliceable = false;
  const auto proof = verify(schedules);
  REQUIRE_FALSE(proof.is_ok());
  CHECK(proof.status().message() == "of ranks 0 and 1 one runs in slices and one may not");
}

TEST_CASE("steps by position") {
  // Rank 1 of three forwards block 2 of its input as its block 0, through scratch.
  const Shape shape{Collective::kAllToAll, 3, 0, 3, 3};
  Builder b(shape, 1);
  b.copy({Buffer::kInput, 2}, {Buffer::kScratch, 4}, 1);                     // 0
  b.send_from(0, {Buffer::kScratch, 4}, 1);                                  // 1
  b.recv_into(2, {Buffer::kScratch, 4}, 1);                                  // 2
  b.recv_into(0, {Buffer::kOutput, 0}, 3);                                   // 3
  b.recv_reduce_into(0, {Buffer::kScratch, 4}, {Buffer::kOutput, 1}, 1);     // 4
  b.reduce({Buffer::kScratch, 4}, Buffer::kInput, {Buffer::kOutput, 1}, 1);  // 5
  const Schedule s = b.finish().value();
  REQUIRE(s.steps.size() == 6);
  CHECK(s.scratch_chunks == 5);
  CHECK_FALSE(s.sliceable);
  CHECK(after(s, 0).empty());
  CHECK(after(s, 1) == Steps{0});
  CHECK(after(s, 2) == Steps{1});
  // Input and output are different memory, even if their chunks have the same number.
  CHECK(after(s, 3).empty());
  CHECK(after(s, 4) == Steps{2});
  CHECK(after(s, 5) == Steps{2, 4});
}

TEST_CASE("the verifier sees a deadlock that buffering would hide") {
  std::vector<Schedule> schedules;
  for (std::int32_t r = 0; r < 2; ++r) {
    Builder b(all_reduce(2, 1), r);
    b.send(1 - r, {0, 1});
    b.recv_reduce(1 - r, {0, 1}, Completes::kYes);
    schedules.push_back(b.finish().value());
  }
  const auto proof = verify(schedules);
  REQUIRE_FALSE(proof.is_ok());
  CHECK(proof.status().message().find("deadlock") != std::string::npos);
}

TEST_CASE("the verifier sees a rank that stops when steps are taken in order") {
  std::vector<Schedule> schedules;
  for (std::int32_t r = 0; r < 2; ++r) {
    Builder b({Collective::kAllGather, 2, 0, 4, 2}, r);
    const std::uint32_t mine = static_cast<std::uint32_t>(r) * 2;
    for (std::uint32_t k = 0; k < 2; ++k) b.send(1 - r, {mine + k, 1});
    b.recv(1 - r, {2 - mine, 2});
    schedules.push_back(b.finish().value());
  }
  const auto proof = verify(schedules);
  REQUIRE_FALSE(proof.is_ok());
  CHECK(proof.status().message().find("in order") != std::string::npos);
}

TEST_CASE("a schedule prints its steps") {
  Builder b(all_reduce(2, 1), 0);
  b.send(1, {0, 1});
  b.recv_reduce(1, {0, 1}, Completes::kYes);
  const std::string text = to_text(b.finish().value());
  CHECK(text.find("rank 0 of 2") != std::string::npos);
  CHECK(text.find("recv_reduce from 1") != std::string::npos);
  CHECK(text.find("final  after 0") != std::string::npos);
}

}  // namespace
}  // namespace tutti::internal::schedule

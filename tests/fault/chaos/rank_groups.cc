// A rank's part in the groups of a round.
#include <algorithm>
#include <utility>

#include "rank.h"

namespace tutti::internal::test::chaos {

// With the communicators that are usable; the others refuse later calls.
void RankRun::perform_group(int k) {
  const std::vector<Move>& moves = round_.steps[static_cast<std::size_t>(k)].moves;
  for (int c = 0; c < round_.comms; ++c) {
    const bool used = std::any_of(moves.begin(), moves.end(), [&](const Move& m) { return m.comm == c; });
    if (used && (states_[c] == State::kFailed || states_[c] == State::kFinalized)) probe_failed(k, c);
  }
  // A communicator that fails meanwhile may prevent the others' operations from starting.
  for (int tries = 0; tries <= round_.comms; ++tries) {
    if (try_group(k)) return;
  }
  note_wrong(mine_, "group", "a group is not started, and there is no communicator left that could have failed");
}

// In an order that differs between ranks.
RankRun::Sides RankRun::make_sides(int k) {
  Sides sides;
  for (int i = 0; i < round_.comms; ++i) {
    const int c = (rank_ + i) % round_.comms;
    if (states_[c] != State::kGood) continue;
    for (const Move& m : round_.steps[static_cast<std::size_t>(k)].moves) {
      if (m.comm != c) continue;
      const bool registered = (m.number + static_cast<std::uint32_t>(rank_)) % 3 == 0 && !files_are_few_;
      const auto add = [&](bool sends) {
        auto side = std::make_unique<Side>(m, rank_, round_.ranks, sends);
        if (!side->prepare(registered, m.number % 4)) note_wrong(mine_, "memory", "no memory for a group");
        sides.push_back(std::move(side));
      };
      if (!m.transfer || m.root == rank_) add(true);
      if (m.transfer && m.peer == rank_) add(false);
    }
  }
  return sides;
}

// `refused`: by communicator, the first refused call.
tuttiResult_t RankRun::issue_group(int k, const Sides& sides, tuttiResult_t* refused) {
  const int s = round_.steps[static_cast<std::size_t>(k)].stream;
  void* const stream = s < 0 ? nullptr : streams_[static_cast<std::size_t>(s)];
  if (const auto result = tuttiGroupStart(); result != tuttiSuccess) return result;
  for (const auto& side : sides) {
    const int c = side->move().comm;
    const tuttiResult_t result = side->issue(handles_[c].comm, stream);
    if (refused[c] == tuttiSuccess) refused[c] = result;
  }
  const tuttiResult_t result = tuttiGroupEnd();
  const std::string text = tuttiGetLastError(nullptr);
  for (const auto& side : sides) (void)side->release(handles_[side->move().comm].comm);
  group_text_ = text;
  return result;
}

// False if nothing was started because a communicator has failed, which is recorded.
bool RankRun::try_group(int k) {
  Sides sides = make_sides(k);
  if (sides.empty()) return true;
  for (const auto& side : sides) mine_.called[side->move().comm] = k + 1;
  tuttiResult_t refused[kMaxComms] = {};
  const tuttiResult_t result = in_library("a group", [&] { return issue_group(k, sides, refused); });
  const bool started =
      result == tuttiSuccess || group_text_.find("no call of the group was started") == std::string::npos;
  if (started) {
    settle_group(k, std::move(sides), result, refused);
    return true;
  }
  bool explained = false;
  for (int c = 0; c < round_.comms; ++c) {
    if (states_[c] != State::kGood) continue;
    std::string text = group_text_;
    tuttiResult_t error = error_of(c, &text);
    if (error == tuttiSuccess) error = refused[c];
    if (error == tuttiSuccess) continue;
    failed(c, k, error, text);
    explained = true;
  }
  if (!explained) note_wrong(mine_, "group", "a group is refused: " + group_text_);
  return !explained;
}

// The group's operations on communicators that have not failed are complete, or queued.
void RankRun::settle_group(int k, Sides sides, tuttiResult_t result, const tuttiResult_t* refused) {
  const int s = round_.steps[static_cast<std::size_t>(k)].stream;
  bool explained = result == tuttiSuccess;
  for (int c = 0; c < round_.comms; ++c) {
    const bool used = std::any_of(sides.begin(), sides.end(), [&](const auto& side) { return side->move().comm == c; });
    if (!used) continue;
    std::string text = group_text_;
    tuttiResult_t error = refused[c];
    if (error == tuttiSuccess && result != tuttiSuccess) error = error_of(c, &text);
    if (error != tuttiSuccess) failed(c, k, error, text);
    explained = explained || error != tuttiSuccess;
  }
  if (!explained) note_wrong(mine_, "group", "an error of a group without a failed communicator: " + group_text_);
  for (auto& side : sides) {
    const int c = side->move().comm;
    if (states_[c] != State::kGood) {
      reclaim(std::move(side));
    } else if (s >= 0) {
      pending_[static_cast<std::size_t>(s)].push_back(std::unique_ptr<Pending>(
          new Pending{c, k, Spec(), nullptr, Trial(Spec(), rank_, round_.ranks), std::move(side)}));
    } else if (const std::string wrong = side->check(); !wrong.empty()) {
      note_wrong(mine_, "data", "step " + std::to_string(k) + ", in a group: " + wrong);
    }
  }
}

// Like for a single operation.
void RankRun::reclaim(std::unique_ptr<Side> side) {
  if (round_.has(MishapKind::kStop)) return;
  side->fill_output(kRubbish);
  sleep_us(kKeepUs);
  if (!side->output_is(kRubbish))
    note_wrong(mine_, "buffer", "somebody wrote into the output of a call that had failed: " + side->move().text());
}

}  // namespace tutti::internal::test::chaos

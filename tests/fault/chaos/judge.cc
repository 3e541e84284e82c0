#include "judge.h"

#include <sys/wait.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <regex>
#include <set>

namespace tutti::internal::test::chaos {
namespace {

// Whether `text` has "rank R", or R among "ranks P, Q-S".
bool names(const std::string& text, int rank) {
  static const std::regex kLists("ranks? ([0-9]+(-[0-9]+)?(, [0-9]+(-[0-9]+)?)*)");
  static const std::regex kParts("([0-9]+)(-([0-9]+))?");
  for (std::sregex_iterator list(text.begin(), text.end(), kLists), end; list != end; ++list) {
    const std::string parts = (*list)[1];
    for (std::sregex_iterator part(parts.begin(), parts.end(), kParts); part != end; ++part) {
      const int first = std::stoi((*part)[1]);
      const int last = (*part)[3].matched ? std::stoi((*part)[3]) : first;
      if (first <= rank && rank <= last) return true;
    }
  }
  return false;
}

bool of_process(MishapKind kind) {
  return kind == MishapKind::kKill || kind == MishapKind::kStop || kind == MishapKind::kExit ||
         kind == MishapKind::kFewFiles;
}

// The errors that a rank that is not harmed may return.
void add_expected(const Mishap& m, const Round& round, std::set<int>* codes) {
  switch (m.kind) {
    case MishapKind::kKill:
    case MishapKind::kExit:
    case MishapKind::kFewFiles: codes->insert(tuttiRemoteError); return;
    case MishapKind::kStop:
      if (m.stopped_ms > round.timeout_ms / 2) codes->insert(tuttiTimeout);
      if (m.then_kill) codes->insert(tuttiRemoteError);
      return;
    case MishapKind::kAbort: codes->insert(tuttiAborted); return;
    // A rank that needs data from a rank that has left fails; if the latter waits for it in another communicator, at
    // the deadline. A rank that needs nothing from it finds at its own finalize that the other has called less.
    case MishapKind::kLeave: codes->insert({tuttiRemoteError, tuttiTimeout, tuttiMismatch}); return;
    case MishapKind::kAbsent: codes->insert(tuttiTimeout); return;
    case MishapKind::kDiffer:
      codes->insert(tuttiMismatch);
      // The rank that has continued waits in another communicator for those that wait for it.
      if (round.comms > 1) codes->insert(tuttiTimeout);
      return;
  }
}

void add_expected_of_harmed(const Mishap& m, std::set<int>* codes) {
  if (m.kind == MishapKind::kStop) codes->insert({tuttiTimeout, tuttiRemoteError});
  if (m.kind == MishapKind::kAbort) codes->insert({tuttiAborted, tuttiInvalidArgument, tuttiInvalidUsage});
  if (m.kind == MishapKind::kLeave) codes->insert({tuttiInvalidUsage, tuttiRemoteError, tuttiTimeout, tuttiMismatch});
  if (m.kind == MishapKind::kAbsent) codes->insert({tuttiTimeout, tuttiRemoteError});
  if (m.kind == MishapKind::kFewFiles) codes->insert({tuttiSystemError, tuttiRemoteError});
}

// The communicator of the mishap; -1: all of them.
int comm_of(const Mishap& m, const Round& round) {
  if (m.kind == MishapKind::kAbort || m.kind == MishapKind::kLeave) return m.comm;
  return m.kind == MishapKind::kDiffer ? round.steps[static_cast<std::size_t>(m.step)].comm : -1;
}

class Judge {
 public:
  Judge(const Round& round, const InProcessControl& board, const std::vector<int>& statuses)
      : round_(round), board_(board), statuses_(statuses) {
    for (std::size_t i = 0; i < round.mishaps.size(); ++i) {
      if (board.struck[i]) add_mishap(round.mishaps[i]);
    }
  }

  std::vector<Finding> all() {
    for (int p = 0; p < round_.processes; ++p) judge_process(p);
    for (int r = 0; r < round_.ranks; ++r) judge_rank(r);
    if (round_.goes_on) judge_company();
    if (struck_.size() == 1 && struck_[0].kind == MishapKind::kDiffer && !told_) {
      find("unseen", "no rank reports that the calls differ");
    }
    return std::move(findings_);
  }

 private:
  void add_mishap(const Mishap& m) {
    struck_.push_back(m);
    add_expected(m, round_, &expected_);
    add_expected_of_harmed(m, &expected_of_harmed_);
    for (int r = 0; r < round_.ranks; ++r) {
      if (r == m.rank || (of_process(m.kind) && process(r) == process(m.rank))) harmed_.insert(r);
    }
    comms_.insert(comm_of(m, round_));
    if (m.kind == MishapKind::kLeave || m.kind == MishapKind::kAbsent) names_are_sure_ = false;
    if (m.kind == MishapKind::kKill || m.then_kill) may_be_killed_.insert(process(m.rank));
    if (m.kind == MishapKind::kExit) may_exit_.insert(process(m.rank));
  }

  [[nodiscard]] int process(int rank) const { return round_.process_of[static_cast<std::size_t>(rank)]; }

  void find(const char* kind, const std::string& text, bool defect = true) {
    findings_.push_back({kind, text, defect});
  }

  void judge_process(int p) {
    const std::string who = "process " + std::to_string(p);
    const ProcessBoard& board = board_.processes[p];
    const int status = statuses_[static_cast<std::size_t>(p)];
    if (board.signal != 0) {
      find("crash", who + " got signal " + std::to_string(board.signal));
      return;
    }
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && may_be_killed_.contains(p);
    if (!killed && status != 0) find("status", who + " ended with wait status " + std::to_string(status));
    if (board.left_over[0] != '\0') find("left", who + " has left over:" + board.left_over);
  }

  void judge_rank(int r) {
    const RankBoard& board = board_.ranks[r];
    const std::string who = "rank " + std::to_string(r);
    const bool may_vanish = may_be_killed_.contains(process(r)) || may_exit_.contains(process(r));
    if (!board.finished && !may_vanish) find("unfinished", who + " has not come to its end");
    if (board.is_wrong) find(board.wrong_kind, who + ": " + board.wrong);
    for (int c = 0; c < round_.comms; ++c) {
      if (board.errors[c].code != 0) judge_error(r, c, board.errors[c]);
    }
  }

  // Ranks that have ended by themselves have gone on together, if all of them could.
  void judge_company() {
    std::uint32_t through = 0;
    for (int r = 0; r < round_.ranks; ++r) {
      if (!board_.ranks[r].finished || board_.ranks[r].is_wrong) continue;
      if (!board_.ranks[r].company.wanted) return;
      through |= 1U << r;
    }
    for (int r = 0; r < round_.ranks; ++r) {
      if ((through >> r & 1U) == 0) continue;
      const Company& own = board_.ranks[r].company;
      const std::string who = "rank " + std::to_string(r);
      if (own.error[0] != '\0') find("goes on", who + ": " + own.error);
      const std::uint32_t first = board_.ranks[std::countr_zero(through)].company.ranks;
      if (own.ranks == first && (own.ranks & through) == through) continue;
      find("company", who + " has gone on with the ranks of bits " + std::to_string(own.ranks) +
                          "; the first one that lives with " + std::to_string(first));
    }
  }

  void judge_error(int r, int c, const Error& error) {
    const int code = error.code;
    const std::string what = "rank " + std::to_string(r) + ", communicator " + std::to_string(c) + ", step " +
                             std::to_string(error.step) + ": " + std::to_string(code) + " (" + error.text + ")";
    told_ = true;
    const bool harmed = harmed_.contains(r);
    // If a rank fails while the tree is being connected, the others may notice only at the init timeout.
    const bool missed = error.step == kInInit && code == tuttiTimeout && !struck_.empty();
    if (!expected_.contains(code) && !missed && !(harmed && expected_of_harmed_.contains(code))) {
      find("code", "an error of a kind without a cause: " + what);
      return;
    }
    // A rank that waits for a rank that itself waits in another communicator reaches its own deadline.
    if (code != tuttiTimeout && !comms_.contains(-1) && !comms_.contains(c)) {
      find("spread", "a communicator has failed to which nothing happened: " + what);
    }
    if (harmed) return;
    const std::string text = error.text;
    if (std::any_of(harmed_.begin(), harmed_.end(), [&](int h) { return names(text, h); })) return;
    // Before the root is reached, no rank knows whose process it is: here rank 0's.
    if (harmed_.contains(0) && text.find(" no longer listens: its process has ended") != std::string::npos) return;
    find(names_are_sure_ ? "name" : "name, counted", "no rank at fault is named: " + what, names_are_sure_);
  }

  const Round& round_;
  const InProcessControl& board_;
  const std::vector<int>& statuses_;
  std::vector<Mishap> struck_;
  std::set<int> harmed_;
  std::set<int> expected_;
  std::set<int> expected_of_harmed_;
  std::set<int> comms_;
  std::set<int> may_be_killed_;
  std::set<int> may_exit_;
  bool names_are_sure_ = true;
  bool told_ = false;  // a rank has had an error
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> judge(const Round& round, const InProcessControl& board, const std::vector<int>& statuses) {
  return Judge(round, board, statuses).all();
}

std::string text_of(const Round& round, const InProcessControl& board) {
  std::string s;
  for (int r = 0; r < round.ranks; ++r) {
    const RankBoard& rank = board.ranks[r];
    s += "  rank " + std::to_string(r) + (rank.finished ? ": finished" : ": step " + std::to_string(rank.step));
    if (rank.inside.since_ns != 0) s += std::string(", inside ") + rank.inside.name.load();
    if (rank.aborting.since_ns != 0) s += ", aborting";
    for (int c = 0; c < round.comms; ++c) {
      const Error& e = rank.errors[c];
      if (e.code == 0) continue;
      s += "\n    communicator " + std::to_string(c) + " at step " + std::to_string(e.step) + ": " +
           std::to_string(e.code) + " (" + e.text + ")";
    }
    if (rank.is_wrong) s += std::string("\n    ") + rank.wrong_kind + ": " + rank.wrong;
    s += "\n";
  }
  for (std::size_t i = 0; i < round.mishaps.size(); ++i) {
    if (!board.struck[i]) s += "  did not strike: " + text_of(round.mishaps[i]) + "\n";
  }
  return s;
}

}  // namespace tutti::internal::test::chaos

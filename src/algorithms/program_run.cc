// Runs programs, and writes steps.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "algorithms/program.h"
#include "algorithms/program_parts.h"
#include "base/collectives.h"

namespace tutti::internal::algorithms {
namespace {

// Of names that are the same on every rank, by position.
std::vector<std::int64_t> alike_values(const Places& places) {
  std::vector<std::int64_t> values(kAlikeGivens);
  values[kRanks] = places.ranks();
  values[kHosts] = places.hosts();
  values[kEqualHosts] = places.hosts_are_equal() ? 1 : 0;
  values[kHostsInOrder] = places.hosts_are_in_order() ? 1 : 0;
  values[kMostLocalRanks] = places.most_local_ranks();
  return values;
}

}  // namespace

// Of one rank.
class ProgramRun {
 public:
  ProgramRun(const Program& program, const Places& places, const schedule::Shape& shape, int rank)
      : program_(program),
        places_(places),
        reading_(program.file_),
        builder_(shape, rank),
        values_(alike_values(places)) {
    values_.resize(program.variables_, 0);
    const Hosts::Position position = places.position_of(rank);
    values_[kRank] = rank;
    values_[kRoot] = shape.root;
    values_[kHost] = static_cast<std::int64_t>(position.host);
    values_[kLocalRank] = static_cast<std::int64_t>(position.local_rank);
    values_[kLocalRanks] = places.local_ranks(static_cast<int>(position.host));
  }

  Result<schedule::Schedule> run() {
    run_block(program_.body_);
    if (!reading_.status().is_ok()) return reading_.status();
    auto made = builder_.finish();
    if (!made.is_ok())
      return Status::invalid_argument(fmt::format("{}: {}", program_.file_.name, made.status().message()));
    if (made.value().steps.size() > kMostSteps) {
      return Status::invalid_argument(fmt::format("{}: it has more than {} steps", program_.file_.name, kMostSteps));
    }
    return made;
  }

 private:
  using Do = Program::Do;
  using Statement = Program::Statement;

  [[nodiscard]] bool ok() const { return reading_.status().is_ok(); }
  std::int64_t value(const Statement& s, std::size_t operand) {
    const Program::Field& field = s.operands[operand];
    evaluated_ += field.expression.length();
    if (evaluated_ > kMostEvaluated) {
      reading_.fail(*field.at, fmt::format("rank {}: more than {} numbers, names and operators are evaluated",
                                           values_[kRank], kMostEvaluated));
      return 0;
    }
    auto found = field.expression.value(values_, places_);
    if (found.is_ok()) return *found;
    reading_.fail(*field.at, fmt::format("rank {}: {}", values_[kRank], found.status().message()));
    return 0;
  }

  void run_block(const std::vector<Statement>& block) {
    for (const Statement& s : block) {
      if (!ok()) return;
      if (++runs_ > kMostRuns) return reading_.fail(*s.at, fmt::format("more than {} statements are run", kMostRuns));
      run_one(s);
    }
  }

  void run_one(const Statement& s) {
    switch (s.what) {
      case Do::kFor: {
        const std::int64_t below = value(s, 1);
        for (std::int64_t i = value(s, 0); i < below && ok(); ++i) {
          if (++runs_ > kMostRuns)
            return reading_.fail(*s.at, fmt::format("more than {} statements are run", kMostRuns));
          values_[s.variable] = i;
          run_block(s.body);
        }
        return;
      }
      case Do::kIf: return run_block(value(s, 0) != 0 ? s.body : s.otherwise);
      case Do::kLet: values_[s.variable] = value(s, 0); return;
      case Do::kWaitForLast: builder_.wait_for_last(); return;
      default: return add_step(s);
    }
  }

  // Valid chunks; scratch uses the vector's numbers.
  ChunkRange range(const Statement& s) {
    const std::int64_t first = value(s, 0);
    const std::int64_t count = value(s, 1);
    const std::int64_t all = builder_.shape().chunks;
    if (ok() && (first < 0 || count < 0 || first > all || count > all - first)) {
      reading_.fail(*s.at, fmt::format("rank {}: chunks {} to {} are not all of 0 to {}", values_[kRank], first,
                                       first + count - 1, all - 1));
    }
    return ok() ? ChunkRange{static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)} : ChunkRange{};
  }

  void add_step(const Statement& s) {
    const ChunkRange c = range(s);
    const auto peer = static_cast<std::int32_t>(std::clamp<std::int64_t>(value(s, 2), -1, INT32_MAX));
    const Completes completes = value(s, 3) != 0 ? Completes::kYes : Completes::kNo;
    const std::int64_t other = value(s, 4);
    if (ok() && (other < 0 || other > builder_.shape().chunks - c.count))
      reading_.fail(*s.at, "source_chunk does not exist");
    const bool has_peer =
        s.what != Do::kReduceFromScratch && s.what != Do::kCopyToOutput && s.what != Do::kCopy && s.what != Do::kReduce;
    if (ok() && has_peer && (peer < 0 || peer >= builder_.shape().ranks || peer == builder_.rank())) {
      reading_.fail(*s.at, fmt::format("rank {}: {} is not another rank", values_[kRank], peer));
    }
    if (!ok() || c.count == 0) return;
    const Builder::At source{s.source, static_cast<std::uint32_t>(s.what == Do::kSendFrom ? c.first : other)};
    const Builder::At target{s.target, c.first};
    switch (s.what) {
      case Do::kSend: builder_.send(peer, c); break;
      case Do::kRecv: builder_.recv(peer, c); break;
      case Do::kRecvReduce: builder_.recv_reduce(peer, c, completes); break;
      case Do::kRecvToScratch: builder_.recv_to_scratch(peer, c); break;
      case Do::kRecvReduceToScratch: builder_.recv_reduce_to_scratch(peer, c); break;
      case Do::kReduceFromScratch:
        builder_.reduce_from_scratch(c, s.flag ? ScratchComes::kFirst : ScratchComes::kLast, completes);
        break;
      case Do::kCopyToOutput: builder_.copy_to_output(c); break;
      case Do::kSendFrom: builder_.send_from(peer, source, c.count); break;
      case Do::kRecvInto: builder_.recv_into(peer, target, c.count); break;
      case Do::kRecvReduceInto: builder_.recv_reduce_into(peer, source, target, c.count); break;
      case Do::kCopy: builder_.copy(source, target, c.count); break;
      case Do::kReduce: builder_.reduce(source, s.operand, target, c.count); break;
      default: break;
    }
  }

  const Program& program_;
  const Places& places_;
  JsonReading reading_;
  Builder builder_;
  std::vector<std::int64_t> values_;  // by position
  std::size_t runs_ = 0;
  std::size_t evaluated_ = 0;
};

bool Program::serves(const World& world) const {
  if (world.ranks < least_ranks_ || world.ranks > most_ranks_) return false;
  if (!schedules_.empty()) return true;
  const Places places(world.ranks, world.hosts);
  const auto wanted = when_.expression.value(alike_values(places), places);
  return wanted.is_ok() && wanted.value() != 0;
}

Result<schedule::Schedule> Program::write(const World& world, int rank, int root) const {
  if (!schedules_.empty()) return schedules_[static_cast<std::size_t>(rank)];
  const Places places(world.ranks, world.hosts);
  JsonReading reading(file_);
  const auto chunks = chunks_.expression.value(alike_values(places), places);
  if (!chunks.is_ok()) {
    reading.fail(*chunks_.at, chunks.status().message());
  } else if (chunks.value() < 1 || chunks.value() > kMostChunks) {
    reading.fail(*chunks_.at, fmt::format("is not from 1 to {} for {} ranks", kMostChunks, world.ranks));
  }
  if (!reading.status().is_ok()) return reading.status();
  schedule::Shape shape;
  shape.collective = collective_;
  shape.ranks = world.ranks;
  shape.root = has_root(collective_) ? root : 0;
  shape.blocks = static_cast<std::uint32_t>(blocks_of(collective_, world.ranks));
  const std::int64_t all = chunks.value() * shape.blocks;
  if (all > kMostChunks) {
    reading.fail(*chunks_.at, fmt::format("makes {}, more than {}, for {} ranks", all, kMostChunks, world.ranks));
    return reading.status();
  }
  shape.chunks = static_cast<std::uint32_t>(all);
  return ProgramRun(*this, places, shape, rank).run();
}

std::string to_json(const std::vector<schedule::Schedule>& schedules, const std::string& name, schedule::Order order) {
  using Json = nlohmann::ordered_json;
  const schedule::Shape& shape = schedules.front().shape;
  const auto buffer = [](Buffer b) { return kBuffers[static_cast<std::size_t>(b)]; };
  std::string text = fmt::format("{{\"format\": \"{}\", \"version\": {}, \"name\": \"{}\", \"collective\": \"{}\",\n",
                                 kScheduleFormat, kScheduleVersion, name, name_of(shape.collective));
  text += fmt::format(" \"chunks\": {}, \"order\": \"{}\", \"sliceable\": {},\n \"schedules\": [", shape.chunks,
                      order == schedule::Order::kRanks ? "ranks" : "any", schedules.front().sliceable);
  for (const schedule::Schedule& one : schedules) {
    text += fmt::format("{}\n  [", one.rank == 0 ? "" : ",");
    for (std::size_t i = 0; i < one.steps.size(); ++i) {
      const schedule::Step& s = one.steps[i];
      Json step = {{"do", kStepKinds[static_cast<std::size_t>(s.kind)]}};
      if (!schedule::is_local(s.kind)) step["peer"] = s.peer;
      step["chunks"] = s.chunks;
      if (schedule::reads_source(s.kind)) step["source"] = buffer(s.source), step["source_chunk"] = s.source_chunk;
      if (schedule::writes_target(s.kind)) step["target"] = buffer(s.target), step["target_chunk"] = s.target_chunk;
      if (schedule::reads_operand(s.kind)) step["operand"] = buffer(s.operand);
      if (s.final) step["final"] = true;
      if (s.reversed) step["reversed"] = true;
      for (const std::uint32_t d : one.dependencies_of(s)) step["after"].push_back(d);
      text += fmt::format("{}\n   {}", i == 0 ? "" : ",", step.dump());
    }
    text += "]";
  }
  return text + "\n ]}\n";
}

}  // namespace tutti::internal::algorithms

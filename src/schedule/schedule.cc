#include "schedule/schedule.h"

#include <fmt/core.h>

#include <algorithm>

namespace tutti::internal::schedule {
namespace {

const char* verb(StepKind k) {
  switch (k) {
    case StepKind::kSend: return "send";
    case StepKind::kRecv: return "recv";
    case StepKind::kRecvReduce: return "recv_reduce";
    case StepKind::kCopy: return "copy";
    case StepKind::kReduce: return "reduce";
  }
  return "?";
}

const char* buffer_name(Buffer b) {
  switch (b) {
    case Buffer::kInput: return "input";
    case Buffer::kOutput: return "output";
    case Buffer::kScratch: return "scratch";
  }
  return "?";
}

std::string range_text(ChunkRange r) {
  std::string text = std::to_string(r.first);
  if (r.count > 1) text += fmt::format("..{}", r.first + r.count - 1);
  return text;
}

// The chunks of source and target, if they differ.
std::string chunks_text(const Step& s) {
  if (s.source_chunk == s.target_chunk) return range_text(s.target_range());
  return fmt::format("{} -> {}", range_text(s.source_range()), range_text(s.target_range()));
}

std::string places(const Step& s) {
  std::string text;
  if (reads_source(s.kind)) text = buffer_name(s.source);
  if (s.kind == StepKind::kReduce) {
    text = s.reversed ? fmt::format("{}, {}", buffer_name(s.operand), text)
                      : fmt::format("{}, {}", text, buffer_name(s.operand));
  } else if (s.kind == StepKind::kRecvReduce) {
    text = s.reversed ? "received, " + text : text + ", received";
  }
  if (writes_target(s.kind)) text += fmt::format("{}-> {}", text.empty() ? "" : " ", buffer_name(s.target));
  return text;
}

std::string peer_text(const Step& s) {
  if (is_local(s.kind)) return "";
  return std::string(is_recv(s.kind) ? "from " : "to ") + std::to_string(s.peer);
}

// The width of a column over all steps.
std::size_t widest(const Schedule& schedule, std::string (*text_of)(const Step&)) {
  std::size_t width = 0;
  for (const Step& s : schedule.steps) width = std::max(width, text_of(s).size());
  return width;
}

}  // namespace

bool Shape::in_output(std::int32_t rank, std::uint32_t c) const {
  return holds_chunk(info_of(collective).output, rank, c);
}

ChunkRange Shape::held(Holds holds, std::int32_t rank) const {
  const std::uint32_t per_block = chunks_per_block();
  if (holds == Holds::kOwnBlock) return {static_cast<std::uint32_t>(rank) * per_block, per_block};
  return {0, has_any(holds, rank, root) ? chunks : 0};
}

std::string to_text(const Schedule& schedule) {
  const Shape& shape = schedule.shape;
  std::string text = fmt::format("{}, rank {} of {}, {}{}", name_of(shape.collective), schedule.rank, shape.ranks,
                                 shape.chunks, shape.chunks == 1 ? " chunk" : " chunks");
  if (has_root(shape.collective)) text += fmt::format(", root {}", shape.root);
  text += fmt::format(", {} steps", schedule.steps.size());
  if (schedule.scratch_chunks > 0) text += fmt::format(", {} chunks of scratch", schedule.scratch_chunks);
  if (!schedule.sliceable) text += ", whole blocks only";
  text += "\n";
  const std::size_t chunks_width = widest(schedule, chunks_text);
  const std::size_t places_width = widest(schedule, places);
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& s = schedule.steps[i];
    text += fmt::format("{:5}  {:<11} {:<10} chunk {:<{}}  {:<{}}{}", i, verb(s.kind), peer_text(s), chunks_text(s),
                        chunks_width, places(s), places_width, s.final ? " final" : "      ");
    const char* separator = "  after ";
    for (const std::uint32_t d : schedule.dependencies_of(s)) {
      text += separator + std::to_string(d);
      separator = ", ";
    }
    while (text.back() == ' ') text.pop_back();
    text += "\n";
  }
  return text;
}

}  // namespace tutti::internal::schedule

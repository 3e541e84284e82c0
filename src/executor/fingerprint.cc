#include "executor/fingerprint.h"

#include <fmt/core.h>

namespace tutti::internal::executor {
namespace {

std::string slices(std::size_t slice_chunk_bytes, bool sliceable) {
  if (!sliceable || slice_chunk_bytes == 0) return "in one piece";
  return fmt::format("in slices of {} bytes", slice_chunk_bytes);
}

struct Elements {
  std::uint64_t count = 0;
  std::string name;
};

Elements elements_of(const transport::Fingerprint& fingerprint) {
  const auto type = static_cast<DataType>(fingerprint.call >> 5 & 63);
  const std::uint64_t count = count_of(fingerprint);
  if (type != DataType::kOpaque) return {count, name_of(type)};
  return {count & kMostOpaqueCount, name_of(type, {0, static_cast<std::uint32_t>(count >> kOpaqueShift)})};
}

// FNV-1a, 64 bits (Fowler, Noll, Vo).
constexpr std::uint64_t kFnvBasis = 14695981039346656037u;
constexpr std::uint64_t kFnvPrime = 1099511628211u;

}  // namespace

PlanIdentity identify(std::string_view algorithm, const schedule::Schedule& schedule, std::size_t slice_chunk_bytes) {
  const schedule::Shape& shape = schedule.shape;
  const std::size_t slice_bytes = schedule.sliceable ? slice_chunk_bytes : 0;
  std::uint64_t hash = kFnvBasis;
  for (const char c : algorithm) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  for (const std::uint64_t value : {std::uint64_t{static_cast<std::uint32_t>(shape.ranks)}, std::uint64_t{shape.chunks},
                                    std::uint64_t{shape.blocks}, std::uint64_t{slice_bytes}}) {
    for (unsigned shift = 0; shift < 64; shift += 8) hash = (hash ^ (value >> shift & 255)) * kFnvPrime;
  }
  return {static_cast<std::uint32_t>(hash % kPlanMask) + 1,
          fmt::format("by {}, {} chunks, {}", algorithm, shape.chunks, slices(slice_chunk_bytes, schedule.sliceable))};
}

bool same_call(const transport::Fingerprint& a, const transport::Fingerprint& b) {
  return without_history(without_plan(a)) == without_history(without_plan(b));
}

std::string describe(const transport::Fingerprint& fingerprint) {
  if (is_check(fingerprint)) return fmt::format("the check of operation {}", fingerprint.sequence);
  if (is_transfer(fingerprint)) {
    const Elements elements = elements_of(fingerprint);
    return fmt::format("send and receive {} of the pair (count {}, {})", fingerprint.sequence, elements.count,
                       elements.name);
  }
  const auto collective = static_cast<Collective>(fingerprint.call & kCollectiveMask);
  const auto op = static_cast<ReduceOp>(fingerprint.call >> 12 & 31);
  if (op == ReduceOp::kSplit) return fmt::format("operation {}, split", fingerprint.sequence);
  if (!has_data(collective)) return fmt::format("operation {}, {}", fingerprint.sequence, name_of(collective));
  // For counts that all ranks know, the word is a hash; else the count of one block, once that is known.
  const bool hashed = is_group(fingerprint) || (varies(collective) && counts_are_common(collective));
  const Elements elements = elements_of(fingerprint);
  const bool unsaid = varies(collective) && !hashed && elements.count == 0;
  const std::string count = hashed   ? fmt::format("counts with hash {:x}, ", elements.count)
                            : unsaid ? std::string()
                                     : fmt::format("count {}, ", elements.count);
  std::string text =
      fmt::format("operation {}, {}({}{}", fingerprint.sequence, name_of(collective), count, elements.name);
  if (reduces(collective)) text += fmt::format(", {}", name_of(op));
  if (has_root(collective)) text += fmt::format(", root {}", without_history(fingerprint).root);
  return text + (is_group(fingerprint) ? ") and others of its group" : ")");
}

Status mismatch(std::int32_t rank, const transport::Fingerprint& ours, const PlanIdentity& plan, std::int32_t peer,
                const transport::Fingerprint& theirs) {
  if (is_transfer(ours) && is_transfer(theirs)) {
    const Elements sent = elements_of(theirs);
    const Elements received = elements_of(ours);
    return Status::mismatch(fmt::format(
        "ranks called different operations: rank {} runs send {} to rank {} (count {}, {}), "
        "rank {} runs recv {} from rank {} (count {}, {})",
        peer, theirs.sequence, rank, sent.count, sent.name, rank, ours.sequence, peer, received.count, received.name));
  }
  const std::string mine = fmt::format("rank {} runs {}", rank, describe(ours));
  const std::string other = fmt::format("rank {} runs ", peer);
  if (same_call(ours, theirs) && without_plan(ours) != without_plan(theirs)) {
    return Status::mismatch(
        fmt::format("ranks called different operations before this one: {}, {}the same after other calls "
                    "(TUTTI_CHECK=strict finds the first that differs)",
                    mine, other));
  }
  if (same_call(ours, theirs)) {
    return Status::mismatch(fmt::format(
        "ranks run one operation in different ways, as happens if they are of different builds: {} {}, {}it by another "
        "algorithm or slicing",
        mine, plan.text, other));
  }
  const char* const or_grouped = is_group(ours) || is_group(theirs) ? ", or group their calls differently" : "";
  return Status::mismatch(
      fmt::format("ranks called different operations{}: {}, {}{}", or_grouped, mine, other, describe(theirs)));
}

}  // namespace tutti::internal::executor

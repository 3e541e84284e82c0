#include "executor/executor.h"

namespace tutti::executor {

std::string describe(const transport::Fingerprint& print) {
  const auto collective = static_cast<Collective>(print.call & 15);
  std::string text = "operation " + std::to_string(print.sequence) + ", " + name_of(collective) + "(count " +
                     std::to_string(print.count) + ", " + name_of(static_cast<DataType>(print.call >> 4 & 15));
  if (reduces(collective)) text += std::string(", ") + name_of(static_cast<ReduceOp>(print.call >> 8 & 15));
  if (has_root(collective)) text += ", root " + std::to_string(print.call >> 16);
  return text + ")";
}

transport::Fingerprint make_fingerprint(std::uint32_t sequence, Collective collective, DataType type, ReduceOp op,
                                        std::int32_t root, std::size_t count) {
  transport::Fingerprint print;
  print.sequence = sequence;
  print.call = static_cast<std::uint32_t>(collective) | static_cast<std::uint32_t>(type) << 4 |
               static_cast<std::uint32_t>(op) << 8 | static_cast<std::uint32_t>(root) << 16;
  print.count = static_cast<std::uint32_t>(count);
  return print;
}

Status mismatch(std::int32_t rank, const transport::Fingerprint& ours, std::int32_t peer,
                const transport::Fingerprint& theirs) {
  return Status::mismatch("ranks called different operations: rank " + std::to_string(rank) + " runs " +
                          describe(ours) + ", rank " + std::to_string(peer) + " runs " + describe(theirs));
}

}  // namespace tutti::executor

// The suites for thread ranks and process ranks.
#pragma once

#include <string>

#include "catch_compat.h"
#include "job.h"
#include "specs.h"
#include "values.h"

namespace tutti::internal::test {

// Checks that the call was refused because of its arguments, with this text, which the communicator has too.
inline void check_refused(tuttiResult_t result, tuttiComm_t comm, const char* text) {
  const std::string found = tuttiGetLastError(comm);
  INFO(found);
  CHECK(result == tuttiInvalidArgument);
  CHECK(found.find(text) != std::string::npos);
}

using RunJob = std::vector<Outcome> (*)(int ranks, const std::string& transports, const Body& body);

inline void require_all(RunJob run, int ranks, const std::string& transports, const std::vector<Spec>& specs) {
  const auto outcomes = run(ranks, transports, [&](tuttiComm_t comm, int rank, int n) {
    return Outcome{Runner(comm, rank, n).run_all(specs)};
  });
  INFO(transports << " with " << ranks << " ranks");
  REQUIRE(wrong_of(outcomes) == "");
}

// Their results depend on the order of combination, and the bits of a NaN on the order of two operands: the ranks must
// still agree to the last bit, for all positions of their vectors.
inline void require_same_bits(RunJob run, int ranks, const std::string& transports) {
  for (const std::size_t count : {3, 999, 30'011}) {
    const auto outcomes = run(ranks, transports, [&](tuttiComm_t comm, int rank, int) {
      Outcome outcome;
      for (int t = 0; t < kDataTypes; ++t) {
        const auto type = static_cast<DataType>(t);
        if (!is_float(type) && !is_complex(type)) continue;
        for (int o = 0; o < kReduceOps && outcome.wrong.empty(); ++o) {
          const auto op = static_cast<ReduceOp>(o);
          if (!supports(type, op)) continue;
          const std::size_t bytes = count * size_of(type);
          std::vector<std::byte> memory(bytes + 64);
          std::byte* const v = memory.data() + static_cast<std::size_t>(rank) * 24 % 64;
          fill_with_any_bits(v, type, count, rank);
          const tuttiResult_t result = tuttiAllReduce(v, v, count, static_cast<tuttiDataType_t>(public_value(type)),
                                                      static_cast<tuttiRedOp_t>(public_value(op)), comm, nullptr);
          if (result != tuttiSuccess) outcome.wrong = tuttiGetLastError(comm);
          for (std::size_t i = 0; i < bytes; ++i) {
            outcome.digest = (outcome.digest ^ static_cast<std::uint64_t>(v[i])) * 0x100000001b3ULL;
          }
        }
      }
      return outcome;
    });
    INFO(transports << " with " << ranks << " ranks, count " << count);
    REQUIRE(wrong_of(outcomes) == "");
    REQUIRE(same_digests(outcomes));
  }
}

}  // namespace tutti::internal::test

// The suites that thread ranks and process ranks share.
#pragma once

#include <string>

#include "catch_compat.h"
#include "job.h"
#include "specs.h"

namespace tutti::test {

using RunJob = std::vector<Outcome> (*)(int ranks, const std::string& transports, const Body& body);

inline void require_all(RunJob run, int ranks, const std::string& transports, const std::vector<Spec>& specs) {
  const auto outcomes = run(ranks, transports, [&](tuttiComm_t comm, int rank, int n) {
    return Outcome{Runner(comm, rank, n).run_all(specs)};
  });
  INFO(transports << " with " << ranks << " ranks");
  REQUIRE(first_wrong(outcomes) == "");
}

// Sums of these depend on their order: the ranks must still agree to the last bit.
inline void require_same_bits(RunJob run, int ranks, const std::string& transports) {
  for (const std::size_t count : {3, 999, 30'011}) {
    const auto outcomes = run(ranks, transports, [&](tuttiComm_t comm, int rank, int) {
      std::vector<float> v(count);
      for (std::size_t i = 0; i < count; ++i) {
        v[i] = 1.0F / static_cast<float>(1 + (i * 7919 + static_cast<std::size_t>(rank) * 104'729) % 10'007);
      }
      const tuttiResult_t result = tuttiAllReduce(v.data(), v.data(), count, tuttiFloat32, tuttiSum, comm, nullptr);
      Outcome outcome;
      if (result != tuttiSuccess) outcome.wrong = tuttiGetLastError(comm);
      for (const float f : v) {
        std::uint32_t bits = 0;
        static_assert(sizeof bits == sizeof f);
        __builtin_memcpy(&bits, &f, sizeof bits);
        outcome.digest = (outcome.digest ^ bits) * 0x100000001b3ULL;
      }
      return outcome;
    });
    INFO(transports << " with " << ranks << " ranks, count " << count);
    REQUIRE(first_wrong(outcomes) == "");
    REQUIRE(same_digests(outcomes));
  }
}

}  // namespace tutti::test

#include "catch_compat.h"
#include "communicator/transports.h"

namespace tutti::internal {

TEST_CASE("the tests' registry has the simulated network, with a seed or without") {
  for (const char* text : {"sim", "sim:42"}) {
    INFO(text);
    auto sim = parse_transports(text);
    REQUIRE(sim.is_ok());
    CHECK(sim->network == "sim");
    auto network = sim->make_network(2);
    REQUIRE(network.is_ok());
    auto link = (*network)->link(0, 1);
    REQUIRE(link.is_ok());
    CHECK(std::string((*link)->send().traits().transport) == "sim");
  }
}

TEST_CASE("the tests' registry has the library's transports as well") {
  auto all = parse_transports("shm:netns,verbs,tcp");
  REQUIRE(all.is_ok());
  CHECK((all->shm_within_namespace_only && all->verbs && all->tcp && all->network.empty()));
}

TEST_CASE("seeds that are none are refused, and company for the simulated network") {
  for (const char* text : {"sim:", "sim:x", "sim:-1", "sim:1:2", "sim,tcp", "shm,sim:1"}) {
    INFO('"' << text << '"');
    const Status s = parse_transports(text).status();
    CHECK(s.code() == Code::kInvalidUsage);
    CHECK(s.message().find("sim") != std::string::npos);
  }
}

}  // namespace tutti::internal

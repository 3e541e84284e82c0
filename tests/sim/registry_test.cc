#include "transport/registry.h"

#include "catch_compat.h"
#include "epoch/membership.h"
#include "transport/adapter.h"

namespace tutti::internal {

TEST_CASE("the tests' registry has the simulated network, with a seed or without") {
  for (const char* text : {"sim", "sim:42"}) {
    INFO(text);
    auto sim = parse_transports(text);
    REQUIRE(sim.is_ok());
    REQUIRE(sim->size() == 1);
    CHECK(sim->front()->name() == "sim");
    CHECK_FALSE(sim->front()->connects_by().has_value());
    auto network = sim->front()->make_thread_network(2);
    REQUIRE(network.is_ok());
    Membership first;
    auto link = (*network)->link(first, 1, {});
    REQUIRE(link.is_ok());
    CHECK(std::string((*link)->send().traits().transport) == "sim");
  }
}

TEST_CASE("the tests' registry has the library's transports as well") {
  auto all = parse_transports("tcp,shm:netns,verbs");
  REQUIRE(all.is_ok());
  std::string names;
  for (const auto& transport : *all) names += std::string(transport->name()) + " ";
  CHECK(names == "shm verbs tcp ");
}

TEST_CASE("invalid seeds, and other transports beside the simulated network, are refused") {
  for (const char* text : {"sim:", "sim:x", "sim:-1", "sim:1:2", "sim,tcp", "shm,sim:1"}) {
    INFO('"' << text << '"');
    const Status s = parse_transports(text).status();
    CHECK(s.code() == Code::kInvalidUsage);
    CHECK(s.message().find("sim") != std::string::npos);
  }
}

}  // namespace tutti::internal

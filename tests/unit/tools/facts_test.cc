#include "tools/cli/facts.h"

#include "catch_compat.h"
#include "made_tree.h"

namespace tutti::internal::test {

using tools::Facts;
using tools::range_text;
using tools::read_facts;

TEST_CASE("facts: numbers as ranges") {
  topology::ProcessorSet numbers;
  REQUIRE(range_text(numbers).empty());
  REQUIRE(range_text(numbers.set(3)) == "3");
  numbers.reset(3);
  for (const std::size_t n : {0, 1, 2, 8, 10, 11}) numbers.set(n);
  REQUIRE(range_text(numbers) == "0-2,8,10-11");
  REQUIRE(range_text(~topology::ProcessorSet()) == "0-1023");
}

TEST_CASE("facts: the interfaces of an artificial machine") {
  const MadeTree tree;
  tree.write("sys/class/net/eth7/operstate", "up");
  tree.write("sys/class/net/eth7/speed", "25000");
  tree.write("sys/class/net/eth7/mtu", "9000");
  tree.write("sys/class/net/eth7/device/numa_node", "1");
  tree.write("sys/class/net/eth8/operstate", "down");
  tree.write("sys/class/net/eth8/speed", "-1");
  tree.write("sys/class/net/bonding_masters", "");
  const Facts facts = read_facts({tree.sys(), tree.dev()});
  REQUIRE_FALSE(facts.host.empty());
  REQUIRE(facts.interfaces.size() == 2);
  REQUIRE(facts.interfaces[0].name == "eth7");
  REQUIRE(facts.interfaces[0].state == "up");
  REQUIRE(facts.interfaces[0].gbits == 25);
  REQUIRE(facts.interfaces[0].mtu_bytes == 9000);
  REQUIRE(facts.interfaces[0].numa_node == 1);
  REQUIRE(facts.interfaces[1].gbits == 0);
  REQUIRE(facts.interfaces[1].numa_node == -1);
}

TEST_CASE("facts: this machine has a loopback interface") {
  for (const tools::Interface& one : read_facts({}).interfaces) {
    if (one.name != "lo") continue;
    REQUIRE(one.mtu_bytes > 0);
    REQUIRE_FALSE(one.addresses.empty());
    REQUIRE(one.addresses.front() == "127.0.0.1/8");
    return;
  }
  FAIL("no interface lo");
}

}  // namespace tutti::internal::test

#include "net/address.h"

#include "catch_compat.h"

using namespace tutti::internal;
using namespace tutti::internal::net;

TEST_CASE("addresses are parsed and written") {
  for (const char* text : {"1.2.3.4:5", "[::1]:65535", "[2001:db8::1]:0"}) {
    Result<Address> address = parse_address(text);
    REQUIRE(address.is_ok());
    CHECK(address->text() == text);
  }
  CHECK(parse_address("127.0.0.1:1")->is_loopback());
  CHECK(parse_address("[::1]:1")->is_loopback());
  CHECK_FALSE(parse_address("1.2.3.4:1")->is_loopback());
  CHECK(parse_address("1.2.3.4:1")->with_port(7).text() == "1.2.3.4:7");
  CHECK(Address::unix_abstract("name").text() == "@name");
  CHECK(Address::unix_path("/tmp/x")->text() == "/tmp/x");
  CHECK(Address::unix_path(std::string(108, 'x')).status().code() == Code::kInvalidArgument);
}

TEST_CASE("malformed addresses are refused") {
  for (const char* text : {"", ":1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "::1:5", "[]:1", "[::1:5",
                           "1.2.3.4:5x", "some.host:1"}) {
    INFO(text);
    CHECK(parse_address(text).status().code() == Code::kInvalidArgument);
  }
  CHECK(split_host_port("some.host:1")->host == "some.host");
}

TEST_CASE("interface filters") {
  CHECK(interface_matches("", "eth0"));
  CHECK(interface_matches("eth", "eth0"));
  CHECK(interface_matches("ib,eth", "eth0"));
  CHECK_FALSE(interface_matches("ib,en", "eth0"));
  CHECK(interface_matches("=eth0", "eth0"));
  CHECK_FALSE(interface_matches("=eth", "eth0"));
  CHECK_FALSE(interface_matches("^eth,lo", "eth0"));
  CHECK(interface_matches("^docker", "eth0"));
  CHECK(interface_matches("^=eth", "eth0"));
}

TEST_CASE("an address is put first, whatever its port, and too many are cut") {
  std::vector<Address> list;
  for (const char* text : {"10.0.0.1:5", "10.0.0.2:5", "[2001:db8::1]:5"}) list.push_back(parse_address(text).value());
  put_first(&list, parse_address("[2001:db8::1]:77").value());
  CHECK(list_addresses(list) == "[2001:db8::1]:5, 10.0.0.1:5, 10.0.0.2:5");
  put_first(&list, parse_address("10.0.0.9:5").value());
  CHECK(list_addresses(list) == "[2001:db8::1]:5, 10.0.0.1:5, 10.0.0.2:5");
  limit_addresses(&list, 2, "this test");
  CHECK(list_addresses(list) == "[2001:db8::1]:5, 10.0.0.1:5");
}

TEST_CASE("this host's addresses: loopback only if asked for or alone") {
  Result<std::vector<Address>> all = interface_addresses("");
  REQUIRE(all.is_ok());
  REQUIRE_FALSE(all->empty());
  bool any_outside = false;
  bool any_loopback = false;
  for (const Address& address : *all) (address.is_loopback() ? any_loopback : any_outside) = true;
  CHECK(any_outside != any_loopback);
  Result<std::vector<Address>> loopback = interface_addresses("lo");
  REQUIRE(loopback.is_ok());
  for (const Address& address : *loopback) CHECK(address.is_loopback());
  CHECK(interface_addresses("=nothing").status().code() == Code::kInvalidUsage);
}

#include "transport/verbs/options.h"

#include "catch_compat.h"

namespace tutti::internal::test {

using transport::verbs::Connect;
using transport::verbs::Options;
using transport::verbs::parse_options;

TEST_CASE("TUTTI_VERBS: empty text gives the defaults") {
  const Result<Options> options = parse_options("");
  REQUIRE(options.is_ok());
  REQUIRE(options.value().devices.empty());
  REQUIRE(options.value().gid_index == -1);
  REQUIRE(options.value().queue_pairs == 1);
  REQUIRE(options.value().pkey == -1);
  REQUIRE(options.value().cache);
}

TEST_CASE("TUTTI_VERBS: every key is read") {
  const Result<Options> read = parse_options(
      "device=mlx5_0:1+mlx5_1,gid_index=0,rails=8,queue_pairs=2,mtu=4096,timeout=31,retries=0,traffic_class=106,"
      "service_level=15,pkey=0x8001,connect=cm,cache=off");
  REQUIRE(read.is_ok());
  const Options& options = read.value();
  REQUIRE(options.devices == std::vector<std::string>{"mlx5_0:1", "mlx5_1"});
  REQUIRE(options.gid_index == 0);
  REQUIRE(options.rails == 8);
  REQUIRE(options.queue_pairs == 2);
  REQUIRE(options.mtu_bytes == 4096);
  REQUIRE(options.timeout == 31);
  REQUIRE(options.retries == 0);
  REQUIRE(options.traffic_class == 106);
  REQUIRE(options.service_level == 15);
  REQUIRE(options.pkey == 0x8001);
  REQUIRE(options.connect == Connect::kManager);
  REQUIRE_FALSE(options.cache);
  REQUIRE(parse_options("connect=exchange").value().connect == Connect::kExchange);
  REQUIRE(parse_options("pkey=32769").value().pkey == 0x8001);
}

TEST_CASE("TUTTI_VERBS: unreadable values are refused with the key and its valid values") {
  struct Wrong {
    const char* text;
    const char* said;
  };
  for (const Wrong& wrong : {
           Wrong{"rails", "gid_index, rails"},
           {"nonsense=1", "\"nonsense=1\""},
           {",", "key=value"},
           {"rails=1,", "key=value"},
           {" rails=1", "key=value"},
           {"rails=0", "1 to 8"},
           {"rails=9", "1 to 8"},
           {"rails=2x", "1 to 8"},
           {"rails=", "1 to 8"},
           {"rails=1,rails=2", "rails is given twice"},
           {"queue_pairs=9", "1 to 8"},
           {"gid_index=-1", "0 to 255"},
           {"gid_index=256", "0 to 255"},
           {"mtu=1000", "256, 512, 1024"},
           {"mtu=8192", "256, 512, 1024"},
           {"timeout=0", "1 to 31"},
           {"timeout=32", "1 to 31"},
           {"retries=8", "0 to 7"},
           {"traffic_class=256", "0 to 255"},
           {"service_level=16", "0 to 15"},
           {"pkey=0", "0x8001"},
           {"pkey=0x8000", "0x8001"},
           {"pkey=0x10001", "0x8001"},
           {"pkey=0x", "0x8001"},
           {"connect=ib", "auto, exchange or cm"},
           {"cache=1", "on or off"},
           {"device=", "NAME:PORT"},
           {"device=a+", "NAME:PORT"},
           {"device=a+a", "none twice"},
           {"device=a:0", "NAME:PORT"},
           {"device=a:256", "NAME:PORT"},
           {"device=:1", "NAME:PORT"},
       }) {
    CAPTURE(wrong.text);
    const Result<Options> refused = parse_options(wrong.text);
    REQUIRE_FALSE(refused.is_ok());
    REQUIRE(refused.status().code() == Code::kInvalidUsage);
    REQUIRE(refused.status().message().find("TUTTI_VERBS") == 0);
    REQUIRE(refused.status().message().find(wrong.said) != std::string::npos);
  }
}

}  // namespace tutti::internal::test

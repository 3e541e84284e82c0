// The checks of `tutti doctor rdma` on artificial findings and files.
#include "tools/doctor/rdma_checks.h"

#include "catch_compat.h"
#include "made_tree.h"

namespace tutti::internal::test {
namespace {

using namespace tools;
using transport::verbs::Fabric;
using transport::verbs::Finding;
using transport::verbs::Roots;

Roots roots_of(const MadeTree& tree) {
  return {tree.sys(), tree.dev()};
}

Finding make_roce() {
  Finding finding;
  finding.port.device = "mlx5_0";
  finding.port.gid_index = 3;
  finding.port.gid_type = "RoCE v2";
  finding.port.netdev = "eth7";
  finding.port.address = "10.0.0.1";
  finding.port.mtu_bytes = 1024;
  finding.port.gbits = 100;
  finding.max_mtu_bytes = 4096;
  finding.state = "active";
  return finding;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("doctor: no device, no access, and both") {
  const MadeTree tree;
  const Checks none = check_devices(roots_of(tree));
  REQUIRE(none.size() == 1);
  REQUIRE(none[0].verdict == Verdict::kFail);
  REQUIRE(contains(none[0].fix, "rdma link add"));
  tree.write("sys/class/infiniband/mlx5_0/node_type", "1: CA");
  tree.write("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
  const Checks barred = check_devices(roots_of(tree));
  REQUIRE(barred.size() == 2);
  REQUIRE(barred[0].verdict == Verdict::kWarn);
  REQUIRE(contains(barred[0].fix, "--device=/dev/infiniband"));
  REQUIRE(barred[1].verdict == Verdict::kWarn);
  REQUIRE(contains(barred[1].fix, "modprobe rdma_ucm"));
  tree.write("dev/infiniband/uverbs0", "");
  tree.write("dev/infiniband/rdma_cm", "");
  for (const Check& check : check_devices(roots_of(tree))) REQUIRE(check.verdict == Verdict::kOk);
}

TEST_CASE("doctor: a port's state comes with the fix") {
  Finding finding = make_roce();
  REQUIRE(check_port(finding).verdict == Verdict::kOk);
  REQUIRE(check_port(finding).found == "RoCE, active, 100 Gb/s");
  finding.trouble = "the port is down: ip link set eth7 up";
  REQUIRE(check_port(finding).verdict == Verdict::kWarn);
  REQUIRE(check_port(finding).found == "the port is down");
  REQUIRE(check_port(finding).fix == "ip link set eth7 up");
  const MadeTree tree;
  REQUIRE_FALSE(check_gid(finding).has_value());
  REQUIRE_FALSE(check_mtu(roots_of(tree), finding).has_value());
}

TEST_CASE("doctor: GIDs that reach less than they could") {
  Finding finding = make_roce();
  REQUIRE(check_gid(finding)->verdict == Verdict::kOk);
  finding.port.address = "fe80::1";
  REQUIRE(check_gid(finding)->verdict == Verdict::kWarn);
  REQUIRE(contains(check_gid(finding)->fix, "ip addr add"));
  finding.port.gid_type = "RoCE v1";
  REQUIRE(check_gid(finding)->verdict == Verdict::kWarn);
  REQUIRE(contains(check_gid(finding)->found, "version 1"));
  finding.port.fabric = Fabric::kInfiniband;
  REQUIRE_FALSE(check_gid(finding).has_value());
}

TEST_CASE("doctor: an interface's MTU that makes packets short") {
  const MadeTree tree;
  Finding finding = make_roce();
  tree.write("sys/class/net/eth7/mtu", "1500");
  const auto small = check_mtu(roots_of(tree), finding);
  REQUIRE(small->verdict == Verdict::kWarn);
  REQUIRE(contains(small->fix, "ip link set eth7 mtu 4200"));
  tree.write("sys/class/net/eth7/mtu", "9000");
  REQUIRE(check_mtu(roots_of(tree), finding)->verdict == Verdict::kOk);
  tree.write("sys/class/net/eth7/mtu", "1500");
  finding.max_mtu_bytes = 1024;
  REQUIRE(check_mtu(roots_of(tree), finding)->verdict == Verdict::kOk);
}

TEST_CASE("doctor: losses and congestion control") {
  const MadeTree tree;
  const Finding finding = make_roce();
  const std::string counters = "sys/class/infiniband/mlx5_0/ports/1/hw_counters/";
  REQUIRE_FALSE(check_losses(roots_of(tree), finding).has_value());
  tree.write(counters + "out_of_sequence", "0");
  REQUIRE(check_losses(roots_of(tree), finding)->verdict == Verdict::kOk);
  tree.write(counters + "out_of_sequence", "12");
  tree.write(counters + "packet_seq_err", "3");
  const auto lost = check_losses(roots_of(tree), finding);
  REQUIRE(lost->verdict == Verdict::kWarn);
  REQUIRE(contains(lost->found, "out_of_sequence 12, packet_seq_err 3"));
  REQUIRE(contains(check_congestion_control(roots_of(tree), finding, 106)->found, "DSCP 26"));
  tree.write("sys/class/net/eth7/ecn/roce_np/enable/0", "1");
  tree.write("sys/class/net/eth7/ecn/roce_rp/enable/0", "1");
  REQUIRE(check_congestion_control(roots_of(tree), finding, 0)->verdict == Verdict::kOk);
  tree.write("sys/class/net/eth7/ecn/roce_rp/enable/3", "0");
  const auto off = check_congestion_control(roots_of(tree), finding, 0);
  REQUIRE(off->verdict == Verdict::kWarn);
  REQUIRE(contains(off->found, "ECN is off for roce_rp/3"));
}

TEST_CASE("doctor: limits of locked memory") {
  REQUIRE(check_locked_memory(std::nullopt, false).verdict == Verdict::kOk);
  REQUIRE(check_locked_memory(65536, true).verdict == Verdict::kOk);
  const Check none = check_locked_memory(65536, false);
  REQUIRE(none.verdict == Verdict::kFail);
  REQUIRE(contains(none.found, "room for 0 links"));
  REQUIRE(contains(none.fix, "ulimit -l unlimited"));
  REQUIRE(check_locked_memory(8 << 20, false).verdict == Verdict::kWarn);
  REQUIRE(check_locked_memory(std::uint64_t{1} << 40, false).verdict == Verdict::kOk);
}

TEST_CASE("doctor: the reason why memory cannot be registered") {
  const Check cache = check_registration_cache();
  REQUIRE((cache.verdict == Verdict::kOk) == cache.fix.empty());
}

}  // namespace tutti::internal::test

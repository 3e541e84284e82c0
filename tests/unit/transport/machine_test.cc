// Values read from the kernel's files, in a tree made here.
#include "transport/verbs/ports/machine.h"

#include <unistd.h>

#include <filesystem>

#include "base/status.h"
#include "catch_compat.h"
#include "made_tree.h"
#include "transport/verbs/ports/devices.h"

namespace tutti::internal::test {
namespace {

using namespace transport::verbs;

Roots roots_of(const MadeTree& tree) {
  return {tree.sys(), tree.dev()};
}

}  // namespace

TEST_CASE("machine: without devices the error has the fix") {
  const MadeTree tree;
  const Result<std::vector<Finding>> missing = find_ports({}, {}, roots_of(tree));
  REQUIRE(missing.status().code() == Code::kSystemError);
  std::filesystem::create_directories(tree.root() / "sys/class/infiniband");
  const Status empty = check_any_device(roots_of(tree));
  REQUIRE(empty.code() == Code::kSystemError);
  REQUIRE(empty.message().find("class/infiniband is empty") != std::string::npos);
  REQUIRE(empty.message().find("rdma link add") != std::string::npos);
  tree.write("sys/class/infiniband/rxe0/ports/1/rate", "10 Gb/sec (4X SDR)");
  REQUIRE(check_any_device(roots_of(tree)).is_ok());
  REQUIRE(device_names(roots_of(tree)) == std::vector<std::string>{"rxe0"});
}

TEST_CASE("machine: rate, place and interface of a device") {
  const MadeTree tree;
  const Roots roots = roots_of(tree);
  const std::string device = "sys/class/infiniband/mlx5_0/";
  REQUIRE(port_gbits(roots, "mlx5_0", 1) == 0);
  REQUIRE(numa_node_of(roots, "mlx5_0") == -1);
  REQUIRE(is_near(roots, "mlx5_0", {0, 1}));
  REQUIRE(interface_of(roots, "mlx5_0", 1).empty());
  tree.write(device + "ports/1/rate", "2.5 Gb/sec (1X SDR)");
  tree.write(device + "ports/2/rate", "400 Gb/sec (4X NDR)");
  REQUIRE(port_gbits(roots, "mlx5_0", 1) == 2.5);
  REQUIRE(port_gbits(roots, "mlx5_0", 2) == 400);
  tree.write(device + "device/net/ens1f0/mtu", "1500");
  tree.write(device + "device/net/ens1f1/mtu", "1500");
  REQUIRE(interface_of(roots, "mlx5_0", 1) == "ens1f0");
  REQUIRE(interface_of(roots, "mlx5_0", 2) == "ens1f1");
  tree.write(device + "ports/2/gid_attrs/ndevs/0", "bond0");
  REQUIRE(interface_of(roots, "mlx5_0", 2) == "bond0");
  // iWARP's GID begins with the hardware address, which a VLAN on the same interface also has.
  tree.write("sys/class/infiniband/siw0/ports/1/gids/0", "ced5:a850:e284:0000:0000:0000:0000:0000");
  tree.write("sys/class/net/a.7/address", "ce:d5:a8:50:e2:84");
  tree.write("sys/class/net/a.7/ifindex", "9");
  tree.write("sys/class/net/b/address", "ce:d5:a8:50:e2:85");
  REQUIRE(interface_of(roots, "siw0", 1) == "a.7");
  tree.write("sys/class/net/z/address", "ce:d5:a8:50:e2:84");
  tree.write("sys/class/net/z/ifindex", "3");
  REQUIRE(interface_of(roots, "siw0", 1) == "z");
  tree.write(device + "device/numa_node", "-1");
  REQUIRE(is_near(roots, "mlx5_0", {0, 1}));
  tree.write(device + "device/numa_node", "1");
  REQUIRE(numa_node_of(roots, "mlx5_0") == 1);
  REQUIRE_FALSE(is_near(roots, "mlx5_0", {0, 1}));
  REQUIRE(is_near(roots, "mlx5_0", {0, 2}));
  REQUIRE(is_near(roots, "mlx5_0", {}));
}

TEST_CASE("machine: why a device cannot be opened") {
  const MadeTree tree;
  REQUIRE(access_trouble(roots_of(tree), "rxe0").find("modprobe ib_uverbs") != std::string::npos);
  tree.write("sys/class/infiniband_verbs/abi_version", "6");
  tree.write("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0");
  tree.write("sys/class/infiniband_verbs/uverbs3/ibdev", "rxe0");
  const std::string missing = access_trouble(roots_of(tree), "rxe0");
  REQUIRE(missing.find("infiniband/uverbs3 is missing") != std::string::npos);
  REQUIRE(missing.find("--device=/dev/infiniband") != std::string::npos);
  tree.write("dev/infiniband/uverbs3", "");
  REQUIRE(access_trouble(roots_of(tree), "rxe0").empty());
  // Root may read all files, whatever their mode.
  if (::geteuid() == 0) return;
  std::filesystem::permissions(tree.root() / "dev/infiniband/uverbs3", std::filesystem::perms::none);
  REQUIRE(access_trouble(roots_of(tree), "rxe0").find("Permission denied") != std::string::npos);
}

TEST_CASE("machine: addresses of interfaces and their subnets") {
  // Every machine has this one.
  const auto loopback = address_of_interface("lo");
  REQUIRE(loopback.has_value());
  REQUIRE(loopback->address == "127.0.0.1");
  REQUIRE(loopback->subnet == "127.0.0.0/8");
  REQUIRE(subnet_of("127.0.0.1") == "127.0.0.0/8");
  REQUIRE(subnet_of("192.0.2.77").empty());
  REQUIRE(subnet_of("").empty());
  REQUIRE_FALSE(address_of_interface("no such interface").has_value());
}

}  // namespace tutti::internal::test

// The limits of control groups on processor time, on artificial machines.
#include "topology/cpu_quota.h"

#include "catch_compat.h"
#include "made_tree.h"

using namespace tutti::internal::topology;
using tutti::internal::test::MadeTree;

namespace {

std::vector<std::uint32_t> millicpus_of(const MadeTree& tree) {
  std::vector<std::uint32_t> result;
  for (const CpuQuota& quota : cpu_quotas(tree.root())) result.push_back(quota.millicpus);
  return result;
}

using Millicpus = std::vector<std::uint32_t>;

const std::string kOne =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset";
const std::string kTwo = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";

}  // namespace

TEST_CASE("in version 2 the limits of all groups above count, from the inside out") {
  const MadeTree tree;
  tree.write("proc/self/mountinfo", kTwo);
  tree.write("proc/self/cgroup", "0::/user.slice/job/task");
  CHECK(millicpus_of(tree).empty());
  tree.write("sys/fs/cgroup/user.slice/job/task/cpu.max", "max 100000");
  tree.write("sys/fs/cgroup/user.slice/job/cpu.max", "250000 100000");
  tree.write("sys/fs/cgroup/user.slice/cpu.max", "20000 10000");
  // Not on the path to the group.
  tree.write("sys/fs/cgroup/system.slice/cpu.max", "1000 100000");
  CHECK(millicpus_of(tree) == Millicpus{2500, 2000});
  tree.write("sys/fs/cgroup/user.slice/job/task/cpu.max", "1000 1000000");
  CHECK(millicpus_of(tree) == Millicpus{1, 2500, 2000});
}

TEST_CASE("in version 1 the hierarchy of the cpu controller counts") {
  const MadeTree tree;
  tree.write("proc/self/mountinfo", kOne);
  tree.write("proc/self/cgroup", "9:name=systemd:/x\n3:cpuset:/y\n1:cpu,cpuacct:/job/task\n0::/");
  tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  tree.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000");
  tree.write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  tree.write("sys/fs/cgroup/cpuset/y/cpu.cfs_quota_us", "1000");
  tree.write("sys/fs/cgroup/cpuset/y/cpu.cfs_period_us", "100000");
  CHECK(millicpus_of(tree) == Millicpus{4000});
  tree.write("sys/fs/cgroup/cpu,cpuacct/job/task/cpu.cfs_quota_us", "50000");
  tree.write("sys/fs/cgroup/cpu,cpuacct/job/task/cpu.cfs_period_us", "100000");
  CHECK(millicpus_of(tree) == Millicpus{500, 4000});
}

TEST_CASE("in a container the group at the mount point is the outermost") {
  const MadeTree tree;
  // The container's own group is mounted.
  tree.write("proc/self/mountinfo", "35 24 0:30 /pods/one /sys/fs/cgroup ro - cgroup2 cgroup rw");
  tree.write("sys/fs/cgroup/cpu.max", "150000 100000");
  tree.write("sys/fs/cgroup/inner/cpu.max", "100000 100000");
  tree.write("proc/self/cgroup", "0::/pods/one");
  CHECK(millicpus_of(tree) == Millicpus{1500});
  tree.write("proc/self/cgroup", "0::/pods/one/inner");
  CHECK(millicpus_of(tree) == Millicpus{1000, 1500});
  // A group that is not below it, or that a namespace hides.
  for (const char* const elsewhere : {"0::/pods/other", "0::/pods/one/../other", "0::/../other", "0::/"}) {
    tree.write("proc/self/cgroup", elsewhere);
    CHECK(millicpus_of(tree) == Millicpus{1500});
  }
}

TEST_CASE("groups are distinguished, and a hierarchy that is mounted twice counts once") {
  const MadeTree tree;
  tree.write("sys/fs/cgroup/a/cpu.max", "150000 100000");
  tree.write("sys/fs/cgroup/b/cpu.max", "150000 100000");
  tree.write("proc/self/mountinfo", kTwo + "\n" + kTwo);
  tree.write("proc/self/cgroup", "0::/a");
  const auto a = cpu_quotas(tree.root());
  CHECK(cpu_quotas(tree.root()) == a);
  tree.write("proc/self/cgroup", "0::/b");
  const auto b = cpu_quotas(tree.root());
  REQUIRE(a.size() == 1);
  REQUIRE(b.size() == 1);
  CHECK(a[0].group != b[0].group);
}

TEST_CASE("an unreadable limit has no effect") {
  const MadeTree tree;
  CHECK(cpu_quotas(tree.root()).empty());
  tree.write("proc/self/mountinfo", "garbage\n35 24 0:30 / - cgroup2\n" + kTwo);
  CHECK(cpu_quotas(tree.root()).empty());
  tree.write("proc/self/cgroup", "garbage\n0::/a");
  for (const char* const text : {"", "100000", "0 100000", "-5 100000", "100000 0", "x y", "max"}) {
    tree.write("sys/fs/cgroup/a/cpu.max", text);
    INFO(text);
    CHECK(cpu_quotas(tree.root()).empty());
  }
  // This machine's own, whatever their values.
  for (const CpuQuota& quota : cpu_quotas()) CHECK(quota.millicpus > 0);
}

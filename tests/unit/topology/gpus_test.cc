#include "topology/gpus.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "catch_compat.h"
#include "made_tree.h"

using namespace tutti::internal::topology;

TEST_CASE("GPUs, and what joins them") {
  const Gpus gpus = find_gpus(TUTTI_STAND_IN_NVML, "/nowhere");
  CHECK(gpus.trouble.empty());
  REQUIRE(gpus.all.size() == 4);
  const Gpu& first = gpus.all[0];
  CHECK(first.name == "NVIDIA Stand-in");
  CHECK(first.uuid == "GPU-00000000-0000-0000-0000-000000000000");
  CHECK(first.pci == "0000:1b:00.0");
  CHECK(first.major == 9);
  CHECK(first.memory_bytes == std::uint64_t{80} << 30);
  CHECK(first.numa_node == -1);
  // Through the switch, as many as both have.
  CHECK(first.nvlinks_to(gpus.all, 1) == 18);
  CHECK(first.nvlinks_to(gpus.all, 2) == 16);
  CHECK(first.nvlinks_to(gpus.all, 3) == 0);
  CHECK(gpus.all[3].nvlinks_to(gpus.all, 2) == 3);
  CHECK(first.paths == std::vector{PciPath::kSame, PciPath::kNode, PciPath::kSystem, PciPath::kSystem});
  CHECK(short_name(first.paths[2]) == std::string("SYS"));
}

TEST_CASE("a machine without GPUs, and NVML that does not start") {
  CHECK(find_gpus("libnvidia-none.so.1").trouble.find("no NVIDIA driver") != std::string::npos);
  // An existing library, but the wrong one.
  CHECK(find_gpus("libdl.so.2").trouble.find("nvmlInit_v2") != std::string::npos);
  REQUIRE(::setenv("NVML_STAND_IN", "broken", 1) == 0);
  const Gpus gpus = find_gpus(TUTTI_STAND_IN_NVML);
  REQUIRE(::unsetenv("NVML_STAND_IN") == 0);
  CHECK(gpus.all.empty());
  CHECK(gpus.trouble == "NVML cannot be started: an error of the stand-in's");
}

TEST_CASE("adapters near a GPU are behind the same bridges") {
  const tutti::internal::test::MadeTree tree;
  const std::string sys = tree.sys();
  const auto device = [&](const std::string& place) {
    std::filesystem::create_directories(sys + "/devices/" + place);
    const std::string name = std::filesystem::path(place).filename();
    std::filesystem::create_directories(sys + "/bus/pci/devices");
    std::filesystem::create_symlink(sys + "/devices/" + place, sys + "/bus/pci/devices/" + name);
    return sys + "/bus/pci/devices/" + name;
  };
  // A switch with a GPU and an adapter, another GPU and adapter on the same host bridge, and another host bridge.
  std::ofstream(device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:1b:00.0") + "/numa_node") << "1\n";
  const std::string on_switch = device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:18:00.0");
  const std::string on_bridge = device("pci0000:15/0000:15:03.0/0000:42:00.0");
  device("pci0000:15/0000:15:05.0/0000:43:00.0");
  const std::string elsewhere = device("pci0000:97/0000:97:01.0/0000:98:00.0");
  const Gpus gpus = find_gpus(TUTTI_STAND_IN_NVML, sys);
  REQUIRE(gpus.all.size() == 4);
  CHECK(gpus.all[0].numa_node == 1);
  const std::vector<std::string> adapters = {elsewhere, on_bridge, on_switch};
  CHECK(nearest(gpus.all[0], adapters, sys) == std::vector<std::size_t>{2});
  CHECK(nearest(gpus.all[1], adapters, sys) == std::vector<std::size_t>{1, 2});
  CHECK(nearest(gpus.all[0], {elsewhere, sys + "/none"}, sys).empty());
}

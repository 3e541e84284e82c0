// tutti info: which library this is, what it has, and which settings hold.
#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/config.h"
#include "base/log.h"
#include "base/variables.h"
#include "base/version.h"
#include "build_features.h"
#include "command.h"
#include "join/launch/trace.h"
#include "transport/verbs/options.h"
#include "tutti/tutti.h"

namespace tutti::internal::tools {
namespace {

// Clang's version begins with its name.
#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;
#else
constexpr const char* kCompiler = "g++ " __VERSION__;
#endif

using Json = nlohmann::ordered_json;

// One that is opened at run time, where it is needed.
struct OpenedLibrary {
  const char* name;
  const char* purpose;
  std::string path;     // empty: it cannot be opened
  std::string trouble;  // why
};

OpenedLibrary look_for(const char* name, const char* purpose) {
  OpenedLibrary library{name, purpose, {}, {}};
  void* const handle = ::dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    library.trouble = why != nullptr ? why : "cannot be opened";
    return library;
  }
  link_map* map = nullptr;
  library.path = ::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr ? map->l_name : name;
  return library;  // stays open: some do not bear to be closed
}

std::vector<OpenedLibrary> opened_libraries() {
  return {look_for("libcuda.so.1", "CUDA devices"), look_for("libnvidia-ml.so.1", "links between GPUs"),
          look_for("libibverbs.so.1", "RDMA"), look_for("librdmacm.so.1", "RDMA: iWARP, connect=cm"),
          look_for("libpmix.so.2", "Open MPI's and Slurm's launchers")};
}

// The C library that this program has loaded.
struct CLibrary {
  std::string version;
  std::string path;
};

CLibrary c_library() {
  CLibrary library;
  int number = 0;
  if (tuttiGetVersion(&number) == tuttiSuccess) {
    library.version = fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
  }
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&tuttiGetVersion), &info) != 0 && info.dli_fname != nullptr) {
    library.path = info.dli_fname;
  }
  return library;
}

struct Feature {
  const char* name;
  bool has;
  std::string about;
};

std::vector<Feature> features() {
  const std::string devices = kDeviceArchitectures;
  const std::string bindings = kMpiBindings;
  const std::string sanitizers = kSanitizers;
  return {{"shm", true, "transport over shared memory"},
          {"tcp", true, "transport over TCP"},
          {"verbs", kVerbs, "transport over RDMA: InfiniBand, RoCE, iWARP"},
          {"cuda", !devices.empty(),
           devices.empty() ? "kernels for CUDA devices; without them bytes pass through the host's memory"
                           : fmt::format("kernels for CUDA devices of compute capability {}", devices)},
          {"pmix", kPmix, "starting under Open MPI and Slurm through PMIx"},
          {"mpi", !bindings.empty(),
           bindings.empty() ? "bindings for MPI applications" : fmt::format("bindings for {}", bindings)},
          {"debug_checks", kDebugChecks, "checks of the library's own assumptions, at a cost in time"},
          {"sanitizers", sanitizers != "none", sanitizers}};
}

struct SettingLine {
  std::string name;
  std::string value;  // that holds
  std::string fallback;
  std::string source;  // "environment", "default"
  std::string meaning;
  std::string trouble;
};

// Of those that start a rank without a launcher, which no settings are read from.
std::string trouble_of_place(const std::string& name, const std::vector<LauncherTrace>& launchers) {
  for (const LauncherTrace& trace : launchers) {
    if (trace.launcher != "plain") continue;
    if (name == "TUTTI_RANK" && !trace.rank) return "no rank: ranks are counted from 0";
    if (name == "TUTTI_WORLD_SIZE" && !trace.ranks) return "no number of ranks";
  }
  return {};
}

SettingLine setting_line(const Variable& variable) {
  const std::string name(variable.name);
  const auto given = environment_variable(name.c_str());
  SettingLine line{name,
                   given ? (name == "TUTTI_SECRET" ? "(not shown)" : *given) : fallback_of(variable),
                   fallback_of(variable),
                   given ? "environment" : "default",
                   std::string(variable.meaning) +
                       (variable.decides == Decides::kRankZero ? "; rank 0's value holds for all ranks" : ""),
                   {}};
  if (!given) return line;
  Status read = check_variable(name, *given);
  if (read.is_ok() && name == "TUTTI_VERBS") read = transport::verbs::parse_options(*given).status();
  line.trouble = read.is_ok() ? trouble_of_place(name, launchers_in_environment()) : read.message();
  return line;
}

struct Info {
  CLibrary library = c_library();
  std::vector<Feature> has = features();
  std::vector<OpenedLibrary> opened = opened_libraries();
  std::vector<SettingLine> settings;
  std::vector<UnknownVariable> unknown = unknown_names();
};

Info look() {
  Info info;
  for (const Variable& variable : variables()) info.settings.push_back(setting_line(variable));
  return info;
}

std::string in_json(const Info& info) {
  Json json = {{"format", "tutti info"},
               {"version", library_version()},
               {"protocol", kProtocol},
               {"build", {{"type", kBuildType}, {"compiler", kCompiler}}},
               {"library", {{"version", info.library.version}, {"path", info.library.path}}}};
  for (const Feature& feature : info.has) {
    json["features"][feature.name] = {{"has", feature.has}, {"about", feature.about}};
  }
  for (const OpenedLibrary& one : info.opened) {
    json["opened"][one.name] = {
        {"found", !one.path.empty()}, {"path", one.path}, {"purpose", one.purpose}, {"error", one.trouble}};
  }
  for (const SettingLine& line : info.settings) {
    json["settings"][line.name] = {{"value", line.value},
                                   {"default", line.fallback},
                                   {"source", line.source},
                                   {"meaning", line.meaning},
                                   {"error", line.trouble}};
  }
  json["unknown"] = Json::array();
  for (const UnknownVariable& one : info.unknown) json["unknown"].push_back({{"name", one.name}, {"meant", one.meant}});
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

void print(const Info& info) {
  std::printf("tutti %s, protocol %u, %s build by %s\n", library_version(), kProtocol, kBuildType, kCompiler);
  std::printf("C library %s: %s\n", info.library.version.c_str(), info.library.path.c_str());
  if (info.library.version != library_version()) {
    std::printf("This program is of another version than that library: see LD_LIBRARY_PATH\n");
  }
  std::printf("\nBuilt in\n");
  for (const Feature& f : info.has) std::printf("  %-13s %-4s %s\n", f.name, f.has ? "yes" : "no", f.about.c_str());
  std::printf("\nOpened where they are needed\n");
  for (const OpenedLibrary& one : info.opened) {
    std::printf("  %-18s %s (%s)\n", one.name, one.path.empty() ? "not found" : one.path.c_str(), one.purpose);
  }
  std::printf("\nSettings\n");
  for (const SettingLine& line : info.settings) {
    const bool given = line.source != "default";
    std::printf("  %-23s %s, %s%s\n", line.name.c_str(), log::printable(line.value).c_str(), line.source.c_str(),
                given ? fmt::format("; default {}", line.fallback).c_str() : "");
    std::printf("  %-23s   %s\n", "", line.meaning.c_str());
    if (!line.trouble.empty()) std::printf("  %-23s   cannot be read: %s\n", "", log::printable(line.trouble).c_str());
  }
  if (info.unknown.empty()) return;
  std::printf("\nUnknown, ignored\n");
  for (const UnknownVariable& one : info.unknown) {
    std::printf("  %-23s%s\n", one.name.c_str(),
                one.meant.empty() ? "" : fmt::format(" did you mean {}?", one.meant).c_str());
  }
}

}  // namespace

Run add_info(CLI::App& app, CLI::App** chosen) {
  const auto as_json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "info", "Print the library's version and features, and every setting with its value and source");
  command->add_flag("--json", *as_json, "As JSON");
  command->footer(
      "Each setting has its value and where it comes from: the environment or the default. A "
      "communicator's\ntuttiConfig_t wins over both. Exit status: 0 success, 1 output cannot be written, 2 invalid "
      "arguments.");
  *chosen = command;
  return [as_json] {
    const Info info = look();
    if (*as_json) {
      std::printf("%s\n", in_json(info).c_str());
    } else {
      print(info);
    }
    return kExitOk;
  };
}

}  // namespace tutti::internal::tools

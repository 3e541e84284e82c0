// Writes the manual page of each program and of each of tutti's subcommands, and the completion of each program.
// Usage: write_manual SETTINGS_FILE FOLDER NAME...
// NAME...: the files that the build expects in the folder, pages as "tutti-topo.1", completions as "tutti". An error
// where others are written.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>

#include "algorithms/catalog.h"
#include "base/collectives.h"
#include "base/json_file.h"
#include "base/types.h"
#include "completion.h"
#include "page.h"
#include "perf/harness/options.h"
#include "tools/cli/application.h"

namespace tutti::internal::tools {
namespace {

struct Program {
  std::shared_ptr<const CLI::App> app;
  Choices choices;
};

template <class Enum, class Includes>
std::vector<std::string> names_of_values(int count, Includes includes) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    if (includes(static_cast<Enum>(i))) names.emplace_back(name_of(static_cast<Enum>(i)));
  }
  return names;
}

std::vector<std::string> algorithm_names() {
  std::vector<std::string> names;
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) names.emplace_back(entry.name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Program tutti_program() {
  const auto application = std::make_shared<const Application>();
  const auto any = [](Collective) { return true; };
  return {{application, &application->app},
          {{"COLLECTIVE", names_of_values<Collective>(kCollectives, any)},
           {"COLLECTIVES", names_of_values<Collective>(kUniformCollectives, any)},
           {"ALGORITHM", algorithm_names()}}};
}

Program perf_program(perf::Subject subject) {
  return {perf::command_line(subject),
          {{"DATATYPE", names_of_values<DataType>(kDataTypes, [](DataType) { return true; })},
           {"OPERATOR", names_of_values<ReduceOp>(kReduceOps, [subject](ReduceOp op) {
              return is_defined(subject, DataType::kFloat32, op) || is_defined(subject, DataType::kInt32, op);
            })}}};
}

std::vector<Program> programs() {
  std::vector<Program> all = {tutti_program()};
  for (const CollectiveInfo& info : kUniformTable) all.push_back(perf_program(info.collective));
  all.push_back(perf_program(perf::Transfers::kSendRecv));
  return all;
}

Result<std::vector<Command>> described_programs() {
  std::vector<Command> described;
  for (const Program& program : programs()) {
    auto command = describe(*program.app, program.app->get_name(), program.choices);
    if (!command.is_ok()) return command.status();
    described.push_back(std::move(*command));
  }
  return described;
}

using Files = std::map<std::string, std::string>;

Result<Files> files_of(const std::vector<Command>& programs, const std::string& readme_path) {
  constexpr std::size_t kMostReadmeBytes = 1 << 20;
  const auto readme = read_text_file(readme_path, kMostReadmeBytes);
  if (!readme.is_ok()) return readme.status();
  auto variables = variables_of(readme.value());
  if (!variables.is_ok()) return variables.status().with_context(readme_path);
  Manual manual{TUTTI_VERSION_TEXT, {}, std::move(*variables)};
  for (const Command& program : programs) {
    manual.pages.push_back(page_name(program));
    for (const Command& sub : program.commands) manual.pages.push_back(page_name(sub));
  }
  Files files;
  for (const Command& program : programs) {
    files[program.name] = completion(program);
    files[page_name(program) + ".1"] = page(program, true, manual);
    for (const Command& sub : program.commands) files[page_name(sub) + ".1"] = page(sub, false, manual);
  }
  return files;
}

Status write_files(const std::string& readme, const std::string& folder, const std::vector<std::string>& names) {
  const auto described = described_programs();
  if (!described.is_ok()) return described.status();
  const auto files = files_of(described.value(), readme);
  if (!files.is_ok()) return files.status();
  for (const auto& [name, text] : files.value()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return Status::invalid_argument(fmt::format("{}: the build does not know of it", name));
    }
    std::ofstream file(fmt::format("{}/{}", folder, name), std::ios::binary);
    file << text;
    if (!file.flush()) return Status::system(fmt::format("{}/{}", folder, name), errno);
  }
  for (const std::string& name : names) {
    if (files.value().count(name) == 0)
      return Status::invalid_argument(fmt::format("{}: there is no such program", name));
  }
  return {};
}

}  // namespace
}  // namespace tutti::internal::tools

int main(int argc, char** argv) {
  using namespace tutti::internal;
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s SETTINGS_FILE FOLDER NAME...\n", argv[0]);
    return tools::kExitUsage;
  }
  const Status status = guarded([&] { return tools::write_files(argv[1], argv[2], {argv + 3, argv + argc}); });
  if (status.is_ok()) return tools::kExitOk;
  std::fprintf(stderr, "%s: %s\n", argv[0], status.message().c_str());
  return tools::kExitFailure;
}

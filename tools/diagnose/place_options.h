// The options of the subcommands that look at processes and folders.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tutti::internal::tools {

struct PlaceOptions {
  std::vector<std::string> places;  // ids of processes, and folders; empty: all processes of this host
  double after_s = 5;

  void add_to(CLI::App* command) {
    command->add_option("PID|DIR", places,
                        "Processes to read, and folders of TUTTI_FLIGHT_RECORDER; by default all processes of this "
                        "host that this user may read");
    command->add_option("--after", after_s, "Seconds from which a wait counts as standing still")
        ->check(CLI::Range(0.1, 1e6))
        ->capture_default_str();
  }
};

}  // namespace tutti::internal::tools

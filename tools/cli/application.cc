#include "application.h"

#include <memory>

#include "perf/harness/help_formatter.h"

namespace tutti::internal::tools {

Application::Application() : app("tutti: collective communication between the ranks of a job", "tutti") {
  app.formatter(std::make_shared<perf::HelpFormatter>());  // the subcommands inherit it
  app.set_version_flag("--version", "tutti " TUTTI_VERSION_TEXT);
  app.require_subcommand(0, 1);  // the caller reports a missing one, after unknown flags
  Run run_program = add_run(app, &run, &program);
  commands.emplace_back(run, std::move(run_program));
  for (const auto add : {add_info, add_topo, add_doctor, add_diagnose, add_status, add_top, add_report, add_trace,
                         add_explain, add_simulate, add_tune, add_schedule, add_verify}) {
    CLI::App* command = nullptr;
    Run run_it = add(app, &command);
    commands.emplace_back(command, std::move(run_it));
  }
  app.footer("Exit status: 0 success, 1 a failure, 2 invalid arguments; each subcommand says more.");
}

}  // namespace tutti::internal::tools

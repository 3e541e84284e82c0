// Features of a command line that no program uses yet.
#include <map>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "completion.h"
#include "page.h"

namespace tutti::internal::test {
namespace {

using tools::Choices;
using tools::Command;
using tools::completion;
using tools::describe;
using tools::kVariablesPage;
using tools::Manual;
using tools::page;
using tools::variables_of;

struct Fixture {
  Fixture() : app(".dots: 'quotes' \"too\"", "sample") {
    app.footer("First\nline.\n  alone: a-b\nLast. Exit status: 0 well, or not, 1 not.");
    app.add_option("-f,--file", file, "A \\back\\slash")->type_name("FILE");
    app.add_option("--kind", kind, "One")->type_name("KIND|all")->delimiter(',');
    app.add_option("--mode", mode, "Of two")->check(CLI::IsMember({"fast", "slow"}));
    app.add_option("--least", least, "A number")->check(CLI::Range(1, 1 << 30))->capture_default_str();
    app.add_option("--secret", secret)->group("");
    app.add_option("place", place, "Where it is")->required();
  }

  CLI::App app;
  std::string file;
  std::vector<std::string> kind;
  std::string mode;
  int least = 7;
  int secret = 0;
  std::string place;
  Choices choices = {{"KIND", {"one", "two"}}};
};

void require_in(const std::string& text, const std::string& part) {
  INFO(text);
  INFO("lacks " + part);
  REQUIRE(text.find(part) != std::string::npos);
}

TEST_CASE("manual: a command line is described as the parser knows it") {
  Fixture f;
  const auto described = describe(f.app, "sample", f.choices);
  REQUIRE(described.is_ok());
  const Command& command = described.value();
  REQUIRE(command.arguments.size() == 6);  // --help is one of them, the hidden one is not
  REQUIRE(command.arguments[1].names == std::vector<std::string>{"-f", "--file"});
  REQUIRE((command.arguments[1].is_file && command.arguments[1].choices.empty()));
  REQUIRE(command.arguments[2].choices == std::vector<std::string>{"one", "two", "all"});
  REQUIRE((command.arguments[2].is_list && !command.arguments[2].is_file));
  REQUIRE(command.arguments[3].choices == std::vector<std::string>{"fast", "slow"});
  REQUIRE(command.arguments[4].help == "A number. At least 1. The default is 7.");
  REQUIRE((command.arguments[5].names.empty() && command.arguments[5].required));
  REQUIRE(command.notes == std::vector<std::string>{"First line.", " alone: a-b", "Last."});
  REQUIRE(command.statuses == std::map<int, std::string>{{0, "well, or not"}, {1, "not"}});
}

TEST_CASE("manual: unknown types and missing exit statuses are errors") {
  Fixture f;
  REQUIRE_FALSE(describe(f.app, "sample", {}).is_ok());
  f.app.footer("No statuses.");
  REQUIRE_FALSE(describe(f.app, "sample", f.choices).is_ok());
}

TEST_CASE("manual: no text of a page is taken for a request") {
  Fixture f;
  const auto described = describe(f.app, "sample", f.choices);
  REQUIRE(described.is_ok());
  const Manual manual{"1-2", {"sample", "other"}, {}};
  const std::string text = page(described.value(), true, manual);
  require_in(text, ".TH \"SAMPLE\" 1 \"\" \"tutti 1\\-2\"");
  require_in(text, "\n\\&.dots: \\(aqquotes\\(aq \\(dqtoo\\(dq");
  require_in(text, "\\fB\\-f\\fR, \\fB\\-\\-file\\fR \\fIFILE\\fR\nA \\(rsback\\(rsslash.\n");
  require_in(text, "\n.IP \"\" 2\nalone: a\\-b\n");
  require_in(text, ".SH SYNOPSIS\n\\fBsample\\fR [\\fIOPTION\\fR]... \\fIplace\\fR\n");
  require_in(text, ".SH SEE ALSO\n\\fBother\\fR(1)\n");
  REQUIRE(text.find("secret") == std::string::npos);
  REQUIRE(completion(described.value()).find("secret") == std::string::npos);
}

TEST_CASE("manual: variables are read from the table") {
  const auto variables = variables_of("| `TUTTI_A`, `TUTTI_B` | `x` | see [a-b](docs/x.md), `-n` |\n| other | | |\n");
  REQUIRE(variables.is_ok());
  REQUIRE(variables.value().size() == 1);
  Command command;
  command.name = kVariablesPage;
  const std::string text = page(command, true, Manual{"1", {kVariablesPage}, variables.value()});
  require_in(text, ".TP\n\\fBTUTTI_A\\fR, \\fBTUTTI_B\\fR\nSee a\\-b, \\fB\\-n\\fR. Default: \\fBx\\fR.\n");
  REQUIRE_FALSE(variables_of("| `TUTTI_A` | two |").is_ok());
  REQUIRE_FALSE(variables_of("nothing").is_ok());
}

}  // namespace
}  // namespace tutti::internal::test

// User-defined algorithms: a schedule as a program in a file (docs/schedules.md). Running the program writes the
// schedule of a rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "algorithms/expression.h"
#include "base/json_file.h"
#include "base/status.h"
#include "schedule/builder.h"

namespace tutti::internal::algorithms {

// A parsed program; or the steps of each rank, as to_json() writes them, for one number of ranks and a collective
// without a root. Constant after construction. Any thread.
class Program {
 public:
  // kInvalidArgument with file, line and field.
  static Result<std::shared_ptr<const Program>> parse(JsonFile file);
  static Result<std::shared_ptr<const Program>> read(const std::string& path);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Collective collective() const { return collective_; }
  // The file's.
  [[nodiscard]] const std::string& text() const { return file_.text; }
  // Whether it combines in the order of ranks, by the file; this is proven.
  [[nodiscard]] schedule::Order order() const { return order_; }
  // Whether it uses hosts: then a proof on some hosts does not apply to others.
  [[nodiscard]] bool uses_hosts() const { return uses_hosts_; }
  // Whether it supports this number of ranks on these hosts. REQUIRES: world.hosts.check(world.ranks).
  [[nodiscard]] bool serves(const World& world) const;
  // REQUIRES: serves(world). kInvalidArgument with file, line and field.
  [[nodiscard]] Result<schedule::Schedule> write(const World& world, int rank, int root) const;

 private:
  friend class ProgramReader;
  friend class ProgramRun;
  enum class Do : std::uint8_t {
    kFor,
    kIf,
    kLet,
    kSend,
    kRecv,
    kRecvReduce,
    kRecvToScratch,
    kRecvReduceToScratch,
    kReduceFromScratch,
    kCopyToOutput,
    kSendFrom,
    kRecvInto,
    kRecvReduceInto,
    kCopy,
    kReduce,
    kWaitForLast,
  };
  struct Field {
    Expression expression;
    const JsonValue* at = nullptr;  // for errors
  };
  struct Statement {
    Do what = Do::kSend;
    const JsonValue* at = nullptr;  // for errors
    std::size_t variable = 0;       // of kFor and kLet: its position
    std::vector<Field> operands;    // as ProgramReader orders them
    schedule::Buffer source = schedule::Buffer::kInput;
    schedule::Buffer operand = schedule::Buffer::kOutput;
    schedule::Buffer target = schedule::Buffer::kOutput;
    bool flag = false;  // of kReduceFromScratch: scratch comes first
    std::vector<Statement> body;
    std::vector<Statement> otherwise;
  };

  JsonFile file_;
  std::string name_;
  Collective collective_ = Collective::kAllReduce;
  schedule::Order order_ = schedule::Order::kAny;
  int least_ranks_ = 1;
  int most_ranks_ = 1 << 20;
  Field when_;    // whether it supports these ranks and hosts
  Field chunks_;  // of a block
  bool uses_hosts_ = false;
  std::vector<schedule::Schedule> schedules_;  // of a file with steps: by rank
  std::size_t variables_ = 0;
  std::vector<Statement> body_;
};

// The steps of all ranks as a file. `name`: a word of a-z, 0-9 and _. REQUIRES: at least one schedule.
std::string to_json(const std::vector<schedule::Schedule>& schedules, const std::string& name, schedule::Order order);

inline constexpr const char* kScheduleFormat = "tutti schedule";
inline constexpr int kScheduleVersion = 1;

}  // namespace tutti::internal::algorithms

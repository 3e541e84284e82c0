#include "algorithms/program.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "algorithms/program_parts.h"
#include "base/collectives.h"

namespace tutti::internal::algorithms {
namespace {

bool is_name(const std::string& text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && text.size() <= 64 && text[0] >= 'a' && text[0] <= 'z' &&
         std::all_of(text.begin(), text.end(), letter);
}

bool is_of_hosts(std::size_t given) {
  return given != kRanks && given != kRank && given != kRoot;
}

}  // namespace

class ProgramReader {
 public:
  explicit ProgramReader(Program& program) : program_(program), reading_(program.file_) {}

  Status run() {
    const JsonValue& root = *program_.file_.root;
    const bool has_steps = root.find("schedules") != nullptr;
    if (has_steps) {
      reading_.allow(root,
                     {"format", "version", "name", "collective", "about", "chunks", "order", "sliceable", "schedules"});
      reading_.require(root, {"name", "collective", "chunks"});
    } else {
      reading_.allow(root, {"format", "version", "name", "collective", "about", "least_ranks", "most_ranks", "when",
                            "chunks", "order", "do"});
      reading_.require(root, {"name", "collective", "do"});
    }
    program_.name_ = reading_.text(root, "name", "");
    if (const JsonValue* name = root.find("name"); name != nullptr && !is_name(program_.name_)) {
      reading_.fail(*name, "is not a word of a-z, 0-9 and _ that begins with a letter");
    }
    read_collective(root);
    if (has_steps) return read_schedules(root);
    program_.least_ranks_ = static_cast<int>(reading_.integer(root, "least_ranks", 1, 1 << 20, 1));
    program_.most_ranks_ = static_cast<int>(reading_.integer(root, "most_ranks", 1, 1 << 20, 1 << 20));
    names_.assign(kGivenNames.begin(), kGivenNames.begin() + kAlikeGivens);
    program_.when_ = expression(root, "when", "1");
    program_.chunks_ = expression(root, "chunks", "1");
    names_.assign(kGivenNames.begin(), kGivenNames.end());
    program_.variables_ = kGivens;
    program_.body_ = block(root, "do", 0);
    return reading_.status();
  }

 private:
  using Do = Program::Do;
  using Statement = Program::Statement;

  // ---- Steps -----------------------------------------------------------------------------------

  Status read_schedules(const JsonValue& root) {
    const std::vector<JsonValue>& list = reading_.list(root, "schedules");
    if (has_root(program_.collective_))
      reading_.fail(root, "steps support only one root. Write a program (\"do\"), which supports every root");
    if (list.empty() || list.size() > kMostRanksOfSteps) {
      reading_.fail(root, fmt::format("schedules: must list 1 to {} ranks", kMostRanksOfSteps));
    }
    if (!reading_.status().is_ok()) return reading_.status();
    schedule::Shape shape;
    shape.collective = program_.collective_;
    shape.ranks = static_cast<std::int32_t>(list.size());
    shape.blocks = static_cast<std::uint32_t>(blocks_of(program_.collective_, shape.ranks));
    shape.chunks = static_cast<std::uint32_t>(reading_.integer(root, "chunks", 1, kMostChunks, 1));
    if (shape.chunks % shape.blocks != 0)
      reading_.fail(*root.find("chunks"), "is not a multiple of the number of blocks");
    const bool sliceable = reading_.flag(root, "sliceable", true);
    for (std::size_t rank = 0; rank < list.size() && reading_.status().is_ok(); ++rank) {
      schedule::Schedule one;
      one.shape = shape;
      one.rank = static_cast<std::int32_t>(rank);
      one.sliceable = sliceable;
      if (!reading_.is_list(list[rank])) break;
      for (const JsonValue& step : list[rank].items) {
        if (!reading_.is_object(step)) break;
        if (++count_ > kMostSteps) {
          reading_.fail(step, fmt::format("there are more than {} steps", kMostSteps));
          break;
        }
        read_step(step, &one);
      }
      program_.schedules_.push_back(std::move(one));
    }
    program_.least_ranks_ = program_.most_ranks_ = shape.ranks;
    return reading_.status();
  }

  void read_step(const JsonValue& object, schedule::Schedule* in) {
    using schedule::StepKind;
    reading_.allow(object, {"do", "peer", "source", "source_chunk", "target", "target_chunk", "operand", "chunks",
                            "final", "reversed", "after"});
    reading_.require(object, {"do", "chunks"});
    schedule::Step s;
    const std::string kind = reading_.text(object, "do", "");
    const auto known = std::find(kStepKinds.begin(), kStepKinds.end(), kind);
    if (known == kStepKinds.end()) return reading_.fail(object, fmt::format("\"{}\" is not a step", kind));
    s.kind = static_cast<StepKind>(known - kStepKinds.begin());
    const std::int64_t chunks = reading_.integer(object, "chunks", 1, UINT16_MAX, 1);
    s.chunks = static_cast<std::uint16_t>(chunks);
    const auto chunk = [&](const char* name, Buffer of) {
      const std::int64_t all = of == Buffer::kScratch ? kMostChunks : in->shape.chunks;
      return static_cast<std::uint32_t>(reading_.integer(object, name, 0, std::max<std::int64_t>(0, all - chunks), 0));
    };
    const bool reads = schedule::reads_source(s.kind);
    const bool writes = schedule::writes_target(s.kind);
    if (reads) {
      s.source = buffer(object, "source");
      s.source_chunk = s.target_chunk = chunk("source_chunk", s.source);
    }
    if (writes) {
      s.target = buffer(object, "target");
      s.target_chunk = chunk("target_chunk", s.target);
      if (!reads) s.source_chunk = s.target_chunk;
    }
    if (schedule::reads_operand(s.kind)) s.operand = buffer(object, "operand");
    if (!schedule::is_local(s.kind)) {
      s.peer = static_cast<std::int32_t>(reading_.integer(object, "peer", 0, in->shape.ranks - 1, -1));
      if (s.peer < 0 || s.peer == in->rank) reading_.fail(object, "peer is not another rank");
    }
    s.final = reading_.flag(object, "final", false);
    s.reversed = reading_.flag(object, "reversed", false);
    s.first_dependency = static_cast<std::uint32_t>(in->dependencies.size());
    for (const JsonValue& before : reading_.list(object, "after")) {
      const auto index = static_cast<std::int64_t>(in->steps.size());
      if (before.kind != JsonValue::Kind::kInteger || before.integer < 0 || before.integer >= index) {
        return reading_.fail(before, "is not a step before this one");
      }
      in->dependencies.push_back(static_cast<std::uint32_t>(before.integer));
    }
    const std::size_t dependencies = in->dependencies.size() - s.first_dependency;
    if (dependencies > UINT16_MAX) return reading_.fail(object, "waits for more than 65535 steps");
    s.dependencies = static_cast<std::uint16_t>(dependencies);
    const bool to_scratch = (reads && s.source == Buffer::kScratch) || (writes && s.target == Buffer::kScratch) ||
                            (schedule::reads_operand(s.kind) && s.operand == Buffer::kScratch);
    const std::uint32_t end = std::max(s.source_chunk, s.target_chunk) + s.chunks;
    if (to_scratch) in->scratch_chunks = std::max(in->scratch_chunks, end);
    in->steps.push_back(s);
  }

  // ---- Programs --------------------------------------------------------------------------------

  void read_collective(const JsonValue& root) {
    const std::string name = reading_.text(root, "collective", "");
    const auto known = collective_named(name);
    if (known && !varies(*known)) {
      program_.collective_ = *known;
    } else if (const JsonValue* found = root.find("collective"); found != nullptr) {
      reading_.fail(*found, "is not a collective");
    }
    const std::string order = reading_.text(root, "order", "any");
    if (order != "any" && order != "ranks") reading_.fail(*root.find("order"), "is neither \"any\" nor \"ranks\"");
    program_.order_ = order == "ranks" ? schedule::Order::kRanks : schedule::Order::kAny;
  }

  // A text, or a number.
  Program::Field expression(const JsonValue& object, const char* name, const char* otherwise) {
    const JsonValue* value = object.find(name);
    std::string text = otherwise;
    if (value != nullptr && value->kind == JsonValue::Kind::kInteger) {
      text = std::to_string(value->integer);
    } else if (value != nullptr && value->kind == JsonValue::Kind::kBool) {
      text.assign(1, value->flag ? '1' : '0');
    } else if (value != nullptr && reading_.is_text(*value)) {
      text = value->text;
    }
    const JsonValue& at = value != nullptr ? *value : object;
    auto parsed = Expression::parse(text, names_);
    if (!parsed.is_ok()) {
      reading_.fail(at, parsed.status().message());
      return {};
    }
    for (std::size_t given = 0; given < kGivens; ++given) {
      if (is_of_hosts(given) && parsed.value().names(given)) program_.uses_hosts_ = true;
    }
    if (parsed.value().asks_for_places()) program_.uses_hosts_ = true;
    return {std::move(*parsed), &at};
  }

  std::vector<Statement> block(const JsonValue& object, const char* name, int depth) {
    std::vector<Statement> statements;
    const std::size_t names = names_.size();
    for (const JsonValue& one : reading_.list(object, name)) {
      if (!reading_.status().is_ok() || !reading_.is_object(one)) break;
      if (++count_ > kMostStatements) {
        reading_.fail(one, fmt::format("there are more than {} statements", kMostStatements));
        break;
      }
      statements.push_back(statement(one, depth));
    }
    names_.resize(names);
    return statements;
  }

  // The first field of each kind of statement, which identifies it.
  Statement statement(const JsonValue& object, int depth) {
    struct StatementName {
      const char* name;
      Do what;
    };
    static constexpr std::array<StatementName, 16> kKinds = {{{"for", Do::kFor},
                                                              {"if", Do::kIf},
                                                              {"let", Do::kLet},
                                                              {"send", Do::kSend},
                                                              {"recv", Do::kRecv},
                                                              {"recv_reduce", Do::kRecvReduce},
                                                              {"recv_to_scratch", Do::kRecvToScratch},
                                                              {"recv_reduce_to_scratch", Do::kRecvReduceToScratch},
                                                              {"reduce_from_scratch", Do::kReduceFromScratch},
                                                              {"copy_to_output", Do::kCopyToOutput},
                                                              {"send_from", Do::kSendFrom},
                                                              {"recv_into", Do::kRecvInto},
                                                              {"recv_reduce_into", Do::kRecvReduceInto},
                                                              {"copy_into", Do::kCopy},
                                                              {"reduce_into", Do::kReduce},
                                                              {"wait_for_last", Do::kWaitForLast}}};
    Statement made;
    made.at = &object;
    const auto kind = std::find_if(kKinds.begin(), kKinds.end(),
                                   [&](const StatementName& k) { return object.find(k.name) != nullptr; });
    if (kind == kKinds.end()) {
      reading_.fail(object, "is not a known statement");
      return made;
    }
    made.what = kind->what;
    switch (kind->what) {
      case Do::kFor: return loop(object, std::move(made), depth);
      case Do::kIf: return condition(object, std::move(made), depth);
      case Do::kLet: return definition(object, std::move(made));
      default: return step(object, std::move(made), kind->name);
    }
  }

  std::size_t define(const JsonValue& object, const char* name) {
    const std::string variable = reading_.text(object, name, "");
    if (!is_name(variable)) reading_.fail(object, fmt::format("\"{}\" is not a name", variable));
    names_.push_back(variable);
    program_.variables_ = std::max(program_.variables_, names_.size());
    return names_.size() - 1;
  }

  Statement loop(const JsonValue& object, Statement made, int depth) {
    reading_.allow(object, {"for", "from", "below", "do"});
    reading_.require(object, {"below", "do"});
    made.operands = {expression(object, "from", "0"), expression(object, "below", "0")};
    const std::size_t names = names_.size();
    made.variable = define(object, "for");
    made.body = block(object, "do", depth + 1);
    names_.resize(names);
    return made;
  }

  Statement condition(const JsonValue& object, Statement made, int depth) {
    reading_.allow(object, {"if", "do", "else"});
    reading_.require(object, {"do"});
    made.operands = {expression(object, "if", "1")};
    made.body = block(object, "do", depth + 1);
    made.otherwise = block(object, "else", depth + 1);
    return made;
  }

  // Valid until the end of the block.
  Statement definition(const JsonValue& object, Statement made) {
    reading_.allow(object, {"let", "be"});
    reading_.require(object, {"be"});
    made.operands = {expression(object, "be", "0")};
    made.variable = define(object, "let");
    return made;
  }

  Buffer buffer(const JsonValue& object, const char* name) {
    const std::string text = reading_.text(object, name, "");
    for (std::size_t i = 0; i < kBuffers.size(); ++i) {
      if (text == kBuffers[i]) return static_cast<Buffer>(i);
    }
    reading_.fail(object, fmt::format("{} is not input, output or scratch", name));
    return Buffer::kInput;
  }

  // Operands: first chunk, count, peer (0), whether it completes, then the second chunk of statements that name
  // buffers.
  Statement step(const JsonValue& object, Statement made, const char* kind) {
    const bool sends = made.what == Do::kSend || made.what == Do::kSendFrom;
    const bool receives = made.what == Do::kRecv || made.what == Do::kRecvReduce || made.what == Do::kRecvToScratch ||
                          made.what == Do::kRecvReduceToScratch || made.what == Do::kRecvInto ||
                          made.what == Do::kRecvReduceInto;
    const bool by_place = made.what >= Do::kSendFrom && made.what <= Do::kReduce;
    const bool from_place = made.what == Do::kRecvReduceInto || made.what == Do::kCopy || made.what == Do::kReduce;
    if (made.what == Do::kWaitForLast) {
      reading_.allow(object, {"wait_for_last"});
      return made;
    }
    reading_.allow(object, {kind, "chunk", "count",
                            sends      ? "to"
                            : receives ? "from"
                                       : kind,
                            by_place ? "chunk" : "final", made.what == Do::kReduceFromScratch ? "comes" : kind,
                            from_place ? "source" : kind, from_place ? "source_chunk" : kind,
                            made.what == Do::kReduce ? "operand" : kind});
    if (sends) reading_.require(object, {"to"});
    if (receives) reading_.require(object, {"from"});
    if (by_place) reading_.require(object, {"chunk"});
    made.operands = {by_place ? expression(object, "chunk", "0") : expression(object, kind, "0"),
                     expression(object, "count", "1"), expression(object, sends ? "to" : "from", "0"),
                     expression(object, "final", "0"), expression(object, "source_chunk", "0")};
    if (by_place) (made.what == Do::kSendFrom ? made.source : made.target) = buffer(object, kind);
    if (from_place) {
      reading_.require(object, {"source", "source_chunk"});
      made.source = buffer(object, "source");
    }
    if (made.what == Do::kReduce) made.operand = buffer(object, "operand");
    if (made.what == Do::kReduceFromScratch) {
      const std::string comes = reading_.text(object, "comes", "first");
      if (comes != "first" && comes != "last") reading_.fail(object, "comes is neither \"first\" nor \"last\"");
      made.flag = comes == "first";
    }
    return made;
  }

  Program& program_;
  JsonReading reading_;
  std::vector<std::string> names_;
  std::size_t count_ = 0;
};

Result<std::shared_ptr<const Program>> Program::read(const std::string& path) {
  auto file = read_json_file(path, kScheduleFormat, kScheduleVersion);
  if (!file.is_ok()) return file.status();
  return parse(std::move(*file));
}

Result<std::shared_ptr<const Program>> Program::parse(JsonFile file) {
  auto program = std::make_shared<Program>();
  program->file_ = std::move(file);
  if (Status s = ProgramReader(*program).run(); !s.is_ok()) return s;
  return std::shared_ptr<const Program>(std::move(program));
}

}  // namespace tutti::internal::algorithms

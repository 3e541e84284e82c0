#include "base/json_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/first_use.h"

namespace tutti::internal {
namespace {

using Kind = JsonValue::Kind;
constexpr std::size_t kMostDepth = 64;
constexpr std::size_t kMostMembers = 1000;  // of an object, because each look-up is linear

// The line of the last byte that the parser has read. After a number it has read one more byte, which may end the line.
struct Lines {
  std::size_t now = 1;
  bool ends = false;
};

// Iterates over the bytes of a text and counts its lines.
struct Counted {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at = nullptr;
  Lines* lines = nullptr;

  reference operator*() const { return *at; }
  Counted& operator++() {
    if (lines->ends) ++lines->now;
    lines->ends = *at == '\n';
    ++at;
    return *this;
  }
  bool operator==(const Counted& o) const { return at == o.at; }
  bool operator!=(const Counted& o) const { return at != o.at; }
};

// Builds the values from the parser's events.
class Maker : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Maker(const Lines& lines) : lines_(lines) {}

  bool null() override { return add({}); }
  bool boolean(bool flag) override {
    JsonValue value;
    value.kind = Kind::kBool;
    value.flag = flag;
    return add(std::move(value));
  }
  bool number_integer(number_integer_t integer) override {
    JsonValue value;
    value.kind = Kind::kInteger;
    value.integer = integer;
    value.number = static_cast<double>(integer);
    return add(std::move(value));
  }
  bool number_unsigned(number_unsigned_t integer) override {
    if (integer <= static_cast<number_unsigned_t>(INT64_MAX)) return number_integer(static_cast<std::int64_t>(integer));
    return number_float(static_cast<double>(integer), {});
  }
  bool number_float(number_float_t number, const string_t&) override {
    JsonValue value;
    value.kind = Kind::kNumber;
    value.number = number;
    return add(std::move(value));
  }
  bool string(string_t& text) override {
    JsonValue value;
    value.kind = Kind::kText;
    value.text = std::move(text);
    return add(std::move(value));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Kind::kObject); }
  bool start_array(std::size_t) override { return open(Kind::kList); }
  bool key(string_t& name) override {
    if (open_.back()->find(name) != nullptr) return refuse(fmt::format("\"{}\" appears twice", name));
    if (open_.back()->names.size() >= kMostMembers) return refuse(fmt::format("more than {} names", kMostMembers));
    open_.back()->names.push_back(std::move(name));
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    std::string why = error.what();
    // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error while ..."
    if (const auto colon = why.find(": "); colon != std::string::npos) why.erase(0, colon + 2);
    return refuse(why);
  }

  std::unique_ptr<JsonValue> take() { return std::move(root_); }
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  bool refuse(const std::string& why) {
    if (why_.empty()) why_ = why;
    return false;
  }
  JsonValue* place(JsonValue value) {
    value.line = lines_.now;
    if (open_.empty()) {
      root_ = std::make_unique<JsonValue>(std::move(value));
      return root_.get();
    }
    JsonValue& in = *open_.back();
    in.items.push_back(std::move(value));
    return &in.items.back();
  }
  bool add(JsonValue value) {
    place(std::move(value));
    return true;
  }
  bool open(Kind kind) {
    if (open_.size() >= kMostDepth) return refuse(fmt::format("it is nested more than {} deep", kMostDepth));
    JsonValue value;
    value.kind = kind;
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const Lines& lines_;
  std::unique_ptr<JsonValue> root_;
  std::vector<JsonValue*> open_;
  std::string why_;
};

// Set at the end, because values move while they are built.
void set_parents(JsonValue& value) {
  for (JsonValue& item : value.items) {
    item.parent = &value;
    set_parents(item);
  }
}

std::string field_of(const JsonValue& value) {
  if (value.parent == nullptr) return {};
  const JsonValue& in = *value.parent;
  std::string field = field_of(in);
  const auto at = static_cast<std::size_t>(&value - in.items.data());
  if (in.kind == Kind::kList) return field + fmt::format("[{}]", at);
  return fmt::format("{}{}{}", field, field.empty() ? "" : ".", in.names[at]);
}

Status check_head(const JsonFile& file, std::string_view format, int version) {
  JsonReading reading(file);
  const JsonValue& root = *file.root;
  if (!reading.is_object(root)) return reading.status();
  reading.require(root, {"format", "version"});
  if (reading.text(root, "format", "") != format) {
    reading.fail(*(root.find("format") != nullptr ? root.find("format") : &root), fmt::format("is not \"{}\"", format));
  }
  const std::int64_t found = reading.integer(root, "version", 0, INT32_MAX, 0);
  if (reading.status().is_ok() && found != version) {
    reading.fail(*root.find("version"), fmt::format("is {}, but this library reads version {}", found, version));
  }
  return reading.status();
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  const auto at = std::find(names.begin(), names.end(), name);
  return at == names.end() ? nullptr : &items[static_cast<std::size_t>(at - names.begin())];
}

Result<JsonFile> parse_json(std::string text, const std::string& name, std::string_view format, int version) {
  Lines lines;
  Maker maker(lines);
  const Counted begin{text.data(), &lines};
  const Counted end{text.data() + text.size(), &lines};
  if (!nlohmann::json::sax_parse(begin, end, &maker)) {
    return Status::invalid_argument(fmt::format("{}:{}: {}", name, lines.now, maker.why()));
  }
  JsonFile file{name, std::move(text), maker.take()};
  set_parents(*file.root);
  if (Status s = check_head(file, format, version); !s.is_ok()) return s;
  return file;
}

bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

Result<std::string> read_text_file(const std::string& path, std::size_t most_bytes) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Status::invalid_argument(Status::system(path, errno).message());
  std::string text;
  std::vector<char> piece(1 << 16);
  while (stream.read(piece.data(), static_cast<std::streamsize>(piece.size())) || stream.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(stream.gcount()));
    if (text.size() > most_bytes) {
      return Status::invalid_argument(fmt::format("{}: the file is longer than {} MiB", path, most_bytes >> 20));
    }
  }
  if (stream.bad()) return Status::invalid_argument(path + ": cannot read the file");
  return text;
}

Result<JsonFile> read_json_file(const std::string& path, std::string_view format, int version) {
  auto text = read_text_file(path, kMostJsonBytes);
  if (!text.is_ok()) return text.status();
  return parse_json(std::move(*text), path, format, version);
}

void JsonReading::fail(const JsonValue& value, const std::string& why) {
  if (!status_.is_ok()) return;
  const std::string field = field_of(value);
  status_ = Status::invalid_argument(
      fmt::format("{}:{}: {}{}{}", file_.name, value.line, field, field.empty() ? "" : ": ", why));
}

const JsonValue* JsonReading::find(const JsonValue& object, const char* name, Kind kind, const char* kind_name) {
  const JsonValue* value = object.find(name);
  if (value == nullptr || value->kind == kind) return value;
  fail(*value, fmt::format("is not {}", kind_name));
  return nullptr;
}

double JsonReading::number(const JsonValue& object, const char* name, double least, double most, double otherwise) {
  const JsonValue* value = object.find(name);
  if (value == nullptr) return otherwise;
  const bool is_number = value->kind == Kind::kInteger || value->kind == Kind::kNumber;
  if (is_number && value->number >= least && value->number <= most) return value->number;
  fail(*value, fmt::format("is not a number from {:g} to {:g}", least, most));
  return otherwise;
}

std::int64_t JsonReading::integer(const JsonValue& object, const char* name, std::int64_t least, std::int64_t most,
                                  std::int64_t otherwise) {
  const JsonValue* value = object.find(name);
  if (value == nullptr) return otherwise;
  if (value->kind == Kind::kInteger && value->integer >= least && value->integer <= most) return value->integer;
  fail(*value, fmt::format("is not an integer from {} to {}", least, most));
  return otherwise;
}

bool JsonReading::flag(const JsonValue& object, const char* name, bool otherwise) {
  const JsonValue* value = find(object, name, Kind::kBool, "true or false");
  return value == nullptr ? otherwise : value->flag;
}

std::string JsonReading::text(const JsonValue& object, const char* name, const std::string& otherwise) {
  const JsonValue* value = find(object, name, Kind::kText, "a text");
  return value == nullptr ? otherwise : value->text;
}

const std::vector<JsonValue>& JsonReading::list(const JsonValue& object, const char* name) {
  static constinit FirstUse<const std::vector<JsonValue>> none;
  const JsonValue* value = find(object, name, Kind::kList, "a list");
  return value == nullptr ? none.get() : value->items;
}

const JsonValue* JsonReading::object(const JsonValue& object, const char* name) {
  return find(object, name, Kind::kObject, "an object");
}

void JsonReading::require(const JsonValue& object, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (object.find(name) == nullptr) fail(object, fmt::format("has no \"{}\"", name));
  }
}

void JsonReading::allow(const JsonValue& object, std::initializer_list<const char*> names) {
  for (std::size_t i = 0; i < object.names.size(); ++i) {
    const bool known = std::any_of(names.begin(), names.end(), [&](const char* one) { return object.names[i] == one; });
    if (!known) fail(object.items[i], "is an unknown field");
  }
}

bool JsonReading::is_text(const JsonValue& value) {
  if (value.kind != Kind::kText) fail(value, "is not a text");
  return value.kind == Kind::kText;
}

bool JsonReading::is_object(const JsonValue& value) {
  if (value.kind != Kind::kObject) fail(value, "is not an object");
  return value.kind == Kind::kObject;
}

bool JsonReading::is_list(const JsonValue& value) {
  if (value.kind != Kind::kList) fail(value, "is not a list");
  return value.kind == Kind::kList;
}

}  // namespace tutti::internal

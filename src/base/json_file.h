// Files that people write: JSON of a documented format and version. Errors name the file, the line and the field.
//
//   JsonFile file = ...(read_json_file(path, "tutti topology", 1));
//   JsonReading reading(file);
//   const double rate = reading.number(node, "gbytes_per_second", 0, 1e6, 0);
//   if (Status s = reading.status(); !s.is_ok()) return s;
//
// The first error is kept; later reads return their defaults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tutti::internal {

// Whether the text is valid UTF-8; names in files must be.
[[nodiscard]] bool is_utf8(const std::string& text);

struct JsonValue {
  enum class Kind : std::uint8_t { kNull, kBool, kInteger, kNumber, kText, kList, kObject };
  Kind kind = Kind::kNull;
  bool flag = false;
  std::int64_t integer = 0;  // for kInteger; integers beyond its range are kNumber
  double number = 0;         // of a kInteger, too
  std::string text;
  std::vector<JsonValue> items;       // of a list or an object, in order
  std::vector<std::string> names;     // of an object's items, none twice
  std::size_t line = 0;               // the line of its end; for a list or an object, of its beginning
  const JsonValue* parent = nullptr;  // the list or object that contains it

  [[nodiscard]] const JsonValue* find(std::string_view name) const;
};

struct JsonFile {
  std::string name;
  std::string text;
  std::unique_ptr<JsonValue> root;  // an object
};

inline constexpr std::size_t kMostJsonBytes = std::size_t{256} << 20;

// The whole file. kInvalidArgument: it cannot be read, or is longer than that.
Result<std::string> read_text_file(const std::string& path, std::size_t most_bytes);
// kInvalidArgument: the file cannot be read, is longer than kMostJsonBytes, is not JSON, is nested more than 64 deep,
// has a name twice in an object, or its members "format" and "version" are not these.
Result<JsonFile> read_json_file(const std::string& path, std::string_view format, int version);
// The same for a text; errors use `name` as the name of the file.
Result<JsonFile> parse_json(std::string text, const std::string& name, std::string_view format, int version);

class JsonReading {
 public:
  explicit JsonReading(const JsonFile& file) : file_(file) {}

  // The members of an object. A missing one has its default; a null, or a value of another kind or outside its range,
  // is an error.
  double number(const JsonValue& object, const char* name, double least, double most, double otherwise);
  std::int64_t integer(const JsonValue& object, const char* name, std::int64_t least, std::int64_t most,
                       std::int64_t otherwise);
  bool flag(const JsonValue& object, const char* name, bool otherwise);
  std::string text(const JsonValue& object, const char* name, const std::string& otherwise);
  // Its items; none if it is missing.
  const std::vector<JsonValue>& list(const JsonValue& object, const char* name);
  // Null if it is missing.
  const JsonValue* object(const JsonValue& object, const char* name);

  // Each of these members must exist.
  void require(const JsonValue& object, std::initializer_list<const char*> names);
  // All other members are errors, so that a misspelt name is not ignored.
  void allow(const JsonValue& object, std::initializer_list<const char*> names);
  bool is_text(const JsonValue& value);
  bool is_object(const JsonValue& value);
  bool is_list(const JsonValue& value);

  // "FILE:LINE: FIELD: why". Only the first error is kept.
  void fail(const JsonValue& value, const std::string& why);
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const JsonValue* find(const JsonValue& object, const char* name, JsonValue::Kind kind, const char* kind_name);

  const JsonFile& file_;
  Status status_;
};

}  // namespace tutti::internal

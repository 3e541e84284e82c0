#include "base/json_file.h"

#include <string>

#include "catch_compat.h"

namespace tutti::internal {
namespace {

const std::string kHead = R"({"format": "tutti test", "version": 1)";

std::string error_of(const std::string& text) {
  return parse_json(text, "file", "tutti test", 1).status().message();
}

TEST_CASE("values come with their kinds, in order, and with lines") {
  const auto file = parse_json(kHead + R"(,
 "list": [1, 2.5, "three",
          true, null,
          {"a": -9223372036854775808}],
 "last": 18446744073709551615
})",
                               "file", "tutti test", 1);
  REQUIRE(file.is_ok());
  const JsonValue& list = *file.value().root->find("list");
  REQUIRE(list.items.size() == 6);
  CHECK(list.items[0].integer == 1);
  CHECK(list.items[1].number == 2.5);
  CHECK(list.items[2].text == "three");
  CHECK(list.items[3].flag);
  CHECK(list.items[4].kind == JsonValue::Kind::kNull);
  CHECK(list.items[5].find("a")->integer == INT64_MIN);
  CHECK(list.items[1].line == 2);
  CHECK(list.items[4].line == 3);
  const JsonValue& last = *file.value().root->find("last");
  CHECK(last.kind == JsonValue::Kind::kNumber);
  CHECK(last.line == 5);  // the number ends with its line
}

TEST_CASE("errors name file, line and field, the first one alone") {
  const auto file = parse_json(kHead + ",\n\"a\": {\"b\": [1,\n\"x\"]}, \"c\": -1}", "file", "tutti test", 1);
  REQUIRE(file.is_ok());
  JsonReading reading(file.value());
  const JsonValue& root = *file.value().root;
  const JsonValue* a = reading.object(root, "a");
  REQUIRE(a != nullptr);
  CHECK(reading.is_text(reading.list(*a, "b")[1]));
  CHECK(reading.status().is_ok());
  CHECK(!reading.is_object(reading.list(*a, "b")[1]));
  CHECK(reading.integer(root, "c", 0, 5, 3) == 3);
  CHECK(reading.status().message() == "file:3: a.b[1]: is not an object");
  JsonReading again(file.value());
  CHECK(again.number(root, "c", 0, 5, 0) == 0);
  CHECK(again.status().message() == "file:3: c: is not a number from 0 to 5");
  JsonReading unknown(file.value());
  unknown.allow(root, {"format", "version", "a"});
  CHECK(unknown.status().message() == "file:3: c: is an unknown field");
  JsonReading missing(file.value());
  missing.require(root, {"a", "d"});
  CHECK(missing.status().message() == "file:1: has no \"d\"");
}

TEST_CASE("files of another format or version are refused") {
  CHECK(error_of("") != "");
  CHECK(error_of("[]") == "file:1: is not an object");
  CHECK(error_of("{}") == "file:1: has no \"format\"");
  CHECK(error_of(R"({"format": "other", "version": 1})") == "file:1: format: is not \"tutti test\"");
  CHECK(error_of("{\"format\": \"tutti test\",\n\"version\": 2}") ==
        "file:2: version: is 2, but this library reads version 1");
  CHECK(error_of(R"({"format": "tutti test", "version": "1"})").find("version: is not an integer") !=
        std::string::npos);
  CHECK(error_of(kHead + ", \"a\": 1, \"a\": 2}").find("\"a\" appears twice") != std::string::npos);
  CHECK(error_of(kHead + ",\n\"a\": [1, 2").find("file:2: ") == 0);
  CHECK(error_of(kHead + "} x").find("file:1: ") == 0);
  CHECK(error_of(std::string(1'000'000, '[')).find("nested more than 64 deep") != std::string::npos);
  std::string many = kHead;
  for (int i = 0; i < 2000; ++i) many += ", \"" + std::to_string(i) + "\": 0";
  CHECK(error_of(many + "}").find("more than 1000 names") != std::string::npos);
  CHECK(read_json_file("/nonexistent/file", "tutti test", 1).status().message().find("/nonexistent/file") == 0);
  CHECK(read_json_file("/", "tutti test", 1).status().code() == Code::kInvalidArgument);
}

}  // namespace
}  // namespace tutti::internal

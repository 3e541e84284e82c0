#include "selection/costs_json.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace tutti::internal::selection {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMostUs = 1e9;
constexpr double kMostBytes = 1e12;

Json json_of(const MessageCosts& costs) {
  return {{"latency_us", costs.latency_us},
          {"message_us", costs.message_us},
          {"send_us_per_byte", costs.send_us_per_byte.values()},
          {"receive_us_per_byte", costs.receive_us_per_byte.values()},
          {"piece_bytes", costs.piece_bytes},
          {"buffer_bytes", costs.buffer_bytes}};
}

PerByte read_per_byte(JsonReading& reading, const JsonValue& object, const char* name) {
  PerByte costs;
  const auto& list = reading.list(object, name);
  if (!reading.status().is_ok()) return costs;
  if (list.size() != PerByte::kSizes) {
    const JsonValue* const given = object.find(name);
    reading.fail(given == nullptr ? object : *given, fmt::format("{} must have {} numbers", name, PerByte::kSizes));
    return costs;
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const bool is_number = list[i].kind == JsonValue::Kind::kNumber || list[i].kind == JsonValue::Kind::kInteger;
    if (!is_number || list[i].number < 0 || list[i].number > kMostUs) {
      reading.fail(list[i], fmt::format("is not a number from 0 to {}", kMostUs));
      return costs;
    }
    costs.values()[i] = list[i].number;
  }
  return costs;
}

MessageCosts read_message_costs(JsonReading& reading, const JsonValue& parent, const char* name) {
  MessageCosts costs;
  const JsonValue* const object = reading.object(parent, name);
  if (object == nullptr) return costs;
  const auto names = {"latency_us",          "message_us",  "send_us_per_byte",
                      "receive_us_per_byte", "piece_bytes", "buffer_bytes"};
  reading.allow(*object, names);
  reading.require(*object, names);
  costs.latency_us = reading.number(*object, "latency_us", 0, kMostUs, 0);
  costs.message_us = reading.number(*object, "message_us", 0, kMostUs, 0);
  costs.send_us_per_byte = read_per_byte(reading, *object, "send_us_per_byte");
  costs.receive_us_per_byte = read_per_byte(reading, *object, "receive_us_per_byte");
  costs.piece_bytes = reading.number(*object, "piece_bytes", 0, kMostBytes, 0);
  costs.buffer_bytes = reading.number(*object, "buffer_bytes", 0, kMostBytes, 0);
  return costs;
}

}  // namespace

Json json_of(const topology::MachineCosts& costs) {
  return {{"within_host", json_of(costs.within_host)},
          {"between_hosts", json_of(costs.between_hosts)},
          {"combine_us_per_byte", costs.host.combine_us_per_byte.values()},
          {"copy_us_per_byte", costs.host.copy_us_per_byte.values()},
          {"turn_us", costs.turn_us},
          {"call_us", costs.call_us},
          {"memory_us_per_byte", costs.memory_us_per_byte}};
}

topology::MachineCosts read_costs(JsonReading& reading, const JsonValue& object) {
  topology::MachineCosts costs;
  const auto names = {"within_host", "between_hosts", "combine_us_per_byte", "copy_us_per_byte",
                      "turn_us",     "call_us",       "memory_us_per_byte"};
  reading.allow(object, names);
  reading.require(object, names);
  costs.within_host = read_message_costs(reading, object, "within_host");
  costs.between_hosts = read_message_costs(reading, object, "between_hosts");
  costs.host.combine_us_per_byte = read_per_byte(reading, object, "combine_us_per_byte");
  costs.host.copy_us_per_byte = read_per_byte(reading, object, "copy_us_per_byte");
  costs.turn_us = reading.number(object, "turn_us", 0, kMostUs, 0);
  costs.call_us = reading.number(object, "call_us", 0, kMostUs, 0);
  costs.memory_us_per_byte = reading.number(object, "memory_us_per_byte", 0, kMostUs, 0);
  return costs;
}

}  // namespace tutti::internal::selection

#include "transport/verbs/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>

#include "base/config.h"
#include "base/first_use.h"

namespace tutti::internal::transport::verbs {
namespace {

// One key: its valid values in words, and how to store a value. False: the value is invalid.
struct Key {
  const char* name;
  const char* takes;
  std::function<bool(const std::string& value, Options* options)> read;
};

Key number(const char* name, const char* takes, int Options::*field, int low, int high) {
  return {name, takes, [field, low, high](const std::string& value, Options* options) {
            const auto parsed = parse_integer(value, low, high);
            if (parsed) options->*field = static_cast<int>(*parsed);
            return parsed.has_value();
          }};
}

// "mlx5_0" or "mlx5_0:1"
bool is_port_name(const std::string& text) {
  const std::size_t colon = text.find(':');
  return !text.substr(0, colon).empty() &&
         (colon == std::string::npos || parse_integer(text.substr(colon + 1), 1, 255).has_value());
}

bool read_devices(const std::string& value, Options* options) {
  std::vector<std::string> devices;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find('+', begin), value.size());
    std::string one = value.substr(begin, end - begin);
    if (!is_port_name(one) || std::find(devices.begin(), devices.end(), one) != devices.end()) return false;
    devices.push_back(std::move(one));
    begin = end + 1;
  }
  options->devices = std::move(devices);
  return true;
}

bool read_mtu(const std::string& value, Options* options) {
  constexpr std::array kPathMtus = {256, 512, 1024, 2048, 4096};
  const auto bytes = parse_integer(value, kPathMtus.front(), kPathMtus.back());
  if (!bytes || std::find(kPathMtus.begin(), kPathMtus.end(), *bytes) == kPathMtus.end()) return false;
  options->mtu_bytes = static_cast<int>(*bytes);
  return true;
}

// The upper bit of a partition key is the kind of membership; the rest is never 0 (InfiniBand spec. 10.9.1.1).
bool read_pkey(const std::string& value, Options* options) {
  const bool hex = value.starts_with("0x") || value.starts_with("0X");
  int key = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data() + (hex ? 2 : 0), end, key, hex ? 16 : 10);
  if (error != std::errc{} || stop != end || key < 1 || key > 0xffff || (key & 0x7fff) == 0) return false;
  options->pkey = key;
  return true;
}

bool read_connect(const std::string& value, Options* options) {
  if (value == "auto") options->connect = Connect::kAuto;
  if (value == "exchange") options->connect = Connect::kExchange;
  if (value == "cm") options->connect = Connect::kManager;
  return value == "auto" || value == "exchange" || value == "cm";
}

bool read_cache(const std::string& value, Options* options) {
  options->cache = value == "on";
  return value == "on" || value == "off";
}

const std::vector<Key>& keys() {
  static constinit FirstUse<const std::vector<Key>> all;
  return all.get([] {
    return std::vector<Key>{
        {"device", "NAME or NAME:PORT, several joined by +, none twice", &read_devices},
        number("gid_index", "a number from 0 to 255", &Options::gid_index, 0, kMostGidIndex),
        number("rails", "a number from 1 to 8", &Options::rails, 1, 8),
        number("queue_pairs", "a number from 1 to 8", &Options::queue_pairs, 1, 8),
        {"mtu", "256, 512, 1024, 2048 or 4096", &read_mtu},
        number("timeout", "a number from 1 to 31 (4.096 us * 2^timeout)", &Options::timeout, 1, 31),
        number("retries", "a number from 0 to 7", &Options::retries, 0, 7),
        number("traffic_class", "a number from 0 to 255", &Options::traffic_class, 0, 255),
        number("service_level", "a number from 0 to 15", &Options::service_level, 0, 15),
        {"pkey", "a partition key such as 0x8001", &read_pkey},
        {"connect", "auto, exchange or cm", &read_connect},
        {"cache", "on or off", &read_cache},
    };
  });
}

Status unknown_key(const std::string& pair, std::string_view name) {
  std::string names;
  for (const Key& key : keys()) names += (names.empty() ? "" : ", ") + std::string(key.name);
  return Status::invalid_usage(fmt::format("{}: \"{}\" is not key=value with one of the keys {}", name, pair, names));
}

}  // namespace

Result<Options> parse_options(const std::string& text, std::string_view name) {
  Options options;
  std::vector<const Key*> seen;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string pair = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = pair.find('=');
    const auto key = std::find_if(keys().begin(), keys().end(),
                                  [&](const Key& candidate) { return pair.substr(0, equals) == candidate.name; });
    if (equals == std::string::npos || key == keys().end()) return unknown_key(pair, name);
    if (std::find(seen.begin(), seen.end(), &*key) != seen.end()) {
      return Status::invalid_usage(fmt::format("{}: {} is given twice", name, key->name));
    }
    seen.push_back(&*key);
    if (!key->read(pair.substr(equals + 1), &options)) {
      return Status::invalid_usage(fmt::format("{}: \"{}\": {} takes {}", name, pair, key->name, key->takes));
    }
  }
  return options;
}

}  // namespace tutti::internal::transport::verbs

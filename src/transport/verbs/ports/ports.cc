// What ports know of each other without a device: their text, and which of two ranks' ports belong together.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string_view>
#include <tuple>

#include "base/config.h"
#include "transport/verbs/ports/devices.h"

namespace tutti::internal::transport::verbs {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";
constexpr std::size_t kFields = 14;

// Names come from the administrator: whatever could be taken for a separator is written as %xx.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("._:/-").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += {'%', kHexDigits[byte >> 4], kHexDigits[byte & 15]};
    }
  }
  return out;
}

std::optional<unsigned> parse_hex(std::string_view text) {
  unsigned value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc{} || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::string> unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const auto byte = parse_hex(std::string_view(text).substr(i + 1, 2));
    if (!byte) return std::nullopt;
    out += static_cast<char>(*byte);
    i += 2;
  }
  return out;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string to_text(const Port& p) {
  std::string gid;
  for (const std::uint8_t byte : p.gid) gid += {kHexDigits[byte >> 4], kHexDigits[byte & 15]};
  char gbits[32];
  std::snprintf(gbits, sizeof gbits, "%g", p.gbits);
  std::string out;
  for (const std::string& field :
       {escaped(p.device), std::to_string(p.port), std::to_string(static_cast<int>(p.fabric)),
        std::to_string(p.gid_index), gid, escaped(p.gid_type), escaped(p.netdev), escaped(p.address), escaped(p.subnet),
        std::to_string(p.lid), std::to_string(p.mtu_bytes), std::string(gbits), std::to_string(p.numa_node)}) {
    out += field + ",";
  }
  return out + (p.near ? "near" : "far");
}

// Reads the fields of one port in their order; the first that is unreadable spoils the rest.
class Reader {
 public:
  explicit Reader(std::vector<std::string> fields) : fields_(std::move(fields)), good_(fields_.size() == kFields) {}

  template <class T>
  void number(T* out, std::int64_t low, std::int64_t high) {
    const auto value = parse_integer(next(), low, high);
    if (value) *out = static_cast<T>(*value);
    good_ = good_ && value.has_value();
  }
  void text(std::string* out) {
    auto value = unescaped(next());
    if (value) *out = std::move(*value);
    good_ = good_ && value.has_value();
  }
  void gid(std::array<std::uint8_t, 16>* out) {
    const std::string digits = next();
    good_ = good_ && digits.size() == 2 * out->size();
    for (std::size_t i = 0; good_ && i < out->size(); ++i) {
      const auto byte = parse_hex(std::string_view(digits).substr(2 * i, 2));
      good_ = byte.has_value();
      (*out)[i] = static_cast<std::uint8_t>(byte.value_or(0));
    }
  }
  void rate(double* out) {
    const std::string digits = next();
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), *out);
    good_ = good_ && error == std::errc{} && stop == digits.data() + digits.size() && std::isfinite(*out) && *out >= 0;
  }
  void nearness(bool* out) {
    const std::string word = next();
    *out = word == "near";
    good_ = good_ && (word == "near" || word == "far");
  }
  [[nodiscard]] bool good() const { return good_; }

 private:
  std::string next() { return at_ < fields_.size() ? fields_[at_++] : std::string(); }

  std::vector<std::string> fields_;
  std::size_t at_ = 0;
  bool good_ = false;
};

bool read_port(const std::string& text, Port* p) {
  Reader reader(split(text, ','));
  reader.text(&p->device);
  reader.number(&p->port, 1, 255);
  int fabric = 0;
  reader.number(&fabric, 0, static_cast<int>(Fabric::kIwarp));
  p->fabric = static_cast<Fabric>(fabric);
  reader.number(&p->gid_index, 0, kMostGidIndex);
  reader.gid(&p->gid);
  reader.text(&p->gid_type);
  reader.text(&p->netdev);
  reader.text(&p->address);
  reader.text(&p->subnet);
  reader.number(&p->lid, 0, 65535);
  reader.number(&p->mtu_bytes, 256, 4096);
  reader.rate(&p->gbits);
  reader.number(&p->numa_node, -1, 1 << 16);
  reader.nearness(&p->near);
  return reader.good();
}

// A GID of an IPv4 address reaches no IPv6 address, nor version 1 of RoCE version 2.
bool can_talk(const Port& a, const Port& b) {
  const auto is_ipv6 = [](const Port& p) { return p.address.find(':') != std::string::npos; };
  return a.fabric == b.fabric && a.gid_type == b.gid_type && is_ipv6(a) == is_ipv6(b);
}

bool same_subnet(const Port& a, const Port& b) {
  return !a.subnet.empty() && a.subnet == b.subnet;
}

// What a machine's ports, divided among its ranks, leave for one.
int share_of(std::size_t ports, int ranks) {
  return std::clamp(static_cast<int>(ports) / std::max(ranks, 1), 1, kMostChosenRails);
}

// The place of each port in a rank's preference: near ones first, and of these as many further as the ranks before
// it take.
std::vector<int> places(const std::vector<Port>& ports, Seat seat, int rails) {
  std::vector<int> order;
  for (const bool near : {true, false}) {
    const std::size_t begin = order.size();
    for (std::size_t i = 0; i < ports.size(); ++i) {
      if (ports[i].near == near) order.push_back(static_cast<int>(i));
    }
    const auto count = static_cast<std::int64_t>(order.size() - begin);
    if (count == 0) continue;
    const std::int64_t turn = (std::int64_t{std::max(seat.index, 0)} * rails) % count;
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
    std::rotate(first, first + turn, order.end());
  }
  std::vector<int> place(ports.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  return place;
}

}  // namespace

const char* name_of(Fabric fabric) {
  switch (fabric) {
    case Fabric::kInfiniband: return "InfiniBand";
    case Fabric::kRoce: return "RoCE";
    case Fabric::kIwarp: return "iWARP";
  }
  return "?";
}

std::string to_text(const std::vector<Port>& ports) {
  std::string out;
  for (const Port& port : ports) {
    if (!out.empty()) out += ';';
    out += to_text(port);
  }
  return out;
}

Result<std::vector<Port>> ports_from_text(const std::string& text) {
  std::vector<Port> ports;
  if (text.empty()) return ports;
  for (const std::string& one : split(text, ';')) {
    Port port;
    if (ports.size() == kMaxRails || !read_port(one, &port)) {
      return Status::remote("a peer's description of its RDMA ports cannot be read: \"" + text + "\"");
    }
    ports.push_back(std::move(port));
  }
  return ports;
}

std::vector<Rail> pair_ports(const std::vector<Port>& a, Seat seat_a, const std::vector<Port>& b, Seat seat_b,
                             int wanted_rails) {
  const int rails =
      wanted_rails > 0 ? wanted_rails : std::min(share_of(a.size(), seat_a.ranks), share_of(b.size(), seat_b.ranks));
  const std::vector<int> place_a = places(a, seat_a, rails);
  const std::vector<int> place_b = places(b, seat_b, rails);
  // Best first: few far ports, then ports of one name, which a network that is wired by rails joins, then the lower
  // rank's wish, then the other's.
  const auto name = [](const Port& port) { return std::tie(port.device, port.port); };
  std::vector<std::tuple<int, int, int, Rail>> candidates;
  for (const bool subnets : {true, false}) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < b.size(); ++j) {
        if (!can_talk(a[i], b[j]) || (subnets && !same_subnet(a[i], b[j]))) continue;
        const int rank = 2 * (!a[i].near + !b[j].near) + (name(a[i]) == name(b[j]) ? 0 : 1);
        candidates.emplace_back(rank, place_a[i], place_b[j], Rail{static_cast<int>(i), static_cast<int>(j)});
      }
    }
    if (!candidates.empty()) break;
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& x, const auto& y) {
    return std::tie(std::get<0>(x), std::get<1>(x), std::get<2>(x)) <
           std::tie(std::get<0>(y), std::get<1>(y), std::get<2>(y));
  });
  std::vector<Rail> chosen;
  for (const auto& candidate : candidates) {
    const Rail& rail = std::get<Rail>(candidate);
    const bool taken =
        std::any_of(chosen.begin(), chosen.end(), [&](const Rail& r) { return r.a == rail.a || r.b == rail.b; });
    // What connects them must be the same for all.
    const bool same_fabric =
        chosen.empty() || a[static_cast<std::size_t>(rail.a)].fabric == a[static_cast<std::size_t>(chosen[0].a)].fabric;
    if (!taken && same_fabric && static_cast<int>(chosen.size()) < rails) chosen.push_back(rail);
  }
  return chosen;
}

}  // namespace tutti::internal::transport::verbs

#include "topology/graph_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

namespace tutti::internal::topology {
namespace {

constexpr double kMostRate = 1e9;
constexpr double kMostLatency = 1e12;

Speed read_speed(JsonReading& reading, const JsonValue& object) {
  return {reading.number(object, "gbytes_per_second", 0, kMostRate, 0),
          reading.number(object, "latency_us", 0, kMostLatency, 0)};
}

// Makes the nodes of an object, `count` times, with their descendants.
class Reader {
 public:
  explicit Reader(const JsonFile& file) : reading_(file) {}

  Result<Graph> run(const JsonValue& root) {
    reading_.allow(root, {"format", "version", "root", "ranks", "facts"});
    reading_.require(root, {"root"});
    const JsonValue* top = reading_.object(root, "root");
    if (top != nullptr && nodes_of(*top) > static_cast<double>(kMostNodes)) {
      reading_.fail(*top, fmt::format("has more than {} nodes", kMostNodes));
    } else if (top != nullptr) {
      add(*top, -1, std::string());
    }
    resolve_ports();
    add_ranks(root);
    if (!reading_.status().is_ok()) return reading_.status();
    if (Status s = graph_.check(); !s.is_ok()) {
      reading_.fail(root, s.message());
      return reading_.status();
    }
    return std::move(graph_);
  }

 private:
  [[nodiscard]] bool ok() const { return reading_.status().is_ok(); }

  // Counts multiply. Invalid values count as 0; they are reported later.
  static double nodes_of(const JsonValue& object) {
    double all = 1;
    if (const JsonValue* below = object.find("nodes"); below != nullptr) {
      for (const JsonValue& child : below->items) all += nodes_of(child);
    }
    const JsonValue* count = object.find("count");
    return count != nullptr && count->number > 1 ? all * count->number : all;
  }

  void add(const JsonValue& object, std::int32_t parent, const std::string& parent_path) {
    reading_.allow(object, {"kind", "name", "count", "first", "up", "leads_to", "out", "about", "processors", "pci",
                            "memory_bytes", "nodes", "links"});
    reading_.require(object, {"kind", "name"});
    const std::string name = reading_.text(object, "name", "");
    const bool many = object.find("count") != nullptr;
    const std::int64_t count = reading_.integer(object, "count", 1, kMostNodes, 1);
    const std::int64_t first = reading_.integer(object, "first", 0, 9'999'999, 0);
    if (many && parent < 0) reading_.fail(object, "the root cannot have a count");
    for (std::int64_t i = 0; i < count && ok(); ++i) {
      add_one(object, many ? fmt::format("{}{}", name, first + i) : name, parent, parent_path);
    }
  }

  void add_one(const JsonValue& object, const std::string& name, std::int32_t parent, const std::string& parent_path) {
    Node node;
    node.kind = read_kind(object);
    node.name = name;
    node.parent = parent;
    if (const JsonValue* up = speed_of(object, "up"); up != nullptr) node.up = read_speed(reading_, *up);
    if (const JsonValue* out = speed_of(object, "out"); out != nullptr) node.out = read_speed(reading_, *out);
    node.about = reading_.text(object, "about", "");
    node.processors = reading_.text(object, "processors", "");
    node.pci = reading_.text(object, "pci", "");
    node.memory_bytes = static_cast<std::uint64_t>(reading_.integer(object, "memory_bytes", 0, INT64_MAX, 0));
    const auto number = static_cast<std::int32_t>(graph_.nodes.size());
    graph_.nodes.push_back(std::move(node));
    const std::string path = parent_path.empty() ? name : parent_path + "/" + name;
    const bool known = !numbers_.emplace(parent < 0 ? name : path, number).second;
    if (known) return reading_.fail(object, fmt::format("\"{}\" exists already", path));
    if (const JsonValue* to = object.find("leads_to"); to != nullptr) {
      ports_.emplace_back(number, to);
    } else if (graph_.nodes.back().kind == NodeKind::kPort) {
      const std::int32_t host = graph_.host_of(number);
      if (host >= 0) graph_.nodes.back().leads_to = graph_.nodes[static_cast<std::size_t>(host)].parent;
    }
    const std::string below = parent < 0 ? std::string() : path;
    for (const JsonValue& child : reading_.list(object, "nodes")) {
      if (!ok() || !reading_.is_object(child)) return;
      add(child, number, below);
    }
    for (const JsonValue& link : reading_.list(object, "links")) {
      if (!ok() || !reading_.is_object(link)) return;
      add_link(link, below);
    }
  }

  NodeKind read_kind(const JsonValue& object) {
    const std::string kind = reading_.text(object, "kind", "");
    for (int i = 0; i < kNodeKinds; ++i) {
      if (kind == name_of(static_cast<NodeKind>(i))) return static_cast<NodeKind>(i);
    }
    const JsonValue* found = object.find("kind");
    reading_.fail(found != nullptr ? *found : object, "is not network, host, package, numa, pci, gpu or port");
    return NodeKind::kHost;
  }

  const JsonValue* speed_of(const JsonValue& object, const char* name) {
    const JsonValue* speed = reading_.object(object, name);
    if (speed != nullptr) reading_.allow(*speed, {"gbytes_per_second", "latency_us"});
    return speed;
  }

  // Names below the node that has the link.
  void add_link(const JsonValue& object, const std::string& below) {
    reading_.allow(object, {"kind", "between", "gbytes_per_second", "latency_us"});
    reading_.require(object, {"kind", "between"});
    CrossLink link;
    link.kind = reading_.text(object, "kind", "");
    link.speed = read_speed(reading_, object);
    for (const JsonValue& end : reading_.list(object, "between")) {
      if (!reading_.is_text(end)) return;
      const auto found = numbers_.find(below.empty() ? end.text : below + "/" + end.text);
      if (found == numbers_.end()) return reading_.fail(end, fmt::format("\"{}\" does not exist here", end.text));
      link.nodes.push_back(found->second);
    }
    graph_.links.push_back(std::move(link));
  }

  void resolve_ports() {
    for (const auto& [port, to] : ports_) {
      if (!ok() || !reading_.is_text(*to)) return;
      const auto found = numbers_.find(to->text);
      if (found == numbers_.end()) return reading_.fail(*to, fmt::format("\"{}\" does not exist", to->text));
      graph_.nodes[static_cast<std::size_t>(port)].leads_to = found->second;
    }
  }

  // Each entry is a path, or a path and a count.
  void add_ranks(const JsonValue& root) {
    for (const JsonValue& one : reading_.list(root, "ranks")) {
      if (!ok()) return;
      std::int64_t count = 1;
      const JsonValue* place = &one;
      if (one.kind == JsonValue::Kind::kObject) {
        reading_.allow(one, {"at", "count"});
        reading_.require(one, {"at"});
        count = reading_.integer(one, "count", 1, kMostNodes, 1);
        place = one.find("at");
      }
      if (place == nullptr || !reading_.is_text(*place)) return;
      const auto found = numbers_.find(place->text);
      if (found == numbers_.end()) return reading_.fail(*place, fmt::format("\"{}\" does not exist", place->text));
      if (static_cast<std::int64_t>(graph_.ranks.size()) + count > kMostNodes) {
        return reading_.fail(one, fmt::format("makes it more than {} ranks", kMostNodes));
      }
      graph_.ranks.insert(graph_.ranks.end(), static_cast<std::size_t>(count), found->second);
    }
  }

  JsonReading reading_;
  Graph graph_;
  std::unordered_map<std::string, std::int32_t> numbers_;  // by path
  std::vector<std::pair<std::int32_t, const JsonValue*>> ports_;
};

using Json = nlohmann::ordered_json;

Json json_of(const Speed& speed) {
  Json object = Json::object();
  if (speed.gbytes_per_second > 0) object["gbytes_per_second"] = speed.gbytes_per_second;
  if (speed.latency_us > 0) object["latency_us"] = speed.latency_us;
  return object;
}

class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph), children_(graph.nodes.size()), links_(graph.nodes.size()) {
    for (std::size_t i = 1; i < graph.nodes.size(); ++i) {
      children_[static_cast<std::size_t>(graph.nodes[i].parent)].push_back(static_cast<std::int32_t>(i));
    }
    for (const CrossLink& link : graph.links) links_[static_cast<std::size_t>(above(link))].push_back(&link);
  }

  std::string run() {
    Json all = {{"format", kTopologyFormat}, {"version", kTopologyVersion}, {"root", node_json(0)}};
    if (!graph_.ranks.empty()) all["ranks"] = ranks_json();
    return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  }

 private:
  [[nodiscard]] const Node& node(std::int32_t n) const { return graph_.nodes[static_cast<std::size_t>(n)]; }

  // The lowest node that contains all of its ends.
  [[nodiscard]] std::int32_t above(const CrossLink& link) const {
    std::int32_t meeting = node(link.nodes.front()).parent;
    for (const std::int32_t end : link.nodes) {
      std::int32_t other = node(end).parent;
      while (other != meeting) (other > meeting ? other : meeting) = node(std::max(other, meeting)).parent;
    }
    return meeting;
  }
  // The name of a descendant.
  [[nodiscard]] std::string path_below(std::int32_t top, std::int32_t n) const {
    std::string path = node(n).name;
    for (n = node(n).parent; n != top; n = node(n).parent) path = node(n).name + "/" + path;
    return path;
  }

  Json node_json(std::int32_t n) {
    const Node& one = node(n);
    Json object = {{"kind", name_of(one.kind)}, {"name", one.name}};
    if (!one.about.empty()) object["about"] = one.about;
    if (!one.processors.empty()) object["processors"] = one.processors;
    if (!one.pci.empty()) object["pci"] = one.pci;
    if (one.memory_bytes > 0) object["memory_bytes"] = one.memory_bytes;
    if (one.up != Speed{}) object["up"] = json_of(one.up);
    if (one.kind == NodeKind::kPort && one.leads_to >= 0) {
      if (one.leads_to != node(graph_.host_of(n)).parent) object["leads_to"] = graph_.path(one.leads_to);
    }
    if (one.out != Speed{}) object["out"] = json_of(one.out);
    if (const auto& below = children_[static_cast<std::size_t>(n)]; !below.empty()) {
      object["nodes"] = nodes_json(below);
    }
    for (const CrossLink* link : links_[static_cast<std::size_t>(n)]) {
      Json entry = {{"kind", link->kind}, {"between", Json::array()}};
      for (const std::int32_t end : link->nodes) entry["between"].push_back(path_below(n, end));
      entry.update(json_of(link->speed));
      object["links"].push_back(std::move(entry));
    }
    return object;
  }

  // Names as a word and a number without leading zeros.
  static bool split(const std::string& name, std::string& word, std::int64_t& number) {
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    if (digits == 0 || digits == name.size() || name.size() - digits > 7) return false;
    if (name[digits] == '0' && name.size() - digits > 1) return false;
    word = name.substr(0, digits);
    number = std::stoll(name.substr(digits));
    return true;
  }

  Json nodes_json(const std::vector<std::int32_t>& nodes) {
    Json list = Json::array();
    std::string last_word;
    std::int64_t next_number = -1;
    for (const std::int32_t n : nodes) {
      Json object = node_json(n);
      std::string word;
      std::int64_t number = -1;
      const bool numbered = split(node(n).name, word, number);
      if (numbered && word == last_word && number == next_number) {
        Json& before = list.back();
        Json bare = before;
        bare.erase("count");
        bare.erase("first");
        bare["name"] = node(n).name;
        if (bare == object) {
          const auto count = before.value("count", std::int64_t{1});
          if (count == 1) {
            before["name"] = word;
            if (number > 1) before["first"] = number - 1;
          }
          before["count"] = count + 1;
          ++next_number;
          continue;
        }
      }
      list.push_back(std::move(object));
      last_word = numbered ? word : std::string();
      next_number = numbered ? number + 1 : -1;
    }
    return list;
  }

  Json ranks_json() {
    Json list = Json::array();
    for (std::size_t i = 0; i < graph_.ranks.size();) {
      std::size_t end = i + 1;
      while (end < graph_.ranks.size() && graph_.ranks[end] == graph_.ranks[i]) ++end;
      const std::string path = graph_.path(graph_.ranks[i]);
      end - i == 1 ? list.push_back(path) : list.push_back({{"at", path}, {"count", end - i}});
      i = end;
    }
    return list;
  }

  const Graph& graph_;
  std::vector<std::vector<std::int32_t>> children_;
  std::vector<std::vector<const CrossLink*>> links_;  // by the lowest node above
};

}  // namespace

Result<Graph> graph_of(const JsonFile& file) {
  return Reader(file).run(*file.root);
}

Result<Graph> read_graph(const std::string& path) {
  auto text = read_text_file(path, kMostJsonBytes);
  if (!text.is_ok()) return text.status();
  const std::size_t first = (*text).find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (*text)[first] == '<') {
    return Status::invalid_argument(
        fmt::format("{}: the file is XML. Convert NCCL's XML with `tutti topo --topology {} --json`", path, path));
  }
  auto file = parse_json(std::move(*text), path, kTopologyFormat, kTopologyVersion);
  if (!file.is_ok()) return file.status();
  return graph_of(*file);
}

std::string to_json(const Graph& graph) {
  return Writer(graph).run();
}

}  // namespace tutti::internal::topology

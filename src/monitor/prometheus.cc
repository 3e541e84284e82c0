#include "monitor/prometheus.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/bus_factor.h"
#include "base/collectives.h"
#include "observe/measures.h"
#include "os/clock.h"

namespace tutti::internal::monitor {
namespace {

using observe::SeenMeasure;
using observe::SeenProcess;
using observe::SeenRank;

// "a\"b" for a"b.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string size_name(std::size_t size_class) {
  if (size_class + 1 == observe::kSizeClasses) return "above_" + size_name(size_class - 1).substr(6);
  std::uint64_t bytes = observe::limit_bytes(size_class);
  const char* unit = "B";
  for (const char* const larger : {"KiB", "MiB", "GiB"}) {
    if (bytes < 1024) break;
    bytes /= 1024;
    unit = larger;
  }
  return fmt::format("up_to_{}{}", bytes, unit);
}

std::string kind_name(int kind) {
  if (kind == observe::kSends) return "send";
  if (kind == observe::kReceives) return "recv";
  return std::string(name_of(static_cast<Collective>(kind)));
}

// Divisions, so that limits such as 4e-06 have their shortest form.
double seconds_of_ns(std::uint64_t ns) {
  return static_cast<double>(ns) / 1e9;
}
double seconds_of_ms(std::uint64_t ms) {
  return static_cast<double>(ms) / 1e3;
}

// A rank, and the labels that all of its series have.
struct Row {
  const SeenProcess* process = nullptr;
  const SeenRank* rank = nullptr;
  std::string labels;
};

class Text {
 public:
  explicit Text(const std::vector<SeenProcess>& processes) : processes_(processes) {
    for (const SeenProcess& process : processes) {
      for (const SeenRank& rank : process.ranks) {
        rows_.push_back({&process, &rank,
                         fmt::format("communicator=\"{:016x}\",rank=\"{}\",ranks=\"{}\",host=\"{}\",pid=\"{}\"",
                                     rank.communicator, rank.rank, rank.ranks, escaped(process.host), process.pid)});
      }
    }
  }

  std::string write() && {
    write_states();
    write_waits();
    write_operations();
    return std::move(text_);
  }

 private:
  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <class Value>
  void series(const std::string& labels, Value value) {
    text_ += fmt::format("{}{{{}}} {}\n", name_, labels, value);
  }
  template <class ValueOf>
  void each(ValueOf value_of) {
    for (const Row& row : rows_) series(row.labels, value_of(*row.rank));
  }
  // For each rank that measures.
  template <class Write>
  void each_measured(Write write) {
    for (const Row& row : rows_) {
      if (row.rank->measures) write(row, *row.rank->measures);
    }
  }
  // For each kind and size of the operations of each rank.
  template <class Write>
  void each_operation(Write write) {
    each_measured([&](const Row& row, const observe::SeenMeasures& measures) {
      for (const SeenMeasure& operation : measures.operations) {
        write(fmt::format("{},collective=\"{}\",size=\"{}\"", row.labels, kind_name(operation.kind),
                          size_name(operation.size_class)),
              operation, row.rank->ranks);
      }
    });
  }

  void write_states() {
    begin("tutti_process_info", "gauge", "A process with communicators, always 1.");
    for (const SeenProcess& process : processes_) {
      series(fmt::format("host=\"{}\",pid=\"{}\",program=\"{}\",version=\"{}\"", escaped(process.host), process.pid,
                         escaped(process.program), escaped(process.version)),
             1);
    }
    begin("tutti_stopped", "gauge", "Whether the process of the rank is stopped, or held by a debugger.");
    for (const Row& row : rows_) series(row.labels, row.process->stopped() ? 1 : 0);
    begin("tutti_failed", "gauge", "Whether the communicator has failed on the rank.");
    each([](const SeenRank& rank) { return rank.failure ? 1 : 0; });
    begin("tutti_calls_total", "counter", "Collectives that the rank has begun.");
    for (const Row& row : rows_) {
      for (std::size_t i = 0; i < row.rank->counts.size(); ++i) {
        const std::uint64_t count = row.rank->counts[i];
        if (count == 0) continue;
        series(fmt::format("{},collective=\"{}\"", row.labels, name_of(static_cast<Collective>(i))), count);
      }
    }
    begin("tutti_collective_number", "gauge", "The number of the collective that the rank has begun last.");
    each([](const SeenRank& rank) { return rank.number; });
    begin("tutti_inside", "gauge", "Whether the rank is inside an operation; of short ones only if they wait.");
    each([](const SeenRank& rank) { return rank.inside ? 1 : 0; });
    begin("tutti_waiting_seconds", "gauge", "For how long nothing has moved in the operation that the rank is in.");
    each([](const SeenRank& rank) { return rank.wait ? static_cast<double>(rank.wait->ms) / 1e3 : 0.0; });
    begin("tutti_waiting_for_rank", "gauge", "The first rank for which the rank waits; only while it waits.");
    for (const Row& row : rows_) {
      if (row.rank->wait && !row.rank->wait->ranks.empty()) series(row.labels, row.rank->wait->ranks.front());
    }
    begin("tutti_last_collective_age_seconds", "gauge", "The time since the rank has begun its last collective.");
    for (const Row& row : rows_) {
      const observe::SeenCall* const last = row.rank->last();
      if (last == nullptr || !last->begun_ns) continue;
      series(row.labels,
             seconds_of_ns(static_cast<std::uint64_t>(std::max<std::int64_t>(now_ns() - *last->begun_ns, 0))));
    }
  }

  void write_waits() {
    begin("tutti_waits_total", "counter", "Operations in which the rank waited for 50 ms or more.");
    each_measured([&](const Row& row, const auto& measures) { series(row.labels, measures.waits); });
    begin("tutti_waited_seconds_total", "counter", "The sum of the longest such wait of each operation.");
    each_measured([&](const Row& row, const auto& measures) { series(row.labels, seconds_of_ms(measures.waited_ms)); });
    begin("tutti_sent_bytes_total", "counter", "Bytes that the rank has sent to the ranks of a host over a transport.");
    each_sent([](const observe::SentTo& to) { return to.bytes; });
    begin("tutti_reconnects_total", "counter", "Broken connections to the ranks of a host that have been made anew.");
    each_sent([](const observe::SentTo& to) { return to.reconnects; });
    begin("tutti_waits_for_rank_total", "counter", "The part of tutti_waits_total in which this rank was awaited.");
    each_late([](const observe::SeenLate& late) { return late.waits; });
    begin("tutti_waited_seconds_for_rank_total", "counter",
          "The part of tutti_waited_seconds_total in which this rank was awaited.");
    each_late([](const observe::SeenLate& late) { return seconds_of_ms(late.waited_ms); });
  }
  template <class ValueOf>
  void each_sent(ValueOf value_of) {
    each_measured([&](const Row& row, const observe::SeenMeasures& measures) {
      for (const observe::SeenSent& sent : measures.sent) {
        series(fmt::format("{},transport=\"{}\",peer_host=\"{}\"", row.labels, escaped(sent.transport),
                           escaped(sent.host)),
               value_of(sent.to));
      }
    });
  }
  template <class ValueOf>
  void each_late(ValueOf value_of) {
    each_measured([&](const Row& row, const observe::SeenMeasures& measures) {
      for (const observe::SeenLate& late : measures.late) {
        series(fmt::format("{},awaited=\"{}\"", row.labels, late.rank), value_of(late));
      }
    });
  }

  void write_operations() {
    begin("tutti_operation_seconds", "histogram", "Times of operations that have ended well.");
    each_operation([&](const std::string& labels, const SeenMeasure& operation, int /*ranks*/) {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < observe::kBuckets; ++i) {
        sum += operation.calls[i];
        const bool last = i + 1 == observe::kBuckets;
        const std::string limit = last ? "+Inf" : fmt::format("{}", seconds_of_ns(observe::limit_us(i) * 1000));
        text_ += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name_, labels, limit, sum);
      }
      text_ += fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name_, labels, seconds_of_ns(operation.ns), name_,
                           labels, sum);
    });
    begin("tutti_operation_bytes_total", "counter", "The sizes of the vectors of these operations.");
    each_operation([&](const std::string& labels, const SeenMeasure& operation, int /*ranks*/) {
      series(labels, operation.bytes);
    });
    begin("tutti_operation_bus_bytes_total", "counter",
          "The same times the factor of the bus bandwidth, as in nccl-tests.");
    each_operation([&](const std::string& labels, const SeenMeasure& operation, int ranks) {
      series(labels, static_cast<double>(operation.bytes) * bus_factor_of(operation.kind, ranks));
    });
    begin("tutti_operation_waited_seconds_total", "counter",
          "The part of tutti_waited_seconds_total that these operations have.");
    each_operation([&](const std::string& labels, const SeenMeasure& operation, int /*ranks*/) {
      series(labels, seconds_of_ms(operation.waited_ms));
    });
  }
  static double bus_factor_of(int kind, int ranks) {
    return kind < kCollectives ? bus_factor(static_cast<Collective>(kind), ranks) : 1;
  }

  const std::vector<SeenProcess>& processes_;
  std::vector<Row> rows_;
  std::string name_;
  std::string text_;
};

}  // namespace

std::string prometheus_text(const std::vector<SeenProcess>& processes) {
  return Text(processes).write();
}

}  // namespace tutti::internal::monitor

// The C++ layer: types, owners, exceptions, and each collective once, between threads.
#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <type_traits>
#include <vector>

#include "catch_compat.h"

namespace {

using tutti::Communicator;
using tutti::Error;

static_assert(tutti::data_type_of<std::int8_t> == tuttiInt8 && tutti::data_type_of<char> <= tuttiUint8);
static_assert(tutti::data_type_of<unsigned> == tuttiUint32 && tutti::data_type_of<long long> == tuttiInt64);
static_assert(tutti::data_type_of<long> == tuttiInt64 && tutti::data_type_of<unsigned long> == tuttiUint64);
static_assert(tutti::data_type_of<short> == tuttiInt16 && tutti::data_type_of<char16_t> == tuttiUint16);
static_assert(tutti::data_type_of<bool> == tuttiBool && tutti::data_type_of<std::complex<float>> == tuttiComplex64);
static_assert(tutti::data_type_of<std::complex<double>> == tuttiComplex128);
static_assert(tutti::data_type_of<const float> == tuttiFloat32 && tutti::data_type_of<double> == tuttiFloat64);
static_assert(!std::is_copy_constructible_v<Communicator> && std::is_nothrow_move_constructible_v<Communicator>);
static_assert(!std::is_copy_constructible_v<tutti::Memory<int>> && !std::is_copy_assignable_v<tutti::Stream>);

struct Half {
  std::uint16_t bits;
};

// Runs body(comm) on one thread per rank; the first text that a rank returns or throws, or "".
std::string on_ranks(int ranks, const std::function<std::string(Communicator&)>& body) {
  std::vector<Communicator> comms = Communicator::in_process(ranks);
  std::vector<std::string> texts(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < comms.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        texts[i] = body(comms[i]);
      } catch (const std::exception& e) {
        texts[i] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (!texts[i].empty()) return "rank " + std::to_string(i) + ": " + texts[i];
  }
  return {};
}

// The result of an Error that `call` throws; tuttiSuccess if it throws none.
template <class Call>
tuttiResult_t thrown(Call call) {
  try {
    call();
  } catch (const Error& e) {
    return e.result();
  }
  return tuttiSuccess;
}

}  // namespace

template <>
struct tutti::DataTypeOf<Half> {
  static constexpr tuttiDataType_t value = tuttiFloat16;
};

TEST_CASE("a communicator is split") {
  CHECK(on_ranks(3, [](Communicator& comm) -> std::string {
          Communicator pair = comm.split(comm.rank() == 1 ? TUTTI_SPLIT_NOCOLOR : 4, -comm.rank());
          if (comm.rank() == 1) return pair.get() == nullptr ? "" : "a communicator without a color";
          if (pair.size() != 2 || pair.rank() != (comm.rank() == 2 ? 0 : 1)) return "another order";
          int sum = comm.rank();
          pair.all_reduce(&sum, &sum, 1);
          return sum == 2 ? "" : "a wrong sum";
        }) == "");
  CHECK(on_ranks(2, [](Communicator& comm) -> std::string {
          return thrown([&] { (void)comm.split(-3, 0); }) == tuttiInvalidArgument ? "" : "no error";
        }) == "");
}

TEST_CASE("ranks agree, and those that are not excluded make a communicator") {
  CHECK(on_ranks(3, [](Communicator& comm) -> std::string {
          const std::uint64_t bit = std::uint64_t{1} << comm.rank();
          if (comm.agree(~bit) != ~std::uint64_t{7}) return "a wrong flag";
          if (!comm.failed().empty()) return "a living rank counts as failed";
          if (comm.rank() == 1) return "";
          Communicator pair = comm.shrink({1}, TUTTI_SHRINK_ABORT);
          if (pair.size() != 2 || pair.rank() != comm.rank() / 2) return "another order";
          int sum = comm.rank();
          pair.all_reduce(&sum, &sum, 1);
          if (sum != 2) return "a wrong sum";
          return comm.async_error() == tuttiAborted ? "" : "the operations were not ended";
        }) == "");
  CHECK(on_ranks(1, [](Communicator& comm) -> std::string {
          return thrown([&] { (void)comm.shrink({0}); }) == tuttiInvalidArgument ? "" : "no error";
        }) == "");
}

// Over TCP: see tests/fault/grow_test.cc.
TEST_CASE("a communicator gets new ranks") {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.transports = "tcp";
  std::vector<Communicator> comms = Communicator::in_process(2, &config);
  const tuttiUniqueId id = comms[1].make_unique_id();
  std::vector<std::string> wrong(3);
  std::vector<std::thread> threads;
  for (const std::size_t rank : {0U, 1U, 2U}) {
    threads.emplace_back([&, rank] {
      try {
        Communicator all = rank == 2 ? Communicator(3, id, 2, &config) : comms[rank].grow(3, rank == 1 ? &id : nullptr);
        int sum = 1 + all.rank();
        all.all_reduce(&sum, &sum, 1);
        if (all.rank() != static_cast<int>(rank) || sum != 6) wrong[rank] = "a wrong rank or sum";
      } catch (const std::exception& e) {
        wrong[rank] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == std::vector<std::string>(3));
}

TEST_CASE("ranks go on without one that has ended") {
  std::vector<Communicator> comms = Communicator::in_process(3);
  comms[1].abort();
  std::vector<std::string> wrong(3);
  std::vector<std::thread> threads;
  for (const std::size_t rank : {0U, 2U}) {
    threads.emplace_back([&, rank] {
      try {
        Communicator rest = comms[rank].shrink({1});
        int sum = 1;
        rest.all_reduce(&sum, &sum, 1);
        if (rest.size() != 2 || sum != 2) wrong[rank] = "a wrong sum";
      } catch (const std::exception& e) {
        wrong[rank] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == std::vector<std::string>(3));
}

TEST_CASE("every collective through C++") {
  const std::string wrong = on_ranks(3, [](Communicator& comm) -> std::string {
    const int rank = comm.rank();
    if (comm.size() != 3 || comm.async_error() != tuttiSuccess) return "size or state";
    if (comm.explain(tuttiCollectiveAllReduce, 64).find(" over ") == std::string::npos) return "explain";
    std::vector<int> mine{rank + 1, 10 * rank};
    std::vector<int> all(6);
    comm.all_reduce(mine, std::span(all).first(2));
    if (all[0] != 6 || all[1] != 30) return "all_reduce";
    comm.all_reduce(std::span(all).first(1), tuttiMax);
    if (all[0] != 6) return "all_reduce in place";
    comm.all_gather(mine, std::span(all));
    if (all != std::vector<int>{1, 0, 2, 10, 3, 20}) return "all_gather";
    comm.reduce_scatter(all, std::span(mine), tuttiProd);
    const std::vector<std::vector<int>> products{{1, 0}, {8, 1000}, {27, 8000}};
    if (mine != products[static_cast<std::size_t>(rank)]) return "reduce_scatter";
    std::vector<double> value{rank + 0.5};
    comm.broadcast(std::span(value), 2);
    if (value[0] != 2.5) return "broadcast";
    std::vector<double> sum(rank == 1 ? 1 : 0);
    comm.reduce(value, std::span(sum), 1, tuttiSum);
    if (rank == 1 && sum[0] != 7.5) return "reduce";
    std::vector<int> gathered(rank == 1 ? 6 : 0);
    comm.gather(std::vector<int>{rank, 5 * rank}, std::span(gathered), 1);
    if (rank == 1 && gathered != std::vector<int>{0, 0, 1, 5, 2, 10}) return "gather";
    const std::vector<int> parts = rank == 2 ? std::vector<int>{7, 8, 9, 10, 11, 12} : std::vector<int>();
    comm.scatter(parts, std::span(mine), 2);
    if (mine != std::vector<int>{7 + 2 * rank, 8 + 2 * rank}) return "scatter";
    const std::vector<int> letters{10 * rank, 10 * rank + 1, 10 * rank + 2};
    std::vector<int> received(3);
    comm.all_to_all(letters, std::span(received));
    if (received != std::vector<int>{rank, 10 + rank, 20 + rank}) return "all_to_all";
    comm.scan(letters, std::span(received), tuttiMax);
    if (received != letters) return "scan";
    comm.exscan(letters, std::span(received));
    const int before = 10 * (rank * (rank - 1) / 2);
    if (rank > 0 && received != std::vector<int>{before, before + rank, before + 2 * rank}) return "exscan";
    Half one{0x3c00};
    comm.all_reduce(&one, &one, 1);
    if (one.bits != 0x4200) return "all_reduce of a type of the user's";
    comm.barrier();
    return {};
  });
  CHECK(wrong == "");
}

// x -> factor x + offset.
struct Affine {
  float factor;
  float offset;
};

template <>
struct tutti::DataTypeOf<Affine> {
  static constexpr tuttiDataType_t value = tuttiComplex64;
};

TEST_CASE("user-defined operators through C++") {
  static_assert(!std::is_copy_constructible_v<tutti::Operator> &&
                std::is_nothrow_move_constructible_v<tutti::Operator>);
  const std::string wrong = on_ranks(3, [](Communicator& comm) -> std::string {
    const int rank = comm.rank();
    const auto after_each_other = [](const Affine& a, const Affine& b) {
      return Affine{a.factor * b.factor, b.factor * a.offset + b.offset};
    };
    const auto then = tutti::Operator::of<Affine>(comm, after_each_other, false);
    Affine mine{2, static_cast<float>(rank)};
    comm.all_reduce(&mine, &mine, 1, then);
    if (mine.factor != 8 || mine.offset != 4) return "non-commutative";
    int calls = 0;
    auto count = tutti::Operator::of<int>(comm, [&calls](int a, int b) { return ++calls, a * 10 + b - a * 10 + a; });
    tutti::Operator moved = std::move(count);
    std::vector<int> values(100, rank + 1);
    tutti::Stream stream;
    const std::vector<int> given = values;
    comm.reduce(std::span(given), std::span(values), 0, moved, &stream);
    stream.synchronize();
    if (rank == 0 && (values[99] != 6 || calls == 0)) return "commutative";
    moved = tutti::Operator::pre_multiplied_sum(comm, rank - 0.5);
    std::vector<double> ones(5, 1.0);
    comm.all_reduce(std::span(ones), moved);
    if (ones[4] != 1.5) return "pre-multiplied sum";
    if (thrown([&] { comm.all_reduce(std::span(values), moved); }) != tuttiInvalidArgument) return "another datatype";
    const auto stale = static_cast<tuttiRedOp_t>(moved);
    moved = tutti::Operator::of<int>(comm, [](int a, int) { return a; });
    count = std::move(moved);
    comm.all_reduce(std::span(ones), tuttiMax);
    return thrown([&] { comm.all_reduce(std::span(ones), stale); }) == tuttiInvalidArgument ? "" : "stale";
  });
  CHECK(wrong == "");
}

TEST_CASE("an average that multiplies first does not overflow if the sum does") {
  const std::string wrong = on_ranks(2, [](Communicator& comm) -> std::string {
    const auto mean = tutti::Operator::pre_multiplied_sum(comm, Half{0x3800});  // 1/2
    std::vector<Half> values(1000, Half{0x7b53});                               // 60,000
    comm.all_reduce(values, tuttiAvg);
    if (values[999].bits != 0x7c00) return "the sum of float16 does not overflow any more: say so in from_nccl.md";
    values.assign(1000, Half{0x7b53});
    comm.all_reduce(values, mean);
    if (values[0].bits != 0x7b53 || values[999].bits != 0x7b53) return "float16";
    const std::uint8_t half = 0x30;  // of float8e4m3
    std::uint8_t elements[100];
    std::fill(std::begin(elements), std::end(elements), std::uint8_t{0x79});  // 288
    tuttiRedOp_t small = tuttiSum;
    if (tuttiRedOpCreatePreMulSum(&small, const_cast<std::uint8_t*>(&half), tuttiFloat8e4m3, tuttiScalarHostImmediate,
                                  comm.get()) != tuttiSuccess) {
      return "no operator";
    }
    (void)tuttiAllReduce(elements, elements, 100, tuttiFloat8e4m3, small, comm.get(), nullptr);
    if (elements[0] != 0x79 || elements[99] != 0x79) return "float8";
    (void)tuttiAllReduce(elements, elements, 100, tuttiFloat8e4m3, tuttiAvg, comm.get(), nullptr);
    return elements[99] == 0x76 ? "" : "the sum of float8 does not saturate any more: say so in from_nccl.md";
  });
  CHECK(wrong == "");
}

// Twelve bytes, for which the C API has no datatype.
struct Extremes {
  float least;
  float most;
  std::int32_t where;
};

TEST_CASE("structures through C++") {
  static_assert(!tutti::has_data_type<Extremes> && tutti::has_data_type<Affine> && tutti::has_data_type<const int>);
  const std::string wrong = on_ranks(3, [](Communicator& comm) -> std::string {
    const int rank = comm.rank();
    const auto wider = tutti::Operator::of<Extremes>(comm, [](const Extremes& a, const Extremes& b) {
      return Extremes{std::min(a.least, b.least), std::max(a.most, b.most), a.most < b.most ? b.where : a.where};
    });
    const auto at = [](int r, int i) {
      const auto x = static_cast<float>(i);
      return Extremes{-x - static_cast<float>(r), r == 1 ? x + 10 : x, r};
    };
    std::vector<Extremes> mine;
    for (int i = 0; i < 10'000; ++i) mine.push_back(at(rank, i));
    std::vector<Extremes> all(30'000);
    comm.all_gather(std::span<const Extremes>(mine), std::span(all));
    for (int i = 0; i < 30'000; ++i) {
      if (all[static_cast<std::size_t>(i)].least != at(i / 10'000, i % 10'000).least) return "all-gather";
    }
    comm.all_reduce(std::span(mine), wider);
    for (int i = 0; i < 10'000; ++i) {
      const Extremes& e = mine[static_cast<std::size_t>(i)];
      if (e.least != at(2, i).least || e.most != at(1, i).most || e.where != 1) return "all-reduce";
    }
    if (thrown([&] { comm.all_reduce(std::span(mine)); }) != tuttiInvalidArgument) return "a sum of structures";
    Communicator moved = std::move(comm);
    moved.broadcast(std::span(mine), 0);
    const bool refused = thrown([&] { comm.broadcast(std::span(mine), 0); }) == tuttiInvalidArgument;
    comm = std::move(moved);
    return refused ? "" : "a communicator that was moved from";
  });
  CHECK(wrong == "");
}

TEST_CASE("streams, events and memory through C++") {
  const std::string wrong = on_ranks(2, [](Communicator& comm) -> std::string {
    tutti::Memory<float> data(50'000);
    tutti::Memory<float> moved(1);
    for (float& x : data) x += 1;  // zero-filled before
    moved = std::move(data);
    if (moved.size() != 50'000 || data.size() != 0 || data.data() != nullptr) return "move";
    tutti::Stream stream;
    if (!stream.query()) return "an empty stream is busy";
    comm.all_reduce(std::span(moved.data(), moved.size()), tuttiSum, &stream);
    tutti::Event event;
    if (!event.query()) return "an event that was never recorded is not complete";
    event.record(stream);
    tutti::Stream behind;
    behind.wait(event);
    behind.synchronize();
    if (!event.query()) return "a stream that waits for an event does not wait";
    event.synchronize();
    if (!event.query()) return "an event that has been waited for is not complete";
    comm.all_reduce(std::span(moved.data(), moved.size()), tuttiSum, &stream);
    stream.synchronize();
    return moved[0] == 4 && moved[49'999] == 4 ? "" : "result";
  });
  CHECK(wrong == "");
}

TEST_CASE("errors are exceptions with result and text") {
  Communicator comm = std::move(Communicator::in_process(1).front());
  std::vector<int> three(3);
  std::vector<int> two(2);
  CHECK(thrown([&] { comm.broadcast(std::span(two), 1); }) == tuttiInvalidArgument);
  CHECK(thrown([&] { comm.all_reduce(three, std::span(two)); }) == tuttiInvalidArgument);
  CHECK(thrown([&] { comm.all_gather(three, std::span(two)); }) == tuttiInvalidArgument);
  CHECK(thrown([&] { comm.reduce_scatter(three, std::span(two)); }) == tuttiInvalidArgument);
  CHECK(thrown([&] { comm.reduce(three, std::span(two), 0); }) == tuttiInvalidArgument);
  CHECK(thrown([&] { comm.gather(three, std::span(two), 0); }) == tuttiInvalidArgument);
  CHECK(thrown([&] { comm.scatter(three, std::span(two), 0); }) == tuttiInvalidArgument);
  CHECK(thrown([&] { comm.all_to_all(three, std::span(two)); }) == tuttiInvalidArgument);
  CHECK(thrown([&] { comm.scan(three, std::span(two)); }) == tuttiInvalidArgument);
  CHECK(thrown([&] { comm.scan(two, std::span(two), tuttiAvg); }) == tuttiInvalidArgument);
  CHECK(thrown([&] { comm.exscan(two, std::span(two), tuttiAvg); }) == tuttiInvalidArgument);
  CHECK(thrown([] { (void)Communicator::in_process(0); }) == tuttiInvalidArgument);
  CHECK(thrown([] { (void)Communicator().rank(); }) == tuttiInvalidArgument);
  try {
    comm.broadcast(std::span(two), 7);
    FAIL("a root outside the communicator was accepted");
  } catch (const Error& e) {
    CHECK(std::string(e.what()).find("root 7") != std::string::npos);
  }
  CHECK_NOTHROW(comm.all_reduce(std::span(two)));
  comm.finalize();
  CHECK(thrown([&] { comm.all_reduce(std::span(two)); }) == tuttiInvalidUsage);
}

TEST_CASE("a job by unique id, and its abort, through C++") {
  const tuttiUniqueId id = tutti::make_unique_id();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
      config.timeout_ms = 60'000;
      Communicator comm(2, id, rank, &config);
      std::int64_t sum = rank + 1;
      comm.all_reduce(&sum, &sum, 1);
      if (sum == 3) ++right;
      if (rank == 0) {
        comm.abort();
        // The owner still has its handle, which any thread may be using; it has ended.
        if (thrown([&] { comm.barrier(); }) == tuttiInvalidArgument) ++right;
      } else {
        const tuttiResult_t result = thrown([&] { comm.barrier(); });
        if (result == tuttiAborted) ++right;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(right == 4);
}

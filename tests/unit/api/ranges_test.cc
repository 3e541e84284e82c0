// Ranges and groups through C++17, and once more through C++20, where spans are ranges, too.
#include <array>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "catch_compat.h"

namespace {

using tutti::Communicator;

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
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return {};
}

// Whether `call` is refused with tuttiInvalidArgument.
template <class Call>
bool refused(Call call) {
  try {
    call();
  } catch (const tutti::Error& e) {
    return e.result() == tuttiInvalidArgument;
  }
  return false;
}

template <class Range>
void fill(Range& range, int first) {
  for (auto& value : range) value = first++;
}

TEST_CASE("ranges: collectives take vectors, arrays and mapped memory") {
  const std::string wrong = on_ranks(2, [](Communicator& comm) -> std::string {
    const int rank = comm.rank();
    std::array<int, 2> mine{rank, rank + 10};
    std::vector<int> sum(2);
    comm.all_reduce(mine, sum);
    if (sum != std::vector<int>{1, 21}) return "all_reduce";
    tutti::Memory<int> mapped(2);
    fill(mapped, rank);
    comm.all_reduce(mapped, tuttiMax);
    if (mapped[0] != 1 || mapped[1] != 2) return "all_reduce in place of mapped memory";
    std::array<int, 4> all{};
    comm.all_gather(mine, all);
    if (all != std::array<int, 4>{0, 10, 1, 11}) return "all_gather";
    comm.reduce_scatter(all, sum);
    if (sum != (rank == 0 ? std::vector<int>{0, 20} : std::vector<int>{2, 22})) return "reduce_scatter";
    std::vector<int> sent{rank * 7, 1};
    comm.broadcast(sent, 1);
    if (sent[0] != 7) return "broadcast";
    std::vector<int> at_root(rank == 0 ? 4 : 0);
    comm.gather(mine, at_root, 0);
    if (rank == 0 && at_root != std::vector<int>{0, 10, 1, 11}) return "gather";
    comm.scatter(at_root, sum, 0);
    if (sum != (rank == 0 ? std::vector<int>{0, 10} : std::vector<int>{1, 11})) return "scatter";
    comm.reduce(mine, sum, 1, tuttiProd);
    if (rank == 1 && sum != std::vector<int>{0, 110}) return "reduce";
    comm.all_to_all(mine, sum);
    if (sum != (rank == 0 ? std::vector<int>{0, 1} : std::vector<int>{10, 11})) return "all_to_all";
    comm.scan(mine, sum);
    comm.exscan(mine, sum);
    return rank == 0 || sum == std::vector<int>{0, 10} ? "" : "exscan";
  });
  CHECK(wrong == "");
}

TEST_CASE("ranges: blocks of different counts") {
  const std::string wrong = on_ranks(2, [](Communicator& comm) -> std::string {
    const int rank = comm.rank();
    const std::vector<std::size_t> counts{1, 3};
    std::vector<double> mine(counts[static_cast<std::size_t>(rank)]);
    fill(mine, 10 * rank);
    std::vector<double> all(4);
    comm.all_gather_v(mine, all, counts);
    if (all != std::vector<double>{0, 10, 11, 12}) return "all_gather_v";
    comm.reduce_scatter_v(all, mine, counts);
    if (mine.back() != (rank == 0 ? 0 : 24)) return "reduce_scatter_v";
    std::vector<double> at_root(rank == 1 ? 4 : 0);
    comm.gather_v(mine, at_root, counts, 1);
    if (rank == 1 && at_root != std::vector<double>{0, 20, 22, 24}) return "gather_v";
    comm.scatter_v(at_root, counts, mine, 1);
    if (mine.back() != (rank == 0 ? 0 : 24)) return "scatter_v";
    const std::array<std::size_t, 2> to{static_cast<std::size_t>(rank), 2};
    const std::array<std::size_t, 2> from{rank == 0 ? std::size_t{0} : std::size_t{2},
                                          rank == 0 ? std::size_t{1} : std::size_t{2}};
    std::vector<int> sent(to[0] + to[1]);
    std::vector<int> received(from[0] + from[1]);
    fill(sent, 100 * rank);
    comm.all_to_all_v(sent, to, received, from);
    if (received != (rank == 0 ? std::vector<int>{100} : std::vector<int>{0, 1, 101, 102})) return "all_to_all_v";
    if (!refused([&] { comm.all_gather_v(mine, all, std::vector<std::size_t>{1, 2}); }))
      return "a wrong sum is accepted";
    if (!refused([&] { comm.all_gather_v(mine, all, std::vector<std::size_t>{4}); })) return "a wrong number of counts";
    if (!refused([&] { comm.all_gather_v(mine, all, std::vector<std::size_t>{3, 1}); }))
      return "another count for send";
    return {};
  });
  CHECK(wrong == "");
}

TEST_CASE("groups: sends and receives of ranges between neighbours") {
  const std::string wrong = on_ranks(3, [](Communicator& comm) -> std::string {
    const int rank = comm.rank();
    const std::vector<int> mine(1000, rank);
    std::vector<int> theirs(1000, -1);
    tutti::Group group;
    comm.send(mine, (rank + 1) % 3);
    comm.recv(theirs, (rank + 2) % 3);
    group.end();
    if (theirs.back() != (rank + 2) % 3) return "a ring";
    {
      tutti::Group outer;
      tutti::Group inner;
      comm.send(mine, (rank + 2) % 3);
      inner.end();
      comm.recv(theirs, (rank + 1) % 3);
    }
    if (theirs.back() != (rank + 1) % 3) return "a nested group that ends with its block";
    // Pointers and arrays of C go by their counts.
    int one[2] = {rank, rank};
    int other[2] = {-1, -1};
    tutti::Group third;
    comm.send(one, 2, (rank + 1) % 3);
    comm.recv(&other[0], 2, (rank + 2) % 3);
    third.end();
    return other[1] == (rank + 2) % 3 ? "" : "arrays";
  });
  CHECK(wrong == "");
}

TEST_CASE("groups: nothing is started if an exception leaves the block") {
  const std::string wrong = on_ranks(2, [](Communicator& comm) -> std::string {
    std::vector<int> mine(10, comm.rank());
    try {
      const tutti::Group group;
      comm.all_reduce(mine);
      throw std::runtime_error("stop");
    } catch (const std::runtime_error&) {
    }
    if (mine[9] != comm.rank()) return "the group was started";
    // The thread is in no group any more.
    comm.all_reduce(mine);
    return mine[9] == 1 ? "" : "the next call";
  });
  CHECK(wrong == "");
  tutti::Group group;
  CHECK(refused([&] { Communicator().barrier(); }));
  CHECK(refused([&] { group.end(); }));
}

#if __cplusplus >= 202002L
TEST_CASE("ranges: spans, also where another range is the other side") {
  const std::string wrong = on_ranks(2, [](Communicator& comm) -> std::string {
    std::vector<float> mine(4, 1);
    std::array<float, 2> sum{};
    comm.all_reduce(std::span<const float>(mine).first(2), sum);
    if (sum[1] != 2) return "all_reduce";
    comm.all_reduce(sum, std::span(mine).subspan(2));
    if (mine[3] != 4 || mine[1] != 1) return "all_reduce into a part";
    if (comm.rank() == 0) comm.send(std::span(mine).last(1), 1);
    if (comm.rank() == 1) comm.recv(std::span(sum).first<1>(), 0);
    return comm.rank() == 0 || sum[0] == 4 ? "" : "send and recv";
  });
  CHECK(wrong == "");
}
#endif

}  // namespace

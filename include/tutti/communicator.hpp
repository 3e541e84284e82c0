// Part of tutti/tutti.hpp: communicators and what they do.
//
// Each call has a form with pointer and count, and one with contiguous ranges (std::vector, std::array, std::span),
// which checks that the ranges fit each other before any byte moves.
#ifndef TUTTI_COMMUNICATOR_HPP_
#define TUTTI_COMMUNICATOR_HPP_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "tutti/collectives.h"
#include "tutti/communicator.h"
#include "tutti/error.hpp"
#include "tutti/operators.h"
#include "tutti/range.hpp"
#include "tutti/stream.hpp"
#include "tutti/types.hpp"

namespace tutti {

// tuttiGetUniqueId.
inline tuttiUniqueId make_unique_id() {
  tuttiUniqueId id;
  check(tuttiGetUniqueId(&id));
  return id;
}

namespace detail {

// A destructor cannot throw what its caller should know: that ranks have called different things, or that a group of
// this thread still has calls of the communicator, which then stays.
inline tuttiResult_t destroy_and_tell(tuttiComm_t comm) noexcept {
  const tuttiResult_t result = tuttiCommDestroy(comm);
  if (result == tuttiMismatch || result == tuttiInvalidUsage)
    std::fprintf(stderr, "tutti: %s\n", tuttiGetLastError(nullptr));
  return result;
}

// A communicator's datatypes that are made here, by the bytes of an element. They are freed with it. Any thread.
class OpaqueTypes {
 public:
  tuttiDataType_t type_of(std::size_t element_bytes, tuttiComm_t comm) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = types_.find(element_bytes);
    if (known != types_.end()) return known->second;
    tuttiDataType_t made = tuttiUint8;
    check(tuttiTypeCreate(&made, element_bytes, comm), comm);
    return types_.emplace(element_bytes, made).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, tuttiDataType_t> types_;
};

}  // namespace detail

// One rank's communicator. The destructor finalizes it; if it then turns out that ranks have called different things,
// which no call has said yet, it writes that to standard error: call finalize() to have it thrown.
//
// Collectives: with `stream` null they return when the operation is complete; with a stream they queue it.
class Communicator {
 public:
  Communicator() = default;
  // Takes over a communicator of the C API.
  explicit Communicator(tuttiComm_t comm) noexcept : comm_(comm) {}
  // Joins the job of `id`. Collective.
  Communicator(int ranks, const tuttiUniqueId& id, int rank, const tuttiConfig_t* config = nullptr) {
    tuttiComm_t comm = nullptr;
    check(tuttiCommInitRankConfig(&comm, ranks, id, rank, config));
    comm_.reset(comm);
  }
  // Joins the job that the launcher describes in the environment. Collective.
  static Communicator from_environment(const tuttiConfig_t* config = nullptr) {
    tuttiComm_t comm = nullptr;
    check(tuttiCommInitEnv(&comm, config));
    return Communicator(comm);
  }
  // All communicators of a job whose ranks are threads of this process: element i is rank i's.
  static std::vector<Communicator> in_process(int ranks, const tuttiConfig_t* config = nullptr) {
    std::vector<tuttiComm_t> comms(static_cast<std::size_t>(ranks > 0 ? ranks : 0));
    check(tuttiCommInitAllConfig(comms.data(), ranks, nullptr, config));
    return {comms.begin(), comms.end()};
  }
  // Of the ranks with the same color >= 0, ordered by key; empty (get() is null) with TUTTI_SPLIT_NOCOLOR. Collective.
  [[nodiscard]] Communicator split(int color, int key, const tuttiConfig_t* config = nullptr) {
    tuttiComm_t comm = nullptr;
    check(tuttiCommSplit(get(), color, key, &comm, config), get());
    return Communicator(comm);
  }
  // Of the ranks that live and are not in `excluded`, in the order of their ranks. Collective over these ranks, which
  // pass the same `excluded`; also after a failure. `flags`: those of tuttiCommShrink. The text of an error is that of
  // this call, not of an earlier failure.
  [[nodiscard]] Communicator shrink(std::vector<int> excluded = {}, int flags = TUTTI_SHRINK_DEFAULT,
                                    const tuttiConfig_t* config = nullptr) {
    tuttiComm_t comm = nullptr;
    check(tuttiCommShrink(get(), excluded.data(), static_cast<int>(excluded.size()), &comm, config, flags));
    return Communicator(comm);
  }
  // Of `ranks` ranks: those of this communicator that live, which keep their ranks, and new ranks, which are
  // constructed with the same id and any free number. Collective over these ranks, also after a failure. At least
  // one rank of this communicator passes the id, which one of them has made; the others may pass nullptr. The text of
  // an error is that of this call, not of an earlier failure.
  [[nodiscard]] Communicator grow(int ranks, const tuttiUniqueId* id, const tuttiConfig_t* config = nullptr) {
    tuttiComm_t comm = nullptr;
    check(tuttiCommGrow(get(), ranks, id, -1, &comm, config));
    return Communicator(comm);
  }
  // The bitwise AND of the flags of all ranks that live: the same on all of them. Collective over these ranks, also
  // after a failure.
  [[nodiscard]] std::uint64_t agree(std::uint64_t flag) {
    check(tuttiCommAgree(get(), &flag));
    return flag;
  }
  // The ranks that have died, as found by agree(), shrink() and grow() so far: ascending. Any thread.
  [[nodiscard]] std::vector<int> failed() const { return list(tuttiCommGetFailed); }
  // The ranks whose data the last collective contains: all, except in survivor mode.
  [[nodiscard]] std::vector<int> contributors() const { return list(tuttiCommGetContributors); }

  // This rank's number, from 0.
  [[nodiscard]] int rank() const {
    int rank = 0;
    check(tuttiCommUserRank(get(), &rank));
    return rank;
  }
  // The number of ranks.
  [[nodiscard]] int size() const {
    int count = 0;
    check(tuttiCommCount(get(), &count));
    return count;
  }
  // tuttiSuccess, or the error that has failed the communicator. Any thread.
  [[nodiscard]] tuttiResult_t async_error() const {
    tuttiResult_t error = tuttiSuccess;
    check(tuttiCommGetAsyncError(get(), &error));
    return error;
  }
  // Of another communicator, for ranks that come later: one rank calls it and passes it on.
  [[nodiscard]] tuttiUniqueId make_unique_id() const {
    tuttiUniqueId id;
    check(tuttiCommGetUniqueId(get(), &id), get());
    return id;
  }
  // Which algorithm and transports serve a collective on a vector of `bytes` bytes, a line: "ring over shm".
  // With a larger buffer, tuttiCommExplain also writes the reason, and what other algorithms would take.
  [[nodiscard]] std::string explain(tuttiCollective_t collective, std::size_t bytes) const {
    char text[128];
    check(tuttiCommExplain(get(), collective, bytes, text, sizeof text), get());
    return text;
  }
  // Waits for what is queued and tells the peers that this rank leaves.
  void finalize() { check(tuttiCommFinalize(get()), get()); }
  // Ends all operations here and on the peers. Any thread, while others use the communicator: what they call
  // afterwards is refused with tuttiInvalidArgument.
  void abort() { check(tuttiCommAbort(get())); }
  // The same, but that the communicator stays: what others call on it afterwards gets tuttiAborted. Any thread.
  void revoke() { check(tuttiCommRevoke(get(), TUTTI_REVOKE_DEFAULT)); }
  // The communicator of the C API, still owned by this object; null if it is empty.
  [[nodiscard]] tuttiComm_t get() const noexcept { return comm_.get(); }
  // T's in the C API. A T that has none of its own there, such as a structure, gets one when it is first used: it is
  // moved as bytes, and combined by an Operator::of<T>. Any thread.
  template <class T>
  [[nodiscard]] tuttiDataType_t data_type() const {
    static_assert(std::is_trivially_copyable_v<T>, "elements are moved as bytes");
    if constexpr (has_data_type<T>) {
      return data_type_of<T>;
    } else {
      require(opaque_ != nullptr, "the Communicator is empty or moved from");
      return opaque_->type_of(sizeof(T), get());
    }
  }

  // recv[i] = op over ranks of send[i].
  template <class T>
  void all_reduce(const T* send, T* recv, std::size_t count, tuttiRedOp_t op = tuttiSum, Stream* stream = nullptr) {
    check(tuttiAllReduce(send, recv, count, data_type<T>(), op, get(), raw(stream)), get());
  }
  // recv[i] = root's send[i]; send is ignored on the other ranks.
  template <class T>
  void broadcast(const T* send, T* recv, std::size_t count, int root, Stream* stream = nullptr) {
    check(tuttiBroadcast(send, recv, count, data_type<T>(), root, get(), raw(stream)), get());
  }
  // On root: recv[i] = op over ranks of send[i]; recv is ignored on the other ranks.
  template <class T>
  void reduce(const T* send, T* recv, std::size_t count, int root, tuttiRedOp_t op = tuttiSum,
              Stream* stream = nullptr) {
    check(tuttiReduce(send, recv, count, data_type<T>(), op, root, get(), raw(stream)), get());
  }
  // recv[r * send_count + i] = rank r's send[i].
  template <class T>
  void all_gather(const T* send, T* recv, std::size_t send_count, Stream* stream = nullptr) {
    check(tuttiAllGather(send, recv, send_count, data_type<T>(), get(), raw(stream)), get());
  }
  // recv[i] = op over ranks of send[rank * recv_count + i].
  template <class T>
  void reduce_scatter(const T* send, T* recv, std::size_t recv_count, tuttiRedOp_t op = tuttiSum,
                      Stream* stream = nullptr) {
    check(tuttiReduceScatter(send, recv, recv_count, data_type<T>(), op, get(), raw(stream)), get());
  }
  // On root: recv[r * count + i] = rank r's send[i]; recv is ignored on the other ranks.
  template <class T>
  void gather(const T* send, T* recv, std::size_t count, int root, Stream* stream = nullptr) {
    check(tuttiGather(send, recv, count, data_type<T>(), root, get(), raw(stream)), get());
  }
  // recv[i] = root's send[rank * count + i]; send is ignored on the other ranks.
  template <class T>
  void scatter(const T* send, T* recv, std::size_t count, int root, Stream* stream = nullptr) {
    check(tuttiScatter(send, recv, count, data_type<T>(), root, get(), raw(stream)), get());
  }
  // recv[r * count + i] = rank r's send[rank * count + i].
  template <class T>
  void all_to_all(const T* send, T* recv, std::size_t count, Stream* stream = nullptr) {
    check(tuttiAlltoAll(send, recv, count, data_type<T>(), get(), raw(stream)), get());
  }
  // recv[i] = op over ranks 0 .. rank of send[i].
  template <class T>
  void scan(const T* send, T* recv, std::size_t count, tuttiRedOp_t op = tuttiSum, Stream* stream = nullptr) {
    check(tuttiScan(send, recv, count, data_type<T>(), op, get(), raw(stream)), get());
  }
  // recv[i] = op over ranks 0 .. rank - 1 of send[i]; recv is ignored on rank 0.
  template <class T>
  void exscan(const T* send, T* recv, std::size_t count, tuttiRedOp_t op = tuttiSum, Stream* stream = nullptr) {
    check(tuttiExscan(send, recv, count, data_type<T>(), op, get(), raw(stream)), get());
  }
  // Blocks of different counts (tutti.h): one entry for each rank, in elements; displacements may be null.
  template <class T>
  void all_gather_v(const T* send, std::size_t send_count, T* recv, const std::size_t* recv_counts,
                    const std::size_t* recv_displacements, Stream* stream = nullptr) {
    check(tuttiAllGatherV(send, send_count, recv, recv_counts, recv_displacements, data_type<T>(), get(), raw(stream)),
          get());
  }
  // tuttiReduceScatterV.
  template <class T>
  void reduce_scatter_v(const T* send, T* recv, const std::size_t* recv_counts, tuttiRedOp_t op = tuttiSum,
                        Stream* stream = nullptr) {
    check(tuttiReduceScatterV(send, recv, recv_counts, data_type<T>(), op, get(), raw(stream)), get());
  }
  // tuttiAlltoAllV.
  template <class T>
  void all_to_all_v(const T* send, const std::size_t* send_counts, const std::size_t* send_displacements, T* recv,
                    const std::size_t* recv_counts, const std::size_t* recv_displacements, Stream* stream = nullptr) {
    check(tuttiAlltoAllV(send, send_counts, send_displacements, recv, recv_counts, recv_displacements, data_type<T>(),
                         get(), raw(stream)),
          get());
  }
  // tuttiGatherV.
  template <class T>
  void gather_v(const T* send, std::size_t send_count, T* recv, const std::size_t* recv_counts,
                const std::size_t* recv_displacements, int root, Stream* stream = nullptr) {
    check(
        tuttiGatherV(send, send_count, recv, recv_counts, recv_displacements, data_type<T>(), root, get(), raw(stream)),
        get());
  }
  // tuttiScatterV.
  template <class T>
  void scatter_v(const T* send, const std::size_t* send_counts, const std::size_t* send_displacements, T* recv,
                 std::size_t recv_count, int root, Stream* stream = nullptr) {
    check(tuttiScatterV(send, send_counts, send_displacements, recv, recv_count, data_type<T>(), root, get(),
                        raw(stream)),
          get());
  }
  // send[i], i < count, to rank `peer`.
  template <class T>
  void send(const T* send, std::size_t count, int peer, Stream* stream = nullptr) {
    check(tuttiSend(send, count, data_type<T>(), peer, get(), raw(stream)), get());
  }
  // recv[i], i < count, from rank `peer`.
  template <class T>
  void recv(T* recv, std::size_t count, int peer, Stream* stream = nullptr) {
    check(tuttiRecv(recv, count, data_type<T>(), peer, get(), raw(stream)), get());
  }
  // Completes on a rank after every rank has called it.
  void barrier(Stream* stream = nullptr) { check(tuttiBarrier(get(), raw(stream)), get()); }

  // The same with ranges in place of pointers and counts: std::vector, std::array, std::span, tutti::Memory, all that
  // has data() and size(). tuttiInvalidArgument if their sizes do not fit each other.
  template <class Send, class Recv, class = detail::if_ranges<Send, Recv>>
  void all_reduce(const Send& send, Recv&& recv, tuttiRedOp_t op = tuttiSum, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    require_elements("all_reduce: recv", detail::count(recv), detail::count(send));
    all_reduce(detail::read(send), detail::written(recv), detail::count(recv), op, stream);
  }
  // In place.
  template <class Data, class = detail::if_ranges<Data>>
  void all_reduce(Data&& data, tuttiRedOp_t op = tuttiSum, Stream* stream = nullptr) {
    all_reduce(detail::read(data), detail::written(data), detail::count(data), op, stream);
  }
  // In place: data[i] = root's data[i].
  template <class Data, class = detail::if_ranges<Data>>
  void broadcast(Data&& data, int root, Stream* stream = nullptr) {
    broadcast(detail::read(data), detail::written(data), detail::count(data), root, stream);
  }
  // On the root the ranges are of one size; on the other ranks `recv` is ignored.
  template <class Send, class Recv, class = detail::if_ranges<Send, Recv>>
  void reduce(const Send& send, Recv&& recv, int root, tuttiRedOp_t op = tuttiSum, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    if (rank() == root) require_elements("reduce: recv", detail::count(recv), detail::count(send));
    reduce(detail::read(send), detail::written(recv), detail::count(send), root, op, stream);
  }
  // `recv` has room for `send` of each rank.
  template <class Send, class Recv, class = detail::if_ranges<Send, Recv>>
  void all_gather(const Send& send, Recv&& recv, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    require_elements("all_gather: recv", detail::count(recv), detail::count(send) * ranks());
    all_gather(detail::read(send), detail::written(recv), detail::count(send), stream);
  }
  // `send` has a block of the size of `recv` for each rank.
  template <class Send, class Recv, class = detail::if_ranges<Send, Recv>>
  void reduce_scatter(const Send& send, Recv&& recv, tuttiRedOp_t op = tuttiSum, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    require_elements("reduce_scatter: send", detail::count(send), detail::count(recv) * ranks());
    reduce_scatter(detail::read(send), detail::written(recv), detail::count(recv), op, stream);
  }
  // On the root `recv` has room for `send` of each rank; on the other ranks it is ignored.
  template <class Send, class Recv, class = detail::if_ranges<Send, Recv>>
  void gather(const Send& send, Recv&& recv, int root, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    if (rank() == root) require_elements("gather: recv", detail::count(recv), detail::count(send) * ranks());
    gather(detail::read(send), detail::written(recv), detail::count(send), root, stream);
  }
  // On the root `send` has a block of the size of `recv` for each rank; on the other ranks it is ignored.
  template <class Send, class Recv, class = detail::if_ranges<Send, Recv>>
  void scatter(const Send& send, Recv&& recv, int root, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    if (rank() == root) require_elements("scatter: send", detail::count(send), detail::count(recv) * ranks());
    scatter(detail::read(send), detail::written(recv), detail::count(recv), root, stream);
  }
  // Both are of one size and have a block for each rank.
  template <class Send, class Recv, class = detail::if_ranges<Send, Recv>>
  void all_to_all(const Send& send, Recv&& recv, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    const std::size_t count = detail::count(recv) / ranks();
    require_elements("all_to_all: recv", detail::count(recv), count * ranks());
    require_elements("all_to_all: send", detail::count(send), count * ranks());
    all_to_all(detail::read(send), detail::written(recv), count, stream);
  }
  // The ranges are of one size.
  template <class Send, class Recv, class = detail::if_ranges<Send, Recv>>
  void scan(const Send& send, Recv&& recv, tuttiRedOp_t op = tuttiSum, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    require_elements("scan: recv", detail::count(recv), detail::count(send));
    scan(detail::read(send), detail::written(recv), detail::count(recv), op, stream);
  }
  // The ranges are of one size; on rank 0 `recv` is ignored.
  template <class Send, class Recv, class = detail::if_ranges<Send, Recv>>
  void exscan(const Send& send, Recv&& recv, tuttiRedOp_t op = tuttiSum, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    if (rank() != 0) require_elements("exscan: recv", detail::count(recv), detail::count(send));
    exscan(detail::read(send), detail::written(recv), detail::count(send), op, stream);
  }
  // Blocks of different counts that lie one behind the other: counts are ranges of std::size_t with an entry for each
  // rank. `recv` has room for all of them, and `send` as many elements as this rank's entry says.
  template <class Send, class Recv, class Counts, class = detail::if_ranges<Send, Recv, Counts>>
  void all_gather_v(const Send& send, Recv&& recv, const Counts& recv_counts, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    require_counts(recv_counts, detail::count(recv), "all_gather_v: recv_counts must add up to recv's size");
    require_elements("all_gather_v: send", detail::count(send), counts_of(recv_counts)[rank()]);
    all_gather_v(detail::read(send), detail::count(send), detail::written(recv), counts_of(recv_counts), nullptr,
                 stream);
  }
  // `send` has all blocks, `recv` room for this rank's.
  template <class Send, class Recv, class Counts, class = detail::if_ranges<Send, Recv, Counts>>
  void reduce_scatter_v(const Send& send, Recv&& recv, const Counts& recv_counts, tuttiRedOp_t op = tuttiSum,
                        Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    require_counts(recv_counts, detail::count(send), "reduce_scatter_v: recv_counts must add up to send's size");
    require_elements("reduce_scatter_v: recv", detail::count(recv), counts_of(recv_counts)[rank()]);
    reduce_scatter_v(detail::read(send), detail::written(recv), counts_of(recv_counts), op, stream);
  }
  // A block of `send` goes to each rank, and one of `recv` comes from each.
  template <class Send, class SendCounts, class Recv, class RecvCounts,
            class = detail::if_ranges<Send, SendCounts, Recv, RecvCounts>>
  void all_to_all_v(const Send& send, const SendCounts& send_counts, Recv&& recv, const RecvCounts& recv_counts,
                    Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    require_counts(send_counts, detail::count(send), "all_to_all_v: send_counts must add up to send's size");
    require_counts(recv_counts, detail::count(recv), "all_to_all_v: recv_counts must add up to recv's size");
    all_to_all_v(detail::read(send), counts_of(send_counts), nullptr, detail::written(recv), counts_of(recv_counts),
                 nullptr, stream);
  }
  // On the root `recv` has room for all blocks; on the other ranks `recv` and `recv_counts` are ignored.
  template <class Send, class Recv, class Counts, class = detail::if_ranges<Send, Recv, Counts>>
  void gather_v(const Send& send, Recv&& recv, const Counts& recv_counts, int root, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    if (rank() == root) {
      require_counts(recv_counts, detail::count(recv), "gather_v: recv_counts must add up to recv's size on the root");
      require_elements("gather_v: send", detail::count(send), counts_of(recv_counts)[root]);
    }
    gather_v(detail::read(send), detail::count(send), detail::written(recv), counts_of(recv_counts), nullptr, root,
             stream);
  }
  // On the root `send` has all blocks; on the other ranks `send` and `send_counts` are ignored.
  template <class Send, class Counts, class Recv, class = detail::if_ranges<Send, Counts, Recv>>
  void scatter_v(const Send& send, const Counts& send_counts, Recv&& recv, int root, Stream* stream = nullptr) {
    detail::check_elements<Send, Recv>();
    if (rank() == root) {
      require_counts(send_counts, detail::count(send), "scatter_v: send_counts must add up to send's size on the root");
      require_elements("scatter_v: recv", detail::count(recv), counts_of(send_counts)[root]);
    }
    scatter_v(detail::read(send), counts_of(send_counts), nullptr, detail::written(recv), detail::count(recv), root,
              stream);
  }
  // All of `send` to rank `peer`.
  template <class Send, class = detail::if_ranges<Send>>
  void send(const Send& send, int peer, Stream* stream = nullptr) {
    this->send(detail::read(send), detail::count(send), peer, stream);
  }
  // As many elements as `recv` has, from rank `peer`.
  template <class Recv, class = detail::if_ranges<Recv>>
  void recv(Recv&& recv, int peer, Stream* stream = nullptr) {
    this->recv(detail::written(recv), detail::count(recv), peer, stream);
  }

 private:
  // The ranks that a function of the C API writes.
  [[nodiscard]] std::vector<int> list(tuttiResult_t (*call)(tuttiComm_t, int*, int, int*)) const {
    std::vector<int> ranks(static_cast<std::size_t>(size()));
    int count = 0;
    check(call(get(), ranks.data(), static_cast<int>(ranks.size()), &count), get());
    ranks.resize(static_cast<std::size_t>(count));
    return ranks;
  }
  static void* raw(Stream* stream) { return stream == nullptr ? nullptr : stream->get(); }
  static void require(bool condition, const char* what) {
    if (!condition) throw Error(tuttiInvalidArgument, what);
  }
  static void require_elements(const char* range, std::size_t has, std::size_t wanted) {
    if (has == wanted) return;
    throw Error(tuttiInvalidArgument,
                std::string(range) + ": " + std::to_string(has) + " elements, and must be " + std::to_string(wanted));
  }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(size()); }
  template <class Counts>
  static const std::size_t* counts_of(const Counts& counts) {
    static_assert(std::is_same_v<detail::element<const Counts>, std::size_t>, "counts are of type std::size_t");
    return std::data(counts);
  }
  template <class Counts>
  void require_counts(const Counts& counts, std::size_t sum, const char* what) const {
    require_elements("the counts", detail::count(counts), ranks());
    const std::size_t* const first = counts_of(counts);
    require(std::accumulate(first, first + ranks(), std::size_t{0}) == sum, what);
  }
  detail::Owner<tuttiComm_t, detail::destroy_and_tell> comm_;
  std::shared_ptr<detail::OpaqueTypes> opaque_ = std::make_shared<detail::OpaqueTypes>();
};

}  // namespace tutti

#endif  // TUTTI_COMMUNICATOR_HPP_

// tutti for C++17 and later: owners for the handles of tutti/tutti.h, and collectives that take the
// datatype from their arguments. Header only; link with libtutti.
//
// Errors are exceptions here, and only here: every function that fails throws tutti::Error, except for
// destructors, query() functions and what is said below. The rules of threads, buffers, streams and
// failures are those of tutti.h.
//
// Long because: it is the whole layer, in the one header that programs include.
//
// Each collective has a form with pointer and count. With C++20 it also has one with std::span, which
// checks that the two spans fit each other before any byte moves.
#ifndef TUTTI_TUTTI_HPP_
#define TUTTI_TUTTI_HPP_

#include <tutti/tutti.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__has_include)
#if __has_include(<span>) && __cplusplus >= 202002L
#include <span>
#define TUTTI_HAS_SPAN 1
#endif
#endif

namespace tutti {

// A tuttiResult_t other than tuttiSuccess, with the full text of what happened.
class Error : public std::runtime_error {
 public:
  Error(tuttiResult_t result, const std::string& text)
      : std::runtime_error(text.empty() ? tuttiGetErrorString(result) : text), result_(result) {}
  [[nodiscard]] tuttiResult_t result() const noexcept { return result_; }

 private:
  tuttiResult_t result_;
};

// Throws unless `result` is tuttiSuccess. `comm`: whose error it is; null for the calling thread's.
inline void check(tuttiResult_t result, tuttiComm_t comm = nullptr) {
  if (result != tuttiSuccess) throw Error(result, tuttiGetLastError(comm));
}

// Which tuttiDataType_t a C++ type is. 16- and 8-bit floats have no type of their own in C++20: say what
// your type is by specializing DataTypeOf for it. Other types are opaque (Communicator::data_type).
template <class T, class = void>
struct DataTypeOf {};
template <class T>
struct DataTypeOf<T, std::enable_if_t<std::is_integral_v<T> && sizeof(T) <= 8>> {
  static constexpr bool kSigned = std::is_signed_v<T>;
  static constexpr tuttiDataType_t value = sizeof(T) == 1   ? (kSigned ? tuttiInt8 : tuttiUint8)
                                           : sizeof(T) == 2 ? (kSigned ? tuttiInt16 : tuttiUint16)
                                           : sizeof(T) == 4 ? (kSigned ? tuttiInt32 : tuttiUint32)
                                                            : (kSigned ? tuttiInt64 : tuttiUint64);
};
template <>
struct DataTypeOf<float> {
  static constexpr tuttiDataType_t value = tuttiFloat32;
};
template <>
struct DataTypeOf<double> {
  static constexpr tuttiDataType_t value = tuttiFloat64;
};
template <>
struct DataTypeOf<bool> {
  static_assert(sizeof(bool) == 1);
  static constexpr tuttiDataType_t value = tuttiBool;
};
template <>
struct DataTypeOf<std::complex<float>> {
  static constexpr tuttiDataType_t value = tuttiComplex64;
};
template <>
struct DataTypeOf<std::complex<double>> {
  static constexpr tuttiDataType_t value = tuttiComplex128;
};
template <>
struct DataTypeOf<std::byte> {
  static constexpr tuttiDataType_t value = tuttiUint8;
};
template <class T>
inline constexpr tuttiDataType_t data_type_of = DataTypeOf<std::remove_cv_t<T>>::value;
template <class T, class = void>
inline constexpr bool has_data_type = false;
template <class T>
inline constexpr bool has_data_type<T, std::void_t<decltype(DataTypeOf<std::remove_cv_t<T>>::value)>> = true;

// tuttiGetUniqueId.
inline tuttiUniqueId make_unique_id() {
  tuttiUniqueId id;
  check(tuttiGetUniqueId(&id));
  return id;
}

namespace detail {

// Owns a handle; Free is called once, and its result dropped.
template <class Handle, tuttiResult_t (*Free)(Handle)>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle handle) noexcept : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    if (this != &other) reset(std::exchange(other.handle_, nullptr));
    return *this;
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() { reset(nullptr); }
  void reset(Handle handle) noexcept {
    if (handle_ != nullptr) (void)Free(handle_);
    handle_ = handle;
  }
  [[nodiscard]] Handle get() const noexcept { return handle_; }
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, nullptr); }

 private:
  Handle handle_ = nullptr;
};

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

// tuttiSuccess: true; tuttiInProgress: false; else throws.
inline bool completed(tuttiResult_t result) {
  if (result == tuttiInProgress) return false;
  check(result);
  return true;
}

}  // namespace detail

class Event;

// A queue of operations. The destructor waits for them and drops their errors: call synchronize() first
// to hear of them.
class Stream {
 public:
  Stream() {
    tuttiStream_t stream = nullptr;
    check(tuttiStreamCreate(&stream));
    stream_.reset(stream);
  }
  // Waits for all that was queued; throws the first error among it since the last call.
  void synchronize() { check(tuttiStreamSynchronize(stream_.get())); }
  [[nodiscard]] bool query() const { return detail::completed(tuttiStreamQuery(stream_.get())); }
  // What is queued from now on waits for what the event stands for.
  void wait(const Event& event);
  [[nodiscard]] tuttiStream_t get() const noexcept { return stream_.get(); }

 private:
  detail::Owner<tuttiStream_t, tuttiStreamDestroy> stream_;
};

// A mark in a stream: what was queued there when it was recorded last. Complete if it was never recorded.
class Event {
 public:
  Event() {
    tuttiEvent_t event = nullptr;
    check(tuttiEventCreate(&event));
    event_.reset(event);
  }
  // May be called again, with any stream.
  void record(const Stream& stream) { check(tuttiEventRecord(event_.get(), stream.get())); }
  // Waits; throws the first error among it.
  void synchronize() { check(tuttiEventSynchronize(event_.get())); }
  [[nodiscard]] bool query() const { return detail::completed(tuttiEventQuery(event_.get())); }
  [[nodiscard]] tuttiEvent_t get() const noexcept { return event_.get(); }

 private:
  detail::Owner<tuttiEvent_t, tuttiEventDestroy> event_;
};

inline void Stream::wait(const Event& event) {
  check(tuttiStreamWaitEvent(stream_.get(), event.get()));
}

// An array of T, zero-filled, in memory that peers on the same machine can map (tuttiMemAlloc).
template <class T>
class Memory {
  static_assert(std::is_trivially_copyable_v<T>, "peers see the bytes");

 public:
  Memory() = default;
  explicit Memory(std::size_t count) : count_(count) {
    if (count == 0) return;
    if (count > SIZE_MAX / sizeof(T)) throw Error(tuttiInvalidArgument, "Memory: count overflows the address space");
    void* memory = nullptr;
    check(tuttiMemAlloc(&memory, count * sizeof(T)));
    memory_.reset(memory);
  }
  Memory(Memory&& other) noexcept : memory_(std::move(other.memory_)), count_(std::exchange(other.count_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    memory_ = std::move(other.memory_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  [[nodiscard]] T* data() const noexcept { return static_cast<T*>(memory_.get()); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] T* begin() const noexcept { return data(); }
  [[nodiscard]] T* end() const noexcept { return data() + count_; }
  // REQUIRES: i < size().
  [[nodiscard]] T& operator[](std::size_t i) const noexcept { return data()[i]; }

 private:
  detail::Owner<void*, tuttiMemFree> memory_;
  std::size_t count_ = 0;
};

class Communicator;

// An operator of the program's own for one communicator, in place of a tuttiRedOp_t. It must outlive the operations
// with it; what is left of it when the communicator is destroyed is refused.
class Operator {
 public:
  // function(earlier, later) of two T, as tuttiRedOpCreate has it: associative, and called from any thread. Calls with
  // another datatype than T's fail the communicator.
  template <class T, class F>
  static Operator of(const Communicator& comm, F function, bool commutative = true);
  // The sum over ranks of this rank's `factor` times its elements.
  template <class T>
  static Operator pre_multiplied_sum(const Communicator& comm, T factor);

  Operator(Operator&& other) noexcept
      : op_(std::exchange(other.op_, tuttiSum)), comm_(other.comm_), function_(std::move(other.function_)) {}
  Operator& operator=(Operator&& other) noexcept {
    std::swap(op_, other.op_);
    std::swap(comm_, other.comm_);
    std::swap(function_, other.function_);
    return *this;
  }
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;
  ~Operator() {
    if (op_ != tuttiSum) (void)tuttiRedOpDestroy(op_, comm_);
  }
  operator tuttiRedOp_t() const noexcept { return op_; }  // NOLINT(google-explicit-constructor): stands for one

 private:
  explicit Operator(tuttiComm_t comm) noexcept : comm_(comm) {}
  template <class T, class F>
  static void call(const void* in, void* inout, std::size_t count, tuttiDataType_t datatype, void* context) {
    const auto& [function, expected] = *static_cast<const std::pair<const F, tuttiDataType_t>*>(context);
    if (datatype != expected) throw Error(tuttiInvalidArgument, "the operator is for another datatype");
    for (std::size_t i = 0; i < count; ++i) {
      T earlier;
      T later;
      std::memcpy(&earlier, static_cast<const char*>(in) + i * sizeof(T), sizeof(T));
      std::memcpy(&later, static_cast<char*>(inout) + i * sizeof(T), sizeof(T));
      const T both = function(earlier, later);
      std::memcpy(static_cast<char*>(inout) + i * sizeof(T), &both, sizeof(T));
    }
  }

  tuttiRedOp_t op_ = tuttiSum;  // while there is none
  tuttiComm_t comm_ = nullptr;
  std::shared_ptr<const void> function_;
};

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

  [[nodiscard]] int rank() const {
    int rank = 0;
    check(tuttiCommUserRank(get(), &rank));
    return rank;
  }
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
  // Which algorithm and transports serve a collective on a vector of `bytes` bytes: "ring over shm".
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
  [[nodiscard]] tuttiComm_t get() const noexcept { return comm_.get(); }
  // T's in the C API. A T that has none of its own there, such as a structure, gets one when it is first used: it is
  // moved as bytes, and combined by an Operator::of<T>. Any thread.
  template <class T>
  [[nodiscard]] tuttiDataType_t data_type() const {
    static_assert(std::is_trivially_copyable_v<T>, "elements are moved as bytes");
    if constexpr (has_data_type<T>) {
      return data_type_of<T>;
    } else {
      require(opaque_ != nullptr, "there is no communicator");
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
  template <class T>
  void reduce_scatter_v(const T* send, T* recv, const std::size_t* recv_counts, tuttiRedOp_t op = tuttiSum,
                        Stream* stream = nullptr) {
    check(tuttiReduceScatterV(send, recv, recv_counts, data_type<T>(), op, get(), raw(stream)), get());
  }
  template <class T>
  void all_to_all_v(const T* send, const std::size_t* send_counts, const std::size_t* send_displacements, T* recv,
                    const std::size_t* recv_counts, const std::size_t* recv_displacements, Stream* stream = nullptr) {
    check(tuttiAlltoAllV(send, send_counts, send_displacements, recv, recv_counts, recv_displacements, data_type<T>(),
                         get(), raw(stream)),
          get());
  }
  template <class T>
  void gather_v(const T* send, std::size_t send_count, T* recv, const std::size_t* recv_counts,
                const std::size_t* recv_displacements, int root, Stream* stream = nullptr) {
    check(
        tuttiGatherV(send, send_count, recv, recv_counts, recv_displacements, data_type<T>(), root, get(), raw(stream)),
        get());
  }
  template <class T>
  void scatter_v(const T* send, const std::size_t* send_counts, const std::size_t* send_displacements, T* recv,
                 std::size_t recv_count, int root, Stream* stream = nullptr) {
    check(tuttiScatterV(send, send_counts, send_displacements, recv, recv_count, data_type<T>(), root, get(),
                        raw(stream)),
          get());
  }
  // send[i], i < count, to rank `peer`; recv[i] from it.
  template <class T>
  void send(const T* send, std::size_t count, int peer, Stream* stream = nullptr) {
    check(tuttiSend(send, count, data_type<T>(), peer, get(), raw(stream)), get());
  }
  template <class T>
  void recv(T* recv, std::size_t count, int peer, Stream* stream = nullptr) {
    check(tuttiRecv(recv, count, data_type<T>(), peer, get(), raw(stream)), get());
  }
  void barrier(Stream* stream = nullptr) { check(tuttiBarrier(get(), raw(stream)), get()); }

#ifdef TUTTI_HAS_SPAN
  // The same over spans; T comes from `recv` or, in place, from `data`. tuttiInvalidArgument if they do
  // not fit each other.
  template <class T>
  void all_reduce(std::span<const std::type_identity_t<T>> send, std::span<T> recv, tuttiRedOp_t op = tuttiSum,
                  Stream* stream = nullptr) {
    require(send.size() == recv.size(), "all_reduce: the spans differ in size");
    all_reduce(send.data(), recv.data(), recv.size(), op, stream);
  }
  template <class T>
  void all_reduce(std::span<T> data, tuttiRedOp_t op = tuttiSum, Stream* stream = nullptr) {
    all_reduce(static_cast<const T*>(data.data()), data.data(), data.size(), op, stream);
  }
  template <class T>
  void broadcast(std::span<T> data, int root, Stream* stream = nullptr) {
    broadcast(static_cast<const T*>(data.data()), data.data(), data.size(), root, stream);
  }
  template <class T>
  void reduce(std::span<const std::type_identity_t<T>> send, std::span<T> recv, int root, tuttiRedOp_t op = tuttiSum,
              Stream* stream = nullptr) {
    require(rank() != root || send.size() == recv.size(), "reduce: the spans differ in size on the root");
    reduce(send.data(), recv.data(), send.size(), root, op, stream);
  }
  template <class T>
  void all_gather(std::span<const std::type_identity_t<T>> send, std::span<T> recv, Stream* stream = nullptr) {
    require(send.size() * static_cast<std::size_t>(size()) == recv.size(),
            "all_gather: recv must hold all ranks' send");
    all_gather(send.data(), recv.data(), send.size(), stream);
  }
  template <class T>
  void reduce_scatter(std::span<const std::type_identity_t<T>> send, std::span<T> recv, tuttiRedOp_t op = tuttiSum,
                      Stream* stream = nullptr) {
    require(recv.size() * static_cast<std::size_t>(size()) == send.size(),
            "reduce_scatter: send must hold a block of recv's size for every rank");
    reduce_scatter(send.data(), recv.data(), recv.size(), op, stream);
  }
  template <class T>
  void gather(std::span<const std::type_identity_t<T>> send, std::span<T> recv, int root, Stream* stream = nullptr) {
    require(rank() != root || send.size() * static_cast<std::size_t>(size()) == recv.size(),
            "gather: recv must hold all ranks' send on the root");
    gather(send.data(), recv.data(), send.size(), root, stream);
  }
  template <class T>
  void scatter(std::span<const std::type_identity_t<T>> send, std::span<T> recv, int root, Stream* stream = nullptr) {
    require(rank() != root || recv.size() * static_cast<std::size_t>(size()) == send.size(),
            "scatter: send must hold a block of recv's size for every rank on the root");
    scatter(send.data(), recv.data(), recv.size(), root, stream);
  }
  template <class T>
  void all_to_all(std::span<const std::type_identity_t<T>> send, std::span<T> recv, Stream* stream = nullptr) {
    const std::size_t count = recv.size() / static_cast<std::size_t>(size());
    require(send.size() == recv.size() && count * static_cast<std::size_t>(size()) == recv.size(),
            "all_to_all: the spans must hold equal blocks for every rank");
    all_to_all(send.data(), recv.data(), count, stream);
  }
  template <class T>
  void scan(std::span<const std::type_identity_t<T>> send, std::span<T> recv, tuttiRedOp_t op = tuttiSum,
            Stream* stream = nullptr) {
    require(send.size() == recv.size(), "scan: the spans differ in size");
    scan(send.data(), recv.data(), recv.size(), op, stream);
  }
  template <class T>
  void exscan(std::span<const std::type_identity_t<T>> send, std::span<T> recv, tuttiRedOp_t op = tuttiSum,
              Stream* stream = nullptr) {
    require(rank() == 0 || send.size() == recv.size(), "exscan: the spans differ in size");
    exscan(send.data(), recv.data(), send.size(), op, stream);
  }
#endif

 private:
  static void* raw(Stream* stream) {
    return stream == nullptr ? nullptr : stream->get();
  }
  static void require(bool condition, const char* what) {
    if (!condition) throw Error(tuttiInvalidArgument, what);
  }
  detail::Owner<tuttiComm_t, detail::destroy_and_tell> comm_;
  std::shared_ptr<detail::OpaqueTypes> opaque_ = std::make_shared<detail::OpaqueTypes>();
};

template <class T, class F>
Operator Operator::of(const Communicator& comm, F function, bool commutative) {
  static_assert(std::is_trivially_copyable_v<T>, "elements are moved as bytes");
  Operator made(comm.get());
  using Kept = std::pair<const F, tuttiDataType_t>;
  auto kept = std::make_shared<Kept>(std::move(function), comm.data_type<T>());
  void* const context = kept.get();
  check(tuttiRedOpCreate(&made.op_, &Operator::call<T, F>, context, commutative ? 1 : 0, comm.get()), comm.get());
  made.function_ = std::move(kept);
  return made;
}

template <class T>
Operator Operator::pre_multiplied_sum(const Communicator& comm, T factor) {
  Operator made(comm.get());
  check(tuttiRedOpCreatePreMulSum(&made.op_, &factor, data_type_of<T>, tuttiScalarHostImmediate, comm.get()),
        comm.get());
  return made;
}

}  // namespace tutti

#undef TUTTI_HAS_SPAN

#endif  // TUTTI_TUTTI_HPP_

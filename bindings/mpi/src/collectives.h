// The body of each collective, blocking or not (Work knows which), with MPI's arguments. A body that returns `pass` has
// done nothing. This decision depends only on values that are equal on all ranks, or on errors.
#ifndef TUTTI_BINDINGS_MPI_COLLECTIVES_H_
#define TUTTI_BINDINGS_MPI_COLLECTIVES_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "interface.h"
#include "progress.h"
#include "work.h"

namespace tutti::mpi {

// Calls tutti; a call that blocks lets the MPI library make progress.
template <typename Call>
Outcome run(Work& work, Call call) {
  if (work.checked()) return tuttiSuccess;
  if (work.nonblocking()) {
    const tuttiResult_t queued = call();
    if (queued == tuttiSuccess) work.begun();
    return queued;
  }
  tuttiResult_t result = tuttiSuccess;
  {
    const Inside inside;
    result = call();
  }
  if (result != tuttiSuccess) [[unlikely]]
    work.failed();
  if (any_windows()) [[unlikely]]
    look_after_call();
  return result;
}

// Counts or displacements, one for each rank: of int or, with the functions for large counts, of 64 bits.
class Numbers {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): arguments of MPI's functions are passed as they are.
  template <std::signed_integral T>
  Numbers(const T* numbers) : numbers_(numbers), wide_(sizeof(T) == sizeof(std::int64_t)) {
    static_assert(sizeof(T) == sizeof(int) || sizeof(T) == sizeof(std::int64_t));
  }
  MPI_Count operator[](std::size_t rank) const {
    if (!wide_) return static_cast<const int*>(numbers_)[rank];
    // long or long long, whichever the MPI library takes.
    std::int64_t number = 0;
    std::memcpy(&number, static_cast<const std::byte*>(numbers_) + rank * sizeof number, sizeof number);
    return number;
  }
  [[nodiscard]] bool none() const { return numbers_ == nullptr; }
  // Whether they are invalid as the counts of `ranks` ranks.
  [[nodiscard]] bool wrong(int ranks) const {
    if (none()) return true;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
      if ((*this)[rank] < 0) return true;
    }
    return false;
  }

 private:
  const void* numbers_;
  bool wide_;
};

inline bool wrong(MPI_Count count, MPI_Datatype type) {
  return count < 0 || type == MPI_DATATYPE_NULL || !is_committed(type);
}
// Of a buffer that this rank sends from, not in place, or receives in. MPI_BOTTOM is null.
inline bool wrong_buffer(const void* buffer, MPI_Count count, MPI_Datatype type) {
  return buffer == MPI_IN_PLACE || (buffer == nullptr && count > 0 && layout_of(type).predefined);
}
inline bool wrong_block(const void* recv, MPI_Count count, MPI_Datatype type) {
  return wrong(count, type) || wrong_buffer(recv, count, type);
}
inline bool wrong_unless_in_place(const void* send, MPI_Count count, MPI_Datatype type) {
  return send != MPI_IN_PLACE && wrong_block(send, count, type);
}
inline bool wrong_root(const Work& work, int root) {
  return root < 0 || root >= work.ranks();
}

Outcome allreduce(Work& work, const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op);
Outcome reduce(Work& work, const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op, int root);
Outcome scan(Work& work, const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op);
Outcome exscan(Work& work, const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op);
Outcome reduce_scatter(Work& work, const void* send, void* recv, Numbers counts, MPI_Datatype type, MPI_Op op);
Outcome reduce_scatter_block(Work& work, const void* send, void* recv, MPI_Count count, MPI_Datatype type, MPI_Op op);

Outcome barrier(Work& work);
Outcome bcast(Work& work, void* buffer, MPI_Count count, MPI_Datatype type, int root);
Outcome allgather(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                  MPI_Count recv_count, MPI_Datatype recv_type);
Outcome gather(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
               MPI_Count recv_count, MPI_Datatype recv_type, int root);
Outcome scatter(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                MPI_Count recv_count, MPI_Datatype recv_type, int root);
Outcome alltoall(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                 MPI_Count recv_count, MPI_Datatype recv_type);

Outcome allgatherv(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv,
                   Numbers counts, Numbers displs, MPI_Datatype recv_type);
Outcome gatherv(Work& work, const void* send, MPI_Count send_count, MPI_Datatype send_type, void* recv, Numbers counts,
                Numbers displs, MPI_Datatype recv_type, int root);
Outcome scatterv(Work& work, const void* send, Numbers counts, Numbers displs, MPI_Datatype send_type, void* recv,
                 MPI_Count recv_count, MPI_Datatype recv_type, int root);
Outcome alltoallv(Work& work, const void* send, Numbers send_counts, Numbers send_displs, MPI_Datatype send_type,
                  void* recv, Numbers recv_counts, Numbers recv_displs, MPI_Datatype recv_type);
Outcome alltoallw(Work& work, const void* send, Numbers send_counts, Numbers send_displs,
                  const MPI_Datatype* send_types, void* recv, Numbers recv_counts, Numbers recv_displs,
                  const MPI_Datatype* recv_types);

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_COLLECTIVES_H_

// Counts what was taken and what went to the MPI library, and why. Costs a branch where it is not asked for.
#ifndef TUTTI_BINDINGS_MPI_SUMMARY_H_
#define TUTTI_BINDINGS_MPI_SUMMARY_H_

#include <array>
#include <chrono>

namespace tutti::mpi {

enum class Function {
  kAllreduce,
  kReduce,
  kBcast,
  kAllgather,
  kAllgatherv,
  kGather,
  kGatherv,
  kScatter,
  kScatterv,
  kReduceScatter,
  kReduceScatterBlock,
  kAlltoall,
  kAlltoallv,
  kAlltoallw,
  kBarrier,
  kScan,
  kExscan,
  kFunctions,
};

// Why a call goes to the MPI library. All but kArgument are found alike by all ranks.
enum class Reason {
  kNone,  // it does not: tutti serves it
  kOff,
  kOutside,     // before MPI_Init or after MPI_Finalize
  kInter,       // an intercommunicator
  kOneRank,     // nothing to communicate
  kOtherWorld,  // processes of another MPI_COMM_WORLD are in it
  kThreads,     // MPI_THREAD_SERIALIZED was not to be had
  kFailed,      // a rank could not make the tutti communicator
  kUnreadable,  // nor any other: one of libtutti's variables cannot be used
  kFiles,       // this process or another may not open as many files as tutti may need
  kFew,         // one of the first calls of the communicator, which may be freed soon
  kNotMade,     // a nonblocking call before a blocking one has made it: that would block
  kOperator,    // no meaning for this operator and datatype
  kFunction,    // nonblocking, and a function of the program or of the MPI library computes it
  kShort,       // nonblocking, and less than the MPI library does in the time that it takes to hand over
  kType,        // a reduction of elements with a layout that is not served
  kArgument,    // an error that MPI is to report
  kReasons,
};

// How a collective is called.
enum class Form {
  kBlocking,
  kNonblocking,
  kPersistent,
};
// The name of the nonblocking function, as in MPI_Ibcast.
using Name = std::array<char, 40>;
Name name_of(Function function, Form form);

class Timer {
 public:
  Timer() { restart(); }
  void restart();
  [[nodiscard]] long long nanoseconds() const;

 private:
  std::chrono::steady_clock::time_point start_;
};

// reason kNone: taken. `nonblocking`: counted as MPI_Iallreduce and so on; its time is that of the call alone.
void count_call(Function function, bool nonblocking, Reason reason, const Timer& timer);
// One of those that were taken has failed.
void count_failed(Function function, bool nonblocking);
// Of tutti's communicators, which count apart from the calls that make them. made: this rank is the one that counts it.
void count_making(bool made, const Timer& timer);
// Rank 0 of the processes that live prints their counts to standard error. Collective over them, before MPI_Finalize.
void print_summary();

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_SUMMARY_H_

// The binding's settings, from environment variables.
#ifndef TUTTI_BINDINGS_MPI_CONFIG_H_
#define TUTTI_BINDINGS_MPI_CONFIG_H_

namespace tutti::mpi {

// To make tutti's communicator takes 1.7 ms for two ranks, 5 ms for four that share two processors: what is gained by
// some thirty calls of 1 MiB.
constexpr int kAfter = 32;

// A nonblocking operation of tutti's runs in a thread beside the program's, and to hand it over and to be woken takes 6
// us where both have a processor, 35 where four ranks share two: more than the MPI library takes for what is short.
constexpr int kNonblockingBytes = 65536;

struct Config {
  bool off = false;          // TUTTI_MPI=off: every call goes to the MPI library
  bool summary = false;      // TUTTI_MPI_SUMMARY=1: what was taken and what was not, at MPI_Finalize
  bool unreadable = false;   // one of libtutti's variables: every call goes to the MPI library
  bool recovers = false;     // the MPI library reports failures of processes, and the program may go on (ULFM)
  bool has_timeout = false;  // TUTTI_TIMEOUT_MS is set
  // TUTTI_MPI_NONBLOCKING: nonblocking and persistent calls that move less go to the MPI library
  int nonblocking_bytes = kNonblockingBytes;
  int after = kAfter;  // TUTTI_MPI_AFTER: how many collectives of a communicator go to the MPI library first
};

// Read at the first call.
const Config& config();

// All ranks have to turn to tutti at the same calls, and write the summary together: where they differ, that of one
// rank that is off, or wants a summary, and the largest numbers count for all. Collective over MPI_COMM_WORLD,
// in MPI_Init, when no other thread calls yet.
void agree_on_config();
// From now on every call goes to the MPI library: one of libtutti's variables cannot be used on some rank. On all
// ranks, in MPI_Init.
void leave_all();

// Whether the launcher calls this process the first, or does not say. Before MPI_Init.
bool is_first_process();

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_CONFIG_H_

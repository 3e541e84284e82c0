// MPI's rule of progress while a thread waits in tutti: what the program has sent before must arrive although the
// sender is in a collective, and the MPI library may need the sender's processor for that. A thread of the binding
// calls the MPI library, as soon as a call of tutti takes long, while the program's thread is surely outside of it.
#ifndef TUTTI_BINDINGS_MPI_PROGRESS_H_
#define TUTTI_BINDINGS_MPI_PROGRESS_H_

namespace tutti::mpi {

// Whether the MPI library lets another thread call it meanwhile: MPI_THREAD_SERIALIZED or more.
bool progress_possible();
// Whether this thread is the binding's.
bool is_helper();
// Ends the thread, before PMPI_Finalize.
void stop_progress();
// One look at the network, for loops that wait. From a thread that may call MPI.
void progress_once();

// Windows of one-sided communication: what peers do with this process's memory may wait for its MPI library. While
// there are any the thread looks more often.
void count_window(int change);
bool any_windows();
// After a call that has blocked, if the process has windows: programs expect to see what a peer did before the peer's
// call, as they do after a call of the MPI library.
void look_after_call();

// While it lives this thread makes no call of the MPI library.
class Inside {
 public:
  Inside();
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

// In an Inside, while it lives: the thread may call MPI again, as the function of an operator does.
class Outside {
 public:
  Outside();
  ~Outside();
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;
};

}  // namespace tutti::mpi

#endif  // TUTTI_BINDINGS_MPI_PROGRESS_H_

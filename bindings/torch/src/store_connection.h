// The connection of the backend's threads to the store.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tutti_torch {

// The server of `store`, without the prefixes of `store`: keys must be unique in the job. The process has one
// connection to each server beside the program's, as long as a group uses it: torch asks the DNS for the names of both
// ends of each new connection, which takes seconds if the DNS does not answer. No caller may wait for a key in it: the
// other threads would wait, too. Any thread. Throws what the store throws.
c10::intrusive_ptr<c10d::Store> store_connection(const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace tutti_torch

#include "store_connection.h"

#include <exception>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

namespace tutti_torch {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using WeakStore = c10::weak_intrusive_ptr<c10d::Store>;

struct Connection {
  WeakStore programs;
  WeakStore own;
};

struct Connections {
  std::mutex mutex;
  std::vector<Connection> all;
};

// Never destroyed: groups may end after the interpreter has.
Connections& connections() {
  static auto* const made = new Connections;
  return *made;
}

// REQUIRES: the lock. Null if there is none.
StorePtr find(const StorePtr& programs) {
  std::erase_if(connections().all, [](const Connection& one) { return one.own.expired() || one.programs.expired(); });
  for (const Connection& one : connections().all) {
    if (one.programs.lock() == programs) return one.own.lock();
  }
  return nullptr;
}

// A store that is written in Python may have no clone(), which gloo does not need: then threads use the program's.
StorePtr clone_of(const StorePtr& programs) {
  try {
    return programs->clone();
  } catch (const std::exception&) {
    return programs;
  }
}

}  // namespace

// It connects without the lock: a store that is written in Python takes Python's.
StorePtr store_connection(const StorePtr& store) {
  const auto prefixed = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(store);
  const StorePtr programs = prefixed != nullptr ? prefixed->getUnderlyingNonPrefixStore() : store;
  {
    const std::lock_guard<std::mutex> lock(connections().mutex);
    if (StorePtr own = find(programs); own != nullptr) return own;
  }
  StorePtr made = clone_of(programs);
  const std::lock_guard<std::mutex> lock(connections().mutex);
  if (StorePtr own = find(programs); own != nullptr) return own;
  connections().all.push_back({WeakStore(programs), WeakStore(made)});
  return made;
}

}  // namespace tutti_torch

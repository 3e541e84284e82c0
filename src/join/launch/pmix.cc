#include "join/launch/pmix.h"

#ifdef TUTTI_HAVE_PMIX
#include <dlfcn.h>
#include <fmt/core.h>
#include <pmix.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/symbol.h"
#include "control/tree_shape.h"
#include "join/unique_id.h"
#include "os/mutex.h"
#endif

namespace tutti::internal {

#ifndef TUTTI_HAVE_PMIX

Result<LaunchedJob> exchange_over_pmix(const Settings&, Deadline) {
  return Status::invalid_usage("the launcher speaks PMIx, but this tutti was built without it (libpmix-dev)");
}

#else

namespace {

// The functions of libpmix, looked up at run time so that the library need not be installed.
struct Library {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence_nb) fence = nullptr;
  decltype(&PMIx_Get) get = nullptr;
};

Result<Library> open_library() {
  // Never closed: PMIx keeps threads, and other code in the process may use it.
  void* handle = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) return Status::invalid_usage(fmt::format("the launcher speaks PMIx: {}", ::dlerror()));
  Library library;
  const bool complete =
      find_symbol(handle, "PMIx_Init", &library.init) && find_symbol(handle, "PMIx_Finalize", &library.finalize) &&
      find_symbol(handle, "PMIx_Put", &library.put) && find_symbol(handle, "PMIx_Commit", &library.commit) &&
      find_symbol(handle, "PMIx_Fence_nb", &library.fence) && find_symbol(handle, "PMIx_Get", &library.get);
  if (!complete) return Status::invalid_usage("libpmix.so.2 lacks a function that tutti needs");
  return library;
}

Status check(pmix_status_t code, const char* what) {
  if (code == PMIX_SUCCESS) return {};
  if (code == PMIX_ERR_TIMEOUT) return Status::timeout(fmt::format("timed out in {}", what));
  return Status(Code::kSystemError, fmt::format("{} fails with PMIx status {}", what, code));
}

template <std::size_t kSize>
void copy_text(char (&target)[kSize], const std::string& text) {
  std::memcpy(target, text.c_str(), std::min(text.size() + 1, kSize));
  target[kSize - 1] = '\0';
}

pmix_status_t (*finalize_at_exit)(const pmix_info_t*, std::size_t) = nullptr;
pid_t finalize_for = 0;

// PMIx cannot be initialised again once its last user has finalized it, and MPI_Init may come later in
// this process. So tutti stays a user until the process exits; the launcher then sees a clean end.
Result<pmix_proc_t> process_session(const Library& library) {
  static Mutex mutex;
  static pmix_proc_t me TUTTI_GUARDED_BY(mutex);
  const MutexLock lock(mutex);
  if (finalize_at_exit != nullptr) return me;
  std::memset(&me, 0, sizeof me);
  if (Status s = check(library.init(&me, nullptr, 0), "PMIx_Init"); !s.is_ok()) return s;
  finalize_at_exit = library.finalize;
  finalize_for = ::getpid();
  // A forked child must not finalize for its parent when it exits.
  const auto handler = [] {
    if (finalize_for == ::getpid()) finalize_at_exit(nullptr, 0);
  };
  if (std::atexit(handler) != 0) return Status::internal("atexit");
  return me;
}

class Session {
 public:
  Session(const Library& library, const pmix_proc_t& me) : library_(library), me_(me) {}
  [[nodiscard]] std::int64_t rank() const { return me_.rank; }
  Result<std::int64_t> job_size();
  Status publish(const std::string& key, const std::string& value);
  Status fence(Deadline deadline);
  Result<std::string> read(const std::string& key, std::uint32_t rank, Deadline deadline);

 private:
  struct Owned {
    void operator()(pmix_value_t* value) const {
      if (value->type == PMIX_STRING) std::free(value->data.string);
      std::free(value);
    }
  };
  using Value = std::unique_ptr<pmix_value_t, Owned>;

  Library library_;
  pmix_proc_t me_;
};

Result<std::int64_t> Session::job_size() {
  pmix_proc_t job = me_;
  job.rank = PMIX_RANK_WILDCARD;
  pmix_value_t* raw = nullptr;
  Status s = check(library_.get(&job, PMIX_JOB_SIZE, nullptr, 0, &raw), "PMIx_Get(job size)");
  if (!s.is_ok()) return s;
  const Value value(raw);
  if (value->type != PMIX_UINT32) return Status(Code::kSystemError, "PMIx gives the job's size in an unknown type");
  return std::int64_t{value->data.uint32};
}

Status Session::publish(const std::string& key, const std::string& value) {
  std::string text = value;
  pmix_value_t packed;
  std::memset(&packed, 0, sizeof packed);
  packed.type = PMIX_STRING;
  packed.data.string = text.data();
  pmix_key_t name;
  copy_text(name, key);
  if (Status s = check(library_.put(PMIX_GLOBAL, name, &packed), "PMIx_Put"); !s.is_ok()) return s;
  return check(library_.commit(), "PMIx_Commit");
}

// Everything that PMIx may still use after a timeout.
struct FenceState {
  Mutex mutex;
  ConditionVariable changed;
  bool done TUTTI_GUARDED_BY(mutex) = false;
  pmix_status_t code TUTTI_GUARDED_BY(mutex) = PMIX_SUCCESS;
  pmix_info_t collect;
};

void fence_done(pmix_status_t code, void* argument) {
  const std::unique_ptr<std::shared_ptr<FenceState> > state(static_cast<std::shared_ptr<FenceState>*>(argument));
  const MutexLock lock((*state)->mutex);
  (*state)->done = true;
  (*state)->code = code;
  (*state)->changed.notify_all();
}

Status Session::fence(Deadline deadline) {
  const auto state = std::make_shared<FenceState>();
  std::memset(&state->collect, 0, sizeof state->collect);
  copy_text(state->collect.key, PMIX_COLLECT_DATA);
  state->collect.value.type = PMIX_BOOL;
  state->collect.value.data.flag = true;
  // The callback owns this reference. It is called exactly once if the call succeeds.
  auto reference = std::make_unique<std::shared_ptr<FenceState> >(state);
  const pmix_status_t code = library_.fence(nullptr, 0, &state->collect, 1, fence_done, reference.get());
  if (code == PMIX_OPERATION_SUCCEEDED) return {};
  if (code != PMIX_SUCCESS) return check(code, "PMIx_Fence");
  static_cast<void>(reference.release());
  const MutexLock lock(state->mutex);
  while (!state->done && state->changed.wait_until(state->mutex, deadline)) {
  }
  if (!state->done) return Status::timeout("timed out while waiting for the other ranks (PMIx_Fence)");
  return check(state->code, "PMIx_Fence");
}

Result<std::string> Session::read(const std::string& key, std::uint32_t rank, Deadline deadline) {
  pmix_proc_t owner = me_;
  owner.rank = rank;
  pmix_info_t limit;
  std::memset(&limit, 0, sizeof limit);
  copy_text(limit.key, PMIX_TIMEOUT);
  limit.value.type = PMIX_INT;
  limit.value.data.integer = deadline.left_ms(1'000'000'000) / 1000 + 1;
  pmix_key_t name;
  copy_text(name, key);
  pmix_value_t* raw = nullptr;
  if (Status s = check(library_.get(&owner, name, &limit, 1, &raw), "PMIx_Get"); !s.is_ok()) return s;
  const Value value(raw);
  if (value->type != PMIX_STRING) return Status(Code::kSystemError, "PMIx gives a value in an unknown type");
  return std::string(value->data.string);
}

}  // namespace

Result<LaunchedJob> exchange_over_pmix(const Settings& settings, Deadline deadline) {
  static std::atomic<int> exchanges{0};  // all ranks count in the same way
  const std::string key = fmt::format("tutti-{}", exchanges.fetch_add(1));
  Result<Library> library = open_library();
  if (!library.is_ok()) return library.status();
  Result<pmix_proc_t> me = process_session(*library);
  if (!me.is_ok()) return me.status();
  Session session(*library, *me);
  Result<std::int64_t> size = session.job_size();
  if (!size.is_ok()) return size.status();
  if (*size < 1 || *size > kMaxRanks || session.rank() >= *size) {
    return Status::invalid_usage(fmt::format("PMIx says rank {} of {}", session.rank(), *size));
  }
  if (session.rank() == 0) {
    Result<UniqueIdBytes> id = create_unique_id(settings);
    if (!id.is_ok()) return id.status();
    if (Status s = session.publish(key, unique_id_to_hex(*id)); !s.is_ok()) return s;
  }
  if (Status s = session.fence(deadline); !s.is_ok()) return s;
  Result<std::string> hex = session.read(key, 0, deadline);
  if (!hex.is_ok()) return hex.status();
  Result<UniqueIdBytes> id = unique_id_from_hex(*hex);
  if (!id.is_ok()) return id.status();
  return LaunchedJob{"pmix", static_cast<int>(session.rank()), static_cast<int>(*size), *id};
}

#endif

}  // namespace tutti::internal

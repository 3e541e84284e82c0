#include "observe/event_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/first_use.h"
#include "base/log.h"
#include "base/memfd.h"
#include "observe/recorded_file.h"
#include "os/fork.h"

namespace tutti::internal::observe {
namespace {

// Of failed communicators that a program has given back: rings that stay in a file.
constexpr std::size_t kMostKept = 64;

void do_nothing(int /*signal*/) {}

bool has_default_action() {
  struct sigaction now {};
  return ::sigaction(SIGUSR2, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
}

// The library may be unloaded.
[[gnu::destructor]] void forget_handler() {
  struct sigaction now {};
  if (::sigaction(SIGUSR2, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != do_nothing)
    return;
  now.sa_handler = SIG_DFL;
  (void)::sigaction(SIGUSR2, &now, nullptr);
}

class EventFile final : public ForkAware {
 public:
  EventFile() { enlist(); }
  void before_fork() override TUTTI_ACQUIRE(mutex_) { mutex_.lock(); }
  void after_fork_in_parent() override TUTTI_RELEASE(mutex_) { mutex_.unlock(); }
  void after_fork_in_child() override TUTTI_RELEASE(mutex_) {
    is_own_ = false;
    mutex_.unlock();
  }

  Status take(RingPlace* place) {
    Status made = guarded([&] {
      const MutexLock lock(mutex_);
      return take_free(place);
    });
    if (!made.is_ok()) {
      const MutexLock lock(mutex_);
      close_if_unused();
    }
    return made;
  }

  void give_back(const RingPlace& place) {
    const MutexLock lock(mutex_);
    const bool own = owns(place);
    const bool keeps = own && !path_.empty() && kept_ < kMostKept && place.ring->at.failed.load() != Position::kNot;
    if (keeps) {
      ++kept_;
    } else if (own) {
      place.ring->at.communicator.store(0, std::memory_order_release);
      // The next ring here begins with zeros.
      if (::madvise(place.ring, bytes_of(place), MADV_REMOVE) != 0)
        std::memset(static_cast<void*>(place.ring), 0, bytes_of(place));
    }
    (void)::munmap(place.ring, bytes_of(place));
    if (!own || keeps) return;
    used_[place.index] = false;
    close_if_unused();
  }

  bool is_own(const RingPlace& place) {
    const MutexLock lock(mutex_);
    return owns(place);
  }

 private:
  [[nodiscard]] bool owns(const RingPlace& place) const TUTTI_REQUIRES(mutex_) {
    return is_own_ && place.file == number_;
  }
  static std::size_t bytes_of(const RingPlace& place) {
    return kRingBytes + (place.measures != nullptr ? kMeasuresBytes : 0);
  }

  Status take_free(RingPlace* place) TUTTI_REQUIRES(mutex_) {
    if (header_ != nullptr && !is_own_) close();
    if (header_ == nullptr) {
      if (Status s = open(); !s.is_ok()) return s;
    }
    Status made = add_ring(place);
    // The folder is full. Without rings there, the process is seen at least while it lives.
    if (made.is_ok() || path_.empty() || is_in_use()) return made;
    close();
    give_folder_up(made);
    if (Status s = open(); !s.is_ok()) return s;
    return add_ring(place);
  }

  Status add_ring(RingPlace* place) TUTTI_REQUIRES(mutex_) {
    const auto free = std::find(used_.begin(), used_.end(), false);
    place->index = static_cast<std::size_t>(free - used_.begin());
    if (free == used_.end()) used_.push_back(false);
    if (Status s = map(place); !s.is_ok()) return s;
    used_[place->index] = true;
    header_->rings.store(static_cast<std::uint32_t>(used_.size()), std::memory_order_release);
    return {};
  }

  Status open() TUTTI_REQUIRES(mutex_) {
    const std::string wanted = environment_variable("TUTTI_FLIGHT_RECORDER").value_or("");
    if (wanted != wanted_) wanted_ = folder_ = wanted;
    if (!folder_.empty() && open_recorded()) return {};
    auto fd = make_growing_memfd(kFileName);
    return fd.is_ok() ? use(std::move(*fd), {}) : fd.status();
  }

  bool open_recorded() TUTTI_REQUIRES(mutex_) {
    auto file = make_recorded(folder_, kEventsKind);
    Status made = file.status();
    if (made.is_ok()) {
      // Also after the program has changed its directory.
      folder_ = file->path.substr(0, file->path.rfind('/'));
      made = use(std::move(file->fd), file->path);
      if (!made.is_ok()) (void)::unlink(file->path.c_str());
    }
    if (made.is_ok()) {
      ignore_requests();
      return true;
    }
    give_folder_up(made);
    return false;
  }

  void give_folder_up(const Status& why) TUTTI_REQUIRES(mutex_) {
    log::warn(
        fmt::format("TUTTI_FLIGHT_RECORDER=\"{}\": {}. The events are lost when this process ends. Set it to a "
                    "folder that the process can write to",
                    folder_, why.message()));
    folder_.clear();
  }

  // Programs that write their state when they are asked are asked by SIGUSR2. Here all is written already; but a
  // process that has no handler would end. A program that the process executes has the default again.
  static void ignore_requests() {
    if (!has_default_action()) return;
    struct sigaction nothing {};
    nothing.sa_handler = do_nothing;
    nothing.sa_flags = SA_RESTART;
    (void)::sigaction(SIGUSR2, &nothing, nullptr);
  }

  Status use(UniqueFd fd, const std::string& path) TUTTI_REQUIRES(mutex_) {
    if (Status s = allocate(fd, 0, kHeaderBytes); !s.is_ok()) return s;
    void* const mapped = ::mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (mapped == MAP_FAILED) return map_error("mapping the events", errno);
    fd_ = std::move(fd);
    path_ = path;
    header_ = static_cast<Header*>(mapped);
    is_own_ = true;
    kept_ = 0;
    ++number_;
    stride_ = kRingBytes + (environment_has("TUTTI_METRICS") ? kMeasuresBytes : 0);
    header_->layout = kLayout;
    header_->rings_at = kHeaderBytes;
    header_->ring_bytes = static_cast<std::uint32_t>(stride_);
    header_->ring_events = kEvents;
    set_origin(&header_->origin);
    // A reader that finds it finds the rest.
    std::atomic_thread_fence(std::memory_order_release);
    header_->magic = kMagic;
    return {};
  }

  // Memory that is missing is an error here, and not a SIGBUS at the first write.
  static Status allocate(const UniqueFd& fd, std::size_t at, std::size_t bytes) {
    if (Status s = grow_memfd(fd, at + bytes); !s.is_ok()) return s;
    return allocate_file(fd.get(), at, bytes).with_context("the events");
  }

  Status map(RingPlace* place) TUTTI_REQUIRES(mutex_) {
    const std::size_t at = kHeaderBytes + place->index * stride_;
    if (Status s = allocate(fd_, at, stride_); !s.is_ok()) return s;
    void* const mapped =
        ::mmap(nullptr, stride_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), static_cast<off_t>(at));
    if (mapped == MAP_FAILED) return map_error("mapping the events", errno);
    place->ring = static_cast<Ring*>(mapped);
    if (stride_ > kRingBytes) {
      place->measures = reinterpret_cast<Measures*>(static_cast<std::byte*>(mapped) + kRingBytes);
    }
    place->file = number_;
    return {};
  }

  // Not if a ring is kept there: the next ones are added to that file.
  void close_if_unused() TUTTI_REQUIRES(mutex_) {
    if (header_ != nullptr && !is_in_use()) close();
  }

  [[nodiscard]] bool is_in_use() const TUTTI_REQUIRES(mutex_) {
    return std::find(used_.begin(), used_.end(), true) != used_.end();
  }

  void close() TUTTI_REQUIRES(mutex_) {
    if (is_own_ && !path_.empty()) (void)::unlink(path_.c_str());
    (void)::munmap(header_, kHeaderBytes);
    header_ = nullptr;
    path_.clear();
    fd_.reset();
    used_.clear();
  }

  Mutex mutex_;
  UniqueFd fd_ TUTTI_GUARDED_BY(mutex_);
  std::string wanted_ TUTTI_GUARDED_BY(mutex_);               // TUTTI_FLIGHT_RECORDER
  std::string folder_ TUTTI_GUARDED_BY(mutex_);               // the same; empty: it cannot be used
  std::string path_ TUTTI_GUARDED_BY(mutex_);                 // of a file in a folder; empty: of a memfd
  std::size_t kept_ TUTTI_GUARDED_BY(mutex_) = 0;             // rings of failed communicators, in used_
  Header* header_ TUTTI_GUARDED_BY(mutex_) = nullptr;         // null: there is no file
  std::size_t stride_ TUTTI_GUARDED_BY(mutex_) = kRingBytes;  // from one ring to the next
  std::uint64_t number_ TUTTI_GUARDED_BY(mutex_) = 0;         // of the file, among those of this process
  bool is_own_ TUTTI_GUARDED_BY(mutex_) = true;               // false in a forked child that has its parent's
  std::vector<bool> used_ TUTTI_GUARDED_BY(mutex_);           // by index
};

constinit FirstUse<EventFile, Surplus::kKept> event_file;

}  // namespace

RingPlace take_ring() {
  RingPlace place;
  const Status made = event_file.get().take(&place);
  if (made.is_ok()) return place;
  const std::string why = "other processes cannot read the events of this rank: " + made.message();
  environment_has("TUTTI_FLIGHT_RECORDER") ? log::warn(why) : log::debug(why);
  return {};
}

void give_back(const RingPlace& place) {
  event_file.get().give_back(place);
}

bool is_own(const RingPlace& place) {
  return event_file.get().is_own(place);
}

}  // namespace tutti::internal::observe

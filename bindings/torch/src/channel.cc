#include "channel.h"

#include <algorithm>
#include <climits>
#include <exception>

#include "failure.h"
#include "watchdog.h"

namespace tutti_torch {

void Channel::open(tuttiComm_t comm) {
  const std::lock_guard<std::mutex> order(order_);
  if (const tuttiResult_t result = tuttiStreamCreate(&stream_); result != tuttiSuccess) {
    (void)tuttiCommAbort(comm);
    check(result, name_);
  }
  comm_ = comm;
  for (const Waiting& one : std::exchange(waiting_, {})) queue(one);
}

void Channel::fail(const std::string& why) {
  const std::lock_guard<std::mutex> order(order_);
  broken_ = why;
  never_opens_ = true;
  for (const Waiting& one : std::exchange(waiting_, {})) one.flight->settle(tuttiSystemError);
}

void Channel::begin(const std::shared_ptr<Flight>& flight, Call call, const std::shared_ptr<Copies>& copies,
                    bool here) {
  const std::lock_guard<std::mutex> order(order_);
  const std::uint64_t number = ++sequence_;
  if (std::exchange(withdraws_, false)) withdraw_refusal(number);
  if (closed_ || !broken_.empty()) return flight->settle(tuttiInvalidUsage);
  (void)oldest();
  // tutti keeps the order of its own operations, and does not know of their copies.
  if (here && comm_ != nullptr && (copies != nullptr || copies_queued_)) wait_for_all();
  {
    const std::lock_guard<std::mutex> lock(flights_mutex_);
    flights_.push_back({number, flight});
  }
  Watchdog::get().wake();
  Waiting one{flight, std::move(call), copies};
  if (comm_ == nullptr) {
    waiting_.push_back(std::move(one));
  } else if (here) {
    run_here(one);
  } else {
    queue(one);
  }
}

// REQUIRES: order_, and a communicator. Until what was begun before has ended.
void Channel::wait_for_all() {
  while (const auto first = oldest()) (void)first->flight->wait(std::nullopt);
  copies_queued_ = false;
}

// REQUIRES: order_, and a communicator.
void Channel::run_here(const Waiting& one) {
  one.flight->set_running();
  if (one.copies != nullptr) one.copies->pack();
  end(one.flight, call(one, nullptr));
}

// REQUIRES: order_, and a communicator. An exception settles the flight here, because no other code does.
tuttiResult_t Channel::call(const Waiting& one, void* stream) {
  try {
    return one.call(comm_, stream);
  } catch (const RefusedByAll& e) {
    one.flight->settle_with(e.what(), tuttiInvalidArgument);
  } catch (const std::exception&) {
    const std::string why = reason_of(std::current_exception());
    one.flight->settle_with(why);
    end_with("a rank has failed in " + one.flight->operation() + ": " + why);
  }
  return tuttiInvalidUsage;
}

// An argument that tutti refuses is as one that was refused before.
void Channel::end(const std::shared_ptr<Flight>& flight, tuttiResult_t result) {
  flight->settle(result);
  if (result != tuttiInvalidArgument) return;
  --sequence_;
  note_refusal(flight->operation() + ": " + error_text(result, nullptr));
}

// REQUIRES: order_, and a communicator.
void Channel::queue(const Waiting& one) {
  // A queued operation needs its tensors until the event, so the event must exist first.
  tuttiEvent_t event = nullptr;
  tuttiResult_t result = tuttiEventCreate(&event);
  if (result == tuttiSuccess && one.copies != nullptr) {
    copies_queued_ = true;
    result = one.copies->queue_pack(stream_);
  }
  if (result == tuttiSuccess) result = call(one, stream_);
  if (result == tuttiSuccess && one.copies != nullptr) one.copies->queue_unpack(stream_);
  if (result == tuttiSuccess) result = tuttiEventRecord(event, stream_);
  if (result == tuttiSuccess) {
    one.flight->set_queued(event);
  } else {
    (void)tuttiEventDestroy(event);
    end(one.flight, result);
  }
}

tuttiComm_t Channel::split_to(const std::string& device, int rank, std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> order(order_);
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.device = device.c_str();
  config.timeout_ms = static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(timeout.count(), 1, INT_MAX));
  tuttiComm_t made = nullptr;
  check(closed_ ? tuttiInvalidUsage : tuttiCommSplit(comm_, 0, rank, &made, &config), device, comm_);
  return made;
}

void Channel::look_for_refusals(const std::shared_ptr<Flight>& flight) {
  {
    const std::lock_guard<std::mutex> order(order_);
    if (std::exchange(withdraws_, false)) withdraw_refusal(next());
  }
  {
    const std::lock_guard<std::mutex> lock(flights_mutex_);
    flights_.push_back({0, flight});
  }
  (void)oldest();
  Watchdog::get().wake();
}

void Channel::end_with(const std::string& why) {
  ended_ = true;
  {
    const std::lock_guard<std::mutex> lock(flights_mutex_);
    refused_ = why;
  }
  try {
    const std::lock_guard<std::mutex> lock(refusals_mutex_);
    refusals_.end(why);
  } catch (const std::exception&) {
    // The store is gone: the other rank hears of the end without the reason.
  }
  revoke();
}

void Channel::refuse(const std::string& why) {
  const std::lock_guard<std::mutex> order(order_);
  note_refusal(why);
}

// REQUIRES: order_.
void Channel::note_refusal(const std::string& why) {
  withdraws_ = true;
  {
    const std::lock_guard<std::mutex> lock(flights_mutex_);
    refused_ = "ranks that waited for this one have ended the group: it had refused " + why;
  }
  const std::lock_guard<std::mutex> lock(refusals_mutex_);
  refusals_.refuse(next(), why);
}

// Not where the others have ended the group meanwhile: that is why.
void Channel::withdraw_refusal(std::uint64_t number) {
  const tuttiComm_t comm = comm_;
  tuttiResult_t failed = tuttiSuccess;
  if (comm != nullptr && tuttiCommGetAsyncError(comm, &failed) == tuttiSuccess && failed != tuttiSuccess) return;
  {
    const std::lock_guard<std::mutex> lock(flights_mutex_);
    refused_.clear();
  }
  const std::lock_guard<std::mutex> lock(refusals_mutex_);
  refusals_.withdraw(number);
}

std::string Channel::explain(tuttiResult_t result) {
  if (result != tuttiInvalidArgument) failed_ = true;
  return find_reason(result);
}

std::string Channel::find_reason(tuttiResult_t result) {
  const tuttiComm_t comm = comm_;
  if (comm == nullptr) return broken_.empty() ? "the process group has been shut down" : broken_;
  const std::string told = failure_text(result, comm);
  const std::string text = ranks_ ? told_of_pair(told, *ranks_) : told;
  // So ends what waits for a rank that has refused: it is revoked, or that rank has left.
  if (result != tuttiAborted && result != tuttiMismatch && result != tuttiRemoteError) return text;
  {
    const std::lock_guard<std::mutex> lock(flights_mutex_);
    if (!refused_.empty()) return refused_;
  }
  const auto first = oldest();
  try {
    const std::lock_guard<std::mutex> lock(refusals_mutex_);
    const bool numbered = !first || first->number != 0;
    std::string why = refusals_.look(!numbered ? next() : first ? first->number : sequence_.load());
    if (!why.empty()) return why;
    why = refusals_.why_ended();
    if (why.empty()) return text;
    ended_ = true;
    return why;
  } catch (const std::exception&) {
    return text;
  }
}

// The first that has not ended; without the lock where it is asked, for it may have an error to explain.
std::optional<Channel::Begun> Channel::oldest() {
  for (;;) {
    Begun first;
    {
      const std::lock_guard<std::mutex> lock(flights_mutex_);
      if (flights_.empty()) return std::nullopt;
      first = flights_.front();
    }
    if (!first.flight->poll()) return first;
    const std::lock_guard<std::mutex> lock(flights_mutex_);
    if (!flights_.empty() && flights_.front().flight == first.flight) flights_.pop_front();
  }
}

bool Channel::look_after() {
  const bool tells = completer_.look_after();
  if (looks_also_) looks_also_();
  const auto first = oldest();
  if (!first) return tells;
  if (Clock::now() - first->flight->begun() < kPatience || comm_ == nullptr) return true;
  std::string why;
  try {
    const std::lock_guard<std::mutex> lock(refusals_mutex_);
    why = refusals_.look(first->number != 0 ? first->number : next());
  } catch (const std::exception&) {
  }
  if (why.empty()) return true;
  {
    const std::lock_guard<std::mutex> lock(flights_mutex_);
    refused_ = why;
  }
  revoke();
  return true;
}

void Channel::revoke() {
  if (const tuttiComm_t comm = comm_; comm != nullptr) (void)tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT);
}

void Channel::close() {
  const std::lock_guard<std::mutex> order(order_);
  if (closed_.exchange(true)) return;
  for (const Waiting& one : std::exchange(waiting_, {})) one.flight->settle(tuttiInvalidUsage);
  const tuttiComm_t comm = comm_;
  if (comm == nullptr) return;
  if (stream_ != nullptr) (void)tuttiStreamDestroy(stream_);
  (void)tuttiCommDestroy(comm);
  comm_ = nullptr;
  (void)oldest();  // all operations have ended: frees what they kept, also if the program has not waited for them
}

}  // namespace tutti_torch

#include "communicator/join.h"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "algorithms/loaded.h"
#include "base/service_thread.h"
#include "join/in_process.h"
#include "join/launch/environment.h"
#include "join/unique_id.h"
#include "observe/event_ring.h"
#include "os/clock.h"
#include "selection/select.h"
#include "transport/registry.h"
#include "transport/verbs/options.h"

namespace tutti::internal {
namespace {

// If the root is not found within this time, the others wait for the rank until their init timeout.
constexpr std::int64_t kDeclineMs = 5'000;

// FNV-1a of the bytes, behind those whose hash is `before`.
std::uint64_t hash_of(std::span<const std::uint8_t> bytes, std::uint64_t before = 0xcbf29ce484222325) {
  for (const std::uint8_t byte : bytes) before = (before ^ byte) * 0x100000001b3;
  return before;
}
// The same on all ranks of a job. Everyone may see it, so the secret is left out.
std::uint64_t number_of(const UniqueIdBytes& id) {
  constexpr std::size_t kSecretAt = 8;  // see unique_id.h
  const std::span<const std::uint8_t> bytes = id;
  return hash_of(bytes.subspan(kSecretAt + sizeof(net::Secret)), hash_of(bytes.first(kSecretAt)));
}
std::uint64_t number_of(const KnownRoot& root) {
  std::uint64_t hash = hash_of({reinterpret_cast<const std::uint8_t*>(root.job.data()), root.job.size()});
  for (const std::uint16_t port : root.ports) {
    hash = hash_of(std::array{static_cast<std::uint8_t>(port), static_cast<std::uint8_t>(port >> 8)}, hash);
  }
  return hash;
}

// join() by this call returns the job. While a rank joins, other processes see that it does, and afterwards, if it has
// failed and events are recorded.
template <class Root, class Join>
Result<std::unique_ptr<Communicator>> make(std::string_view call, const Root& root, int rank, int ranks,
                                           const Settings& settings, Deadline deadline, Join join) {
  auto ring = observe::EventRing::joining(number_of(root) | 1, rank, ranks, call);
  Result<Job> job = join();
  auto made = job.is_ok() ? Communicator::create(std::move(*job), settings, nullptr, deadline, &ring)
                          : Result<std::unique_ptr<Communicator>>(job.status());
  if (!made.is_ok() && ring != nullptr) ring->fail(made.status().message());
  return made;
}

// Of the errors of several ranks, the original one: errors caused by it are remote errors.
Status cause_of(const std::vector<Status>& results) {
  Status cause;
  for (const Status& s : results) {
    if (!s.is_ok() && (cause.is_ok() || cause.code() == Code::kRemoteError)) cause = s;
  }
  return cause;
}

}  // namespace

Result<Settings> checked_settings() {
  auto settings = settings_from_environment();
  if (!settings.is_ok()) return settings;
  // Before settings that may name these algorithms are read.
  if (Status s = algorithms::load_schedules(settings->schedules); !s.is_ok()) return s.with_context("TUTTI_SCHEDULES");
  if (Status s = check_transports(*settings, "TUTTI_TRANSPORTS"); !s.is_ok()) return s;
  if (Status s = check_algorithm(*settings, "TUTTI_ALGORITHM"); !s.is_ok()) return s;
  if (Status s = check_verbs(*settings, "TUTTI_VERBS"); !s.is_ok()) return s;
  return settings;
}

Status check_transports(const Settings& settings, std::string_view name) {
  return parse_transports(settings.transports, name).status();
}

Status check_algorithm(const Settings& settings, std::string_view name) {
  return selection::check_forced(settings.algorithm, name);
}

Status check_verbs(const Settings& settings, std::string_view name) {
  return transport::verbs::parse_options(settings.verbs, name).status();
}

Status check_device(const Settings& settings) {
  return memory::check_device_name(settings.device);
}

Result<std::unique_ptr<Communicator>> join_with_id(const UniqueIdBytes& id, int rank, int ranks,
                                                   const Settings& settings, ControlTree::GivesUp gives_up,
                                                   std::string_view call) {
  const Deadline deadline = Deadline::after_ms(settings.init_timeout_ms);
  return make(call, id, rank, ranks, settings, deadline,
              [&] { return join(id, rank, ranks, settings, deadline, std::move(gives_up)); });
}

Result<std::unique_ptr<Communicator>> join_launched(const Settings& settings) {
  const Deadline deadline = Deadline::after_ms(settings.init_timeout_ms);
  auto found = detect_job(settings, deadline);
  if (!found.is_ok()) return found.status();
  const auto join_at = [&](const auto& root) {
    return make("tuttiCommInitEnv", root, found->rank, found->ranks, settings, deadline,
                [&] { return join(root, found->rank, found->ranks, settings, deadline); });
  };
  return std::visit(join_at, found->root);
}

void decline_with_id(const UniqueIdBytes& id, int rank, int ranks, const Status& why, ControlTree::GivesUp gives_up) {
  decline(id, rank, ranks, why, Deadline::after_ms(kDeclineMs), std::move(gives_up));
}

// The exchange over a launcher must be completed like that of a joining rank, so that the connection to the launcher
// stays usable.
void decline_launched(const Status& why) {
  auto readable = settings_from_environment();
  const Settings settings = readable.is_ok() ? *readable : Settings();
  auto found = detect_job(settings, Deadline::after_ms(settings.init_timeout_ms));
  if (!found.is_ok()) return;
  const Deadline deadline = Deadline::after_ms(kDeclineMs);
  std::visit([&](const auto& root) { decline(root, found->rank, found->ranks, why, deadline); }, found->root);
}

// One thread per rank, because joining is collective.
Result<std::vector<std::unique_ptr<Communicator>>> make_in_process(int ranks, std::span<const int> devices,
                                                                   const Settings& settings) {
  auto common_device = devices.empty() ? memory::find_device(settings.device) : Result<int>(memory::kHost);
  if (!common_device.is_ok()) return common_device.status();
  auto transports = parse_transports(settings.transports);
  if (!transports.is_ok()) return transports.status();
  auto thread_ranks = ThreadRanks::create(ranks, *transports);
  if (!thread_ranks.is_ok()) return thread_ranks.status();
  const Deadline deadline = Deadline::after_ms(settings.init_timeout_ms);
  auto jobs = make_in_process_jobs(ranks);
  if (!jobs.is_ok()) return jobs.status();
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::unique_ptr<Communicator>> made(n);
  std::vector<Status> results(n);
  std::vector<ServiceThread> threads(n);
  std::size_t started = 0;
  Status failed = guarded([&] {
    for (; started < n; ++started) {
      const auto join_one = [&, i = started] {
        results[i] = guarded([&] {
          Settings own = settings;
          own.device = memory::name_of_device(devices.empty() ? *common_device : devices[i]);
          auto created = Communicator::create(std::move((*jobs)[i]), own, *thread_ranks, deadline, nullptr);
          if (created.is_ok()) made[i] = std::move(*created);
          return created.status();
        });
      };
      if (Status s = threads[started].start(join_one, kWorkStackBytes); !s.is_ok()) return s;
    }
    return Status();
  });
  // A rank without a thread does not join: the others must not wait for it.
  for (std::size_t i = started; i < n; ++i) (*jobs)[i].tree.reset();
  for (ServiceThread& t : threads) t.join();
  if (failed.is_ok()) failed = cause_of(results);
  if (failed.is_ok()) return made;
  for (const auto& communicator : made) {
    if (communicator != nullptr) communicator->abort();
  }
  return failed;
}

}  // namespace tutti::internal

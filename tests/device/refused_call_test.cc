// Calls on device memory that one rank refuses because of their arguments: the others receive the reason.
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "catch_compat.h"
#include "device_rig.h"

using namespace tutti::internal::test;

namespace {

constexpr std::size_t kBytes = 5000;

void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// Sets the time after which notices are logged and refusals fail an operation.
class NoticeTime {
 public:
  explicit NoticeTime(const char* ms) { ::setenv("TUTTI_WAIT_NOTICE_MS", ms, 1); }
  NoticeTime(const NoticeTime&) = delete;
  NoticeTime& operator=(const NoticeTime&) = delete;
  ~NoticeTime() { ::unsetenv("TUTTI_WAIT_NOTICE_MS"); }
};

void require_refusal(DeviceJob& job, int r, const DeviceBytes& buffer, void* stream, bool grouped) {
  if (grouped && tuttiGroupStart() != tuttiSuccess) throw std::runtime_error("no group");
  const tuttiResult_t refused =
      tuttiReduce(buffer.data(), buffer.data(), kBytes, tuttiUint8, tuttiSum, 12, job.comm(r), stream);
  if (refused != tuttiInvalidArgument) throw std::runtime_error("not refused");
  if (grouped && tuttiGroupEnd() != tuttiInvalidArgument) throw std::runtime_error("the group is not refused");
}

}  // namespace

TEST_CASE("refusal on a device: a rank that calls again continues with the others") {
  need_device();
  const int ranks = GENERATE(2, 4);
  const bool grouped = GENERATE(false, true);
  const NoticeTime notice("20000");
  DeviceJob job(ranks);
  job.each([&](int r) {
    const TestStream stream(job.device(r));
    const DeviceBytes buffer(job.device(r), Bytes(kBytes, std::byte(1)));
    sum(job, r, buffer, kBytes, stream.get());
    if (r == 1) {
      require_refusal(job, r, buffer, stream.get(), grouped);
      sleep_ms(700);
    }
    sum(job, r, buffer, kBytes, stream.get());
    stream.wait();
    if (buffer.get() != Bytes(kBytes, std::byte(ranks * ranks))) throw std::runtime_error("not the sum of sums");
  });
}

TEST_CASE("refusal on a device: the others fail with the reason if the rank does not call again") {
  need_device();
  const int ranks = GENERATE(2, 4);
  const bool grouped = GENERATE(false, true);
  const NoticeTime notice("500");
  DeviceJob job(ranks);
  job.each([&](int r) {
    const TestStream stream(job.device(r));
    const DeviceBytes buffer(job.device(r), Bytes(kBytes, std::byte(1)));
    sum(job, r, buffer, kBytes, stream.get());
    stream.wait();
    if (r == 1) {
      require_refusal(job, r, buffer, stream.get(), grouped);
    } else {
      sum(job, r, buffer, kBytes, stream.get());
    }
    tuttiResult_t failed = tuttiSuccess;
    for (int looks = 0; failed == tuttiSuccess && looks < 1500; ++looks) {
      sleep_ms(10);
      (void)tuttiCommGetAsyncError(job.comm(r), &failed);
    }
    const std::string text = tuttiGetLastError(job.comm(r));
    if (failed != tuttiRemoteError) throw std::runtime_error("got " + std::to_string(failed) + ": " + text);
    if (r == 1) return;
    stream.wait();
    const bool right = text.find("rank 1 (host ") != std::string::npos &&
                       text.find("reduce: root 12 is not a rank of ") != std::string::npos;
    if (!right) throw std::runtime_error(text);
  });
}

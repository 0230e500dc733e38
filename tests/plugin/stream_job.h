// A job with GPUs for the tests of the stream timer: the fake driver, a clock that the test turns
// on, and communicators that launch their operations as NCCL does.
//
// Both clocks that the plugin reads (CLOCK_MONOTONIC and CLOCK_REALTIME) are this machine's plus
// what AdvanceClock added, and its pauses last a millisecond, so seconds pass in no time and
// nothing depends on how fast the machine is.
#ifndef TESTS_PLUGIN_STREAM_JOB_H_
#define TESTS_PLUGIN_STREAM_JOB_H_

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/plugin/harness.h"
#include "tests/plugin/load_fake_cuda.h"

namespace nccl_pulse {

void AdvanceClock(uint64_t ns);
// Pauses that were made in this process so far.
uint64_t Pauses();

// From now on time passes a thousand times more slowly, but for what AdvanceClock adds: nothing
// that happens every second does, however long a busy machine takes.
void SlowClock();

inline constexpr uint64_t kMs = 1000000;
inline constexpr uint64_t kSecond = 1000000000;

// RunInChild with the fake driver, a current context on device 0, and the settings that make the
// plugin take the test's clock. At the end the driver's own checks are made: from callbacks nothing
// but record and is-capturing, no record into a capture, no use of a destroyed event.
void RunWithGpu(const std::function<void(FakeCuda&)>& scenario,
                const Environment& environment = {});

// A test whose body is such a scenario, with `gpu`. Behind the names: as in TEST_IN_CHILD.
#define TEST_WITH_GPU(suite, name, ...)                                                 \
  static void suite##name##WithGpu(FakeCuda& gpu);                                      \
  TEST(suite, name) { ::nccl_pulse::RunWithGpu(&suite##name##WithGpu, {__VA_ARGS__}); } \
  static void suite##name##WithGpu([[maybe_unused]] FakeCuda& gpu)

// Until the background thread has gone round twice more: it has seen all that was done before.
void WaitForPoll();
// The same after the GPU has worked for `ns`, or after that time has passed on the clock.
void AdvanceAndPoll(FakeCuda& gpu, uint64_t ns);
void AdvanceClockAndPoll(uint64_t ns);
// The GPU's time and the clock's go on beside the test's own threads, until End. The clock's: `step_ns`
// each time that this thread has its turn.
class PassingTime {
 public:
  explicit PassingTime(FakeCuda& gpu, uint64_t step_ns = kMs)
      : thread_([this, &gpu, step_ns] {
          while (!is_over_) {
            gpu.Advance(100000);
            AdvanceClock(step_ns);
            std::this_thread::yield();
          }
        }) {}
  PassingTime(const PassingTime&) = delete;
  PassingTime& operator=(const PassingTime&) = delete;
  ~PassingTime() { End(); }
  void End() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

// Lets an idle second pass, after which every call is timed (but the first two of each).
void TimeEveryCall();

// NCCL's callbacks run with the driver watching.
class InCallback {
 public:
  explicit InCallback(FakeCuda& gpu) : gpu_(gpu) { gpu_.EnterCallback(); }
  ~InCallback() { gpu_.LeaveCallback(); }
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;

 private:
  FakeCuda& gpu_;
};

// One rank's communicator.
class StreamCommunicator {
 public:
  using Stream = FakeCuda::Stream;

  // On a context and stream of its own on the device, unless given.
  StreamCommunicator(FakeCuda& gpu, uint64_t comm_id, int device = 0);
  // `context_at`: where NCCL has the profiler's context, null: somewhere. `api_version`: of its init.
  StreamCommunicator(FakeCuda& gpu, uint64_t comm_id, FakeCuda::Context context, int nnodes = 1,
                     void** context_at = nullptr, int api_version = 5);
  StreamCommunicator(const StreamCommunicator&) = delete;
  StreamCommunicator& operator=(const StreamCommunicator&) = delete;

  Stream stream() const { return stream_; }
  FakeCuda::Context gpu_context() const { return gpu_context_; }
  void* context() const { return context_; }
  uint64_t comm_id() const { return comm_id_; }
  void Finalize();
  // From now on its collectives report so many.
  void UseChannels(uint8_t channels) { channels_ = channels; }
  // Its own stream from now on.
  void UseStream(Stream stream) { stream_ = stream; }
  // From now on its launches come from threads of their own, as a non-blocking communicator's.
  void LaunchElsewhere() { launches_elsewhere_ = true; }

  // ---- the callbacks ----
  struct Call {
    const char* op;
    uint64_t bytes;
    void* handle = nullptr;
    void* group = nullptr;
    int root_or_peer = 1;
  };
  // `depth`: 1 is that of a call alone, 2 a group of the application's.
  void* StartGroup(bool captured = false, int depth = 1);
  void StopGroup(void* group);
  Call MakeCall(void* group, const char* op, uint64_t bytes, bool captured = false,
                int root_or_peer = 1);
  // KernelLaunch around work of this duration; on `stream`, null: the communicator's own. Like
  // NCCL's, it runs after the communicator's last.
  void Launch(void* group, uint64_t duration_ns, Stream stream = nullptr);
  // The same without any event.
  void LaunchUnreported(uint64_t duration_ns, Stream stream = nullptr);
  void* StartLaunch(void* group, Stream stream = nullptr);
  void StopLaunch(void* launch);
  // Coll or P2p, by the call's operation.
  void Report(const Call& call);

  // ---- whole operations ----
  // One call in a group of its own. `stream`: as in Launch.
  void Run(uint64_t duration_ns = kMs, const char* op = "AllReduce", uint64_t bytes = 4096,
           Stream stream = nullptr);
  // As Run, of which NCCL reports the group and the call alone.
  void RunUnreported(uint64_t duration_ns = kMs, const char* op = "Broadcast",
                     uint64_t bytes = 4096);
  // Several calls in a group, one launch.
  void RunGroup(uint64_t duration_ns, const std::vector<Call>& calls, int depth = 2);
  // `calls` of an operation that are never timed: the first ones of its kind.
  void WarmUp(const char* op = "AllReduce", uint64_t bytes = 4096);
  // From now on every AllReduce of 4096 bytes is timed.
  void TimeEveryCall();

  // What has been measured of it.
  CommunicatorSnapshot Read() const;

 private:
  void OnLaunchingThread(const std::function<void()>& callback);
  Stream Follow(Stream stream);

  FakeCuda& gpu_;
  uint64_t comm_id_;
  FakeCuda::Context gpu_context_;
  Stream stream_;
  Stream last_stream_ = nullptr;
  void* context_ = nullptr;
  uint64_t sequence_ = 0;
  uint8_t channels_ = 2;
  bool launches_elsewhere_ = false;
};

// As TEST_WITH_GPU, with `comm`, too.
#define TEST_WITH_STREAM(suite, name, ...)                                      \
  static void suite##name##WithStream(FakeCuda& gpu, StreamCommunicator& comm); \
  TEST_WITH_GPU(suite, name, __VA_ARGS__) {                                     \
    StreamCommunicator comm(gpu, 1);                                            \
    suite##name##WithStream(gpu, comm);                                         \
  }                                                                             \
  static void suite##name##WithStream([[maybe_unused]] FakeCuda& gpu,           \
                                      [[maybe_unused]] StreamCommunicator& comm)

// Of a communicator's latencies the one by this operation, timed on the stream; all zero if none.
LatencySnapshot StreamLatency(const CommunicatorSnapshot& communicator, const std::string& op);
// Operations that were timed on the stream (not launches of a group).
uint64_t TimedOperations(const CommunicatorSnapshot& communicator);

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_STREAM_JOB_H_

// What the tests of the plugin share: they stand where NCCL stands. The library is opened with
// dlopen, only its exported structures are called, and what came of it is read like any other
// process would read it, from the memfd "nccl-pulse".
//
// The plugin reads its settings once in a process' life, so every scenario runs in a process of
// its own (RunInChild), which also starts with all counters at zero.
#ifndef TESTS_PLUGIN_HARNESS_H_
#define TESTS_PLUGIN_HARNESS_H_

#include <cstdint>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "metrics/snapshot.h"
#include "plugin/abi/profiler_v5.h"

namespace nccl_pulse {

// True in a build whose run-time library replaces malloc, or adds libraries.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitized = true;
#else
inline constexpr bool kThreadSanitized = false;
#endif

// ---- processes ----------------------------------------------------------------------------------

using Environment = std::map<std::string, std::string>;
inline const Environment kKernel{{"NCCL_PULSE_TIMING", "kernel"}};

// Runs `scenario` in a forked child with these variables set (and no endpoint, unless they say
// otherwise). Failed expectations of the child are printed by it and fail the caller's test, and so
// does a child that crashes.
void RunInChild(const Environment& environment, const std::function<void()>& scenario);

// A test whose body is such a scenario. Behind the names: the variables, as {"NAME", "value"}, ...
#define TEST_IN_CHILD(suite, name, ...)                                                 \
  static void suite##name##InChild();                                                   \
  TEST(suite, name) { ::nccl_pulse::RunInChild({__VA_ARGS__}, &suite##name##InChild); } \
  static void suite##name##InChild()

// In a child: ends it, and the caller's test counts as skipped for this reason.
[[noreturn]] void SkipScenario(const std::string& reason);

// Runs `action` with standard error going to a file, and returns what was written.
std::string CaptureStandardError(const std::function<void()>& action);

// Returns the time of CLOCK_MONOTONIC.
inline uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

// Until `condition` holds. The limit is for a broken build to end, not for a slow machine.
bool WaitUntil(const std::function<bool()>& condition);

// From now on these system calls fail with the given error in this process (seccomp). False where
// the machine does not allow filters.
struct RefusedCall {
  int number;
  int error;
  int64_t second_argument = -1;  // only calls with this second argument; -1: all
};
bool RefuseSystemCalls(const std::vector<RefusedCall>& calls);

// ---- the library --------------------------------------------------------------------------------

inline constexpr char kLibrary[] = "plugin/libnccl-profiler-pulse.so";

// The exported symbol, as NCCL looks it up; ends the test process when it is not there. The library
// stays open.
void* FindSymbol(const char* path, const std::string& name);
void* FindProfiler(int version);
template <typename Profiler>
const Profiler& ProfilerOf(int version) {
  return *static_cast<const Profiler*>(FindProfiler(version));
}

// What the plugin said through NCCL's logger since the last call.
std::vector<std::string> TakeLog();
void Logger(int level, unsigned long flags, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 5, 6)));

// ---- what it measured
// -----------------------------------------------------------------------------

// Descriptors of this process that are a plugin's segment.
std::vector<int> FindSegments();
// Reads the process' only segment.
ProcessSnapshot ReadSnapshot();

const CommunicatorSnapshot& Find(const ProcessSnapshot& snapshot, uint64_t comm_id);
uint64_t Calls(const CommunicatorSnapshot& communicator);
uint64_t Bytes(const CommunicatorSnapshot& communicator);
// Collectives whose algorithm was counted.
uint64_t Operations(const CommunicatorSnapshot& communicator);
uint64_t Timed(const CommunicatorSnapshot& communicator, LatencyKind kind);
uint64_t Untimed(const CommunicatorSnapshot& communicator);
uint64_t Untimed(const CommunicatorSnapshot& communicator, UntimedReason reason);
uint64_t Uncompleted(const CommunicatorSnapshot& communicator);
uint64_t Ignored(const ProcessSnapshot& snapshot);
uint64_t Ignored(const ProcessSnapshot& snapshot, IgnoredReason reason);
// By name, those that are not zero: compares, and prints, well.
std::map<std::string, uint64_t> IgnoredByName(const ProcessSnapshot& snapshot);

// ---- events, API v5
// -------------------------------------------------------------------------------

using Descriptor = abi::v5::Descriptor;

Descriptor CallEvent(const char* func, uint64_t count, const char* datatype, bool captured = false);
Descriptor P2pCallEvent(const char* func, uint64_t count, const char* datatype);
Descriptor LaunchEvent();
Descriptor CollEvent(const void* parent, uint64_t sequence, uint8_t channels);
Descriptor P2pEvent(const char* func, int rank, int peer, uint8_t channels);
Descriptor ProxyOpEvent(const void* parent, int32_t pid);
Descriptor StepEvent(const void* proxy_op, int step = 0);
Descriptor ChannelEvent(const void* parent, uint8_t channel, uint64_t gpu_ns);

// startEvent with a handle that holds a foreign value beforehand; checks what must hold for every
// call: success is returned and the handle written.
void* Start(void* context, Descriptor event);
void Stop(void* handle);
void Record(void* handle, int state, const uint64_t* gpu_ns = nullptr);
// A ProxyStep's state, with the bytes that NCCL passes with every one of them.
void RecordStep(void* handle, int state, uint64_t bytes);
void RecordAndStopChannel(void* handle, uint64_t gpu_ns);

// A communicator of NCCL's, with the callbacks that NCCL makes for it (API v5).
class NcclCommunicator {
 public:
  explicit NcclCommunicator(uint64_t comm_id, int rank = 0, int nranks = 2,
                            const char* name = "test");
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  void* context() const { return context_; }
  uint64_t comm_id() const { return comm_id_; }
  // NCCL's, one for the process, as it is now.
  static int event_mask();
  // Somebody else changes it.
  static void ChangeEventMask(int mask);
  void Finalize();
  // ... and what the process has measured until then.
  ProcessSnapshot FinalizeAndRead();

  // An AllReduce of kBytes: call, launch, Coll start and stop. Returns the Coll's handle.
  static constexpr uint64_t kBytes = 4096;
  void* Enqueue(uint8_t channels = 2);
  // ... whose `count` ProxyOps all start, then all stop.
  void RunWithProxy(int count = 2);
  // ... whose channels all run from `start_ns` to `stop_ns` on the GPU.
  void RunWithKernel(uint8_t channels, uint64_t start_ns, uint64_t stop_ns, int first_channel = 0);

 private:
  uint64_t comm_id_;
  void* context_ = nullptr;
  uint64_t sequence_ = 0;
};

// As TEST_IN_CHILD, with `comm`.
#define TEST_WITH_COMM(suite, name, ...)                     \
  static void suite##name##WithComm(NcclCommunicator& comm); \
  TEST_IN_CHILD(suite, name, __VA_ARGS__) {                  \
    NcclCommunicator comm(1);                                \
    suite##name##WithComm(comm);                             \
  }                                                          \
  static void suite##name##WithComm([[maybe_unused]] NcclCommunicator& comm)

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_HARNESS_H_

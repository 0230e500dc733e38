#include "tests/plugin/stream_job.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <ctime>
#include <thread>

namespace {
std::atomic<uint64_t> g_advanced_ns{0};
std::atomic<bool> g_clock_is_ours{false};
std::atomic<uint64_t> g_pauses{0};

// See SlowClock.
constexpr uint64_t kSlowdown = 1000;
std::atomic<uint64_t>
    g_slow_since_ns[2]{};  // by clock: CLOCK_REALTIME, CLOCK_MONOTONIC; 0: not slow

uint64_t Nanoseconds(const timespec& time) {
  return static_cast<uint64_t>(time.tv_sec) * 1000000000 + static_cast<uint64_t>(time.tv_nsec);
}
}  // namespace

// Take the place of libc's for the whole process, the plugin included.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  if (result != 0 || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)) {
    return static_cast<int>(result);
  }
  uint64_t ns = Nanoseconds(*now);
  const uint64_t slow_since_ns = g_slow_since_ns[clock].load(std::memory_order_relaxed);
  if (slow_since_ns != 0) ns = slow_since_ns + (ns - slow_since_ns) / kSlowdown;
  ns += g_advanced_ns.load(std::memory_order_relaxed);
  now->tv_sec = static_cast<time_t>(ns / 1000000000);
  now->tv_nsec = static_cast<long>(ns % 1000000000);
  return 0;
}

extern "C" int nanosleep(const timespec* pause, timespec* rest) {
  const timespec short_pause{0, 1000000};
  g_pauses.fetch_add(1, std::memory_order_relaxed);
  const bool shorten = g_clock_is_ours.load(std::memory_order_relaxed);
  return static_cast<int>(syscall(SYS_nanosleep, shorten ? &short_pause : pause, rest));
}

namespace nccl_pulse {
namespace {

bool IsPointToPoint(const char* op) { return strcmp(op, "Send") == 0 || strcmp(op, "Recv") == 0; }

}  // namespace

void SlowClock() {
  for (const clockid_t clock : {CLOCK_REALTIME, CLOCK_MONOTONIC}) {
    timespec now;
    syscall(SYS_clock_gettime, clock, &now);
    g_slow_since_ns[clock] = Nanoseconds(now);
  }
}

void AdvanceClock(uint64_t ns) { g_advanced_ns.fetch_add(ns, std::memory_order_relaxed); }

uint64_t Pauses() { return g_pauses.load(std::memory_order_relaxed); }

void RunWithGpu(const std::function<void(FakeCuda&)>& scenario, const Environment& environment) {
  Environment all{{"NCCL_PULSE_CLOCK", "monotonic"}};
  for (const auto& [name, value] : environment) all[name] = value;
  RunInChild(all, [&] {
    g_clock_is_ours = true;
    FakeCuda& gpu = LoadFakeCuda();
    gpu.MakeCurrent(gpu.CreateContext(0));
    scenario(gpu);
    EXPECT_EQ(gpu.ForbiddenInCallbacks(), 0u);
    EXPECT_EQ(gpu.RecordsIntoCaptures(), 0u);
    EXPECT_EQ(gpu.WrongKernelLaunches(), 0u);
    EXPECT_EQ(gpu.UsesOfDestroyedEvents(), 0u);
    EXPECT_EQ(gpu.ForeignEventsDestroyed(), 0u);
  });
}

void WaitForPoll() {
  for (int i = 0; i < 2; ++i) {
    const int64_t before = ReadSnapshot().last_poll_realtime_ns;
    EXPECT_TRUE(WaitUntil([&] { return ReadSnapshot().last_poll_realtime_ns != before; }));
  }
}

void AdvanceAndPoll(FakeCuda& gpu, uint64_t ns) {
  gpu.Advance(ns);
  WaitForPoll();
}

void AdvanceClockAndPoll(uint64_t ns) {
  AdvanceClock(ns);
  WaitForPoll();
}

void TimeEveryCall() {
  for (int i = 0; ReadSnapshot().sampling_exponent != 0 && i < 1000; ++i) {
    AdvanceClockAndPoll(2 * kSecond);
  }
  EXPECT_EQ(ReadSnapshot().sampling_exponent, 0);
}

StreamCommunicator::StreamCommunicator(FakeCuda& gpu, uint64_t comm_id, int device)
    : StreamCommunicator(gpu, comm_id, gpu.CreateContext(device)) {}

StreamCommunicator::StreamCommunicator(FakeCuda& gpu, uint64_t comm_id, FakeCuda::Context context,
                                       int nnodes, void** context_at, int api_version)
    : gpu_(gpu), comm_id_(comm_id), gpu_context_(context), stream_(gpu.CreateStream(context)) {
  gpu.MakeCurrent(context);
  int mask = 0;
  if (context_at == nullptr) context_at = &context_;
  // Later versions have this one's init, and these callbacks.
  EXPECT_EQ(ProfilerOf<abi::v5::Profiler>(api_version)
                .init(context_at, comm_id, &mask, "stream", nnodes, 2, 0, Logger),
            abi::kSuccess);
  context_ = *context_at;
}

void StreamCommunicator::Finalize() {
  EXPECT_EQ(ProfilerOf<abi::v5::Profiler>(5).finalize(context_), abi::kSuccess);
}

void* StreamCommunicator::StartGroup(bool captured, int depth) {
  const InCallback in_callback(gpu_);
  Descriptor event{};
  event.type = abi::kEventGroupApi;
  event.groupApi = {captured, depth};
  void* group = ::nccl_pulse::Start(context_, event);
  if (group != nullptr) Record(group, abi::kStateGroupStartApiStop);
  return group;
}

void StreamCommunicator::StopGroup(void* group) {
  const InCallback in_callback(gpu_);
  if (group != nullptr) Stop(group);
}

StreamCommunicator::Call StreamCommunicator::MakeCall(void* group, const char* op, uint64_t bytes,
                                                      bool captured, int root_or_peer) {
  const InCallback in_callback(gpu_);
  Descriptor event = IsPointToPoint(op) ? P2pCallEvent(op, bytes, "ncclInt8")
                                        : CallEvent(op, bytes, "ncclInt8", captured);
  if (IsPointToPoint(op)) {
    event.p2pApi.graphCaptured = captured;
  } else {
    event.collApi.root = root_or_peer;
  }
  (IsPointToPoint(op) ? event.p2pApi.stream : event.collApi.stream) = stream_;
  event.parentObj = group;
  void* handle = ::nccl_pulse::Start(context_, event);
  if (handle != nullptr) Stop(handle);
  return {op, bytes, handle, group, root_or_peer};
}

void StreamCommunicator::OnLaunchingThread(const std::function<void()>& callback) {
  const auto call = [&] {
    const InCallback in_callback(gpu_);
    callback();
  };
  if (launches_elsewhere_) {
    std::thread([&] {
      gpu_.MakeCurrent(gpu_context_);  // as doLaunches does (src/group.cc)
      call();
    }).join();
  } else {
    call();
  }
}

StreamCommunicator::Stream StreamCommunicator::Follow(Stream stream) {
  if (stream == nullptr) stream = stream_;
  // ncclLaunchPrepare: after the communicator's last launch, wherever that was.
  if (last_stream_ != nullptr) gpu_.Wait(stream, last_stream_);
  last_stream_ = stream;
  return stream;
}

void* StreamCommunicator::StartLaunch(void* group, Stream stream) {
  Descriptor event = LaunchEvent();
  event.parentObj = group;
  event.kernelLaunch.stream = Follow(stream);
  void* launch = nullptr;
  OnLaunchingThread([&] { launch = ::nccl_pulse::Start(context_, event); });
  return launch;
}

void StreamCommunicator::StopLaunch(void* launch) {
  OnLaunchingThread([&] {
    if (launch != nullptr) Stop(launch);
  });
}

void StreamCommunicator::LaunchUnreported(uint64_t duration_ns, Stream stream) {
  gpu_.Launch(Follow(stream), duration_ns);
}

void StreamCommunicator::RunUnreported(uint64_t duration_ns, const char* op, uint64_t bytes) {
  void* group = StartGroup();
  MakeCall(group, op, bytes);
  LaunchUnreported(duration_ns);
  StopGroup(group);
}

void StreamCommunicator::Launch(void* group, uint64_t duration_ns, Stream stream) {
  void* launch = StartLaunch(group, stream);
  gpu_.Launch(stream != nullptr ? stream : stream_, duration_ns);
  StopLaunch(launch);
}

void StreamCommunicator::Report(const Call& call) {
  Descriptor event;
  if (IsPointToPoint(call.op)) {
    event = P2pEvent(call.op, 0, call.root_or_peer, 2);
    event.p2p.count = call.bytes;
    event.p2p.datatype = "ncclInt8";
    event.parentObj = call.handle;
  } else {
    event = CollEvent(call.handle, sequence_++, channels_);
    event.coll.func = call.op;
    event.coll.count = call.bytes;
    event.coll.datatype = "ncclInt8";
  }
  OnLaunchingThread([&] {
    void* handle = ::nccl_pulse::Start(context_, event);
    if (handle != nullptr) Stop(handle);
  });
}

void StreamCommunicator::Run(uint64_t duration_ns, const char* op, uint64_t bytes, Stream stream) {
  void* group = StartGroup();
  const Call call = MakeCall(group, op, bytes);
  Launch(group, duration_ns, stream);
  Report(call);
  StopGroup(group);
}

void StreamCommunicator::RunGroup(uint64_t duration_ns, const std::vector<Call>& calls, int depth) {
  void* group = StartGroup(false, depth);
  std::vector<Call> made;
  made.reserve(calls.size());
  for (const Call& call : calls) made.push_back(MakeCall(group, call.op, call.bytes));
  Launch(group, duration_ns);
  for (const Call& call : made) Report(call);
  StopGroup(group);
}

void StreamCommunicator::WarmUp(const char* op, uint64_t bytes) {
  for (int i = 0; i < 2; ++i) Run(0, op, bytes);
}

void StreamCommunicator::TimeEveryCall() {
  ::nccl_pulse::TimeEveryCall();
  WarmUp();
}

CommunicatorSnapshot StreamCommunicator::Read() const { return Find(ReadSnapshot(), comm_id_); }

LatencySnapshot StreamLatency(const CommunicatorSnapshot& communicator, const std::string& op) {
  LatencySnapshot sum;
  for (const LatencySnapshot& latency : communicator.latencies) {
    if (latency.kind != LatencyKind::kDurationStream || latency.op != op) continue;
    sum.histogram += latency.histogram;
    sum.bytes += latency.bytes;
    sum.bus_bytes += latency.bus_bytes;
  }
  return sum;
}

uint64_t TimedOperations(const CommunicatorSnapshot& communicator) {
  return Timed(communicator, LatencyKind::kDurationStream) -
         StreamLatency(communicator, "Grouped").histogram.Count();
}

}  // namespace nccl_pulse

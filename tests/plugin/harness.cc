#include "tests/plugin/harness.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>

#if defined(__SANITIZE_THREAD__)
// Forking a process that has threads is what some of the tests are about.
extern "C" const char* __tsan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace nccl_pulse {
namespace {

constexpr int kFailedStatus = 1;
constexpr int kSkippedStatus = 77;

std::mutex g_log_mutex;
std::vector<std::string> g_log;  // under the mutex

// A child prints only when asked to end: what stdio holds must not be lost, nor printed twice.
[[noreturn]] void EndChild(int status) {
  fflush(nullptr);
  _exit(status);
}

}  // namespace

void RunInChild(const Environment& environment, const std::function<void()>& scenario) {
  fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0) << "fork";
  if (child == 0) {
    setenv("NCCL_PULSE_LISTEN", "off", 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    scenario();
    EndChild(::testing::Test::HasFailure() ? kFailedStatus : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkippedStatus) GTEST_SKIP();
  EXPECT_FALSE(WIFSIGNALED(status)) << "the job was killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

void SkipScenario(const std::string& reason) {
  printf("skipped: %s\n", reason.c_str());
  EndChild(kSkippedStatus);
}

std::string CaptureStandardError(const std::function<void()>& action) {
  FILE* file = tmpfile();
  const int before = dup(STDERR_FILENO);
  fflush(stderr);
  dup2(fileno(file), STDERR_FILENO);
  action();
  fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  std::string text;
  rewind(file);
  char buffer[4096];
  while (const size_t length = fread(buffer, 1, sizeof(buffer), file)) text.append(buffer, length);
  fclose(file);
  return text;
}

bool WaitUntil(const std::function<bool()>& condition) {
  // A minute. The library polls every 10 ms at its busiest.
  constexpr int kTries = 30000;
  for (int i = 0; i < kTries; ++i) {
    if (condition()) return true;
    const timespec pause{0, 2000000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

bool RefuseSystemCalls(const std::vector<RefusedCall>& calls) {
  std::vector<sock_filter> program;
  for (const RefusedCall& call : calls) {
    const auto number = static_cast<uint32_t>(call.number);
    const auto error = static_cast<uint32_t>(call.error);
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
    if (call.second_argument < 0) {
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    } else {
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3));
      program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])));
      program.push_back(
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call.second_argument), 0, 1));
    }
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// ---- the library --------------------------------------------------------------------------------

void* FindSymbol(const char* path, const std::string& name) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* const symbol = library != nullptr ? dlsym(library, name.c_str()) : nullptr;
  if (symbol == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    abort();
  }
  return symbol;
}

void* FindProfiler(int version) {
  return FindSymbol(kLibrary, "ncclProfiler_v" + std::to_string(version));
}

void Logger(int /*level*/, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
            const char* format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  const std::lock_guard<std::mutex> lock(g_log_mutex);
  g_log.emplace_back(text);
}

std::vector<std::string> TakeLog() {
  const std::lock_guard<std::mutex> lock(g_log_mutex);
  std::vector<std::string> log;
  log.swap(g_log);
  return log;
}

// ---- events, API v5 ----------------------------------------------------------------------------

Descriptor CallEvent(const char* func, uint64_t count, const char* datatype, bool captured) {
  Descriptor event{};
  event.type = abi::kEventCollApi;
  event.collApi = {func, count, datatype, 0, nullptr, captured};
  return event;
}

Descriptor P2pCallEvent(const char* func, uint64_t count, const char* datatype) {
  Descriptor event{};
  event.type = abi::kEventP2pApi;
  event.p2pApi = {func, count, datatype, nullptr, false};
  return event;
}

Descriptor LaunchEvent() {
  Descriptor event{};
  event.type = abi::kEventKernelLaunch;
  return event;
}

Descriptor CollEvent(const void* parent, uint64_t sequence, uint8_t channels) {
  Descriptor event{};
  event.type = abi::kEventColl;
  event.parentObj = const_cast<void*>(parent);
  event.coll = {sequence, "AllReduce",   nullptr,  nullptr, NcclCommunicator::kBytes / 4,
                0,        "ncclFloat32", channels, 16,      "RING",
                "SIMPLE", nullptr};
  return event;
}

Descriptor P2pEvent(const char* func, int rank, int peer, uint8_t channels) {
  Descriptor event{};
  event.type = abi::kEventP2p;
  event.rank = rank;
  event.p2p = {func, nullptr, "ncclFloat32", NcclCommunicator::kBytes / 4, peer, channels, nullptr};
  return event;
}

Descriptor ProxyOpEvent(const void* parent, int32_t pid) {
  Descriptor event{};
  event.type = abi::kEventProxyOp;
  event.parentObj = const_cast<void*>(parent);
  event.proxyOp.pid = pid;
  return event;
}

Descriptor StepEvent(const void* proxy_op, int step) {
  Descriptor event{};
  event.type = abi::kEventProxyStep;
  event.parentObj = const_cast<void*>(proxy_op);
  event.proxyStep.step = step;
  return event;
}

Descriptor ChannelEvent(const void* parent, uint8_t channel, uint64_t gpu_ns) {
  Descriptor event{};
  event.type = abi::kEventKernelCh;
  event.parentObj = const_cast<void*>(parent);
  event.kernelCh = {channel, gpu_ns};
  return event;
}

namespace {

const abi::v5::Profiler& Profiler() {
  static const auto& profiler = ProfilerOf<abi::v5::Profiler>(5);
  return profiler;
}

}  // namespace

void* Start(void* context, Descriptor event) {
  void* const untouched = &event;  // no ticket: they are never addresses of ours
  void* handle = untouched;
  if (Profiler().startEvent(context, &handle, &event) != abi::kSuccess || handle == untouched) {
    ADD_FAILURE() << "startEvent of type " << event.type << " broke its contract";
    return nullptr;
  }
  return handle;
}

void Stop(void* handle) {
  if (Profiler().stopEvent(handle) != abi::kSuccess) ADD_FAILURE() << "stopEvent";
}

void Record(void* handle, int state, const uint64_t* gpu_ns) {
  abi::v5::StateArgs args{};
  if (gpu_ns != nullptr) args.kernelCh.pTimer = *gpu_ns;
  if (Profiler().recordEventState(handle, state, gpu_ns != nullptr ? &args : nullptr) !=
      abi::kSuccess) {
    ADD_FAILURE() << "recordEventState";
  }
}

void RecordStep(void* handle, int state, uint64_t bytes) {
  abi::v5::StateArgs args{};
  args.proxyStep.transSize = bytes;
  if (Profiler().recordEventState(handle, state, &args) != abi::kSuccess) {
    ADD_FAILURE() << "recordEventState";
  }
}

void RecordAndStopChannel(void* handle, uint64_t gpu_ns) {
  Record(handle, abi::kStateKernelChStop, &gpu_ns);
  Stop(handle);
}

namespace {

// As NCCL's: one int in a library's own memory. A plugin may write it at any time.
int g_event_mask = 0;

}  // namespace

int NcclCommunicator::event_mask() { return __atomic_load_n(&g_event_mask, __ATOMIC_RELAXED); }

void NcclCommunicator::ChangeEventMask(int mask) {
  __atomic_store_n(&g_event_mask, mask, __ATOMIC_RELAXED);
}

NcclCommunicator::NcclCommunicator(uint64_t comm_id, int rank, int nranks, const char* name)
    : comm_id_(comm_id) {
  EXPECT_EQ(Profiler().init(&context_, comm_id, &g_event_mask, name, 1, nranks, rank, Logger),
            abi::kSuccess);
}

void NcclCommunicator::Finalize() {
  if (Profiler().finalize(context_) != abi::kSuccess) ADD_FAILURE() << "finalize";
}

ProcessSnapshot NcclCommunicator::FinalizeAndRead() {
  Finalize();
  return ReadSnapshot();
}

void* NcclCommunicator::Enqueue(uint8_t channels) {
  void* call = Start(context_, CallEvent("AllReduce", kBytes / 4, "ncclFloat32"));
  if (call != nullptr) Stop(call);
  void* launch = Start(context_, LaunchEvent());
  if (launch != nullptr) Stop(launch);
  void* coll = Start(context_, CollEvent(call, sequence_++, channels));
  if (coll != nullptr) Stop(coll);
  return coll;
}

void NcclCommunicator::RunWithProxy(int count) {
  void* coll = Enqueue();
  std::vector<void*> proxies;
  proxies.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    proxies.push_back(Start(context_, ProxyOpEvent(coll, getpid())));
    Record(proxies.back(), abi::kStateProxyOpInProgress);
  }
  for (void* proxy : proxies) Stop(proxy);
}

void NcclCommunicator::RunWithKernel(uint8_t channels, uint64_t start_ns, uint64_t stop_ns,
                                     int first_channel) {
  void* coll = Enqueue(channels);
  std::vector<void*> handles;
  for (int i = 0; i < channels; ++i) {
    handles.push_back(
        Start(context_, ChannelEvent(coll, static_cast<uint8_t>(first_channel + i), start_ns)));
  }
  for (void* handle : handles) RecordAndStopChannel(handle, stop_ns);
}

}  // namespace nccl_pulse

// Cost of one operation's callbacks, each beside the same calls into an empty plugin.
// ./bazelw run -c opt //bench:callbacks
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "bench/nccl_calls.h"

namespace nccl_pulse::bench {
namespace {

template <typename Api = ApiV5>
NcclCalls<Api>& Pulse() {
  static NcclCalls<Api> calls(FindLibrary("plugin/libnccl-profiler-pulse.so"));
  return calls;
}
// A loaded library keeps one timing mode for the life of the process. The copy under RCCL's name is
// a second instance of the same code, with its own settings.
NcclCalls<ApiV5>& PulseWithKernelTiming() {
  static NcclCalls<ApiV5> calls(FindLibrary("plugin/librccl-profiler-pulse.so"));
  return calls;
}
// A third instance, which finds a driver whose calls cost nothing. Use only after the others have
// found none (InitializeInstances).
template <typename Api = ApiV5>
NcclCalls<Api>& PulseWithHeartbeat() {
  OpenDriver(CountedCalls::kDriver);  // no counter is found in it without CountedCalls
  static NcclCalls<Api> calls(FindLibrary("bench/libpulse_with_heartbeat.so"));
  return calls;
}
CountedCalls& PulseWithCounter() {
  static CountedCalls calls(FindLibrary("bench/libpulse_with_counter.so"));
  return calls;
}
// A fourth instance, which always acts as if network steps are watched.
NcclCalls<ApiV5>& PulseWithNetworkSteps() {
  static NcclCalls<ApiV5> calls(FindLibrary("bench/libpulse_with_network_steps.so"));
  return calls;
}
// A fifth instance, which chains the empty plugin. Reads the setting when loaded, before main's
// other threads.
template <typename Api = ApiV5>
NcclCalls<Api>& PulseWithNext() {
  setenv("NCCL_PULSE_NEXT_PLUGIN", FindLibrary("bench/libempty_plugin.so").c_str(), 1);
  static NcclCalls<Api> calls(FindLibrary("bench/libpulse_with_next.so"));
  return calls;
}
template <typename Api = ApiV5>
NcclCalls<Api>& Empty() {
  static NcclCalls<Api> calls(FindLibrary("bench/libempty_plugin.so"));
  return calls;
}

// Initializes the instances: each reads its settings and finds a driver in its first init. Only one
// of them serves.
void InitializeInstances() {
  Pulse().Finalize(Pulse().Init(0x1));
  const std::string listen = getenv("NCCL_PULSE_LISTEN");
  setenv("NCCL_PULSE_LISTEN", "off", 1);
  setenv("NCCL_PULSE_TIMING", "kernel", 1);
  PulseWithKernelTiming().Finalize(PulseWithKernelTiming().Init(0x2));
  unsetenv("NCCL_PULSE_TIMING");
  setenv("NCCL_PULSE_NETWORK_WINDOW", "100", 1);
  PulseWithNetworkSteps().Finalize(PulseWithNetworkSteps().Init(0x4));
  unsetenv("NCCL_PULSE_NETWORK_WINDOW");
  PulseWithNext().Finalize(PulseWithNext().Init(0x5));
  unsetenv("NCCL_PULSE_NEXT_PLUGIN");
  PulseWithHeartbeat().Finalize(PulseWithHeartbeat().Init(0x3));
  PulseWithCounter();
  setenv("NCCL_PULSE_LISTEN", listen.c_str(), 1);
}

template <typename Calls>
void EagerCollective(benchmark::State& state, Calls& calls) {
  void* context = calls.Init(0x1000 + static_cast<uint64_t>(state.thread_index()));
  uint64_t sequence = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(calls.EagerCollective(context, sequence++, 24));
  }
  calls.Finalize(context);
}

// Unrelated code: functions of 32 bytes or more.
template <int kNumber>
__attribute__((noinline)) void DoSomethingElse(volatile int* sink) {
  *sink = *sink + kNumber;
}
template <int... kNumbers>
std::vector<void (*)(volatile int*)> MakeOtherCode(
    std::integer_sequence<int, kNumbers...> /*all*/) {
  return {DoSomethingElse<kNumbers>...};
}

// Simulates the time between a job's launches, where NCCL and the driver evict caches and branch
// predictors. The result is the difference to the empty plugin, which includes the two clock
// readings.
template <typename Calls>
void EagerCollectiveColdCaches(benchmark::State& state, Calls& calls) {
  void* context = calls.Init(0x8000);
  // Larger than first-level caches, but done within 100 us: launches are in a hurry.
  std::vector<char> others(1 << 17);
  const auto other_code = MakeOtherCode(std::make_integer_sequence<int, 2048>());
  volatile int sink = 0;
  std::vector<double> took_s;
  uint64_t sequence = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < others.size(); i += 64) ++others[i];
    for (const auto function : other_code) function(&sink);
    benchmark::ClobberMemory();
    const auto begin = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(calls.EagerCollective(context, sequence++, 24));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(took.count());
    took_s.push_back(took.count());
  }
  const auto middle = took_s.begin() + static_cast<std::ptrdiff_t>(took_s.size() / 2);
  std::nth_element(took_s.begin(), middle, took_s.end());
  state.counters["median_ns"] = *middle * 1e9;
  calls.Finalize(context);
}

// Registers each API version that has launches. With a heartbeat, an event is recorded behind each
// launch; the driver's own cost comes on top.
template <typename Calls>
void RegisterBoth(const std::string& name, Calls& (*calls)()) {
  const auto add = [&](const std::string& mode, auto* benchmark) {
    return benchmark::RegisterBenchmark(
        (mode + "/" + name).c_str(), [=](benchmark::State& state) { benchmark(state, calls()); });
  };
  add("EagerCollective", EagerCollective<Calls>);
  add("EagerCollectiveColdCaches", EagerCollectiveColdCaches<Calls>)
      ->UseManualTime()
      ->Iterations(20000);
}
template <typename Api>
void RegisterEagerCollective(const std::string& version) {
  RegisterBoth("Pulse/" + version, Pulse<Api>);
  RegisterBoth("PulseWithHeartbeat/" + version, PulseWithHeartbeat<Api>);
  RegisterBoth("PulseWithNext/" + version, PulseWithNext<Api>);
  RegisterBoth("EmptyPlugin/" + version, Empty<Api>);
}

void ProxyOp(benchmark::State& state, NcclCalls<ApiV5>& calls) {
  void* context = calls.Init(0x2000);
  const int32_t pid = getpid();
  constexpr int kOps = 48;  // 24 channels, send and receive
  uint64_t sequence = 0;
  for (auto _ : state) {
    state.PauseTiming();
    void* coll = calls.EagerCollective(context, sequence++, 24);
    if (coll == nullptr) coll = &coll;
    state.ResumeTiming();
    void* handles[kOps];
    for (void*& handle : handles) handle = calls.StartProxyOp(context, coll, pid);
    for (void* handle : handles) calls.StopProxyOp(handle);
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * kOps * 2);
  state.counters["ns_per_callback"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kOps * 2 * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  calls.Finalize(context);
}
BENCHMARK_CAPTURE(ProxyOp, Pulse, Pulse());
BENCHMARK_CAPTURE(ProxyOp, EmptyPlugin, Empty());

// One network step while steps are watched: five callbacks, for start, three states and stop.
// Otherwise NCCL makes none of them, except a start for each step of a CUDA graph captured while
// steps were watched. The plugin refuses this start.
void ProxyStep(benchmark::State& state, NcclCalls<ApiV5>& calls) {
  void* context = calls.Init(0x3000);
  void* coll = calls.EagerCollective(context, 0, 24);
  void* proxy_op = calls.StartProxyOp(context, coll, getpid());
  for (auto _ : state) calls.ProxyStep(context, proxy_op);
  calls.Finalize(context);
}
BENCHMARK_CAPTURE(ProxyStep, Watched, PulseWithNetworkSteps());
BENCHMARK_CAPTURE(ProxyStep, EmptyPlugin, Empty());  // returns no handle, so it only gets the start

void ProxyStepRefused(benchmark::State& state) {
  void* context = PulseWithNetworkSteps().Init(0x3100);
  for (auto _ : state) PulseWithNetworkSteps().ProxyStep(context, nullptr);
  PulseWithNetworkSteps().Finalize(context);
}
BENCHMARK(ProxyStepRefused);

void KernelTimedCollective24Channels(benchmark::State& state, NcclCalls<ApiV5>& calls) {
  void* context = calls.Init(0x4000);
  uint64_t sequence = 0;
  uint64_t gpu_ns = 1700000000000000000;
  constexpr int kChannels = 24;
  for (auto _ : state) {
    void* coll = calls.EagerCollective(context, sequence++, kChannels);
    void* handles[kChannels];
    for (int i = 0; i < kChannels; ++i) {
      handles[i] =
          calls.StartKernelChannel(context, coll, static_cast<uint8_t>(i), gpu_ns + 32 * i);
    }
    for (int i = 0; i < kChannels; ++i)
      calls.StopKernelChannel(handles[i], gpu_ns + 90000 + 32 * i);
    gpu_ns += 100000;
  }
  calls.Finalize(context);
}
BENCHMARK_CAPTURE(KernelTimedCollective24Channels, Pulse, PulseWithKernelTiming());
BENCHMARK_CAPTURE(KernelTimedCollective24Channels, EmptyPlugin, Empty());

// A tuner's query in getCollInfo. With kernel timing the durations are the benchmark's own.
void Query(benchmark::State& state) {
  constexpr uint64_t kComm = 0x7000;
  void* context = PulseWithKernelTiming().Init(kComm);
  DurationQuery query(FindLibrary("plugin/librccl-profiler-pulse.so"));
  const bool is_answered = query.WaitForAnswer(kComm, [context](uint64_t i) {
    void* coll = PulseWithKernelTiming().EagerCollective(context, i, 1);
    const uint64_t gpu_ns = 1700000000000000000 + i * 100000;
    PulseWithKernelTiming().StopKernelChannel(
        PulseWithKernelTiming().StartKernelChannel(context, coll, 0, gpu_ns), gpu_ns + 90000);
  });
  if (!is_answered) state.SkipWithError("no answer");
  for (auto _ : state) benchmark::DoNotOptimize(query.Ask(kComm));
  PulseWithKernelTiming().Finalize(context);
}
BENCHMARK(Query);

}  // namespace
}  // namespace nccl_pulse::bench

int main(int argc, char** argv) {
  setenv("NCCL_PULSE_LISTEN", "127.0.0.1:0", 0);
  nccl_pulse::bench::InitializeInstances();
  nccl_pulse::bench::RegisterEagerCollective<nccl_pulse::bench::ApiV5>("v5");
  nccl_pulse::bench::RegisterEagerCollective<nccl_pulse::bench::ApiV6>("v6");
  nccl_pulse::bench::RegisterEagerCollective<nccl_pulse::bench::ApiV7>("v7");
  nccl_pulse::bench::RegisterBoth("PulseWithCounter/v6", nccl_pulse::bench::PulseWithCounter);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

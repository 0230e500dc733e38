// What the callbacks of one operation cost, each beside the same calls into an empty plugin.
// ./bazelw run -c opt //bench:callbacks
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <thread>

#include "bench/nccl_calls.h"

namespace nccl_pulse::bench {
namespace {

NcclCalls& Pulse() {
  static NcclCalls calls(FindLibrary("plugin/libnccl-profiler-pulse.so"));
  return calls;
}
// A loaded library keeps one timing mode for the life of the process; the copy under RCCL's name is
// a second instance of the same code, with its own settings.
NcclCalls& PulseWithKernelTiming() {
  static NcclCalls calls(FindLibrary("plugin/librccl-profiler-pulse.so"));
  return calls;
}
NcclCalls& Empty() {
  static NcclCalls calls(FindLibrary("bench/libempty_plugin.so"));
  return calls;
}

void EagerCollective(benchmark::State& state, NcclCalls& calls) {
  void* context = calls.Init(0x1000 + static_cast<uint64_t>(state.thread_index()));
  uint64_t sequence = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(calls.EagerCollective(context, sequence++, 24));
  }
  calls.Finalize(context);
}
BENCHMARK_CAPTURE(EagerCollective, Pulse, Pulse());
BENCHMARK_CAPTURE(EagerCollective, EmptyPlugin, Empty());

void ProxyOp(benchmark::State& state, NcclCalls& calls) {
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

void ProxyStep(benchmark::State& state, NcclCalls& calls) {
  void* context = calls.Init(0x3000);
  void* coll = calls.EagerCollective(context, 0, 24);
  void* proxy_op = calls.StartProxyOp(context, coll, getpid());
  for (auto _ : state) calls.ProxyStep(context, proxy_op);
  calls.Finalize(context);
}
BENCHMARK_CAPTURE(ProxyStep, Pulse, Pulse());
BENCHMARK_CAPTURE(ProxyStep, EmptyPlugin, Empty());

void KernelTimedCollective24Channels(benchmark::State& state, NcclCalls& calls) {
  setenv("NCCL_PULSE_TIMING", "kernel", 1);
  void* context = calls.Init(0x4000);
  unsetenv("NCCL_PULSE_TIMING");
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

}  // namespace
}  // namespace nccl_pulse::bench

int main(int argc, char** argv) {
  setenv("NCCL_PULSE_LISTEN", "off", 0);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

// Cost per page of diagnosing hangs and stragglers (exporter/diagnosis/diagnosis.h). The number in
// a name is the number of processes of a node, with 16 communicators each and full rings.
//
//   ./bazelw run -c opt //bench:diagnosis
//
// "new": none of the calls in the rings was counted before, the worst case.
#include "exporter/diagnosis/diagnosis.h"

#include <cstdint>

#include "benchmark/benchmark.h"
#include "exporter/diagnosis/health.h"
#include "exporter/diagnosis/job_verdict.h"
#include "exporter/diagnosis/stragglers/pace_history.h"
#include "exporter/diagnosis/testing/simulated_job.h"

namespace nccl_pulse {
namespace {

constexpr int kCommunicators = 16;

SnapshotSet MakeSet(int processes) {
  SimulatedJob job(processes);
  std::vector<int> all;
  for (int i = 0; i < processes; ++i) all.push_back(i);
  for (int i = 0; i < kCommunicators; ++i) job.AddCommunicator(i + 1, all);
  for (int call = 0; call < 40; ++call) {
    for (int i = 0; i < kCommunicators; ++i) {
      std::vector<int64_t> arrivals(processes);
      for (int rank = 0; rank < processes; ++rank) arrivals[rank] = (rank * 7 + call) % 50 * kUs;
      job.Collective(i + 1, call % 2 == 0 ? "AllReduce" : "AllGather", arrivals, kMs);
    }
  }
  return job.Set();
}

void Diagnose(benchmark::State& state, bool is_new) {
  SnapshotSet set = MakeSet(static_cast<int>(state.range(0)));
  const int64_t now = kStart + 60 * kSecond;
  Diagnosis seen;
  seen.Update(set, now);
  for ([[maybe_unused]] auto _ : state) {
    Diagnosis fresh;
    benchmark::DoNotOptimize((is_new ? fresh : seen).Update(set, now));
  }
}

// The diagnosis that runs once work has been in flight for long.
void DiagnoseHang(benchmark::State& state) {
  SnapshotSet set = MakeSet(static_cast<int>(state.range(0)));
  const int64_t now = kStart + 60 * kSecond;
  for (std::size_t i = 1; i < set.processes.size(); ++i) {
    for (CommunicatorSnapshot& communicator : set.processes[i].communicators) {
      ++communicator.launches;
      ++communicator.calls.front().calls;
      communicator.oldest_inflight_realtime_ns = kStart + kSecond;
      communicator.last_completion_realtime_ns = kStart + kSecond;
    }
  }
  Diagnosis diagnosis;
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(diagnosis.Update(set, now));
}

// An endpoint's pace history of its processes, in the worst case: each page ends a window.
void RememberPace(benchmark::State& state) {
  SnapshotSet set = MakeSet(static_cast<int>(state.range(0)));
  PaceHistory history;
  int64_t now = kStart + 60 * kSecond;
  for ([[maybe_unused]] auto _ : state) {
    now += 10 * kSecond;
    for (ProcessSnapshot& process : set.processes) {
      for (CommunicatorSnapshot& communicator : process.communicators) {
        for (CallCountSnapshot& call : communicator.calls) call.calls += 20;
        for (LatencySnapshot& latency : communicator.latencies) latency.histogram.cells[100] += 20;
      }
    }
    history.Update(&set, now);
  }
}

// A hostile endpoint may invent as many communicators as fit into its answer: on each, a rank waits
// for unseen ranks, and some GPUs have not begun. All belong to one process, or each to its own.
void DiagnoseMadeUp(benchmark::State& state, bool is_one_process) {
  const auto count = static_cast<int>(state.range(0));
  SimulatedJob job(is_one_process ? 1 : count);
  for (int i = 0; i < count; ++i) {
    job.AddCommunicator(i + 1, {is_one_process ? 0 : i}, 2);
  }
  SnapshotSet set = job.Set();
  set.is_of_all_nodes = true;
  int number = 0;
  for (ProcessSnapshot& process : set.processes) {
    for (CommunicatorSnapshot& each : process.communicators) {
      each.calls = {{"AllReduce", 4, "ncclFloat32", false, 1, 4}};
      each.last_call_op = "AllReduce";
      each.launches = 1;
      each.last_launch_realtime_ns = each.oldest_inflight_realtime_ns = kStart + ++number;
      each.oldest_launch = number % 2 == 0 ? OldestLaunch::kNotBegun : OldestLaunch::kBegun;
    }
    process.last_poll_realtime_ns = kStart + 300 * kSecond;
  }
  const int64_t now = kStart + 300 * kSecond;
  for ([[maybe_unused]] auto _ : state) {
    const DiagnosisResult result = Diagnosis().Update(set, now);
    benchmark::DoNotOptimize(JudgeJob(set, result, now));
    benchmark::DoNotOptimize(HealthOf(set, result, now));
  }
}

BENCHMARK_CAPTURE(DiagnoseMadeUp, one_process, true)
    ->Arg(1000)
    ->Arg(8000)
    ->Arg(75000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(DiagnoseMadeUp, processes, false)
    ->Arg(1000)
    ->Arg(8000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Diagnose, seen, false)->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Diagnose, new, true)->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond);
BENCHMARK(RememberPace)->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond);
BENCHMARK(DiagnoseHang)->Arg(8)->Arg(64)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace nccl_pulse

// Handmade snapshots for tests: one of every thing that a page can show.
#ifndef TESTS_EXPORTER_EXAMPLE_SNAPSHOTS_H_
#define TESTS_EXPORTER_EXAMPLE_SNAPSHOTS_H_

#include "exporter/diagnosis/diagnosis_result.h"
#include "metrics/size_class.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

inline CommunicatorSnapshot ExampleCommunicator() {
  CommunicatorSnapshot comm;
  comm.comm_id = 0x00ab12cd34ef5678;
  comm.name = "tp \"group\" \\ 0";
  comm.rank = 3;
  comm.nranks = 8;
  comm.nnodes = 2;
  comm.index = 1;
  comm.gpu = "3";
  comm.uuid = "GPU-8a56b4a1-93c7-11ee-b9d1-0242ac120002";
  comm.pci_bus_id = "00000000:18:00.0";
  comm.init_realtime_ns = 1760000001000000000;
  comm.calls = {{"AllReduce", 4, "ncclFloat32", false, 100, 104857600},
                {"AllReduce", 4, "ncclBfloat16", false, 10, 1048576},
                {"AllReduce", 4, "ncclFloat32", true, 1, 24}};
  comm.composites = {{"AlltoAll", 2, false, 40}};
  comm.algorithms = {{"AllReduce", "RING", "SIMPLE", 110}};
  comm.untimed = {{"AllReduce", UntimedReason::kOverlap, 7}};
  comm.uncompleted = {{"Send", 2}};
  comm.sequences = {{"AllReduce", 111}};
  comm.launches = 111;
  comm.has_heartbeat = true;
  comm.launches_completed = 108;
  comm.oldest_inflight_realtime_ns = 1760000002250000000;
  // No communicator has both; the example has everything.
  comm.operations_source = CompletionSource::kProxy;
  comm.oldest_operation_realtime_ns = 1760000002250000000;
  comm.last_launch_realtime_ns = 1760000002500000000;
  comm.last_completion_realtime_ns = 1760000002750000000;
  comm.overflowed_operations = 5;
  comm.network_bytes = {1000, 2000};
  comm.network_wait_ns = {1500000000, 2000000000, 3000000000, 4000000000, 0, 6000000000};

  LatencySnapshot kernel;
  kernel.kind = LatencyKind::kDurationKernel;
  kernel.op = "AllReduce";
  kernel.size_class = 4;
  kernel.histogram.cells[kZeroCell] = 1;
  kernel.histogram.cells[8] = 2;                  // the last cell of le = 2^-19
  kernel.histogram.cells[9] = 4;                  // the first one past it
  kernel.histogram.cells[kOverflowCell - 1] = 8;  // the last cell of le = 2^10
  kernel.histogram.cells[kOverflowCell] = 16;
  kernel.histogram.sum_ns = 2500000000;
  kernel.bytes = 4096;
  kernel.bus_bytes = 7168;
  LatencySnapshot proxy = kernel;
  proxy.kind = LatencyKind::kCompletionProxy;
  LatencySnapshot completion = kernel;
  completion.kind = LatencyKind::kCompletionKernel;
  completion.size_class = kOverflowSizeClass;
  comm.latencies = {kernel, proxy, completion};
  return comm;
}

inline ProcessSnapshot ExampleProcess() {
  ProcessSnapshot process;
  process.pid = 4711;
  process.plugin_version = "0.1.0";
  process.hostname = "node-1";
  process.global_rank = "11";
  process.local_rank = "3";
  process.job_id = "99";
  process.nccl_api_version = 5;
  process.timing = "kernel";
  process.duration_source = "kernel";
  process.completion_source = "stream";
  process.sampling_exponent = 7;
  process.event_mask = 0xdb;
  process.start_realtime_ns = 1760000000000000000;
  process.last_poll_realtime_ns = 1760000003000000000;
  process.shared_memory = true;
  process.callbacks = {10, 20, 30, 40, 50, 60};
  process.network_observed_ns = 2500000000;
  process.sampled_callbacks = 4;
  process.sampled_callback_ns = 100;
  process.ignored[static_cast<int>(IgnoredReason::kForeignHandle)] = 6;
  process.series_used = 12;
  process.series_limit = 1024;
  process.communicators_used = 1;
  process.communicator_limit = 64;
  process.recycled_communicators = 3;
  process.recycled_calls = {{"AllReduce", 70, 7000}, {"other", 2, 200}};
  process.commands = {4, 1, 0, 2};
  process.changed_settings = 1u << static_cast<int>(LiveSetting::kHangSeconds);
  process.communicators = {ExampleCommunicator()};
  return process;
}

// Of the example's communicator.
inline DiagnosisResult ExampleDiagnosis() {
  CommunicatorDiagnosis diagnosis;
  diagnosis.comm_id = 0x00ab12cd34ef5678;
  Hang& hang = diagnosis.hang.emplace();
  hang.verdict = HangVerdict::kRankNotCalled;
  hang.since_realtime_ns = 1760000002250000000;
  hang.op = "AllReduce";
  hang.suspects = {3};
  hang.waiting = {1, 2};
  hang.text = "Rank 3 (pid 4711, GPU 3) has not called AllReduce.";
  hang.first_step = "py-spy dump --pid 4711";
  diagnosis.straggler = Straggler{3, 0.25, 0.001, 0.9, 100, "Rank 3 arrives last."};
  diagnosis.straggler->ranks = {3};
  diagnosis.losses = {{3, 1.5, ""}};
  return {diagnosis};
}

}  // namespace nccl_pulse

#endif  // TESTS_EXPORTER_EXAMPLE_SNAPSHOTS_H_

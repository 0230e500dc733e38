// GpuUses reads from NVML whether this host's GPUs have run kernels. Only the serving process asks,
// and only for GPUs with captured calls whose counter of finished work (plugin/cuda/work_proof.h)
// is stalled or not available.
//
// The driver always keeps each GPU's utilization of the last 14 s, five samples a second. A value
// of 100 % means that some kernel ran all the time, not what it did. An NCCL kernel that waits for
// another rank leaves memory at 0 %. Computation usually does not (bf16 matrices of 8192: 22 %;
// tests/gpu/work_counters.py, case `computes`). A GPU shared with other processes gives no
// information.
//
// Thread: one at a time. Cost: the first query loads libnvidia-ml.so.1, tens of milliseconds. Later
// queries take 2.5 ms, at most one per GPU and second. Errors: kUnknown without NVML, for a GPU
// that it does not know, or with too few samples.
#ifndef EXPORTER_NODE_GPU_USE_H_
#define EXPORTER_NODE_GPU_USE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"
#include "metrics/kinds.h"

namespace nccl_pulse {

// A GPU of this host, by NVML.
struct HostGpu {
  int index = 0;  // NVML's index
  GpuUse use{};
  std::vector<int32_t> pids;  // processes with a context on it, in this host's PID namespace
};

// Percent of the time, as NVML samples it.
struct UseSample {
  int64_t realtime_ns = 0;
  unsigned percent = 0;
};
struct GpuSamples {
  int index = 0;
  std::vector<int32_t> pids;
  std::vector<UseSample> kernels, memory;  // a kernel ran; memory was read or written
};

class GpuUses {
 public:
  GpuUses();
  ~GpuUses();
  GpuUses(const GpuUses&) = delete;
  GpuUses& operator=(const GpuUses&) = delete;

  // Sets the GPU's use for each communicator whose counter has been stalled for its process'
  // threshold, or is not available.
  void Add(int64_t now_realtime_ns, SnapshotSet* set);

  // Returns what every GPU of this host has run since `since_realtime_ns`; empty without NVML.
  std::vector<HostGpu> OfHost(int64_t since_realtime_ns);
  // Returns the samples that the driver keeps of every GPU of this host; empty without NVML.
  std::vector<GpuSamples> SamplesOfHost();

 private:
  struct Nvml;
  const Nvml& Loaded();
  struct Answer {
    int64_t asked_ns = 0;
    GpuUse use{};
    int64_t since_ns = 0;  // start of the period for which `use` holds
  };
  // Returns what the GPU has run since `since_realtime_ns`, as far back as the driver and earlier
  // answers reach.
  const Answer& Of(const std::string& uuid, int64_t since_realtime_ns, int64_t now_realtime_ns);

  std::unique_ptr<Nvml> nvml_;  // null: not loaded yet
  std::map<std::string, Answer> answers_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_GPU_USE_H_

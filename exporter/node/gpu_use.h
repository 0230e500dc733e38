// This says whether a GPU of this host has run something: what NVML says, asked by whoever serves the node, and
// only of GPUs on which NCCL's own counter of finished work stands (plugin/cuda/work_proof.h).
//
// The driver keeps samples of each GPU's utilization for the last 14 s, five a second, without being
// asked before. 100 % says that some kernel ran all the time, not what it did. One of NCCL's that waits
// for another rank leaves the memory at 0 %; what computes does not, as a rule (bf16 matrices of 8192:
// 22 %; tests/gpu/work_counters.py, case `computes`). A GPU that other processes use as well says nothing.
//
// Thread: one at a time. Cost: the first question loads libnvidia-ml.so.1, tens of milliseconds; each
// other one 2.5 ms, and each GPU is asked once a second at most. Errors: kUnknown where there is no
// NVML, it does not know the GPU, or it has too few samples.
#ifndef EXPORTER_NODE_GPU_USE_H_
#define EXPORTER_NODE_GPU_USE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exporter/diagnosis/snapshot_set.h"
#include "metrics/kinds.h"

namespace nccl_pulse {

// A GPU of this host, as NVML sees it.
struct HostGpu {
  int index = 0;  // NVML's
  GpuUse use{};
  std::vector<int32_t> pids;  // that have a context on it, as this host counts them
};

class GpuUses {
 public:
  GpuUses();
  ~GpuUses();
  GpuUses(const GpuUses&) = delete;
  GpuUses& operator=(const GpuUses&) = delete;

  // Says of all communicators whose counter has stood for that long what their GPUs have run meanwhile.
  void Add(int64_t now_realtime_ns, int64_t stands_after_ns, SnapshotSet* set);

  // Returns what every GPU of this host has run since then; empty without NVML.
  std::vector<HostGpu> OfHost(int64_t since_realtime_ns);

 private:
  struct Nvml;
  struct Answer {
    int64_t asked_ns = 0;
    GpuUse use{};
    int64_t since_ns = 0;  // as far as the answers before reach
  };
  // Says what the GPU has run since then, as far back as the driver and the answers before remember.
  const Answer& Of(const std::string& uuid, int64_t since_realtime_ns, int64_t now_realtime_ns);

  std::unique_ptr<Nvml> nvml_;  // null: not loaded yet
  std::map<std::string, Answer> answers_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_GPU_USE_H_

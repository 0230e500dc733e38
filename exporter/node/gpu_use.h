// GpuUses reads from NVML whether this host's GPUs have run kernels. The serving process calls Add,
// the search for processes without the plugin (exporter/outside) OfHost, `pulse capture`
// SamplesOfHost.
//
// The driver always keeps each GPU's utilization of the last 14 s, five samples a second. A value
// of 100 % means that kernels ran all the time; it does not show which. An NCCL kernel that waits
// for another rank leaves memory at 0 %. Computation usually does not (bf16 matrices of 8192: 22 %;
// tests/gpu/work_counters.py, case `computes`). A GPU shared with other processes gives no
// information.
//
// Thread: one at a time. Add and OfHost query on a separate thread, because NVML waits for a driver
// that hangs. Cost: the first query loads libnvidia-ml.so.1, tens of milliseconds. Later queries
// take 2.5 ms; Add makes at most one per GPU and second. Errors: kUnknown without NVML, for a GPU
// unknown to NVML, with too few samples, or while NVML does not answer.
#ifndef EXPORTER_NODE_GPU_USE_H_
#define EXPORTER_NODE_GPU_USE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"
#include "metrics/kinds.h"

namespace nccl_pulse {

// A GPU of this host, as NVML reports it.
struct HostGpu {
  int index = 0;              // NVML's index
  GpuUse use{};               // of all its processes together, so never kShared
  std::vector<int32_t> pids;  // processes with a context on it, in this host's PID namespace
};

// A utilization sample of NVML: the percentage of a sampling period.
struct UseSample {
  int64_t realtime_ns = 0;  // Unix time of the sample
  unsigned percent = 0;
};
struct GpuSamples {
  int index = 0;
  std::vector<int32_t> pids;
  std::vector<UseSample> kernels, memory;  // time with a kernel; with memory traffic
};

class GpuUses {
 public:
  GpuUses();
  ~GpuUses();
  GpuUses(const GpuUses&) = delete;
  GpuUses& operator=(const GpuUses&) = delete;

  static constexpr std::chrono::milliseconds kPatience{300};  // longest wait of Add for NVML
  static constexpr std::chrono::seconds kHostPatience{5};     // longest wait of OfHost

  // Sets the GPU's use for each communicator with captured calls whose counter of finished work
  // (plugin/cuda/work_proof.h) has been stalled for its process' threshold, or is not available.
  void Add(int64_t now_realtime_ns, SnapshotSet* set);

  // Returns what every GPU of this host has run since `since_realtime_ns`; empty without NVML,
  // if it does not answer within kHostPatience, or if an earlier query still waits.
  std::vector<HostGpu> OfHost(int64_t since_realtime_ns);
  // Returns the samples that the driver keeps of every GPU of this host; empty without NVML. Waits
  // as long as NVML does.
  static std::vector<GpuSamples> SamplesOfHost();

 private:
  struct Nvml;
  struct Loaded;
  struct Query;
  struct Answer {
    int64_t asked_ns = 0;  // Unix time of the query
    GpuUse use{};
    int64_t since_ns = 0;  // start of the period for which `use` holds
  };
  // Runs `ask` on a separate thread. Returns false without running it if an earlier one still
  // waits for NVML.
  bool Ask(std::chrono::milliseconds patience, std::function<void(const Nvml&)> ask);
  // Starts queries for the use of GPUs since the given times, and takes the answers that are ready.
  void Renew(const std::map<std::string, int64_t>& since_ns, int64_t now_realtime_ns);
  void TakeAnswers();

  std::shared_ptr<Loaded> loaded_;
  std::shared_ptr<Query> query_;  // the last query; its answers may come later
  std::map<std::string, Answer> answers_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_GPU_USE_H_

// OutsideMonitor watches this host for hangs of jobs that run without the plugin, for
// `pulse agent --without-plugin=on`. RAS is the status service in NCCL's processes. The threshold
// is `hang_after`.
//
//   NVML    each round, all GPUs
//   /proc   processes on GPUs, to list processes without the plugin: when the set of processes on
//           GPUs has changed, and every kListAgain. Also once a GPU has been busy without memory
//           traffic for half of the threshold (3 to 12 s)
//   RAS     asked at that time, at the threshold, and then after each such half while GPUs wait.
//           Not asked for kLeftAlone after answers by which all jobs of this host are OK
//
// So RAS is asked only while a GPU seems to wait. Findings are snapshots, like the plugin's.
//
// Thread: one calls Round, which blocks for up to four times kRasPatience; Snapshots and Processes
// any. Cost without a hang: 2.5 ms of NVML per round.
#ifndef EXPORTER_OUTSIDE_OUTSIDE_MONITOR_H_
#define EXPORTER_OUTSIDE_OUTSIDE_MONITOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/outside/outside_look.h"

namespace nccl_pulse::outside {

class OutsideMonitor {
 public:
  static constexpr std::chrono::seconds kInterval{2};  // between rounds
  static constexpr std::chrono::seconds kLeftAlone{30};
  static constexpr std::chrono::seconds kListAgain{30};

  OutsideMonitor(std::function<std::chrono::milliseconds()> hang_after, Sources sources,
                 RasChoice ras = {});

  // Returns false if there is no NVML, or no GPU, so that nothing can be found.
  bool HasGpus() const;
  // Returns sentences about sources that could not be asked.
  std::vector<std::string> Round();
  // Returns the ranks of jobs that hang, and notes on jobs whose GPUs wait; empty if none wait.
  SnapshotSet Snapshots(int64_t now_realtime_ns) const;
  // Processes on GPUs that use NCCL without the plugin; nothing before the first round.
  std::optional<std::vector<ProcessWithoutPlugin>> Processes() const;

 private:
  void List(const std::vector<HostProcess>& processes, const std::vector<HostGpu>& gpus);
  void Publish(std::vector<JobLook> jobs, int64_t now_ns);
  void Clear(int64_t now_ns);
  // Clears the findings, and does not ask RAS for kLeftAlone.
  void LeaveAlone(int64_t now_ns);

  const std::function<std::chrono::milliseconds()> hang_after_;
  const Sources sources_;
  const RasChoice ras_;
  const uint32_t own_namespace_;  // PID namespace of the pids in /proc and NVML
  std::optional<OutsideLook> look_;
  int64_t waits_since_ns_ = 0;
  int64_t next_ns_ = 0;  // earliest time to ask RAS again
  int64_t left_alone_until_ns_ = 0;
  std::vector<int32_t> listed_pids_;
  int64_t list_again_ns_ = 0;
  // By pid: the longest wait of its GPU that ended with progress.
  std::map<int32_t, uint64_t> longest_waits_;
  mutable std::mutex mutex_;  // guards the rest
  SnapshotSet found_;
  int64_t found_ns_ = 0;
  std::optional<std::vector<ProcessWithoutPlugin>> without_plugin_;
};

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_OUTSIDE_MONITOR_H_

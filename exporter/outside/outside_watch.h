// Watches this host for hangs of jobs that run without the plugin: the work of
// `pulse agent --without-plugin=on`.
//
//   NVML    each round, of all GPUs
//   /proc   of the processes on GPUs, for the list of those without the plugin: when other processes are
//           on them, and every kListAgain. Also once some GPU has been busy without memory traffic for
//           half of the threshold
//   RAS     asked then, and again each half of the threshold while GPUs wait. Not for kLeftAlone after
//           an answer in which counts have moved
//
// A healthy job is never asked. Findings are snapshots beside those of the plugin: the same
// diagnosis, metrics, page, `pulse watch`, captures and programs follow from them.
//
// Thread: one calls Round, which blocks for up to four times kRasPatience; Snapshots and Processes any.
// Cost without a hang: 2.5 ms of NVML a round.
#ifndef EXPORTER_OUTSIDE_OUTSIDE_WATCH_H_
#define EXPORTER_OUTSIDE_OUTSIDE_WATCH_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "exporter/diagnosis/facts/snapshot_set.h"
#include "exporter/outside/outside_look.h"

namespace nccl_pulse::outside {

class OutsideWatch {
 public:
  static constexpr std::chrono::seconds kInterval{2};  // between rounds
  static constexpr std::chrono::seconds kLeftAlone{30};
  static constexpr std::chrono::seconds kListAgain{30};

  OutsideWatch(std::function<std::chrono::milliseconds()> hang_after, Sources sources);

  // False if NVML isn't there, or knows no GPU: nothing will ever be found.
  bool HasGpus() const;
  void Round();
  // Ranks of jobs whose GPUs wait; empty: none do.
  SnapshotSet Snapshots(int64_t now_realtime_ns) const;
  // Processes on GPUs that use NCCL without the plugin; nothing before the first round.
  std::optional<std::vector<ProcessWithoutPlugin>> Processes() const;

 private:
  void List(const std::vector<HostGpu>& gpus, int64_t now_ns);
  void Publish(Looks looks, int64_t now_ns);
  void Clear(int64_t now_ns);
  // Clears, and asks RAS nothing for kLeftAlone.
  void LeaveAlone(int64_t now_ns);

  const std::function<std::chrono::milliseconds()> hang_after_;
  const Sources sources_;
  const uint32_t own_namespace_;  // in which the pids of /proc and NVML count
  std::optional<OutsideLook> look_;
  int64_t waits_since_ns_ = 0;
  int64_t next_ns_ = 0;  // when RAS may be asked again
  int64_t left_alone_until_ns_ = 0;
  std::vector<int32_t> listed_pids_;
  int64_t list_again_ns_ = 0;
  // The longest wait of each pid's GPU after which it went on.
  std::map<int32_t, uint64_t> longest_waits_;
  mutable std::mutex mutex_;  // guards the rest
  SnapshotSet found_;
  int64_t found_ns_ = 0;
  std::optional<std::vector<ProcessWithoutPlugin>> without_plugin_;
};

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_OUTSIDE_WATCH_H_

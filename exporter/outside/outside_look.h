// OutsideLook diagnoses jobs whose processes run without NCCL Pulse, by NCCL's RAS, NVML and /proc,
// for `pulse diagnose` and the agent (outside_monitor.h).
//
// RAS, the status service in NCCL's processes, knows counts of launches, but no completions. So it
// is asked twice. One process answers for all processes that share communicators with it, on all
// nodes. NVML and /proc only know this host.
//
// Thread: the caller's. Begin and End block for up to twice kRasPatience each, besides NVML and
// /proc. Memory: kMostBytesAtOnce of text, and the values of one answer.
#ifndef EXPORTER_OUTSIDE_OUTSIDE_LOOK_H_
#define EXPORTER_OUTSIDE_OUTSIDE_LOOK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "exporter/exposition/json/communicators_json.h"
#include "exporter/fleet/job_look.h"
#include "exporter/node/gpu_use.h"
#include "exporter/outside/host_processes.h"
#include "exporter/outside/ras_answer.h"
#include "exporter/outside/ras_listeners.h"

namespace nccl_pulse::outside {

// RAS itself waits for other processes for up to two thirds of this time.
inline constexpr std::chrono::milliseconds kRasPatience{4500};

// Limit of all answers that are awaited at once; any user can listen, at several addresses.
inline constexpr std::size_t kMostBytesAtOnce = 4 * kMostAnswerBytes;

// Limits of the time for which the use of GPUs is judged.
inline constexpr int64_t kLeastGpuWindowNs = 3000000000;
inline constexpr int64_t kMostGpuWindowNs = 12000000000;  // NVML remembers 14 s

// The sources of facts; replaced in tests.
struct Sources {
  // Finds processes with NCCL among `pids`; null: among all.
  std::function<HostProcesses(const std::vector<int32_t>* pids)> processes;
  std::function<std::vector<HostGpu>(int64_t since_realtime_ns)> gpus;
  // Called on a separate thread, which may stay in the listener's network namespace.
  std::function<RasReport(const RasListener&, std::size_t most_bytes)> ask_ras;
  std::function<void(std::chrono::milliseconds)> wait;
  std::function<int64_t()> now_realtime_ns;
  std::set<std::string> addresses;  // of this host
  std::string hostname;
};
Sources SourcesOfThisHost();

struct Options {
  RasChoice ras;
  std::chrono::milliseconds hang_after{10000};
  // True if this host's endpoints gave no data. Processes with the plugin are then included.
  bool is_endpoint_silent = false;
  bool is_of_gpus = false;  // reads only processes that NVML sees on a GPU
  int64_t since_ns = 0;     // Unix time when the GPUs began to wait; 0: the first answer's
};

struct Looks {
  std::vector<JobLook> jobs;       // with two or more ranks, by RAS or WORLD_SIZE
  std::size_t processes = 0;       // on this host, with NCCL and without the plugin
  std::set<std::size_t> mixed;     // indices of jobs with some ranks known to endpoints
  std::vector<std::string> notes;  // sources that could not be asked, and why
};

// Returns the pids that NVML sees, in order, without duplicates.
std::vector<int32_t> PidsOn(const std::vector<HostGpu>& gpus);

// Returns the processes that use NCCL without the plugin and, as far as NVML shows it, a GPU.
std::vector<ProcessWithoutPlugin> WithoutPlugin(std::vector<HostProcess> processes,
                                                const std::vector<HostGpu>& gpus);

class OutsideLook {
 public:
  // `sources` must outlive this object.
  OutsideLook(Options options, const Sources& sources);
  ~OutsideLook();
  // Reads this host's processes and GPUs, and asks RAS. Returns false if no process or job is
  // known; End may then be called at once.
  bool Begin();
  int64_t begin_ns() const;
  // The processes with NCCL, as the last poll found them.
  const std::vector<HostProcess>& processes() const;
  // Asks again, and judges the time since Begin. May be called repeatedly.
  Looks End();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Calls Begin and End, hang_after apart.
Looks LookFromOutside(const Options& options, const Sources& sources);

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_OUTSIDE_LOOK_H_

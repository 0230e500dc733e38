// Diagnoses jobs from outside: jobs whose processes run without NCCL Pulse, by NCCL's RAS, NVML and
// /proc. The work of `pulse diagnose` where no endpoint knows a process with NCCL.
//
// RAS is asked twice, the threshold apart: it knows counts of launches, and no completions. One process
// answers for all that share communicators with it, on all nodes. NVML and /proc know this host.
//
// Nothing is written to a process of the job, and none is traced. Of RAS only the report is requested
// (exporter/fleet/ras_report.h).
//
// Thread: the caller's; blocks for the threshold and at most four times kRasPatience. Memory:
// kMostAnswerBytes of text, and its values, for each of the answers that are read at once.
#ifndef EXPORTER_OUTSIDE_OUTSIDE_LOOK_H_
#define EXPORTER_OUTSIDE_OUTSIDE_LOOK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exporter/exposition/communicators_json.h"
#include "exporter/fleet/address.h"
#include "exporter/fleet/job_look.h"
#include "exporter/fleet/ras_report.h"
#include "exporter/node/gpu_use.h"
#include "exporter/outside/host_processes.h"

namespace nccl_pulse::outside {

// RAS waits for other processes for a third of it, and as long again.
inline constexpr std::chrono::milliseconds kRasPatience{4500};

// Where facts come from.
struct Sources {
  // Finds processes among `pids`; null: among all.
  std::function<HostProcesses(const std::vector<int32_t>* pids)> processes;
  std::function<std::vector<HostGpu>(int64_t since_realtime_ns)> gpus;
  std::function<RasReport(const Address&)> ask_ras;  // from several threads at once
  std::function<void(std::chrono::milliseconds)> wait;
  std::function<int64_t()> now_realtime_ns;
  std::set<std::string> addresses;  // of this host
  std::string hostname;
};
Sources SourcesOfThisHost();

struct Options {
  bool asks_ras = true;
  std::optional<Address> ras;  // none: where the processes of this host say, and the default
  std::chrono::milliseconds hang_after{10000};
  // The endpoints of this host gave no data, so processes with the plugin are looked at, too.
  bool is_endpoint_silent = false;
  bool is_of_gpus = false;  // reads no process that NVML doesn't see on a GPU
  int64_t since_ns = 0;     // GPUs have waited since then, Unix time; 0: since the first answer
};

struct Looks {
  std::vector<JobLook> jobs;       // of two ranks or more
  std::size_t processes = 0;       // of this host, with NCCL and without the plugin
  std::size_t moved = 0;           // communicators whose counts moved
  std::set<std::size_t> mixed;     // of the jobs, those of which endpoints know some ranks
  std::vector<std::string> notes;  // what could not be asked, and why
};

// Returns the pids that NVML sees, in order, each once.
std::vector<int32_t> PidsOn(const std::vector<HostGpu>& gpus);

// Returns the processes that use NCCL without the plugin, and a GPU if NVML can say.
std::vector<ProcessWithoutPlugin> WithoutPlugin(const std::vector<HostProcess>& processes,
                                                const std::vector<HostGpu>& gpus);

// A look in two halves, the threshold apart.
class OutsideLook {
 public:
  // `sources` must outlive it.
  OutsideLook(Options options, const Sources& sources);
  ~OutsideLook();
  // Reads this host, and asks RAS. False if there is nothing to ask again for.
  bool Begin(Looks* looks);
  int64_t begin_ns() const;
  // Asks again, and judges what has happened since Begin. May be called again.
  Looks End();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Both halves; waits in between.
Looks LookFromOutside(const Options& options, const Sources& sources);

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_OUTSIDE_LOOK_H_

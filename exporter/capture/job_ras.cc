#include "exporter/capture/job_ras.h"

#include <algorithm>
#include <cstdint>
#include <future>

#include "exporter/capture/local_process.h"
#include "exporter/outside/host_processes.h"

namespace nccl_pulse {

JobRas AskRasOfJob(const std::vector<Address>& endpoints, const SnapshotSet& set,
                   const outside::RasChoice& choice, std::chrono::milliseconds patience,
                   std::chrono::steady_clock::time_point end) {
  constexpr int kTries = 3;  // a stopped process may be picked
  constexpr std::chrono::milliseconds kProcPatience{2000};
  outside::RasChoice here = choice;
  // If no endpoint of this host is asked, RAS at the default address may serve another job.
  const bool may_be_another = choice.address && IsThisHost(*choice.address) &&
                              std::none_of(endpoints.begin(), endpoints.end(), IsThisHost);
  if (choice.asks_processes && may_be_another) here.address.reset();
  std::vector<int32_t> pids;
  for (const ProcessSnapshot& process : set.processes) {
    const bool is_wanted = choice.asks_processes && (process.is_from_outside || choice.address);
    if (is_wanted && WhyNotHere(process, endpoints).empty()) pids.push_back(LocalPid(process));
  }
  auto processes = outside::FindNcclProcesses(kProcPatience, &pids).processes;
  for (outside::HostProcess& each : processes) each.has_plugin = false;
  outside::RasListeners found = outside::FindRas(processes, here);
  JobRas ras;
  ras.notes = std::move(found.notes);
  for (const auto& [name, listener] : found.by_name) {
    ras.address = name;
    for (int i = 0; i < kTries && std::chrono::steady_clock::now() < end; ++i) {
      ras.report = std::async(std::launch::async, [&each = listener, patience] {
                     return each.Ask(patience, kMostRasBytes);
                   }).get();
      if (!ras.report.json.empty()) return ras;
      if (!ras.report.is_connected || !ras.report.error.empty()) break;
    }
  }
  return ras;
}

}  // namespace nccl_pulse

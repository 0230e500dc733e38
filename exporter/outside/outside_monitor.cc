#include "exporter/outside/outside_monitor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "exporter/node/gpu_use.h"
#include "exporter/node/handover.h"

namespace nccl_pulse::outside {
namespace {

constexpr int64_t kDayNs = int64_t{86400} * 1000000000;
constexpr std::size_t kMostWaits = 4096;
constexpr std::size_t kMostNotes = 64;

// Adds the notes of `pulse diagnose`, after its summary if no rank is named.
void AddNotes(const JobLook& look, std::vector<OutsideNote>* notes) {
  const Health& health = look.health;
  if (health.notes.empty()) return;
  const auto& processes = look.set.processes;
  const uint64_t comm_id = processes.empty() ? 0 : processes.front().communicators.front().comm_id;
  if (look.verdict.roots.empty()) notes->push_back({comm_id, health.summary});
  for (const std::string& note : health.notes) notes->push_back({comm_id, note});
  notes->resize(std::min(notes->size(), kMostNotes));
}

}  // namespace

OutsideMonitor::OutsideMonitor(std::function<std::chrono::milliseconds()> hang_after,
                               Sources sources, RasChoice ras)
    : hang_after_(std::move(hang_after)),
      sources_(std::move(sources)),
      ras_(std::move(ras)),
      own_namespace_(OwnPidNamespace()) {}

bool OutsideMonitor::HasGpus() const { return !sources_.gpus(sources_.now_realtime_ns()).empty(); }

std::vector<std::string> OutsideMonitor::Round() {
  const int64_t hang_after_ns = std::chrono::nanoseconds(hang_after_()).count();
  const int64_t window_ns = std::clamp(hang_after_ns / 2, kLeastGpuWindowNs, kMostGpuWindowNs);
  const int64_t now_ns = sources_.now_realtime_ns();
  const std::vector<HostGpu> gpus = sources_.gpus(now_ns - window_ns);
  const std::vector<int32_t> pids = PidsOn(gpus);
  if (pids != listed_pids_ || now_ns >= list_again_ns_) {
    listed_pids_ = pids;
    list_again_ns_ = now_ns + std::chrono::nanoseconds(kListAgain).count();
    List(sources_.processes(&pids).processes, gpus);
  }
  const bool is_any_waiting = std::any_of(gpus.begin(), gpus.end(), [](const HostGpu& gpu) {
    return gpu.use == GpuUse::kBusy && !gpu.pids.empty();
  });
  if (!is_any_waiting) {
    Clear(now_ns);
    return {};
  }
  if (waits_since_ns_ == 0) waits_since_ns_ = now_ns - window_ns;
  if (now_ns < std::max(next_ns_, left_alone_until_ns_)) return {};
  bool is_any_without = true;
  if (!look_) {
    Options options;
    options.ras = ras_;
    options.hang_after = hang_after_();
    options.is_of_gpus = true;
    options.since_ns = waits_since_ns_;
    is_any_without = look_.emplace(options, sources_).Begin();
    next_ns_ = std::max(waits_since_ns_ + hang_after_ns, look_->begin_ns() + window_ns);
    List(look_->processes(), gpus);
    if (is_any_without) return {};
  }
  Looks looks = look_->End();
  List(look_->processes(), gpus);
  const bool are_all_ok = !looks.jobs.empty() &&
                          std::all_of(looks.jobs.begin(), looks.jobs.end(), [](const JobLook& job) {
                            return job.health.status == HealthStatus::kOk;
                          });
  if (are_all_ok || !is_any_without) {
    LeaveAlone(now_ns);
  } else {
    next_ns_ = now_ns + window_ns;
    Publish(std::move(looks.jobs), sources_.now_realtime_ns());
  }
  return looks.notes;
}

void OutsideMonitor::List(const std::vector<HostProcess>& processes,
                          const std::vector<HostGpu>& gpus) {
  auto found = WithoutPlugin(processes, gpus);
  const std::lock_guard<std::mutex> lock(mutex_);
  without_plugin_ = std::move(found);
}

std::optional<std::vector<ProcessWithoutPlugin>> OutsideMonitor::Processes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return without_plugin_;
}

void OutsideMonitor::Publish(std::vector<JobLook> jobs, int64_t now_ns) {
  SnapshotSet found;
  for (JobLook& look : jobs) {
    if (look.health.status == HealthStatus::kOk) continue;
    AddNotes(look, &found.outside_notes);
    if (look.verdict.roots.empty()) continue;
    uint64_t longest_ns = 0;
    for (const ProcessSnapshot& process : look.set.processes) {
      const auto before = longest_waits_.find(process.seen_pid);
      if (before != longest_waits_.end()) longest_ns = std::max(longest_ns, before->second);
    }
    for (ProcessSnapshot& process : look.set.processes) {
      if (process.seen_pid != 0) {
        process.hostname = sources_.hostname;
        process.pid_namespace = process.seen_in = own_namespace_;
      }
      if (process.last_poll_realtime_ns == look.now_realtime_ns) {
        process.last_poll_realtime_ns = now_ns;
      }
      for (CommunicatorSnapshot& each : process.communicators) {
        if (longest_ns == 0) break;
        each.longest_waits.push_back(
            {each.last_call_op, each.last_call_size_class, longest_ns, now_ns + kDayNs});
      }
      found.processes.push_back(std::move(process));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  found_ = std::move(found);
  found_ns_ = now_ns;
}

// Clears the findings: all GPUs make progress, or none belongs to a job without the plugin.
void OutsideMonitor::Clear(int64_t now_ns) {
  look_.reset();
  const int64_t waited_ns = waits_since_ns_ == 0 ? 0 : now_ns - waits_since_ns_;
  waits_since_ns_ = next_ns_ = 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (longest_waits_.size() > kMostWaits) longest_waits_.clear();
  for (const ProcessSnapshot& process : found_.processes) {
    if (process.seen_pid == 0) continue;
    uint64_t& longest_ns = longest_waits_[process.seen_pid];
    longest_ns = std::max(longest_ns, static_cast<uint64_t>(std::max<int64_t>(waited_ns, 0)));
  }
  found_ = SnapshotSet();
}

void OutsideMonitor::LeaveAlone(int64_t now_ns) {
  Clear(now_ns);
  left_alone_until_ns_ = now_ns + std::chrono::nanoseconds(kLeftAlone).count();
}

SnapshotSet OutsideMonitor::Snapshots(int64_t now_realtime_ns) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  SnapshotSet found = found_;
  // Findings stay unchanged until the next round.
  for (ProcessSnapshot& process : found.processes) {
    if (process.last_poll_realtime_ns == found_ns_) process.last_poll_realtime_ns = now_realtime_ns;
  }
  return found;
}

}  // namespace nccl_pulse::outside

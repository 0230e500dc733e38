#include "exporter/outside/outside_look.h"

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/time.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/words/words.h"
#include "exporter/node/service_file.h"
#include "exporter/outside/job_snapshots.h"
#include "exporter/outside/outside_words.h"

namespace nccl_pulse::outside {
namespace {

// Every process of a user listens at one address, and the kernel picks one: perhaps a stopped one, or
// one of another job. So it takes many questions to hear all jobs. None begins after kRasPatience.
constexpr int kAtOnce = 2, kMostRounds = 12;

// Drops the tasks' ranks of a job whose processes inherited them: several on GPUs have the same one,
// or some have a RANK (torchrun under srun).
void DropInheritedRanks(const std::vector<HostGpu>& gpus, std::vector<HostProcess>* processes) {
  // In a container NVML may list no pids.
  const bool are_pids_known = !PidsOn(gpus).empty();
  std::set<std::tuple<uid_t, std::string, std::string, std::string>> seen;
  std::set<std::pair<uid_t, std::string>> inherited;
  for (const HostProcess& each : *processes) {
    if (each.global_rank.empty() || (are_pids_known && !MayBeRank(each, gpus))) continue;
    const bool is_new =
        seen.emplace(each.user, each.slurm_job_id, each.world_size, each.global_rank).second;
    if (!is_new || !each.is_task_rank) inherited.emplace(each.user, each.slurm_job_id);
  }
  for (HostProcess& each : *processes) {
    if (!each.is_task_rank || inherited.count({each.user, each.slurm_job_id}) == 0) continue;
    each.global_rank.clear();
    each.world_size.clear();
  }
}

}  // namespace

class OutsideLook::Impl {
 public:
  Impl(Options options, const Sources& sources) : options_(std::move(options)), sources_(sources) {}

  bool Begin() {
    for (const std::string& each : sources_.addresses) seen_.addresses.emplace(each, 0);
    seen_.hostname = sources_.hostname;
    start_ns_ = sources_.now_realtime_ns();
    ReadHost(start_ns_ - kMostGpuWindowNs);
    if (seen_.unread != 0) {
      notes_ = {absl::StrCat("The files of ", Plural(seen_.unread, "process"),
                             " in /proc did not answer.")};
    }
    for (const HostProcess& each : seen_.processes) processes_ += each.has_plugin ? 0 : 1;
    if (processes_ == 0 && options_.ras.asks_processes) return false;
    FindListeners();
    seen_.before = Ask();
    seen_.before_ns = sources_.now_realtime_ns();
    seen_.since_ns = options_.since_ns == 0 ? seen_.before_ns : options_.since_ns;
    is_begun_ = seen_.before.is_any || !JobsOf(seen_).empty();  // or jobs that RAS doesn't know
    return is_begun_;
  }

  int64_t begin_ns() const { return seen_.before_ns; }
  const std::vector<HostProcess>& processes() const { return seen_.processes; }

  Looks End() {
    Looks looks;
    looks.processes = processes_;
    looks.notes = notes_;
    std::vector<Job> jobs;
    if (is_begun_) {
      seen_.after = Ask();
      seen_.now_ns = sources_.now_realtime_ns();
      ReadHost(seen_.now_ns -
               std::clamp(seen_.now_ns - seen_.since_ns, kLeastGpuWindowNs, kMostGpuWindowNs));
      jobs = JobsOf(seen_);
    }
    for (Job& job : jobs) {
      job.is_endpoint_silent = options_.is_endpoint_silent;
      bool is_any_measured = false;  // an endpoint knows the process
      bool is_any_other = false;
      for (const auto& [key, facts] : job.processes) {
        if (facts.local != nullptr) {
          (facts.local->has_plugin ? is_any_measured : is_any_other) = true;
        }
      }
      if (job.has_counts && job.processes.size() < 2) continue;
      if (is_any_measured && !is_any_other) continue;
      looks.jobs.push_back(Judge(std::move(job)));
      looks.jobs.back().seconds = static_cast<double>(seen_.now_ns - start_ns_) / 1e9;
      if (is_any_measured) looks.mixed.insert(looks.jobs.size() - 1);
    }
    for (const auto& [name, error] : errors_) {
      if (error.empty()) continue;
      looks.notes.push_back(absl::StrCat("NCCL's RAS at ", name, ": ", error, "."));
    }
    if (processes_ != 0 && looks.jobs.empty()) {
      looks.notes.push_back(absl::StrCat(
          Plural(processes_, "process of this host uses", "processes of this host use"),
          " NCCL without the plugin. Neither RAS nor NVML knows a job of two or more."));
    }
    return looks;
  }

 private:
  // Reads NVML and /proc.
  void ReadHost(int64_t gpus_since_ns) {
    seen_.gpus = sources_.gpus(gpus_since_ns);
    const std::vector<int32_t> pids = PidsOn(seen_.gpus);
    HostProcesses here = sources_.processes(options_.is_of_gpus ? &pids : nullptr);
    for (HostProcess& each : here.processes) each.has_plugin &= !options_.is_endpoint_silent;
    DropInheritedRanks(seen_.gpus, &here.processes);
    seen_.processes = std::move(here.processes);
    seen_.unloaded = std::move(here.unloaded);
    seen_.unread = here.unread;
  }

  void FindListeners() {
    listeners_ = FindRas(seen_.processes, options_.ras);
    notes_.insert(notes_.end(), listeners_.notes.begin(), listeners_.notes.end());
    for (const auto& [inode, network] : listeners_.networks) {
      if (!network) continue;
      for (const auto& each : network->addresses) {
        seen_.addresses.emplace(HostIn(*network, each), inode);
      }
    }
    // In a container NVML may list no pids: then each process may be a rank.
    const bool are_pids_known = !PidsOn(seen_.gpus).empty();
    for (const HostProcess& each : seen_.processes) {
      const auto network = listeners_.networks.find(each.network);
      const bool is_in_reach =
          each.network == 0 || (network != listeners_.networks.end() && network->second);
      const bool may_be_rank = !are_pids_known || MayBeRank(each, seen_.gpus);
      if (is_in_reach && may_be_rank && !each.has_plugin && !each.is_ras_off && !each.IsRasOld()) {
        wanted_.insert({each.network, each.own_pid});
      }
    }
  }

  // Returns a unique name of a host in a namespace. Namespaces may share addresses, such as the
  // loopback, so the name then includes a process.
  std::string HostIn(const Network& network, const std::string& host) const {
    const auto found = seen_.addresses.find(host);
    const bool is_elsewhere = found != seen_.addresses.end() && found->second != network.inode;
    return is_elsewhere && network.addresses.count(host) != 0
               ? absl::StrCat(host, " in the network of pid ", network.pid)
               : host;
  }

  // Asks at all addresses at once, and again while a process of this host is missing in the answers,
  // an answer fails, or counts have decreased.
  RasAnswer Ask() {
    RasAnswer heard;
    auto missing = wanted_;
    std::map<std::string, RasListener> open = listeners_.by_name;
    const int64_t end_ns =
        sources_.now_realtime_ns() + std::chrono::nanoseconds(kRasPatience).count();
    for (int round = 0; round < kMostRounds && !open.empty(); ++round) {
      if (round != 0 && sources_.now_realtime_ns() >= end_ns) break;
      std::vector<std::pair<std::string, std::future<RasReport>>> asked;
      const std::size_t most_bytes =
          std::min(kMostAnswerBytes, kMostBytesAtOnce / (kAtOnce * open.size()));
      for (const auto& [name, listener] : open) {
        for (int i = 0; i < kAtOnce; ++i) {
          try {
            asked.emplace_back(
                name, std::async(std::launch::async, sources_.ask_ras, listener, most_bytes));
          } catch (const std::system_error&) {  // no thread
          }
        }
      }
      bool is_any_back = false;
      std::map<std::string, RasListener> again;
      for (auto& [name, future] : asked) {
        RasReport report = future.get();
        RasAnswer answer;
        std::string error = report.error;
        if (error.empty() && report.json.empty()) {
          error = report.is_connected ? "it does not answer" : "nothing listens there";
        }
        if (error.empty() && ReadRasAnswer(std::move(report.json), &answer, &error)) {
          for (auto& [hashes, communicator] : answer.communicators) {
            const auto before = seen_.before.communicators.find(hashes);
            is_any_back |= before != seen_.before.communicators.end() &&
                           MotionOf(&before->second, communicator) == Motion::kBack;
            for (RasRank& rank : communicator.ranks) {
              if (const auto& network = open[name].network) rank.host = HostIn(*network, rank.host);
              const auto here = seen_.addresses.find(rank.host);
              if (here != seen_.addresses.end()) missing.erase({here->second, rank.pid});
            }
          }
          if (!heard.Add(answer)) error = "its report has more ranks than can be compared";
        }
        std::string& kept = errors_.try_emplace(name, error).first->second;
        if (error.empty()) kept.clear();
        if (report.is_connected) again.emplace(name, open[name]);
      }
      // Some processes, such as killed ones, stay missing until the last round.
      const bool is_failed = std::any_of(again.begin(), again.end(), [this](const auto& each) {
        return !errors_[each.first].empty();
      });
      if (!is_failed && missing.empty() && !is_any_back) break;
      open = std::move(again);
    }
    return heard;
  }

  JobLook Judge(Job job) const {
    JobLook look;
    look.endpoints = look.heard = 1;
    look.looks = 2;
    look.now_realtime_ns = seen_.now_ns;
    look.set = std::move(job.set);
    look.diagnosis = Diagnosis(options_.hang_after).Update(look.set, seen_.now_ns);
    look.verdict = JudgeJob(look.set, look.diagnosis, seen_.now_ns);
    const int64_t between_ns = seen_.now_ns - seen_.before_ns;
    NameUnseen(job, &look);
    for (JobRoot& root : look.verdict.roots) root.text = RootWords(root, job, between_ns);
    look.health.communicators = job.communicators.size();
    look.health.ranks = job.processes.size();
    // A job whose GPUs are idle isn't OK: while a communicator is created, a rank waits inside NCCL,
    // and neither RAS nor NVML shows it.
    const bool is_ok = job.moved != 0 && job.not_fine == 0 && job.waiting == 0 && job.unseen == 0;
    look.health.status = !look.verdict.roots.empty() ? HealthStatus::kHang
                         : is_ok                     ? HealthStatus::kOk
                                                     : HealthStatus::kIncomplete;
    look.health.summary = SummaryWords(job, between_ns);
    const std::string version = job.has_counts ? seen_.after.nccl_version : "";
    look.outside = SourceWords(job, version, !seen_.gpus.empty());
    look.health.notes = NoteWords(job, look.verdict);
    if (!look.verdict.roots.empty()) {
      const bool has_nodes =
          !job.processes.empty() &&
          std::get<0>(job.processes.begin()->first) != std::get<0>(job.processes.rbegin()->first);
      for (std::string& fault : KnownFaults(version, has_nodes)) {
        look.health.notes.push_back(std::move(fault));
      }
    }
    return look;
  }

  // Adds a single rank that is ahead of all others: it may be at fault where no rank is named.
  static void AddRankAhead(const Job& job, JobRoot* root) {
    if (!root->ranks.empty() || root->perhaps.empty()) return;
    const uint64_t id = root->perhaps.front().comm_id;
    const RasCommunicator& communicator = job.communicators.at(id);
    std::set<int32_t> ahead;
    for (const RasRank& rank : communicator.ranks) {
      if (!HasFewer(communicator, rank)) ahead.insert(rank.rank);
    }
    if (ahead.size() != 1) return;
    const bool is_there = std::any_of(
        root->perhaps.begin(), root->perhaps.end(),
        [&](const JobRank& each) { return each.comm_id == id && ahead.count(each.rank) != 0; });
    if (!is_there) root->perhaps.push_back({id, *ahead.begin()});
  }

  // Adds host and pid, from RAS' own list, of ranks without a process in the verdict: ranks that RAS
  // misses, and the rank ahead.
  static void NameUnseen(const Job& job, JobLook* look) {
    std::vector<std::pair<JobRank*, const RasRank*>> unseen;
    for (JobRoot& root : look->verdict.roots) {
      AddRankAhead(job, &root);
      for (auto* ranks : {&root.ranks, &root.perhaps}) {
        for (JobRank& rank : *ranks) {
          const RasRank* const known = RankOf(job, rank.comm_id, rank.rank);
          if (rank.process == nullptr && known != nullptr) unseen.emplace_back(&rank, known);
        }
      }
    }
    look->set.ended.reserve(unseen.size());  // the verdict points to its elements
    for (const auto& [rank, known] : unseen) {
      ProcessSnapshot& process = look->set.ended.emplace_back();
      const HostProcess* const local = job.processes.at(KeyOf(*known)).local;
      process.hostname = known->host;
      process.pid = local == nullptr ? known->pid : local->pid;
      rank->process = &process;
      rank->communicator = &process.communicators.emplace_back();
      process.communicators.front().gpu = known->nvml_dev < 0 ? "" : absl::StrCat(known->nvml_dev);
    }
  }

  const Options options_;
  const Sources& sources_;
  RasListeners listeners_;
  std::map<std::string, std::string> errors_;      // by address; "": RAS has answered there
  std::set<std::pair<uint64_t, int32_t>> wanted_;  // network and own pid of processes with RAS
  Observation seen_;
  int64_t start_ns_ = 0;
  std::size_t processes_ = 0;
  std::vector<std::string> notes_;
  bool is_begun_ = false;
};

OutsideLook::OutsideLook(Options options, const Sources& sources)
    : impl_(std::make_unique<Impl>(std::move(options), sources)) {}
OutsideLook::~OutsideLook() = default;
bool OutsideLook::Begin() { return impl_->Begin(); }
int64_t OutsideLook::begin_ns() const { return impl_->begin_ns(); }
const std::vector<HostProcess>& OutsideLook::processes() const { return impl_->processes(); }
Looks OutsideLook::End() { return impl_->End(); }

std::vector<int32_t> PidsOn(const std::vector<HostGpu>& gpus) {
  std::vector<int32_t> pids;
  for (const HostGpu& gpu : gpus) pids.insert(pids.end(), gpu.pids.begin(), gpu.pids.end());
  std::sort(pids.begin(), pids.end());
  pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
  return pids;
}

std::vector<ProcessWithoutPlugin> WithoutPlugin(std::vector<HostProcess> processes,
                                                const std::vector<HostGpu>& gpus) {
  DropInheritedRanks(gpus, &processes);
  std::vector<ProcessWithoutPlugin> found;
  for (const HostProcess& each : processes) {
    if (each.has_plugin || each.is_guess || !MayBeRank(each, gpus)) continue;
    std::vector<int> used;
    for (const HostGpu& gpu : gpus) {
      if (IsOn(gpu, each.pid)) used.push_back(gpu.index);
    }
    found.push_back({each.pid, each.user, each.global_rank, each.nccl_version,
                     WhyNotRunning(each.state), used, each.start_realtime_ns});
  }
  return found;
}

Sources SourcesOfThisHost() {
  Sources sources;
  const auto gpus = std::make_shared<GpuUses>();
  sources.processes = [](const std::vector<int32_t>* pids) {
    return FindNcclProcesses(std::chrono::seconds(3), pids);
  };
  sources.gpus = [gpus](int64_t since_ns) {
    std::vector<HostGpu> found = gpus->OfHost(since_ns);
    for (HostGpu& gpu : found) {
      gpu.pids.erase(std::remove_if(gpu.pids.begin(), gpu.pids.end(),
                                    [](int32_t pid) { return IsEnding(pid); }),
                     gpu.pids.end());
    }
    return found;
  };
  sources.ask_ras = [](const RasListener& each, std::size_t most_bytes) {
    return each.Ask(kRasPatience, most_bytes);
  };
  sources.wait = [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); };
  sources.now_realtime_ns = [] { return RealtimeNs(); };
  sources.addresses = OwnAddresses();
  sources.hostname = HostName();
  return sources;
}

Looks LookFromOutside(const Options& options, const Sources& sources) {
  constexpr std::chrono::milliseconds kSlack{200};
  OutsideLook look(options, sources);
  if (look.Begin()) sources.wait(options.hang_after + kSlack);
  return look.End();
}

}  // namespace nccl_pulse::outside

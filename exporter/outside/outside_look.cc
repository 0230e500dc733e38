#include "exporter/outside/outside_look.h"

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/realtime_clock.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/node/service_file.h"
#include "exporter/outside/job_snapshots.h"
#include "exporter/outside/outside_words.h"
#include "exporter/outside/ras_answer.h"

namespace nccl_pulse::outside {
namespace {

constexpr int kAtOnce = 2;  // requests to one address: the kernel may pick a stopped process
// Every process of a user listens at one address, and the kernel picks one. So RAS is asked many
// times, to hear all jobs, if answers are quick; otherwise a few times.
constexpr int kMostRounds = 3, kMostQuickRounds = 12;
constexpr std::chrono::seconds kQuick{1};

}  // namespace

class OutsideLook::Impl {
 public:
  Impl(Options options, const Sources& sources) : options_(std::move(options)), sources_(sources) {}

  bool Begin(Looks* looks) {
    for (const std::string& each : sources_.addresses) seen_.addresses.emplace(each, 0);
    seen_.hostname = sources_.hostname;
    start_ns_ = sources_.now_realtime_ns();
    seen_.gpus = sources_.gpus(start_ns_ - kMostGpuWindowNs);
    HostProcesses here = Processes();
    seen_.processes = std::move(here.processes);
    for (const HostProcess& each : seen_.processes) looks->processes += each.has_plugin ? 0 : 1;
    processes_ = looks->processes;
    if (here.unread != 0) {
      looks->notes.push_back(
          absl::StrCat(here.unread, " processes' files in /proc did not answer."));
    }
    if (processes_ == 0 && options_.ras.asks_processes) return false;
    FindListeners(looks);
    seen_.before = Ask();
    seen_.before_ns = sources_.now_realtime_ns();
    seen_.since_ns = options_.since_ns == 0 ? seen_.before_ns : options_.since_ns;
    // Jobs that RAS doesn't know.
    if (seen_.before.is_any || !JobsOf(seen_).empty()) return true;
    AddErrors(looks);
    AddUntold(looks);
    return false;
  }

  int64_t begin_ns() const { return seen_.before_ns; }
  const std::vector<HostProcess>& processes() const { return seen_.processes; }

  Looks End() {
    Looks looks;
    looks.processes = processes_;
    seen_.after = Ask();
    if (IsAnyBack()) seen_.after = Ask();
    seen_.now_ns = sources_.now_realtime_ns();
    seen_.gpus = sources_.gpus(seen_.now_ns - std::clamp(seen_.now_ns - seen_.since_ns,
                                                         kLeastGpuWindowNs, kMostGpuWindowNs));
    HostProcesses here = Processes();
    seen_.processes = std::move(here.processes);
    seen_.unloaded = std::move(here.unloaded);
    AddErrors(&looks);
    for (Job& job : JobsOf(seen_)) {
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
    AddUntold(&looks);
    return looks;
  }

 private:
  HostProcesses Processes() const {
    const std::vector<int32_t> pids = PidsOn(seen_.gpus);
    HostProcesses here = sources_.processes(options_.is_of_gpus ? &pids : nullptr);
    for (HostProcess& each : here.processes) each.has_plugin &= !options_.is_endpoint_silent;
    return here;
  }

  void FindListeners(Looks* looks) {
    listeners_ = FindRas(seen_.processes, options_.ras);
    looks->notes.insert(looks->notes.end(), listeners_.notes.begin(), listeners_.notes.end());
    for (const auto& [inode, network] : listeners_.networks) {
      if (!network) continue;
      for (const auto& each : network->addresses) {
        seen_.addresses.emplace(HostIn(*network, each), inode);
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

  void NameHosts(const Network& network, RasAnswer* answer) const {
    for (auto& [id, communicator] : answer->communicators) {
      for (RasRank& rank : communicator.ranks) rank.host = HostIn(network, rank.host);
    }
  }

  // Asks at all addresses at once, and asks again if a process of this host is missing in the
  // answers.
  RasAnswer Ask() {
    RasAnswer heard;
    std::map<std::string, RasListener> open = listeners_.by_name;
    const auto slow_from = std::chrono::steady_clock::now() + kQuick;
    const auto most_rounds = [slow_from] {
      return std::chrono::steady_clock::now() < slow_from ? kMostQuickRounds : kMostRounds;
    };
    for (int round = 0; round < most_rounds() && !open.empty(); ++round) {
      std::vector<std::pair<std::string, std::future<RasReport>>> asked;
      for (const auto& [name, listener] : open) {
        for (int i = 0; i < kAtOnce; ++i) {
          try {
            asked.emplace_back(name, std::async(std::launch::async, sources_.ask_ras, listener));
          } catch (const std::system_error&) {  // no thread
          }
        }
      }
      std::map<std::string, RasListener> again;
      for (auto& [name, future] : asked) {
        RasReport report = future.get();
        RasAnswer answer;
        std::string error = report.error;
        if (error.empty() && report.json.empty()) {
          error = report.is_connected ? "it does not answer" : "nothing listens there";
        }
        if (error.empty() && ReadRasAnswer(std::move(report.json), &answer, &error)) {
          if (const auto& network = open[name].network) NameHosts(*network, &answer);
          heard.Add(answer);
        }
        std::string& kept = errors_.try_emplace(name, error).first->second;
        if (error.empty()) kept.clear();
        if (report.is_connected) again.emplace(name, open[name]);
      }
      // A killed or old process stays out of all answers.
      const bool is_failed = std::any_of(again.begin(), again.end(), [this](const auto& each) {
        return !errors_[each.first].empty();
      });
      if (!is_failed && AreAllKnown(heard)) break;
      open = std::move(again);
    }
    return heard;
  }

  // In a container NVML may list no pids: then each process may be a rank.
  bool AreAllKnown(const RasAnswer& heard) const {
    const bool are_pids_known = !PidsOn(seen_.gpus).empty();
    std::set<std::pair<uint64_t, int32_t>> pids;  // with their network
    for (const auto& [id, communicator] : heard.communicators) {
      for (const RasRank& rank : communicator.ranks) {
        const auto here = seen_.addresses.find(rank.host);
        if (here != seen_.addresses.end()) pids.emplace(here->second, rank.pid);
      }
    }
    return std::all_of(seen_.processes.begin(), seen_.processes.end(),
                       [&](const HostProcess& each) {
                         return each.has_plugin || each.is_ras_off ||
                                (are_pids_known && !MayBeRank(each, seen_.gpus)) ||
                                IsOutOfReach(each) || pids.count({each.network, each.own_pid}) != 0;
                       });
  }

  // True if RAS of this process can't be asked, because its network namespace isn't entered.
  bool IsOutOfReach(const HostProcess& process) const {
    const auto found = listeners_.networks.find(process.network);
    return process.network != 0 && (found == listeners_.networks.end() || !found->second);
  }

  bool IsAnyBack() const {
    const Communicators& after = seen_.after.communicators;
    return std::any_of(after.begin(), after.end(), [this](const auto& each) {
      const auto found = seen_.before.communicators.find(each.first);
      return found != seen_.before.communicators.end() &&
             MotionOf(&found->second, each.second) == Motion::kBack;
    });
  }

  void AddErrors(Looks* looks) const {
    for (const auto& [name, error] : errors_) {
      if (error.empty()) continue;
      looks->notes.push_back(absl::StrCat("NCCL's RAS at ", name, ": ", error, "."));
    }
  }

  static void AddUntold(Looks* looks) {
    if (looks->processes == 0 || !looks->jobs.empty()) return;
    looks->notes.push_back(
        absl::StrCat(looks->processes,
                     " processes of this host use NCCL without the plugin. Neither RAS nor NVML ",
                     "knows a job of two of them."));
  }

  JobLook Judge(Job job) const {
    JobLook look;
    look.endpoints = look.heard = 1;
    look.looks = 2;
    look.now_realtime_ns = seen_.now_ns;
    look.set = std::move(job.set);
    look.diagnosis = Diagnosis(options_.hang_after).Update(look.set, seen_.now_ns);
    look.verdict = JudgeJob(look.set, look.diagnosis, seen_.now_ns);
    const int64_t stood_ns = seen_.now_ns - seen_.before_ns;
    NameUnseen(job, &look);
    for (JobRoot& root : look.verdict.roots) root.text = RootWords(root, job, stood_ns);
    look.health.communicators = job.communicators.size();
    look.health.ranks = job.processes.size();
    const bool are_empty =
        job.has_counts && !job.is_creating && job.AreAll(GpuUse::kIdle) && job.unused == 0;
    const bool are_known = (job.moved != 0 || are_empty) && job.not_fine == 0 && job.waiting == 0;
    look.health.status = !look.verdict.roots.empty() ? HealthStatus::kHang
                         : are_known                 ? HealthStatus::kOk
                                                     : HealthStatus::kIncomplete;
    look.health.summary = SummaryWords(job, stood_ns);
    const std::string version = job.has_counts ? seen_.after.nccl_version : "";
    look.outside = SourceWords(job, version, !seen_.gpus.empty());
    look.health.notes = NoteWords(job, look.verdict);
    if (!look.verdict.roots.empty()) {
      for (std::string& fault : KnownFaults(version)) look.health.notes.push_back(std::move(fault));
    }
    return look;
  }

  // A single rank ahead of the others may be at fault, where none is named.
  static void AddRankAhead(const Job& job, JobRoot* root) {
    if (!root->ranks.empty() || root->perhaps.empty()) return;
    const uint64_t id = root->perhaps.front().comm_id;
    const RasCommunicator& communicator = job.communicators.at(id);
    std::vector<int32_t> ahead;
    for (const RasRank& rank : communicator.ranks) {
      if (!HasFewer(communicator, rank)) ahead.push_back(rank.rank);
    }
    const bool is_there =
        std::any_of(root->perhaps.begin(), root->perhaps.end(), [&](const JobRank& each) {
          return each.comm_id == id && !HasFewer(communicator, *RankOf(job, id, each.rank));
        });
    if (ahead.size() == 1 && !is_there) root->perhaps.push_back({id, ahead.front()});
  }

  // Adds host and pid, from RAS' own list, of ranks without a process in the verdict: ranks that RAS
  // misses, and the rank ahead.
  static void NameUnseen(const Job& job, JobLook* look) {
    std::vector<JobRank*> unseen;
    for (JobRoot& root : look->verdict.roots) {
      AddRankAhead(job, &root);
      for (auto* ranks : {&root.ranks, &root.perhaps}) {
        for (JobRank& rank : *ranks) {
          if (rank.process == nullptr) unseen.push_back(&rank);
        }
      }
    }
    look->set.ended.reserve(unseen.size());  // the verdict points to its elements
    for (JobRank* rank : unseen) {
      const RasRank* const known = RankOf(job, rank->comm_id, rank->rank);
      if (known == nullptr) continue;
      ProcessSnapshot& process = look->set.ended.emplace_back();
      process.hostname = known->host;
      process.pid = known->pid;
      rank->process = &process;
      rank->communicator = &process.communicators.emplace_back();
      process.communicators.front().gpu = known->nvml_dev < 0 ? "" : absl::StrCat(known->nvml_dev);
    }
  }

  const Options options_;
  const Sources& sources_;
  RasListeners listeners_;
  std::map<std::string, std::string> errors_;  // by address; "": RAS has answered there
  Observation seen_;
  int64_t start_ns_ = 0;
  std::size_t processes_ = 0;
};

OutsideLook::OutsideLook(Options options, const Sources& sources)
    : impl_(std::make_unique<Impl>(std::move(options), sources)) {}
OutsideLook::~OutsideLook() = default;
bool OutsideLook::Begin(Looks* looks) { return impl_->Begin(looks); }
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

std::vector<ProcessWithoutPlugin> WithoutPlugin(const std::vector<HostProcess>& processes,
                                                const std::vector<HostGpu>& gpus) {
  std::vector<ProcessWithoutPlugin> found;
  for (const HostProcess& each : processes) {
    if (each.has_plugin || each.is_guess || !MayBeRank(each, gpus)) continue;
    found.push_back({each.pid,
                     each.user,
                     each.global_rank,
                     each.nccl_version,
                     WhyNotRunning(each.state),
                     {},
                     each.start_realtime_ns});
    for (const HostGpu& gpu : gpus) {
      if (IsOn(gpu, each.pid)) found.back().gpus.push_back(gpu.index);
    }
  }
  return found;
}

Sources SourcesOfThisHost() {
  Sources sources;
  const auto gpus = std::make_shared<GpuUses>();
  sources.processes = [](const std::vector<int32_t>* pids) {
    return FindNcclProcesses(std::chrono::seconds(3), pids);
  };
  sources.gpus = [gpus](int64_t since_ns) { return gpus->OfHost(since_ns); };
  sources.ask_ras = [](const RasListener& each) {
    return each.Ask(kRasPatience, kMostAnswerBytes);
  };
  sources.wait = [](std::chrono::milliseconds time) { std::this_thread::sleep_for(time); };
  sources.now_realtime_ns = [] { return RealtimeNs(); };
  sources.addresses = OwnAddresses();
  sources.hostname = HostName();
  return sources;
}

Looks LookFromOutside(const Options& options, const Sources& sources) {
  constexpr std::chrono::milliseconds kSlack{200};
  Looks looks;
  OutsideLook look(options, sources);
  if (!look.Begin(&looks)) return looks;
  sources.wait(options.hang_after + kSlack);
  Looks found = look.End();
  found.notes.insert(found.notes.begin(), looks.notes.begin(), looks.notes.end());
  return found;
}

}  // namespace nccl_pulse::outside

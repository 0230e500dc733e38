#include "exporter/watch/findings.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "exporter/base/communicator_id.h"
#include "exporter/base/time.h"
#include "exporter/exposition/static_labels.h"
#include "exporter/fleet/job_report.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostHangs = 8;
constexpr std::size_t kMostStragglers = 32;

class Finder {
 public:
  Finder(const JobLook& look, const std::vector<Address>& asked) : look_(look), asked_(asked) {}

  JobFindings Make() const {
    JobFindings findings;
    findings.heard = look_.heard;
    findings.names = NamesOfJob(look_);
    findings.sentence = JobSentence(look_);
    findings.text = JobText(look_);
    for (const JobRoot& root : look_.verdict.roots) {
      if (root.is_usual) continue;
      if (IsSilenced(root) || findings.hangs.size() == kMostHangs) continue;
      findings.hangs.push_back(HangOf(root));
    }
    for (const JobStraggler& straggler : look_.verdict.stragglers) {
      if (straggler.ranks.empty() || findings.stragglers.size() == kMostStragglers) continue;
      findings.stragglers.push_back(SlowOf(straggler));
    }
    findings.state = StateOf(look_);
    findings.is_stalled = !look_.verdict.roots.empty();
    findings.idle_since_s = SecondsToMillisecond(look_.health.idle_since_realtime_ns);
    return findings;
  }

 private:
  static void SetLabels(const ProcessSnapshot& process, WatchedRank* who) {
    StaticLabels labels;
    SplitLabels(process.static_labels, &labels);
    who->labels.clear();
    for (const auto& label : UsableLabels(labels)) {
      // The job's own workload label replaces the user's.
      if (label.name != "workload") who->labels.emplace_back(label.name, label.value);
    }
  }

  WatchedRank RankOf(const JobRank& rank) const {
    WatchedRank who;
    who.comm = CommunicatorText(rank.comm_id);
    who.rank = absl::StrCat(rank.rank);
    if (rank.process == nullptr) return who;
    who.global_rank = rank.process->global_rank;
    who.hostname = rank.process->hostname;
    who.gpu = rank.communicator->gpu;
    who.uuid = rank.communicator->uuid;
    who.pid = absl::StrCat(rank.process->pid);
    if (rank.process->is_from_outside) who.source = "outside";
    SetLabels(*rank.process, &who);
    const auto found = look_.endpoint_of->find({rank.process->hostname, rank.process->pid});
    if (found != look_.endpoint_of->end()) who.endpoint = UrlOf(asked_[found->second]);
    return who;
  }

  // Calls `visit` for each process that takes part in the hang.
  template <typename Visit>
  void ForEachProcessOf(const JobRoot& root, const Visit& visit) const {
    const std::set<uint64_t> hangs(root.communicators.begin(), root.communicators.end());
    for (const ProcessSnapshot& process : look_.set.processes) {
      const bool takes_part =
          std::any_of(process.communicators.begin(), process.communicators.end(),
                      [&hangs](const auto& each) { return hangs.count(each.comm_id) != 0; });
      if (takes_part) visit(process);
    }
  }

  // True if the job's owner has silenced its hangs (hang_alert=off).
  bool IsSilenced(const JobRoot& root) const {
    bool is_silenced = false;
    ForEachProcessOf(root, [&](const ProcessSnapshot& process) {
      is_silenced = is_silenced || LabelValue(process.static_labels, "hang_alert") == "off";
    });
    return is_silenced;
  }

  JobHang HangOf(const JobRoot& root) const {
    JobHang hang;
    hang.verdict = HangVerdictName(root.verdict);
    hang.op = root.op;
    hang.first_step = FirstStep(root);
    hang.text = RootText(look_, root);
    hang.named = root.ranks.size();
    if (!root.ranks.empty()) {
      hang.suspect = RankOf(root.ranks.front());
    } else if (!root.communicators.empty()) {
      hang.suspect.comm = CommunicatorText(root.communicators.front());
    }
    hang.since_s = SecondsToMillisecond(root.since_realtime_ns);
    hang.lasted_s = SecondsToMillisecond(ElapsedNs(look_.now_realtime_ns, root.since_realtime_ns));
    ForEachProcessOf(root, [&](const ProcessSnapshot& process) {
      if (hang.suspect.pid.empty()) SetLabels(process, &hang.suspect);
      hang.job_start_s =
          std::max(hang.job_start_s, SecondsToMillisecond(process.start_realtime_ns));
    });
    return hang;
  }

  JobSlow SlowOf(const JobStraggler& straggler) const {
    JobSlow slow;
    slow.suspect = RankOf(straggler.ranks.front());
    // The communicator and rank vary from poll to poll, so they are left out.
    slow.suspect.comm = slow.suspect.rank = "";
    if (straggler.is_whole_host) {
      slow.suspect.global_rank = slow.suspect.pid = slow.suspect.gpu = slow.suspect.uuid = "";
    }
    slow.seconds_per_second = straggler.seconds_per_second;
    slow.first_step = FirstStep(straggler);
    return slow;
  }

  const JobLook& look_;
  const std::vector<Address>& asked_;
};

}  // namespace

WatchState::Time SinceOf(const JobHang& hang, const JobFindings& findings) {
  // Ages come from endpoints, so they are limited.
  constexpr double kMostSeconds = 1e9;
  return findings.looked_at -
         std::chrono::duration_cast<WatchState::Time::duration>(
             std::chrono::duration<double>(std::min(hang.lasted_s, kMostSeconds)));
}

WatchState::Time SinceOf(const WatchedJob& job) {
  WatchState::Time oldest = WatchState::Time::max();
  for (const JobHang& hang : job.findings.hangs) {
    oldest = std::min(oldest, SinceOf(hang, job.findings));
  }
  return oldest;
}

std::string NameOf(const WatchedJob& job) {
  if (job.job_id.empty() || job.job_id == "none") {
    return absl::StrCat("at ", job.endpoints.empty() ? "no endpoint" : job.endpoints.front());
  }
  return job.workload == job.job_id ? job.job_id : absl::StrCat(job.job_id, " ", job.workload);
}

std::string UrlOf(const Address& address) {
  return absl::StrCat(address.is_https ? "https://" : "http://", address.name(), address.path, "/");
}

std::set<JobName> NamesOfJob(const JobLook& look) {
  std::set<JobName> names;
  for (const auto* processes : {&look.set.processes, &look.set.ended}) {
    for (const ProcessSnapshot& process : *processes) {
      const std::string workload = LabelValue(process.static_labels, "workload");
      names.insert({process.job_id, workload.empty() ? process.job_id : workload});
    }
  }
  if (names.empty()) names.emplace();  // nothing but notes is known of the job
  return names;
}

HangReport HangReportOf(const JobLook& look) {
  std::set<int64_t> users;
  for (const auto* processes : {&look.set.processes, &look.set.ended}) {
    for (const ProcessSnapshot& process : *processes) users.insert(process.user);
  }
  return {{users.begin(), users.end()}, JobJson(look)};
}

JobFindings FindingsOf(const JobLook& look, const std::vector<Address>& asked) {
  return Finder(look, asked).Make();
}

}  // namespace nccl_pulse

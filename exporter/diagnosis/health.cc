#include "exporter/diagnosis/health.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/base/communicator_id.h"
#include "exporter/diagnosis/environment_differences.h"
#include "exporter/diagnosis/jobs.h"
#include "exporter/diagnosis/rank_activity.h"
#include "exporter/diagnosis/rank_words.h"
#include "exporter/diagnosis/rejection.h"
#include "exporter/diagnosis/same_ids.h"
#include "exporter/diagnosis/words.h"
#include "metrics/driver_error.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostPids = 8;
// Between a call and its launch every rank is unknown for microseconds.
constexpr int64_t kMomentNs = 1000000000;

bool IsUnknown(const RankActivity& activity, int64_t now_ns) {
  if (activity.reason != UnknownReason::kLaunchNotReported) return activity.is_unknown();
  return activity.since_realtime_ns != 0 &&
         ElapsedNs(now_ns, activity.since_realtime_ns) >= kMomentNs;
}

std::string Plural(std::size_t count, const char* one, const char* several) {
  return absl::StrCat(count, " ", count == 1 ? one : several);
}

// "pid 7", "pids 7, 8 and 3 more"
std::string Pids(std::vector<std::string> pids) {
  const std::size_t more = pids.size() > kMostPids ? pids.size() - kMostPids : 0;
  pids.resize(pids.size() - more);
  return absl::StrCat(pids.size() == 1 ? "pid " : "pids ", absl::StrJoin(pids, ", "),
                      more == 0 ? "" : absl::StrCat(" and ", more, " more"));
}

using IdAndNumber = std::pair<uint64_t, uint32_t>;  // see same_ids.h

struct Activities {
  std::size_t ranks = 0;
  std::size_t unknown = 0;
  std::size_t calibrating = 0;  // of these; they will be seen in a moment
  std::size_t missing = 0;      // of one node, and never seen at this endpoint
  bool is_mixed = false;        // ranks of several communicators

  std::size_t unseen() const { return unknown - calibrating; }
  bool IsDark() const { return is_mixed || 2 * unseen() > ranks; }
};

class Examiner {
 public:
  Examiner(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis, int64_t now_ns)
      : now_ns_(now_ns), stands_after_ns_(snapshots.stands_after_ns), same_ids_(snapshots) {
    for (const ProcessSnapshot& process : snapshots.processes) {
      if (process.end != ProcessEnd::kLive) continue;
      for (const CommunicatorSnapshot& each : process.communicators) {
        if (!each.finalized) open_.insert(IdOf(each));
      }
    }
    for (const ProcessSnapshot& process : snapshots.processes) AddProcess(process);
    for (const ProcessSnapshot& process : snapshots.ended) AddEnd(process);
    CountMissing(snapshots);
    is_of_dumps_ = !snapshots.processes.empty() && snapshots.processes.front().is_of_dump;
    rejected_ = snapshots.rejected;
    NoteThresholds(snapshots);
    for (const CommunicatorDiagnosis& each : diagnosis) {
      if (each.hang) (each.hang->is_usual ? has_usual_ : has_hang_) = true;
      has_straggler_ |= each.has_named_straggler();
      if (each.queued) AddNote(each.comm_id, each.queued->text);
      if (!each.note.empty()) AddNote(each.comm_id, each.note);
    }
  }

  Health Make() {
    for (const auto& [id, activities] : by_communicator_) {
      health_.ranks += activities.ranks;
      health_.unknown_ranks += activities.unknown;
      health_.missing_ranks = std::max(health_.missing_ranks, activities.missing);
      ++health_.communicators;
      if (activities.unseen() == activities.ranks) ++health_.blind_communicators;
      if (activities.IsDark()) ++dark_;
    }
    health_.lost_processes = lost_.size();
    health_.stopped_processes = stopped_.size();
    health_.failed_gpus = failed_.size();
    health_.status = Status();
    AddNotes();
    health_.summary = Summary();
    return std::move(health_);
  }

 private:
  void AddNote(uint64_t comm_id, const std::string& text) {
    of_communicators_.push_back(
        absl::StrCat("Communicator ", CommunicatorText(comm_id), ": ", text));
  }

  IdAndNumber IdOf(const CommunicatorSnapshot& communicator) const {
    return {communicator.comm_id, same_ids_.NumberOf(communicator)};
  }

  // Ranks that have ended count as seen.
  void CountMissing(const SnapshotSet& snapshots) {
    std::map<IdAndNumber, std::set<int32_t>> seen;
    std::map<IdAndNumber, int32_t> wanted;
    for (const auto* processes : {&snapshots.processes, &snapshots.ended}) {
      for (const ProcessSnapshot& process : *processes) {
        for (const CommunicatorSnapshot& communicator : process.communicators) {
          const IdAndNumber id = IdOf(communicator);
          seen[id].insert(communicator.rank);
          if (communicator.nnodes == 1 || snapshots.is_of_all_nodes) {
            wanted[id] = communicator.nranks;
          }
        }
      }
    }
    for (const auto& [id, nranks] : wanted) {
      const auto found = by_communicator_.find(id);
      const auto here = static_cast<int64_t>(seen[id].size());
      if (id.first == 0 || found == by_communicator_.end() || here >= nranks) continue;
      found->second.missing = static_cast<std::size_t>(nranks - here);
    }
  }

  void AddEnd(const ProcessSnapshot& process) {
    if (process.end != ProcessEnd::kLost) return;
    const bool is_awaited = std::any_of(
        process.communicators.begin(), process.communicators.end(),
        [this](const auto& each) { return !each.finalized && open_.count(IdOf(each)) != 0; });
    (is_awaited ? lost_ : ended_).push_back(PidWords(process));
  }

  // Notes jobs whose processes go by different thresholds.
  void NoteThresholds(const SnapshotSet& snapshots) {
    std::set<int64_t> all;
    for (const ProcessSnapshot& process : snapshots.processes) all.insert(process.hang_after_ns);
    if (all.size() < 2) return;
    Jobs jobs(snapshots);
    std::map<std::size_t, std::set<int64_t>> of_jobs;
    for (const ProcessSnapshot& process : snapshots.processes) {
      of_jobs[jobs.OfProcess(&process)].insert(process.hang_after_ns);
    }
    for (auto& [job, thresholds] : of_jobs) {
      thresholds.erase(0);
      if (thresholds.size() < 2) continue;
      of_communicators_.push_back(
          absl::StrCat("Processes of one job have different thresholds for a hang, up to ",
                       DurationWords(*thresholds.rbegin()),
                       ". The shortest counts: ", DurationWords(*thresholds.begin()), "."));
    }
  }

  void AddProcess(const ProcessSnapshot& process) {
    if (process.end != ProcessEnd::kLive) return AddEnd(process);
    bool is_in_use = false;
    std::set<std::string> gpus;
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      if (communicator.finalized) continue;
      is_in_use = true;
      if (communicator.driver_error != 0 && gpus.insert(communicator.gpu).second) {
        AddFailed(process, communicator);
      }
      Activities& activities = by_communicator_[IdOf(communicator)];
      activities.is_mixed = same_ids_.AreMixed(communicator);
      const RankActivity activity = ActivityOf(process, communicator, now_ns_, stands_after_ns_);
      ++activities.ranks;
      if (!IsUnknown(activity, now_ns_)) continue;
      ++activities.unknown;
      activities.calibrating += activity.reason == UnknownReason::kCalibrating ? 1 : 0;
      ++reasons_[static_cast<std::size_t>(activity.reason)];
    }
    if (is_in_use && process.heard_realtime_ns != 0) {
      ++silent_;
      silent_since_ns_ = std::min(silent_since_ns_, process.heard_realtime_ns);
    }
    if (is_in_use && IsStopped(process, now_ns_, stands_after_ns_))
      stopped_.push_back(PidWords(process));
    if (process.event_mask_changes != 0) {
      masks_.push_back(absl::StrCat(
          "Another program changed NCCL's profiler event mask in pid ", PidWords(process), ", ",
          Plural(process.event_mask_changes, "time", "times"), ", now 0x",
          absl::Hex(process.foreign_event_mask), ": what NCCL does not report is not measured."));
    }
  }

  void AddFailed(const ProcessSnapshot& process, const CommunicatorSnapshot& communicator) {
    const char* name = DriverErrorName(communicator.driver_error);
    failed_.push_back(
        absl::StrCat("The driver of ",
                     communicator.gpu.empty() ? "a GPU" : absl::StrCat("GPU ", communicator.gpu),
                     " has reported ", name == nullptr ? "error" : name, " (",
                     communicator.driver_error, ") to pid ", process.pid, " since ",
                     ClockWords(communicator.driver_error_realtime_ns), "."));
  }

  HealthStatus Status() const {
    if (has_hang_) return HealthStatus::kHang;
    if (!lost_.empty() || !stopped_.empty() || !failed_.empty()) return HealthStatus::kIncomplete;
    if (health_.communicators == 0) return HealthStatus::kUnused;
    if (dark_ != 0 && !has_usual_) return HealthStatus::kIncomplete;
    if (has_usual_) return HealthStatus::kWaiting;
    return has_straggler_ ? HealthStatus::kStraggler : HealthStatus::kOk;
  }

  void AddNotes() {
    std::vector<std::string>& notes = health_.notes;
    if (!lost_.empty()) {
      notes.push_back(absl::StrCat(
          Plural(lost_.size(), "process has", "processes have"),
          " ended and not finalized communicators that others still use: ", Pids(lost_), "."));
    }
    if (!ended_.empty()) {
      notes.push_back(absl::StrCat(
          Plural(ended_.size(), "process has", "processes have"),
          " ended without finalizing communicators that nobody uses: ", Pids(ended_), "."));
    }
    if (!stopped_.empty()) {
      notes.push_back(absl::StrCat(
          Plural(stopped_.size(), "process is", "processes are"),
          " not running (stopped, held by a debugger, or paused): ", Pids(stopped_), "."));
    }
    if (silent_ != 0) {
      notes.push_back(absl::StrCat(Plural(silent_, "process is", "processes are"), " known until ",
                                   ClockWords(silent_since_ns_),
                                   " or later: the endpoint is silent."));
    }
    notes.insert(notes.end(), failed_.begin(), failed_.end());
    if (health_.unknown_ranks != 0) {
      std::vector<std::string> why;
      for (int i = 1; i < kUnknownReasons; ++i) {
        if (reasons_[i] == 0) continue;
        why.push_back(absl::StrCat(UnknownReasonWords(static_cast<UnknownReason>(i)), " (",
                                   reasons_[i], ")"));
      }
      notes.push_back(absl::StrCat(
          "Whether work is in flight is not known for ", health_.unknown_ranks, " of ",
          Plural(health_.ranks, "rank", "ranks"), ": ", absl::StrJoin(why, "; "), "."));
    }
    for (const auto& [id, activities] : by_communicator_) {
      if (activities.is_mixed) {
        notes.push_back(absl::StrCat("Several communicators have the id ",
                                     CommunicatorText(id.first),
                                     ", and which ranks belong together is not known: they are "
                                     "not compared."));
      }
      if (activities.missing == 0 || is_of_dumps_) continue;  // their reader says which are missing
      notes.push_back(absl::StrCat(Plural(activities.missing, "rank", "ranks"), " of communicator ",
                                   CommunicatorText(id.first),
                                   activities.missing == 1 ? " is" : " are", " not seen here."));
    }
    AddRejected();
    notes.insert(notes.end(), masks_.begin(), masks_.end());
    notes.insert(notes.end(), of_communicators_.begin(), of_communicators_.end());
  }

  void AddRejected() {
    std::vector<std::string> why;
    uint64_t count = 0;
    for (int i = 0; i < kRejections; ++i) {
      if (rejected_[i] == 0) continue;
      count += rejected_[i];
      why.push_back(
          absl::StrCat(RejectionName(static_cast<Rejection>(i)), " (", rejected_[i], ")"));
    }
    if (why.empty()) return;
    health_.notes.push_back(absl::StrCat("This endpoint has rejected processes ",
                                         Plural(count, "time", "times"),
                                         " since it started: ", absl::StrJoin(why, ", "),
                                         ". What it rejects is not measured here."));
  }

  std::string Summary() const {
    if (has_hang_ || has_usual_ || has_straggler_) return "";
    const std::size_t blind = health_.blind_communicators;
    if (health_.communicators == 0) return "No communicator is in use.";
    if (blind == health_.communicators) return "Whether anything hangs cannot be seen.";
    if (dark_ == 0) return "No hang and no straggler is suspected.";
    const char* what =
        blind == dark_ ? " work cannot be seen." : " work of most ranks cannot be seen.";
    if (dark_ == health_.communicators) {
      return absl::StrCat("No hang and no straggler is suspected, but", what);
    }
    return absl::StrCat("No hang and no straggler is suspected on ", health_.communicators - dark_,
                        " of ", health_.communicators, " communicators; on the ",
                        dark_ == 1 ? "other" : "others", what);
  }

  const int64_t now_ns_, stands_after_ns_;
  std::vector<std::string> lost_, ended_, stopped_;
  std::set<IdAndNumber> open_;  // communicators of live processes
  std::size_t silent_ = 0;      // processes
  int64_t silent_since_ns_ = INT64_MAX;
  const SameIds same_ids_;
  std::map<IdAndNumber, Activities> by_communicator_;
  std::array<std::size_t, kUnknownReasons> reasons_{};
  RejectionCounts rejected_{};
  std::size_t dark_ = 0;  // communicators where the work of most ranks is unknown
  bool is_of_dumps_ = false;
  bool has_hang_ = false, has_usual_ = false, has_straggler_ = false;
  std::vector<std::string> failed_, masks_, of_communicators_;
  Health health_;
};

}  // namespace

Health HealthOf(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                int64_t now_realtime_ns) {
  Health health = Examiner(snapshots, diagnosis, now_realtime_ns).Make();
  for (std::string& each : EnvironmentDifferences(snapshots.processes)) {
    health.notes.push_back(std::move(each));
  }
  return health;
}

}  // namespace nccl_pulse

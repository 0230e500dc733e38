#include "exporter/health.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/hang_words.h"
#include "exporter/rank_activity.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostPids = 8;
// Between a call and its launch every rank is in an unknown state, for microseconds.
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
std::string Pids(std::vector<int32_t> pids) {
  const std::size_t more = pids.size() > kMostPids ? pids.size() - kMostPids : 0;
  pids.resize(pids.size() - more);
  return absl::StrCat(pids.size() == 1 ? "pid " : "pids ", absl::StrJoin(pids, ", "),
                      more == 0 ? "" : absl::StrCat(" and ", more, " more"));
}

struct Activities {
  std::size_t ranks = 0;
  std::size_t unknown = 0;
};

class Examiner {
 public:
  Examiner(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis, int64_t now_ns)
      : now_ns_(now_ns) {
    for (const ProcessSnapshot& process : snapshots.processes) AddProcess(process);
    for (const ProcessSnapshot& process : snapshots.ended) AddEnd(process);
    for (const CommunicatorDiagnosis& each : diagnosis) {
      if (each.hang) (each.hang->is_usual ? has_usual_ : has_hang_) = true;
      has_straggler_ |= each.straggler.has_value();
      if (each.queued) AddNote(each.comm_id, each.queued->text);
      if (!each.note.empty()) AddNote(each.comm_id, each.note);
    }
  }

  Health Make() {
    for (const auto& [id, activities] : by_communicator_) {
      health_.ranks += activities.ranks;
      health_.unknown_ranks += activities.unknown;
      ++health_.communicators;
      if (activities.unknown == activities.ranks) ++health_.blind_communicators;
    }
    health_.lost_processes = lost_.size();
    health_.stopped_processes = stopped_.size();
    health_.status = Status();
    AddNotes();
    health_.summary = Summary();
    return std::move(health_);
  }

 private:
  void AddNote(uint64_t comm_id, const std::string& text) {
    of_communicators_.push_back(
        absl::StrCat("Communicator ", absl::Hex(comm_id, absl::kZeroPad16), ": ", text));
  }

  void AddEnd(const ProcessSnapshot& process) {
    if (process.end == ProcessEnd::kLost) lost_.push_back(process.pid);
  }

  void AddProcess(const ProcessSnapshot& process) {
    if (process.end != ProcessEnd::kLive) return AddEnd(process);
    bool is_in_use = false;
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      if (communicator.finalized) continue;
      is_in_use = true;
      Activities& activities = by_communicator_[communicator.comm_id];
      const RankActivity activity = ActivityOf(process, communicator, now_ns_);
      ++activities.ranks;
      if (!IsUnknown(activity, now_ns_)) continue;
      ++activities.unknown;
      ++reasons_[static_cast<std::size_t>(activity.reason)];
    }
    if (is_in_use && IsStopped(process, now_ns_)) stopped_.push_back(process.pid);
    if (process.event_mask_changes != 0) {
      masks_.push_back(absl::StrCat(
          "Somebody changed NCCL's profiler event mask in pid ", process.pid, ", ",
          Plural(process.event_mask_changes, "time", "times"), ", now 0x",
          absl::Hex(process.foreign_event_mask), ": what NCCL does not report is not measured."));
    }
  }

  HealthStatus Status() const {
    if (has_hang_) return HealthStatus::kHang;
    if (!lost_.empty() || !stopped_.empty()) return HealthStatus::kIncomplete;
    if (health_.communicators == 0) return HealthStatus::kUnused;
    if (health_.blind_communicators == health_.communicators && !has_usual_) {
      return HealthStatus::kIncomplete;
    }
    if (has_usual_) return HealthStatus::kWaiting;
    return has_straggler_ ? HealthStatus::kStraggler : HealthStatus::kOk;
  }

  void AddNotes() {
    std::vector<std::string>& notes = health_.notes;
    if (!lost_.empty()) {
      notes.push_back(absl::StrCat(Plural(lost_.size(), "process was", "processes were"),
                                   " lost (killed or crashed): ", Pids(lost_), "."));
    }
    if (!stopped_.empty()) {
      notes.push_back(
          absl::StrCat(Plural(stopped_.size(), "process does", "processes do"),
                       " not run (stopped, or stuck in the GPU driver): ", Pids(stopped_), "."));
    }
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
    notes.insert(notes.end(), masks_.begin(), masks_.end());
    notes.insert(notes.end(), of_communicators_.begin(), of_communicators_.end());
  }

  std::string Summary() const {
    if (has_hang_ || has_usual_ || has_straggler_) return "";
    const std::size_t blind = health_.blind_communicators;
    if (health_.communicators == 0) return "No communicator is in use.";
    if (blind == health_.communicators) return "Whether anything hangs cannot be seen.";
    if (blind == 0) return "No hang and no straggler is suspected.";
    return absl::StrCat("No hang and no straggler is suspected on ", health_.communicators - blind,
                        " of ", health_.communicators, " communicators; on the ",
                        blind == 1 ? "other" : "others", " work cannot be seen.");
  }

  const int64_t now_ns_;
  std::vector<int32_t> lost_, stopped_;
  std::map<uint64_t, Activities> by_communicator_;
  std::array<std::size_t, kUnknownReasons> reasons_{};
  bool has_hang_ = false, has_usual_ = false, has_straggler_ = false;
  std::vector<std::string> masks_, of_communicators_;
  Health health_;
};

}  // namespace

const char* HealthStatusName(HealthStatus status) {
  switch (status) {
    case HealthStatus::kHang:
      return "hang";
    case HealthStatus::kIncomplete:
      return "incomplete";
    case HealthStatus::kWaiting:
      return "waiting";
    case HealthStatus::kStraggler:
      return "straggler";
    case HealthStatus::kOk:
      return "ok";
    case HealthStatus::kUnused:
      break;
  }
  return "unused";
}

Health HealthOf(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                int64_t now_realtime_ns) {
  return Examiner(snapshots, diagnosis, now_realtime_ns).Make();
}

}  // namespace nccl_pulse

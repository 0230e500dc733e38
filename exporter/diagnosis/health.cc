#include "exporter/diagnosis/health.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/base/communicator_id.h"
#include "exporter/diagnosis/facts/call_counts.h"
#include "exporter/diagnosis/facts/environment_differences.h"
#include "exporter/diagnosis/facts/rank_activity.h"
#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/facts/rejection.h"
#include "exporter/diagnosis/jobs.h"
#include "exporter/diagnosis/words/rank_words.h"
#include "exporter/diagnosis/words/words.h"
#include "metrics/driver_error.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostPids = 8;
constexpr char kEnded[] = "process ended without finalizing";
constexpr char kSeveralEnded[] = "processes ended without finalizing";
// Between a call and its launch every rank is unknown for microseconds.
constexpr int64_t kMomentNs = 1000000000;

bool IsUnknown(const RankActivity& activity, int64_t now_ns) {
  if (activity.reason != UnknownReason::kLaunchNotReported) return activity.is_unknown();
  return activity.since_realtime_ns != 0 &&
         ElapsedNs(now_ns, activity.since_realtime_ns) >= kMomentNs;
}

// "pid 7", "pids 7, 8 and 3 more"
std::string Pids(std::vector<std::string> pids) {
  const std::size_t more = pids.size() > kMostPids ? pids.size() - kMostPids : 0;
  pids.resize(pids.size() - more);
  return absl::StrCat(pids.size() == 1 ? "pid " : "pids ", absl::StrJoin(pids, ", "),
                      more == 0 ? "" : absl::StrCat(" and ", more, " more"));
}

// A job is idle after this many times its usual pause between calls.
constexpr int64_t kIdleFactor = 10;
constexpr double kLeastWaited = 0.2;  // share of the time, as in the dashboards' "Waiting jobs"
constexpr uint64_t kLeastCalls = 16;  // needed to know how often the job calls

class Examiner {
 public:
  Examiner(const SnapshotSet& snapshots, const std::vector<CommunicatorView>& views,
           const DiagnosisResult& diagnosis, int64_t now_ns)
      : snapshots_(snapshots), now_ns_(now_ns), views_(views) {
    for (const ProcessSnapshot& process : snapshots.processes) {
      if (process.end == ProcessEnd::kLive) AddProcess(process);
    }
    for (const CommunicatorView& view : views_) AddCommunicator(view);
    FindLost();
    NoteThresholds();
    for (const CommunicatorDiagnosis& each : diagnosis) {
      if (each.hang) (each.hang->is_usual ? has_usual_ : has_hang_) = true;
      has_straggler_ |= each.has_named_straggler();
      if (each.queued) AddNote(each.comm_id, each.queued->text);
      queued_ += each.queued ? 1 : 0;
      if (each.waited_share > waited_share_) {
        waited_share_ = each.waited_share;
        waited_of_seconds_ = each.window_seconds;
      }
      if (!each.note.empty()) AddNote(each.comm_id, each.note);
    }
  }

  Health Make() {
    health_.lost_processes = lost_.size();
    health_.stopped_processes = stopped_.size();
    health_.failed_gpus = failed_.size();
    AddNotes();
    health_.status = Status();
    if (health_.status == HealthStatus::kIdle) health_.idle_since_realtime_ns = idle_since_ns_;
    health_.summary = Summary();
    return std::move(health_);
  }

 private:
  void AddNote(uint64_t comm_id, const std::string& text) {
    of_communicators_.push_back(
        absl::StrCat("Communicator ", CommunicatorText(comm_id), ": ", text));
  }

  void AddCommunicator(const CommunicatorView& view) {
    std::size_t ranks = 0;
    std::size_t unseen = 0;
    for (const RankView& rank : view.ranks) {
      if (!IsLive(rank)) continue;
      ++ranks;
      AddIdle(rank);
      const bool is_quiet_unseen = IsQuietUnseen(rank);
      if (!is_quiet_unseen && !IsUnknown(rank.activity, now_ns_)) continue;
      const UnknownReason reason =
          is_quiet_unseen ? UnknownReason::kCaptured : rank.activity.reason;
      ++reasons_[static_cast<std::size_t>(reason)];
      ++health_.unknown_ranks;
      // The work of a rank that is being calibrated will be seen in a moment.
      unseen += reason == UnknownReason::kCalibrating ? 0 : 1;
    }
    if (ranks == 0) return;
    ++health_.communicators;
    health_.ranks += ranks;
    unseen_ranks_ += unseen;
    if (unseen == ranks) ++health_.blind_communicators;
    if (view.is_mixed) {
      is_mixed_ = true;
      of_ranks_.push_back(
          absl::StrCat("Several communicators have the id ", CommunicatorText(view.comm_id),
                       ", and which ranks belong together is not known: they are not compared."));
    }
    // Ranks that have ended count as seen. Ranks on other nodes count as missing only if all
    // endpoints were polled.
    const int64_t missing = view.nranks - static_cast<int64_t>(view.ranks.size());
    if (missing <= 0 || (view.nnodes != 1 && !snapshots_.is_of_all_nodes)) return;
    const CommunicatorView* successor = IsOnSeenNodes(view) ? SuccessorOf(view) : nullptr;
    if (successor != nullptr) {
      of_ranks_.push_back(absl::StrCat(
          Plural(missing, "rank"), " of communicator ", CommunicatorText(view.comm_id),
          missing == 1 ? " is not seen here. No rank waits for it"
                       : " are not seen here. No rank waits for them",
          ": the others continue in communicator ", CommunicatorText(successor->comm_id), "."));
      return;
    }
    health_.missing_ranks = std::max(health_.missing_ranks, static_cast<std::size_t>(missing));
    // LookAtDumps reports which ranks have no dump.
    if (view.ranks.front().process->is_of_dump) return;
    of_ranks_.push_back(absl::StrCat(Plural(missing, "rank"), " of communicator ",
                                     CommunicatorText(view.comm_id), missing == 1 ? " is" : " are",
                                     " not seen here."));
  }

  // True if no rank can be on a node that is not seen, or in a rejected process.
  bool IsOnSeenNodes(const CommunicatorView& view) const {
    std::set<std::string_view> hosts;
    for (const RankView& rank : view.ranks) hosts.insert(rank.process->hostname);
    return snapshots_.unread_processes == 0 && view.nnodes > 0 &&
           hosts.size() >= static_cast<std::size_t>(view.nnodes);
  }

  // Returns the communicator in which the live ranks of `view` continue without the others, as
  // after ncclCommShrink; null: there is none, or a rank may wait in `view`.
  const CommunicatorView* SuccessorOf(const CommunicatorView& view) const {
    const auto live = std::find_if(view.ranks.begin(), view.ranks.end(), IsLive);
    if (live == view.ranks.end() || view.is_mixed) return nullptr;
    for (const CommunicatorSnapshot& each : live->process->communicators) {
      auto other = std::lower_bound(
          views_.begin(), views_.end(), each.comm_id,
          [](const CommunicatorView& a, uint64_t comm_id) { return a.comm_id < comm_id; });
      for (; other != views_.end() && other->comm_id == each.comm_id; ++other) {
        if (&*other != &view && Succeeds(*other, view)) return &*other;
      }
    }
    return nullptr;
  }

  // True if the ranks of `next` are the live ranks of `view`, in the same order, and each has
  // finished work in `next`, which began after the rank's last launch in `view`.
  static bool Succeeds(const CommunicatorView& next, const CommunicatorView& view) {
    if (next.is_mixed || next.ranks.size() != static_cast<std::size_t>(next.nranks)) return false;
    auto other = next.ranks.begin();
    for (const RankView& rank : view.ranks) {
      if (!IsLive(rank)) continue;
      if (other == next.ranks.end() || !IsLive(*other) || !rank.activity.is_idle()) return false;
      const CommunicatorSnapshot& then = *rank.communicator;
      const CommunicatorSnapshot& now = *other->communicator;
      if (other->process != rank.process || CompareGpus(now, then) == SameGpu::kNo) return false;
      const int64_t left_ns = std::max(then.init_realtime_ns, then.last_launch_realtime_ns);
      if (now.init_realtime_ns <= left_ns || now.last_completion_realtime_ns == 0) return false;
      ++other;
    }
    return other == next.ranks.end();
  }

  static bool IsLive(const RankView& rank) { return rank.state == RankView::State::kLive; }
  static bool IsGone(const RankView& rank) { return rank.state == RankView::State::kGone; }

  static uint64_t CollectivesOf(const RankView& rank) {
    return TotalCollectives(*rank.communicator);
  }

  // Finds lost processes that are missed: a live rank may wait for them. If no communicator is in
  // use, a process is also missed if it lacks calls that others have made.
  void FindLost() {
    std::set<const ProcessSnapshot*> missed;
    std::set<const ProcessSnapshot*> awaited;  // a live rank may wait for them outside NCCL
    for (const CommunicatorView& view : views_) {
      const bool is_in_use = std::any_of(view.ranks.begin(), view.ranks.end(), IsLive);
      uint64_t most_calls = 0;  // of live ranks; of all ranks if none lives
      bool may_wait = false;
      for (const RankView& rank : view.ranks) {
        if (is_in_use && !IsLive(rank)) continue;
        most_calls = std::max(most_calls, CollectivesOf(rank));
        may_wait |= is_in_use && !rank.activity.is_idle();
      }
      const bool is_any_gone = std::any_of(view.ranks.begin(), view.ranks.end(), IsGone);
      const bool is_left = is_in_use && is_any_gone && SuccessorOf(view) != nullptr;
      for (const RankView& rank : view.ranks) {
        if (!IsGone(rank)) continue;
        if (is_in_use && IsIdle()) awaited.insert(rank.process);
        const bool is_behind = CollectivesOf(rank) < most_calls;
        const bool left_work = SeenInFlightSince(*rank.communicator) != 0 || is_behind;
        if (is_in_use ? !is_left && (may_wait || is_behind)
                      : health_.communicators == 0 && left_work) {
          missed.insert(rank.process);
        }
      }
    }
    for (const auto* processes : {&snapshots_.processes, &snapshots_.ended}) {
      for (const ProcessSnapshot& process : *processes) {
        if (process.end != ProcessEnd::kLost && awaited.count(&process) == 0) continue;
        (missed.count(&process) != 0 ? lost_ : left_).push_back(PidWords(process));
      }
    }
  }

  // True if the process' ranks can be compared to find stragglers: it has called a collective that
  // no rank leaves before the last rank has arrived. Also true after few calls.
  static bool IsCompared(const ProcessSnapshot& process) {
    uint64_t calls = 0;
    for (const CommunicatorSnapshot& each : process.communicators) {
      if (each.finalized || each.nranks < 2) continue;
      for (const CallCountSnapshot& call : each.calls) {
        if (WaitsForAll(call.op)) return true;
        calls += call.calls;
      }
      for (const CompositeSnapshot& call : each.composites) {
        if (WaitsForAll(call.op)) return true;
      }
    }
    return calls < kLeastCalls;
  }

  // True if no work finishes in CUDA graphs and the GPU's use is not known, so a replay may be
  // stalled.
  bool IsQuietUnseen(const RankView& rank) const {
    const GpuUse use = rank.communicator->work.gpu_use;
    return rank.activity.is_quiet() && (use == GpuUse::kUnknown || use == GpuUse::kShared) &&
           ElapsedNs(now_ns_, rank.activity.since_realtime_ns) / 2 >= HangAfterNs(*rank.process);
  }

  // Updates the time since which the whole set has been idle; INT64_MAX: it is not idle.
  void AddIdle(const RankView& rank) {
    const CommunicatorSnapshot& each = *rank.communicator;
    const int64_t last_ns =
        std::max(each.last_launch_realtime_ns, each.last_completion_realtime_ns);
    if (!rank.activity.is_idle()) idle_since_ns_ = INT64_MAX;
    if (last_ns == 0 || idle_since_ns_ == INT64_MAX) return;
    idle_since_ns_ = std::max(idle_since_ns_, last_ns);
    for (const LongestWaitSnapshot& wait : each.longest_waits) {
      longest_pause_ns_ = std::max<int64_t>(
          longest_pause_ns_, static_cast<int64_t>(std::min<uint64_t>(wait.longest_ns, INT64_MAX)));
    }
    longest_pause_ns_ = std::max(longest_pause_ns_, HangAfterNs(*rank.process));
    if (each.launches == 0) return;
    const int64_t pause_ns = ElapsedNs(last_ns, each.init_realtime_ns) /
                             static_cast<int64_t>(std::min<uint64_t>(each.launches, INT64_MAX));
    usual_pause_ns_ = std::min(usual_pause_ns_, pause_ns);
  }

  bool IsIdle() const {
    if (idle_since_ns_ == 0 || idle_since_ns_ == INT64_MAX || usual_pause_ns_ == INT64_MAX)
      return false;
    const int64_t idle_ns = ElapsedNs(now_ns_, idle_since_ns_);
    return idle_ns > longest_pause_ns_ && idle_ns / kIdleFactor > usual_pause_ns_;
  }

  // Notes jobs whose processes have different thresholds.
  void NoteThresholds() {
    std::set<int64_t> all;
    for (const ProcessSnapshot& process : snapshots_.processes) all.insert(process.hang_after_ns);
    if (all.size() < 2) return;
    Jobs jobs(snapshots_);
    std::map<std::size_t, std::set<int64_t>> of_jobs;
    for (const ProcessSnapshot& process : snapshots_.processes) {
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
    bool is_in_use = false;
    std::set<std::string> gpus;
    for (const CommunicatorSnapshot& communicator : process.communicators) {
      if (communicator.finalized) continue;
      is_in_use = true;
      if (communicator.driver_error != 0 && gpus.insert(communicator.gpu).second) {
        AddFailed(process, communicator);
      }
    }
    if (is_in_use && process.heard_realtime_ns != 0) {
      ++silent_;
      silent_since_ns_ = std::min(silent_since_ns_, process.heard_realtime_ns);
    }
    if (is_in_use && IsStopped(process, now_ns_)) stopped_.push_back(PidWords(process));
    not_compared_ += IsCompared(process) ? 0 : 1;
    health_.unmeasured_communicators += process.unmeasured_communicators;
    if (process.unmeasured_communicators != 0) unmeasured_.push_back(PidWords(process));
    if (process.event_mask_changes != 0) {
      masks_.push_back(absl::StrCat(
          "Another program changed NCCL's profiler event mask in pid ", PidWords(process), ", ",
          Plural(process.event_mask_changes, "time"), ", now 0x",
          absl::Hex(process.foreign_event_mask), ": events may be missing."));
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
    if (!missing_.empty()) return HealthStatus::kIncomplete;
    if (health_.communicators == 0) {
      return unseen_.empty() ? HealthStatus::kUnused : HealthStatus::kIncomplete;
    }
    if (has_usual_) return HealthStatus::kWaiting;
    if (!unseen_.empty()) return HealthStatus::kIncomplete;
    if (has_straggler_) return HealthStatus::kStraggler;
    return IsIdle() ? HealthStatus::kIdle : HealthStatus::kOk;
  }

  // Adds a sentence about processes to the notes, and its beginning to `missing` (null: none).
  void NoteProcesses(const std::vector<std::string>& pids, const char* one, const char* several,
                     const char* reasons, const char* behind, std::vector<std::string>* missing) {
    if (pids.empty()) return;
    const std::string beginning = Plural(pids.size(), one, several);
    health_.notes.push_back(absl::StrCat(beginning, reasons, ": ", Pids(pids), ".", behind));
    if (missing != nullptr) missing->push_back(beginning);
  }

  static void Lack(std::size_t count, const char* one, const char* several,
                   std::vector<std::string>* missing) {
    if (count != 0) missing->push_back(Plural(count, one, several));
  }

  // Adds the notes, and collects the reasons why the state is not OK.
  void AddNotes() {
    std::vector<std::string>& notes = health_.notes;
    NoteProcesses(lost_, kEnded, kSeveralEnded, "", "", &missing_);
    NoteProcesses(
        left_, kEnded, kSeveralEnded, "",
        left_.size() == 1 ? " No rank waits for it in NCCL." : " No rank waits for them in NCCL.",
        nullptr);
    NoteProcesses(stopped_, "process is not running", "processes are not running",
                  " (stopped, held by a debugger, or paused)", "", &missing_);
    if (silent_ != 0) {
      notes.push_back(absl::StrCat(Plural(silent_, "process is", "processes are"), " known until ",
                                   ClockWords(silent_since_ns_),
                                   " or later: the endpoint is silent."));
    }
    notes.insert(notes.end(), failed_.begin(), failed_.end());
    for (const OutsideNote& each : snapshots_.outside_notes) notes.push_back(each.text);
    if (!snapshots_.outside_notes.empty())
      unseen_.emplace_back("a job without the plugin is not known to progress");
    Lack(failed_.size(), "GPU reports an error", "GPUs report errors", &missing_);
    Lack(health_.missing_ranks, "rank is not seen", "ranks are not seen", &missing_);
    if (!unmeasured_.empty()) {
      missing_.push_back(Plural(health_.unmeasured_communicators, "communicator is not measured",
                                "communicators are not measured"));
      notes.push_back(
          absl::StrCat(missing_.back(), ", beyond the limit of ", Pids(unmeasured_), "."));
    }
    if (unseen_ranks_ != 0) {
      unseen_.push_back(absl::StrCat("work of ", unseen_ranks_, " of ",
                                     Plural(health_.ranks, "rank"), " cannot be seen"));
    }
    if (is_mixed_) unseen_.emplace_back("communicators with one ID cannot be told apart");
    Lack(queued_, "communicator is behind other work of its GPUs",
         "communicators are behind other work of their GPUs", &unseen_);
    if (snapshots_.unread_processes != 0) {
      unseen_.push_back(absl::StrCat(
          Plural(snapshots_.unread_processes, "process is", "processes are"), " rejected by ",
          snapshots_.is_of_all_nodes ? "the endpoints" : "this endpoint"));
    }
    if (health_.unknown_ranks != 0) {
      std::vector<std::string> why;
      for (int i = 1; i < kUnknownReasons; ++i) {
        if (reasons_[i] == 0) continue;
        why.push_back(absl::StrCat(UnknownReasonWords(static_cast<UnknownReason>(i)), " (",
                                   reasons_[i], ")"));
      }
      notes.push_back(absl::StrCat("Whether work is in flight is not known for ",
                                   health_.unknown_ranks, " of ", Plural(health_.ranks, "rank"),
                                   ": ", absl::StrJoin(why, "; "), "."));
    }
    notes.insert(notes.end(), of_ranks_.begin(), of_ranks_.end());
    AddRejected();
    notes.insert(notes.end(), masks_.begin(), masks_.end());
    notes.insert(notes.end(), of_communicators_.begin(), of_communicators_.end());
  }

  void AddRejected() {
    std::vector<std::string> why;
    uint64_t count = 0;
    for (int i = 0; i < kRejections; ++i) {
      if (snapshots_.rejected[i] == 0) continue;
      count += snapshots_.rejected[i];
      why.push_back(absl::StrCat(RejectionName(static_cast<Rejection>(i)), " (",
                                 snapshots_.rejected[i], ")"));
    }
    if (why.empty()) return;
    const bool is_of_all = snapshots_.is_of_all_nodes;
    health_.notes.push_back(absl::StrCat(
        is_of_all ? "The endpoints have" : "This endpoint has", " rejected processes ",
        Plural(count, "time"), is_of_all ? " since they started: " : " since it started: ",
        absl::StrJoin(why, ", "), ". Rejected processes are not measured."));
  }

  std::string Summary() const {
    std::vector<std::string> missing = missing_;
    missing.insert(missing.end(), unseen_.begin(), unseen_.end());
    if (has_hang_ || has_usual_ || (has_straggler_ && missing.empty())) return "";
    if (health_.communicators == 0 && missing.empty()) return "No communicator is in use.";
    if (health_.communicators != 0 && health_.blind_communicators == health_.communicators) {
      return "Cannot tell whether a rank hangs.";
    }
    if (!missing.empty()) {
      return absl::StrCat("No hang is suspected, but ", absl::StrJoin(missing, ", "), ".");
    }
    if (health_.status == HealthStatus::kIdle) {
      return absl::StrCat(
          "No rank has called NCCL since ", ClockWords(idle_since_ns_), " (",
          DurationWords(ElapsedNs(now_ns_, idle_since_ns_)), "). Before, a call came every ",
          SecondsWords(static_cast<double>(usual_pause_ns_) / 1e9), " on average.",
          left_.empty() ? "" : absl::StrCat(" ", Plural(left_.size(), kEnded, kSeveralEnded), "."));
    }
    if (not_compared_ == 0 && waited_share_ >= kLeastWaited) {
      return absl::StrCat("No hang is suspected. Ranks of a communicator wait for each other ",
                          ShareWords(waited_share_, waited_of_seconds_),
                          ", but none is last often enough to be called a straggler.");
    }
    if (not_compared_ == 0) return "No hang and no straggler is suspected.";
    return absl::StrCat("No hang is suspected. ",
                        Plural(not_compared_, "process is", "processes are"),
                        " not compared for stragglers: no AllReduce, AllGather, ReduceScatter or "
                        "AlltoAll.");
  }

  const SnapshotSet& snapshots_;
  const int64_t now_ns_;
  const std::vector<CommunicatorView>& views_;
  // Ended processes that a rank may wait for; other ended processes; live processes that are not
  // running.
  std::vector<std::string> lost_, left_, stopped_;
  std::vector<std::string> unmeasured_;  // processes with communicators beyond their limit
  std::size_t silent_ = 0;               // processes
  int64_t silent_since_ns_ = INT64_MAX;
  std::array<std::size_t, kUnknownReasons> reasons_{};
  bool is_mixed_ = false;
  std::size_t unseen_ranks_ = 0;  // unknown ranks, except ranks whose counter is being calibrated
  std::size_t queued_ = 0;        // communicators whose work waits for other work of its GPUs
  std::size_t not_compared_ = 0;  // processes
  // Wait of the communicator whose ranks wait most.
  double waited_share_ = 0;
  int64_t waited_of_seconds_ = 0;
  // Time since which no rank has had work (INT64_MAX: a rank has), the longest earlier pause, and
  // the mean pause of the communicator with the most launches.
  int64_t idle_since_ns_ = 0, longest_pause_ns_ = 0, usual_pause_ns_ = INT64_MAX;
  bool has_hang_ = false, has_usual_ = false, has_straggler_ = false;
  std::vector<std::string> failed_, of_ranks_, masks_, of_communicators_;  // notes
  // Reasons why the state is not OK: ranks and communicators that are missing, and work that cannot be
  // seen.
  std::vector<std::string> missing_, unseen_;
  Health health_;
};

}  // namespace

Health HealthOf(const SnapshotSet& snapshots, const DiagnosisResult& diagnosis,
                int64_t now_realtime_ns) {
  return HealthOf(snapshots, GroupByCommunicator(snapshots, now_realtime_ns), diagnosis,
                  now_realtime_ns);
}

Health HealthOf(const SnapshotSet& snapshots, const std::vector<CommunicatorView>& views,
                const DiagnosisResult& diagnosis, int64_t now_realtime_ns) {
  Health health = Examiner(snapshots, views, diagnosis, now_realtime_ns).Make();
  for (std::string& each : EnvironmentDifferences(snapshots)) {
    health.notes.push_back(std::move(each));
  }
  return health;
}

}  // namespace nccl_pulse

#include "exporter/diagnosis/hang_words.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/base/communicator_id.h"
#include "exporter/diagnosis/mismatch_words.h"
#include "exporter/diagnosis/rank_words.h"
#include "exporter/diagnosis/verdict_draft.h"
#include "exporter/diagnosis/words.h"
#include "metrics/driver_error.h"

namespace nccl_pulse {
namespace {

// No shorter pause is worth a word.
constexpr uint64_t kShortPauseNs = 1000000000;

const char* Has(const Ranks& ranks) { return Verb(ranks, "has", "have"); }

// "Rank 3 (pid 103) has"
std::string WhoHave(const Ranks& ranks) {
  return absl::StrCat(Capital(Names(ranks)), " ", Has(ranks));
}

// Why a call has launched nothing.
constexpr char kInsideNccl[] =
    "inside NCCL (setting up a connection, or a group that was not ended)";
constexpr char kPerhapsInsideNccl[] =
    "inside NCCL (setting up a connection?), or a call that failed or was to its own rank";
const char* WhyNotLaunched(const Ranks& ranks) {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const RankView* rank) { return MayHaveReturned(*rank); })
             ? kPerhapsInsideNccl
             : kInsideNccl;
}

// The peer would have to call this.
std::string PeerCall(const PeerWait& wait) {
  return absl::StrCat(wait.sends ? "Recv from rank " : "Send to rank ", wait.rank->rank());
}

// "rank 1 waits in Send for rank 2"
std::string PeerWaitWords(const PeerWait& wait) {
  const RankActivity& activity = wait.peer->activity;
  return absl::StrCat(
      "rank ", wait.rank->rank(), " waits in ", wait.sends ? "Send" : "Recv", " for rank ",
      wait.peer->rank(),
      !wait.is_mutual && activity.is_idle() ? ", which has nothing in flight here" : "");
}

std::vector<std::string> MissingPeerCalls(const HangFinding& finding) {
  std::vector<std::string> calls;
  for (const PeerWait& wait : finding.owed.peer_waits) {
    if (!Contains(finding.suspects, wait.peer)) continue;
    calls.push_back(finding.suspects.size() == 1
                        ? PeerCall(wait)
                        : absl::StrCat(PeerCall(wait), " (rank ", wait.peer->rank(), ")"));
  }
  return calls;
}

std::string JoinFirst(const std::vector<std::string>& all, const char* separator) {
  const std::size_t listed = std::min(all.size(), kMostListed);
  return absl::StrCat(
      absl::StrJoin(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(listed), separator),
      listed < all.size() ? absl::StrCat(separator, all.size() - listed, " more") : "");
}

class Words {
 public:
  explicit Words(const HangFinding& finding) : finding_(finding) {}

  std::string Make() const {
    return absl::StrCat(Verdict(), Exiting(), AlsoStopped(), Elsewhere(), UnseenElsewhere(),
                        Usual());
  }

 private:
  std::string Usual() const {
    if (!finding_.is_usual) return "";
    if (finding_.elsewhere.is_usual) return " The wait there is expected.";
    return absl::StrCat(" It has waited up to ", DurationWords(finding_.longest_wait_before_ns),
                        " here before, and then resumed.");
  }

  std::string Verdict() const {
    switch (finding_.verdict) {
      case HangVerdict::kRankNotCalled:
      case HangVerdict::kBlockedElsewhere:
      case HangVerdict::kRankNotBegun:
        if (finding_.detail == HangDetail::kReplay) return BehindInReplay();
        if (finding_.detail == HangDetail::kWork) return IdleInGraphs();
        if (finding_.suspects.front()->state == RankView::State::kGone) return Gone();
        return finding_.not_begun_suspects ? NotBegun() : NotCalled();
      case HangVerdict::kCircularWait:
        return Circle();
      case HangVerdict::kRankNotLaunched:
        return absl::StrCat(NotLaunched(finding_.suspects, ""), Waiters());
      case HangVerdict::kMismatched:
        return MismatchWords(finding_);
      case HangVerdict::kProcessGone:
        return Gone();
      case HangVerdict::kProcessStopped:
        return absl::StrCat(Stopped(), Waiters(), AlsoOwing());
      case HangVerdict::kDriverError:
        return Failed();
      case HangVerdict::kRankNotSeen:
        if (finding_.detail == HangDetail::kBeingMade) return BeingMade();
        return absl::StrCat(
            finding_.view->has_point_to_point
                ? "All ranks that are seen here wait. "
                : "All ranks that are seen here have launched the same work, and it makes no "
                  "progress. ",
            "Not seen ",
            IsOfDump()        ? "in any dump"
            : IsOfManyHosts() ? "at the endpoints that answered"
                              : "at this endpoint",
            ": rank ", absl::StrJoin(finding_.not_seen.ranks, ", "),
            IsOfDump() ? "." : ". Its process is gone, or is measured elsewhere.", Waiters());
      case HangVerdict::kPointToPoint:
        return PointToPoint();
      case HangVerdict::kNoProgress:
        if (finding_.detail == HangDetail::kReplay) return NoProgressInReplay();
        if (finding_.detail == HangDetail::kWork) return BusyInGraphs();
        return finding_.detail == HangDetail::kQueued ? QueuedForLong() : NoProgress();
      case HangVerdict::kUnknown:
        break;
    }
    return absl::StrCat(absl::StripLeadingAsciiWhitespace(Waiters()),
                        " The reason is not known: ", WhyUnknown(), ".");
  }

  // "Rank 3 (pid 103) has called Recv but not launched: still inside NCCL (...)."
  static std::string NotLaunched(const Ranks& ranks, const std::string& what) {
    return absl::StrCat(WhoHave(ranks), " called ", what, "but not launched: still ",
                        WhyNotLaunched(ranks), ".");
  }

  std::string NotCalled() const {
    const Ranks& suspects = finding_.suspects;
    switch (finding_.detail) {
      case HangDetail::kFinalized:
        return absl::StrCat(WhoHave(suspects), " finalized this communicator.", Waiters());
      case HangDetail::kExiting:
        return absl::StrCat(Capital(Names(suspects)), " will make no further call.", Waiters());
      case HangDetail::kPeer:
        return absl::StrCat(WhoHave(suspects), " not called ", finding_.owed.peer_op,
                            ", and has nothing in flight here.", Waiters());
      case HangDetail::kPeers:
        return absl::StrCat(WhoHave(suspects), " not called what others wait for: ",
                            JoinFirst(MissingPeerCalls(finding_), ", "), "; and ", Has(suspects),
                            " nothing in flight.", Waiters());
      case HangDetail::kExchange:
        return absl::StrCat(WhoHave(suspects), " made fewer Sends and Recvs than the others, and ",
                            Has(suspects), " nothing in flight here.", Waiters());
      default:
        break;
    }
    const bool are_unseen = std::any_of(suspects.begin(), suspects.end(), [](const auto* rank) {
      return !rank->activity.is_idle() && !IsExiting(*rank);
    });
    const bool are_exiting = std::any_of(suspects.begin(), suspects.end(),
                                         [](const auto* rank) { return IsExiting(*rank); });
    const std::string last = LastCall();
    const char* const they_have =
        last.empty() ? Has(suspects) : Verb(suspects, "it has", "they have");
    return absl::StrCat(WhoHave(suspects), " not called ",
                        NumberedCallWords(finding_.owed.calls, finding_.owed.before), last,
                        are_unseen ? absl::StrCat(". Whether ", Verb(suspects, "its", "their"),
                                                  " earlier calls have completed cannot be seen.")
                        : are_exiting
                            ? "."
                            : absl::StrCat(", and ", they_have, " nothing in flight here."),
                        Waiters(), BehindUnseen());
  }

  std::string BeingMade() const {
    const Ranks& here = finding_.waiting;
    const Ranks& absent = finding_.not_seen.absent;
    const bool is_one = finding_.not_seen.ranks.size() == 1;
    return absl::StrCat(
        Capital(Numbers(here)), Verb(here, " is", " are"), " creating this communicator, and ",
        Verb(here, "its process has", "their processes have"), " called nothing since. ",
        absent.empty() ? absl::StrCat(is_one ? "Rank " : "Ranks ",
                                      absl::StrJoin(finding_.not_seen.ranks, ", "))
                       : Capital(Names(absent)),
        is_one ? " has" : " have", " not joined",
        absent.empty()
            ? is_one ? ", or is measured elsewhere." : ", or are measured elsewhere."
            : absl::StrCat(". (The ranks are those of communicator ",
                           CommunicatorText(absent.front()->communicator->comm_id), ".)"));
  }

  // "; its last was AllReduce #7 (up to 1MiB)"
  std::string LastCall() const {
    if (finding_.owed.last.empty()) return "";
    const auto& [kind, number] = *finding_.owed.last.begin();
    const bool is_same =
        finding_.owed.calls.size() == 1 && finding_.owed.calls.begin()->first == kind;
    return absl::StrCat(
        "; ", Verb(finding_.suspects, "its", "their"), " last was ",
        is_same ? absl::StrCat("#", number) : NumberedCallWords({{kind, 1}}, {{kind, number - 1}}));
  }

  bool IsOfDump() const { return finding_.view->ranks.front().process->is_of_dump; }
  bool IsOfManyHosts() const { return finding_.view->ranks.front().is_of_many_hosts; }

  // " Rank 0 (pid 7) ended while it waited."
  std::string EndedWaiting() const {
    std::string text;
    for (const auto& [state, what] :
         {std::pair(RankView::State::kGone, " ended"),
          std::pair(RankView::State::kFinalized, " finalized the communicator")}) {
      Ranks ended;
      for (const RankView* rank : finding_.beside.ended_waiting) {
        if (rank->state == state) ended.push_back(rank);
      }
      if (ended.empty()) continue;
      absl::StrAppend(&text, " ", Capital(Names(ended)), what, " while ", Verb(ended, "it", "they"),
                      " waited.");
    }
    return text;
  }

  std::string AlsoStopped() const {
    const Ranks& stopped = finding_.beside.stopped;
    if (stopped.empty()) return "";
    const bool do_run = std::all_of(stopped.begin(), stopped.end(), [](const RankView* rank) {
      return rank->process->run_state == RunState::kRunning ||
             rank->process->run_state == RunState::kUninterruptible;
    });
    if (do_run) return absl::StrCat(" ", WhoHave(stopped), " done nothing for a while.");
    return absl::StrCat(" ", Capital(Names(stopped)), Verb(stopped, " is", " are"),
                        " not running.");
  }

  // " Ranks 1 and 2 wait in AllReduce. Rank 0 (pid 7) ended while it waited."
  std::string Waiters() const { return absl::StrCat(LiveWaiters(), EndedWaiting()); }

  std::string LiveWaiters() const {
    Ranks waiters;
    for (const RankView* rank : finding_.waiting) {
      if (!Contains(finding_.suspects, rank)) waiters.push_back(rank);
    }
    if (waiters.empty()) return "";
    const std::string who = absl::StrCat(" ", Capital(Numbers(waiters)));
    if (finding_.is_queued) {
      return absl::StrCat(who, " ", Has(waiters), " launched ",
                          finding_.op.empty() ? "it" : finding_.op, ", but earlier work of ",
                          Verb(waiters, "its GPU", "their GPUs"), " has not ended since ",
                          ClockWords(finding_.since_realtime_ns), ": probably a ", EarlierWork());
    }
    const std::string in = finding_.detail == HangDetail::kReplay
                               ? absl::StrCat(" ", WhereInReplay())
                           : finding_.detail == HangDetail::kWork ? " in a CUDA graph"
                           : finding_.op.empty()                  ? ""
                                                 : absl::StrCat(" in ", finding_.op);
    if (!finding_.is_unreported) {
      const bool are_inside = std::all_of(waiters.begin(), waiters.end(),
                                          [](const auto* rank) { return IsInsideNccl(*rank); });
      return absl::StrCat(
          who, Verb(waiters, " waits", " wait"), in,
          are_inside ? absl::StrCat(", not launched: ", WhyNotLaunched(waiters)) : "", ".");
    }
    const std::string called =
        absl::StrCat(who, " ", Has(waiters), " called ", finding_.op.empty() ? "it" : finding_.op,
                     ", whose launch NCCL does not report");
    return finding_.is_waiting_known
               ? absl::StrCat(called, ", and which no rank leaves before all ranks have called it.")
               : absl::StrCat(called, ": whether ",
                              Verb(waiters, "it still waits", "they still wait"),
                              " cannot be seen.");
  }

  std::string BehindUnseen() const {
    const Ranks& behind = finding_.owed.behind_unseen;
    if (behind.empty()) return "";
    return absl::StrCat(" ", WhoHave(behind), " also called fewer operations than ",
                        Name(*finding_.owed.ahead), "; whether ",
                        Verb(behind, "it waits", "they wait"),
                        " cannot be seen: ", WhyUnseen(*behind.front()), ".");
  }

  // What else is wrong, after a verdict on other ranks.
  std::string AlsoOwing() const {
    if (finding_.owed.also.empty()) return "";
    return absl::StrCat(" ", WhoHave(finding_.owed.also), " not called ",
                        CallWords(finding_.owed.calls), " either.");
  }

  std::string Gone() const {
    const auto how = [](const RankView* rank) {
      return rank->process->end == ProcessEnd::kExit ? "exited without finalizing the communicator"
                                                     : "was killed or crashed";
    };
    std::string text = Enumerate(finding_.suspects, kMostListed, [&how](const RankView* rank) {
      return absl::StrCat("the process of ", Name(*rank), " ", how(rank));
    });
    return absl::StrCat(Capital(std::move(text)), ".", Waiters(), AlsoOwing());
  }

  std::string WhyUnknown() const {
    switch (finding_.detail) {
      case HangDetail::kCaptured:
        return "the communicator is used in CUDA graphs, whose replays cannot be seen";
      case HangDetail::kReplaysDiffer:
        return "the ranks have not captured the same CUDA graphs, or called differently beside "
               "them, so their replays cannot be compared";
      case HangDetail::kReplaysMayLeave:
        return "operations were captured into CUDA graphs that a rank may leave before the others "
               "arrive";
      case HangDetail::kReplaysAlike:
        return "as far as is known, all ranks are equally far in their CUDA graphs, and whether a "
               "replay is stalled cannot be seen";
      case HangDetail::kOverflowed:
        return IsOfDump() ? "some dumps do not tell how far their ranks have come here"
                          : "calls were counted without their operation, because there were too "
                            "many kinds";
      case HangDetail::kEventMaskChanged:
        return "calls may be missing, because another program changed NCCL's profiler event mask";
      case HangDetail::kStillCalling:
        return "their processes still make calls";
      case HangDetail::kBesidePeers: {
        const Ranks& owing = finding_.owed.also;
        return absl::StrCat("this communicator also uses Send and Recv. ", WhoHave(owing),
                            " nothing in flight and ", Has(owing), " not called ",
                            CallWords(finding_.owed.calls), ", which ", Name(*finding_.owed.ahead),
                            " has");
      }
      case HangDetail::kMixed:
        return "several communicators have this ID, and which ranks belong together is not known";
      default:
        break;
    }
    const Ranks& behind = finding_.owed.behind_unseen;
    if (behind.empty()) return "what would decide it cannot be seen";
    return absl::StrCat(
        Names(behind), " ", Has(behind), " called fewer operations than ",
        Name(*finding_.owed.ahead),
        ", but whether there is work in flight cannot be seen: ", WhyUnseen(*behind.front()));
  }

  std::string ForWhom() const {
    if (IsOfDump()) return " Which of them blocks the other is not known.";
    if (finding_.owed.peer_waits.empty()) {
      return " NCCL has not reported the peers of these Sends and Recvs.";
    }
    std::vector<std::string> waits;
    for (const PeerWait& wait : finding_.owed.peer_waits) {
      if (!wait.is_mutual) waits.push_back(PeerWaitWords(wait));
    }
    const std::string peers =
        waits.empty() ? "Each Send and Recv with a known peer has its counterpart in flight"
                      : Capital(JoinFirst(waits, "; "));
    return absl::StrCat(" ", peers, ". Which rank blocks the others is not known.");
  }

  std::string PointToPoint() const {
    return absl::StrCat(
        absl::StripLeadingAsciiWhitespace(Waiters()), ForWhom(),
        finding_.beside.idle.empty()
            ? ""
            : absl::StrCat(" Nothing in flight here: ", Names(finding_.beside.idle), "."),
        finding_.beside.inside.empty()
            ? ""
            : absl::StrCat(" ", NotLaunched(finding_.beside.inside, "Send or Recv ")));
  }

  std::string NotBegun() const {
    const Ranks& late = finding_.suspects;
    Calls what;
    bool is_known = true;
    for (const RankView* rank : late) {
      const CommunicatorSnapshot& communicator = *rank->communicator;
      is_known &= communicator.launches - communicator.launches_completed == 1 &&
                  !communicator.last_call_op.empty();
      what[{communicator.last_call_op, communicator.last_call_size_class}] = 1;
    }
    return absl::StrCat(
        WhoHave(late), " launched ",
        is_known && what.size() == 1 ? CallWords(what) : "what the others wait in",
        Verb(late, ", but its GPU has not begun it: work before it on the stream has",
             ", but their GPUs have not begun it: work before it on the streams has"),
        " not ended.", Waiters());
  }

  // "among captured calls 1 to 60 of 65 of graph 1"
  std::string WhereInReplay() const {
    const ReplayPlace& at = finding_.replay.at;
    const std::string of = absl::StrCat(" of ", at.calls, " of graph ", at.graph);
    if (at.until <= at.before) {
      return at.before == 0 ? absl::StrCat("before captured call 1", of)
                            : absl::StrCat("after captured call ", at.before, of);
    }
    return at.until == at.before + 1
               ? absl::StrCat("at captured call ", at.until, of)
               : absl::StrCat("among captured calls ", at.before + 1, " to ", at.until, of);
  }

  std::string BehindInReplay() const {
    const Ranks& late = finding_.suspects;
    if (finding_.replay.is_begun || !finding_.replay.is_first_stamp_head) {
      return absl::StrCat(Verb(late, "The GPU of ", "The GPUs of "), Names(late),
                          Verb(late, " is", " are"),
                          " behind the others in a replay of a CUDA graph: earlier work has not "
                          "ended",
                          finding_.replay.is_begun ? "." : ", or was not launched.", Waiters());
    }
    return absl::StrCat(WhoHave(late),
                        " not begun the replay of a CUDA graph in which the others wait: ",
                        Verb(late, "its program has", "their programs have"),
                        " not launched it, or earlier work of ",
                        Verb(late, "its GPU", "their GPUs"), " has not ended.", Waiters());
  }

  // By NVML and by counters of finished work.
  std::string IdleInGraphs() const {
    const Ranks& idle = finding_.suspects;
    return absl::StrCat(Verb(idle, "The GPU of ", "The GPUs of "), Names(idle),
                        Verb(idle, " runs", " run"),
                        " nothing, while every other GPU is busy and no collective has finished "
                        "here since ",
                        ClockWords(finding_.since_realtime_ns), ": ",
                        Verb(idle, "its program has", "their programs have"),
                        " not launched what the others wait for.", Waiters());
  }

  std::string BusyInGraphs() const {
    const Ranks& unread = finding_.beside.unread;
    return absl::StrCat(
        "The GPUs of all ranks are busy, and no collective ",
        unread.empty() ? "has" : "was seen to have", " finished here since ",
        ClockWords(finding_.since_realtime_ns), ", longer than ever before in CUDA graphs",
        finding_.longest_pause_ns < kShortPauseNs
            ? ""
            : absl::StrCat(" (", DurationWords(finding_.longest_pause_ns), ")"),
        unread.empty() ? ""
                       : absl::StrCat(". What ", Numbers(unread), Verb(unread, " has", " have"),
                                      " finished cannot be read: a call of the driver does not "
                                      "return"),
        ". Whether they wait for each other, and for which rank, is not known.");
  }

  std::string NoProgressInReplay() const {
    return absl::StrCat(finding_.are_all_seen ? "All ranks" : "All ranks of this node",
                        " are stalled in a replay of a CUDA graph, ", WhereInReplay(),
                        ". Which of them blocks it is not known.");
  }

  // All ranks of a host whose processes were last seen to run at the same moment.
  bool IsHostPaused() const {
    constexpr int64_t kTogetherNs = 1500000000;
    const Ranks& stopped = finding_.suspects;
    const ProcessSnapshot& first = *stopped.front()->process;
    std::size_t of_host = 0;
    for (const RankView& rank : finding_.view->ranks) {
      const ProcessSnapshot& process = *rank.process;
      if (rank.state != RankView::State::kLive || process.hostname != first.hostname) continue;
      ++of_host;
      if (!Contains(stopped, &rank)) return false;
      const int64_t apart = ElapsedNs(process.last_poll_realtime_ns, first.last_poll_realtime_ns);
      if (apart > kTogetherNs || apart < -kTogetherNs) return false;
    }
    return of_host > 1 && of_host == stopped.size();
  }

  std::string Stopped() const {
    const Ranks& stopped = finding_.suspects;
    const RunState state = stopped.front()->process->run_state;
    const bool are_alike = std::all_of(stopped.begin(), stopped.end(), [state](const auto* rank) {
      return rank->process->run_state == state;
    });
    const char* how = ": stopped, held by a debugger, or paused with its container or host";
    if (are_alike && state == RunState::kStopped) how = ": stopped by a signal";
    if (are_alike && state == RunState::kTraced) how = ": held by a debugger";
    if (are_alike && state == RunState::kUnknown && IsHostPaused()) {
      how = ". They stopped at the same moment: their host was paused, or their container";
    }
    if (are_alike && (state == RunState::kRunning || state == RunState::kUninterruptible)) {
      return absl::StrCat(
          WhoHave(stopped), " done nothing since ",
          ClockWords(stopped.front()->process->last_poll_realtime_ns),
          Verb(stopped, ", though its process ", ", though their processes "),
          state == RunState::kRunning
              ? Verb(stopped, "runs: probably a driver call does not return.",
                     "run: probably driver calls do not return.")
              : Verb(stopped, "is in uninterruptible sleep (D): in a driver, or I/O.",
                     "are in uninterruptible sleep (D): in a driver, or I/O."));
    }
    return absl::StrCat(Capital(Names(stopped)), Verb(stopped, " is", " are"), " not running", how,
                        ".");
  }

  std::string Failed() const {
    const auto error = [](const RankView* rank) {
      const char* name = DriverErrorName(rank->failed->driver_error);
      return absl::StrCat(Name(*rank), ": ", name == nullptr ? "error" : name, " (",
                          rank->failed->driver_error, ") since ",
                          ClockWords(rank->failed->driver_error_realtime_ns));
    };
    const Ranks& later = finding_.beside.failed;
    const Ranks& first = finding_.suspects;
    return absl::StrCat(
        "The driver reports that ", Verb(first.empty() ? later : first, "a GPU", "GPUs"),
        " can do no more work for this process.",
        first.empty() ? "" : absl::StrCat(" ", Capital(Enumerate(first, kMostListed, error)), "."),
        later.empty() ? ""
                      : absl::StrCat(first.empty() ? " Most likely over a link: "
                                                   : " Later, or over a link: ",
                                     Enumerate(later, kMostListed, error), "."),
        Waiters());
  }

  std::string Exiting() const {
    Ranks exiting;
    for (const RankView* rank : finding_.suspects) {
      if (IsExiting(*rank)) exiting.push_back(rank);
    }
    if (exiting.empty()) return "";
    return absl::StrCat(" ", Capital(Numbers(exiting)), Verb(exiting, " has", " have"),
                        " been in exit() since ",
                        ClockWords(exiting.front()->process->last_poll_realtime_ns), ".");
  }

  std::string EarlierWork() const {
    const std::string& op = finding_.queued.unreported_op;
    return absl::StrCat(
        "kernel outside of NCCL",
        op.empty() ? "" : absl::StrCat(", or ", op, ", whose launch NCCL does not report"), ".");
  }

  std::string QueuedForLong() const {
    return absl::StrCat(QueuedWords(finding_.queued), " Probably a ", EarlierWork());
  }

  std::string NoProgress() const {
    if (finding_.detail == HangDetail::kInsideNccl) {
      return absl::StrCat("All ranks have called ", finding_.op.empty() ? "the same" : finding_.op,
                          ", and for minutes no rank has launched it: ", kInsideNccl,
                          ". Which ranks block it is not known.");
    }
    if (finding_.detail == HangDetail::kNotCompleted) {
      return absl::StrCat(WhoHave(finding_.suspects),
                          " not completed a call that others have completed: the cause is ",
                          Verb(finding_.suspects, "its GPU", "their GPUs"), " or the network to ",
                          Verb(finding_.suspects, "it", "them"), ".", Waiters());
    }
    std::string begun;
    const Ranks& late = finding_.beside.not_begun;
    if (!late.empty()) {
      begun = absl::StrCat(Verb(late, " The GPU of ", " The GPUs of "), Names(late), " ", Has(late),
                           " not begun it: work before it on the ", Verb(late, "stream", "streams"),
                           " has not ended.");
    }
    return absl::StrCat(
        finding_.are_all_seen ? "All ranks have" : "All ranks of this node have",
        " called and launched the same work, and none of it has completed",
        finding_.op.empty() ? "" : absl::StrCat(" (", finding_.op, ")"), ": the cause is ",
        finding_.are_all_seen ? "" : "a rank on another node, ",
        IsAnyKnownToHaveBegun(finding_.waiting)
            ? "a GPU or the network."
            : "a GPU, the network, or earlier work of GPUs that are not known to have "
              "begun it.",
        finding_.are_all_seen ? "" : " Compare with the other nodes.", begun, EndedWaiting());
  }

  std::string Circle() const {
    if (finding_.detail == HangDetail::kPeers) {
      std::vector<std::string> waits;
      for (const PeerWait& wait : finding_.owed.peer_waits) waits.push_back(PeerWaitWords(wait));
      return absl::StrCat("Ranks seem to wait for each other in a circle: ", JoinFirst(waits, "; "),
                          ".", Waiters());
    }
    std::string steps;
    for (std::size_t i = 0; i < finding_.elsewhere.circle.size(); ++i) {
      const auto& [view, rank] = finding_.elsewhere.circle[i];
      const auto& next = finding_.elsewhere.circle[(i + 1) % finding_.elsewhere.circle.size()];
      absl::StrAppend(&steps, i == 0 ? "" : "; ", Name(*rank), " is missing on communicator ",
                      CommunicatorText(view->comm_id), ", and has work in flight on ",
                      CommunicatorText(next.view->comm_id));
    }
    return absl::StrCat("Ranks seem to wait for each other in a circle: ", steps,
                        ". They use the communicators in different orders. Their stacks show "
                        "whether they wait for that work.",
                        Waiters());
  }

  std::string Elsewhere() const {
    if (!finding_.elsewhere.comm_id || finding_.verdict == HangVerdict::kCircularWait) return "";
    const std::string where =
        absl::StrCat("communicator ", CommunicatorText(*finding_.elsewhere.comm_id));
    if (finding_.elsewhere.is_posted_ahead) {
      return absl::StrCat(" It has work in flight in ", where,
                          ", which it may have posted ahead: its stack shows whether it waits "
                          "there.");
    }
    if (finding_.elsewhere.is_acquitted) {
      return absl::StrCat(" Whether it waits in ", where, " meanwhile cannot be seen.");
    }
    if (finding_.verdict == HangVerdict::kBlockedElsewhere) {
      if (finding_.suspects.front()->state != RankView::State::kLive) {
        return absl::StrCat(" It ended while it waited in ", where, ": look there first.");
      }
      return absl::StrCat(" Its process may wait in ", where, " meanwhile: look there first.");
    }
    if (Contains(finding_.suspects, finding_.elsewhere.blocked.front())) {
      return absl::StrCat(" It may wait in ", where, " meanwhile; that is not certain.");
    }
    if (finding_.elsewhere.blocked.front()->state != RankView::State::kLive) {
      return absl::StrCat(" ", Capital(Numbers(finding_.elsewhere.blocked)), " ended while ",
                          Verb(finding_.elsewhere.blocked, "it", "they"), " waited in ", where,
                          ".");
    }
    return absl::StrCat(" ", Capital(Numbers(finding_.elsewhere.blocked)),
                        Verb(finding_.elsewhere.blocked, " has", " have"),
                        finding_.not_begun_suspects ? " not begun" : " not called",
                        " it either, but may wait in ", where, " meanwhile.");
  }

  std::string UnseenElsewhere() const {
    if (!finding_.elsewhere.unseen) return "";
    const Ranks& there = finding_.elsewhere.unseen_ranks;
    std::string who = Verb(there, "it waits", "they wait");
    std::string also;
    // If there are several, the sentence before names other ranks, too.
    if (finding_.suspects.size() != there.size() ||
        !std::is_permutation(there.begin(), there.end(), finding_.suspects.begin())) {
      who = absl::StrCat(Numbers(there), Verb(there, " waits", " wait"));
      if (!Contains(finding_.suspects, there.front())) {
        also = absl::StrCat(" ", Capital(Numbers(there)), Verb(there, " has", " have"),
                            " not called it either.");
      }
    }
    return absl::StrCat(also, " Whether ", who, " in communicator ",
                        CommunicatorText(*finding_.elsewhere.unseen), " meanwhile cannot be seen.");
  }

  const HangFinding& finding_;
};

}  // namespace

std::string HangWords(const HangFinding& finding) { return Words(finding).Make(); }

std::string PeerCallWords(const HangFinding& finding) {
  const std::vector<std::string> calls = MissingPeerCalls(finding);
  return calls.size() == 1 ? calls.front() : "";
}

std::string QueuedWords(const QueuedFinding& finding) {
  return absl::StrCat(
      WhoHave(finding.ranks), " launched", finding.op.empty() ? "" : absl::StrCat(" ", finding.op),
      ", and ", Verb(finding.ranks, "its GPU has", "their GPUs have"),
      " not begun it. Earlier work of ", Verb(finding.ranks, "this GPU", "these GPUs"),
      " has not ended since ", ClockWords(finding.since_realtime_ns), ".",
      finding.unseen_elsewhere ? absl::StrCat(" It may wait in communicator ",
                                              CommunicatorText(*finding.unseen_elsewhere),
                                              ", whose work cannot be seen.")
                               : "",
      finding.are_all_seen ? "" : " It is not known whether ranks that are not seen here wait.");
}

std::string AheadWords(const AheadFinding& finding) {
  const Ranks ahead = {finding.rank};
  return absl::StrCat(Capital(Numbers(finding.behind)), " ", Has(finding.behind), " not called ",
                      CallWords(finding.calls), " that ", Numbers(ahead), " has called; whether ",
                      Numbers(ahead), " waits cannot be seen.");
}

std::string WhyUnseen(const RankView& rank) {
  if (IsInsideNccl(rank)) {
    return absl::StrCat("its ", rank.communicator->last_call_op,
                        " is not launched: ", WhyNotLaunched({&rank}));
  }
  const char* why = UnknownReasonWords(rank.activity.reason);
  if (rank.activity.reason != UnknownReason::kPollerStands) return why;
  switch (rank.process->run_state) {
    case RunState::kRunning:
      return absl::StrCat(why,
                          ", though the process is (a call of the driver that does not return?)");
    case RunState::kUninterruptible:
      return absl::StrCat(why,
                          ", and the process is in uninterruptible sleep (D): a driver or I/O");
    case RunState::kStopped:
      return absl::StrCat(why, ": the process is stopped by a signal");
    case RunState::kTraced:
      return absl::StrCat(why, ": the process is held by a debugger");
    default:
      return why;
  }
}

}  // namespace nccl_pulse

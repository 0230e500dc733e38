#include "exporter/diagnosis/waits/sentences.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "exporter/base/communicator_id.h"
#include "exporter/diagnosis/facts/abandoned_calls.h"
#include "exporter/diagnosis/facts/call_facts.h"
#include "exporter/diagnosis/words/mismatch_words.h"
#include "exporter/diagnosis/words/rank_words.h"
#include "exporter/diagnosis/words/words.h"
#include "metrics/driver_error.h"

namespace nccl_pulse {
namespace {

// One sentence for each verdict and situation. {Who} are the suspects with their processes, {Has}, {its},
// {is}, {GPU} agree with them.
struct Template {
  HangVerdict verdict;
  Situation situation;
  const char* text;
};
constexpr Template kTemplates[] = {
    {HangVerdict::kRankNotCalled, Situation::kFinalized,
     "{Who} {has} finalized this communicator."},
    {HangVerdict::kRankNotCalled, Situation::kExiting, "{Who} will make no further call."},
    {HangVerdict::kRankNotLaunched, Situation::kPlain,
     "{Who} {has} called {op} and launched nothing: {inside}."},
    {HangVerdict::kRankNotBegun, Situation::kPlain,
     "{Who} {has} launched {launched}, but {its} {GPU} {has} not begun it: work before it on the "
     "{stream} has not ended."},
    {HangVerdict::kRankNotBegun, Situation::kInGraphs,
     "The {GPU} of {who} {runs} nothing, while every other GPU is busy and no collective has "
     "finished here since {since}: {its} {program} {has} not launched what the others wait for."},
    {HangVerdict::kRankNotBegun, Situation::kInReplay,
     "{Who} {is} behind the others in replays of CUDA graphs: {its} {program} {has} not launched "
     "it, or earlier work of {its} {GPU} {has} not ended."},
    {HangVerdict::kProcessGone, Situation::kPlain, "{ended}."},
    {HangVerdict::kNoProgress, Situation::kInReplay,
     "{all} are stalled in a replay of a CUDA graph, {place}. Which of them blocks it is not "
     "known."},
    {HangVerdict::kNoProgress, Situation::kInsideNccl,
     "All ranks have called {op}, and for minutes no rank has launched it: inside NCCL (setting up "
     "a connection, or a group that was not ended). Which ranks block it is not known."},
};

const char* Has(const Ranks& ranks) { return Verb(ranks, "has", "have"); }

std::string Fill(const char* text, const Stall& stall);

std::string JoinFirst(const std::vector<std::string>& all, const char* separator) {
  const std::size_t listed = std::min(all.size(), kMostListed);
  return absl::StrCat(
      absl::StrJoin(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(listed), separator),
      listed < all.size() ? absl::StrCat(separator, all.size() - listed, " more") : "");
}

class Sentences {
 public:
  explicit Sentences(const Stall& stall) : stall_(stall) {}

  std::string Make() const {
    return absl::StrCat(absl::StripLeadingAsciiWhitespace(
                            absl::StrCat(Verdict(), HasWaiters() ? Waiters() : "", Victims())),
                        Followed(), AlsoOwing(), Unseen(), Exiting(), NotRunning(), Elsewhere(),
                        Silent(), Usual());
  }

 private:
  const CommunicatorFacts& facts() const { return stall_.waits->facts; }
  bool IsOfDump() const { return stall_.view->ranks.front().process->is_of_dump; }

  std::string Verdict() const {
    const bool is_owed = stall_.verdict == HangVerdict::kRankNotCalled && !stall_.owed.empty();
    if (stall_.situation == Situation::kFromOutside) return LaunchedLess();
    if (is_owed && stall_.situation != Situation::kFinalized) return NotCalled();
    for (const Template& each : kTemplates) {
      if (each.verdict == stall_.verdict && each.situation == stall_.situation) {
        return Fill(each.text, stall_);
      }
    }
    switch (stall_.verdict) {
      case HangVerdict::kRankNotCalled:
      case HangVerdict::kBlockedElsewhere:
        return NotCalled();
      case HangVerdict::kMismatched:
        return MismatchWords(*stall_.waits->mismatch);
      case HangVerdict::kCircularWait:
        return Circle();
      case HangVerdict::kProcessStopped:
        return Stopped();
      case HangVerdict::kDriverError:
        return Failed();
      case HangVerdict::kRankNotSeen:
        return stall_.situation == Situation::kBeingMade ? BeingMade() : NotSeen();
      case HangVerdict::kPointToPoint:
        return absl::StrCat(absl::StripLeadingAsciiWhitespace(Waiters()), ForWhom(), NotLaunched());
      case HangVerdict::kNoProgress:
        return stall_.situation == Situation::kQueued     ? Queued()
               : stall_.situation == Situation::kInGraphs ? BusyInGraphs()
                                                          : NoProgress();
      default:
        if (!stall_.also_blocked.empty() && !stall_.owed.empty()) {
          Stall owing = stall_;
          owing.suspects = stall_.also_blocked;
          return absl::StrCat(Sentences(owing).NotCalled(), Waiters());
        }
        return absl::StrCat(absl::StripLeadingAsciiWhitespace(Waiters()),
                            " The reason is not known: ", WhyUnknown(), ".");
    }
  }

  // The other sentences say themselves who waits.
  bool HasWaiters() const {
    return stall_.verdict != HangVerdict::kMismatched &&
           stall_.verdict != HangVerdict::kNoProgress &&
           stall_.verdict != HangVerdict::kPointToPoint &&
           stall_.verdict != HangVerdict::kUnknown && stall_.situation != Situation::kBeingMade;
  }

  // " Ranks 1 and 2 wait in AllReduce."
  std::string Waiters() const {
    const Ranks& waiting = stall_.waiting;
    if (waiting.empty()) return "";
    const std::string who = absl::StrCat(" ", Capital(Numbers(waiting)));
    const bool are_unreported =
        std::all_of(waiting.begin(), waiting.end(), [](const RankView* rank) {
          return rank->activity.reason == UnknownReason::kLaunchNotReported;
        });
    if (are_unreported && !IsInsideNccl(*waiting.front())) {
      const std::string& op = waiting.front()->communicator->last_call_op;
      const std::string called =
          absl::StrCat(who, " ", Has(waiting), " called ", op.empty() ? "it" : op,
                       ", whose launch NCCL does not report");
      return WaitsForAll(op)
                 ? absl::StrCat(called,
                                ", and which no rank leaves before all ranks have called it.")
                 : absl::StrCat(called, ": whether ",
                                Verb(waiting, "it still waits", "they still wait"),
                                " cannot be seen.");
    }
    const bool are_behind = std::all_of(waiting.begin(), waiting.end(), [](const RankView* rank) {
      return rank->activity.oldest_launch == OldestLaunch::kNotBegun;
    });
    if (are_behind) {
      return absl::StrCat(who, " ", Has(waiting), " launched ",
                          stall_.op.empty() ? "it" : stall_.op, ", but earlier work of ",
                          Verb(waiting, "its GPU", "their GPUs"), " has not ended since ",
                          ClockWords(stall_.since_ns), ": probably a ", EarlierWork());
    }
    const bool is_unknown = stall_.op.empty() || stall_.op == kUnknownCollective;
    const std::string in = stall_.situation == Situation::kInGraphs ? " in a CUDA graph"
                           : stall_.replay.graph != 0 ? absl::StrCat(" ", PlaceInReplay(stall_))
                           : is_unknown               ? ""
                                                      : absl::StrCat(" in ", stall_.op);
    return absl::StrCat(
        who, Verb(waiting, " waits", " wait"), in,
        are_unreported ? absl::StrCat(", not launched: ", WhyNotLaunched(waiting)) : "", ".");
  }

  std::string Victims() const {
    std::string text;
    for (const auto& [state, what] :
         {std::pair(RankView::State::kGone, " ended"),
          std::pair(RankView::State::kFinalized, " finalized the communicator")}) {
      Ranks ended;
      for (const RankView* rank : stall_.victims) {
        if (rank->state == state) ended.push_back(rank);
      }
      if (ended.empty() || stall_.followed == ended) continue;
      absl::StrAppend(&text, " ", Capital(Names(ended)), what, " while ", Verb(ended, "it", "they"),
                      " waited.");
    }
    return text;
  }

  // Ranks that the verdict does not speak of.
  std::string NotRunning() const {
    Ranks stopped;
    for (const RankView* rank : facts().live) {
      const bool is_said =
          stall_.verdict == HangVerdict::kProcessStopped && Contains(stall_.suspects, rank);
      if (rank->is_stopped && !is_said) stopped.push_back(rank);
    }
    if (stopped.empty()) return "";
    const bool do_run = std::all_of(stopped.begin(), stopped.end(), [](const RankView* rank) {
      return rank->process->run_state == RunState::kRunning ||
             rank->process->run_state == RunState::kUninterruptible;
    });
    return absl::StrCat(
        " ", Capital(Names(stopped)),
        do_run ? Verb(stopped, " has done nothing for a while.", " have done nothing for a while.")
               : Verb(stopped, " is not running.", " are not running."));
  }

  // Where an event is the verdict: who has not called either.
  std::string AlsoOwing() const {
    const Ranks owing = Without(facts().owing, stall_.suspects);
    const bool is_event = stall_.verdict == HangVerdict::kProcessGone ||
                          stall_.verdict == HangVerdict::kProcessStopped;
    if (!is_event || owing.empty() || facts().is_mismatched) return "";
    return absl::StrCat(" ", Capital(Names(owing)), " ", Has(owing), " not called ",
                        CallWords(facts().owed), " either.");
  }

  std::string Unseen() const {
    if (stall_.verdict != HangVerdict::kRankNotCalled || stall_.owed.empty()) return "";
    return absl::StrCat(UnseenBehind(), UnseenElsewhere());
  }

  // Its GPU may work on another communicator, unseen.
  std::string UnseenElsewhere() const {
    const RankView& first = *stall_.suspects.front();
    if (IsExiting(first) || first.state != RankView::State::kLive) return "";
    const std::vector<CommunicatorSnapshot>& all = first.process->communicators;
    for (std::size_t i = 0; i < std::min(all.size(), kMostSearched); ++i) {
      const CommunicatorSnapshot& each = all[i];
      const RankActivity activity = ActivityOf(*first.process, each, facts().now_ns);
      const bool is_unseen =
          (activity.is_unknown() && activity.reason != UnknownReason::kLaunchNotReported) ||
          activity.is_quiet();
      if (&each == first.communicator || !is_unseen || each.finalized || each.comm_id == 0)
        continue;
      if (CompareGpus(each, *first.communicator) == SameGpu::kNo) continue;
      return absl::StrCat(" Whether it waits in communicator ", CommunicatorText(each.comm_id),
                          " meanwhile cannot be seen.");
    }
    return "";
  }

  std::string UnseenBehind() const {
    const Ranks behind = Without(BehindUnseen(facts()), stall_.suspects);
    if (behind.empty()) return "";
    return absl::StrCat(" ", Capital(Names(behind)), " ", Has(behind),
                        " also called fewer operations than ", Name(*facts().live[facts().most]),
                        "; whether ", Verb(behind, "it waits", "they wait"),
                        " cannot be seen: ", WhyUnseen(*behind.front()), ".");
  }

  std::string Exiting() const {
    Ranks exiting;
    for (const RankView* rank : stall_.suspects) {
      if (IsExiting(*rank)) exiting.push_back(rank);
    }
    if (exiting.empty()) return "";
    return absl::StrCat(" ", Capital(Numbers(exiting)), Verb(exiting, " has", " have"),
                        " been in exit() since ",
                        ClockWords(exiting.front()->process->last_poll_realtime_ns), ".");
  }

  std::string Followed() const {
    return stall_.followed.empty()
               ? ""
               : absl::StrCat(" ", Capital(Names(stall_.followed)), " followed.");
  }

  // RAS counts launches, so the rank may be inside the call.
  std::string LaunchedLess() const {
    const Ranks& suspects = stall_.suspects;
    const std::string who = absl::StrCat(
        Capital(Names(suspects)), " ", Verb(suspects, "runs", "run"), " without the plugin, and ");
    Calls owed = WithoutSizes(stall_.owed);
    owed.erase({kUnknownCollective, -1});
    return owed.empty() ? absl::StrCat(who, Verb(suspects, "its GPU runs", "their GPUs run"),
                                       " nothing while the others are busy, as NVML reports.")
                        : absl::StrCat(who, Has(suspects), " launched ", CallWords(owed),
                                       " less than the others, as NCCL's RAS reports.");
  }

  std::string NotCalled() const {
    const Ranks& suspects = stall_.suspects;
    const std::string who = absl::StrCat(Capital(Names(suspects)), " ", Has(suspects));
    if (suspects.front()->state == RankView::State::kGone) return Fill("{ended}.", stall_);
    if (!stall_.peers.empty()) {
      return absl::StrCat(
          who, " not called what others wait for: ", JoinFirst(MissingPeerCalls(stall_), ", "),
          "; and ", Has(suspects), " nothing in flight.");
    }
    if (!stall_.peer_op.empty()) {
      return absl::StrCat(who, " not called ", stall_.peer_op, ", and has nothing in flight here.");
    }
    if (stall_.is_exchange) {
      return absl::StrCat(who, " made fewer Sends and Recvs than the others, and ", Has(suspects),
                          " nothing in flight here.");
    }
    if (stall_.owed.empty()) {
      return absl::StrCat(who, stall_.verdict == HangVerdict::kBlockedElsewhere
                                   ? " not come to what the others wait in."
                                   : " not called what the others wait in.");
    }
    const bool are_idle = std::all_of(suspects.begin(), suspects.end(),
                                      [](const auto* rank) { return rank->activity.is_idle(); });
    const bool are_unseen = std::any_of(suspects.begin(), suspects.end(), [](const auto* rank) {
      return rank->activity.is_unknown() && !IsExiting(*rank);
    });
    const std::string last = LastCall();
    const char* const they_have =
        last.empty() ? Has(suspects) : Verb(suspects, "it has", "they have");
    return absl::StrCat(who, " not called ", NumberedCallWords(stall_.owed, stall_.before), last,
                        are_idle     ? absl::StrCat(", and ", they_have, " nothing in flight here.")
                        : are_unseen ? absl::StrCat(". Whether ", Verb(suspects, "its", "their"),
                                                    " earlier calls have completed cannot be seen.")
                                     : ".");
  }

  // "; its last was AllReduce #7 (up to 1MiB)"
  std::string LastCall() const {
    if (stall_.last.empty()) return "";
    const auto& [kind, number] = *stall_.last.begin();
    const bool is_same = stall_.owed.size() == 1 && stall_.owed.begin()->first == kind;
    return absl::StrCat(
        "; ", Verb(stall_.suspects, "its", "their"), " last was ",
        is_same ? absl::StrCat("#", number) : NumberedCallWords({{kind, 1}}, {{kind, number - 1}}));
  }

  std::string Elsewhere() const {
    if (!stall_.elsewhere && !stall_.also_blocked.empty() &&
        stall_.verdict == HangVerdict::kRankNotBegun) {
      return absl::StrCat(" ", Capital(Numbers(stall_.also_blocked)), " ", Has(stall_.also_blocked),
                          " not begun it either.");
    }
    if (!stall_.elsewhere) return "";
    const std::string where = CommunicatorText(*stall_.elsewhere);
    if (stall_.verdict == HangVerdict::kUnknown) {
      return stall_.is_posted
                 ? absl::StrCat(" It has work in flight in communicator ", where,
                                ", which it may have posted ahead: its stack shows whether it "
                                "waits there.")
                 : absl::StrCat(" Whether it waits in communicator ", where,
                                " meanwhile cannot be seen.");
    }
    if (!stall_.also_blocked.empty()) {
      return absl::StrCat(
          " ", Capital(Numbers(stall_.also_blocked)), " ", Has(stall_.also_blocked),
          stall_.verdict == HangVerdict::kRankNotBegun ? " not begun" : " not called",
          " it either, but may wait in communicator ", where, " meanwhile.");
    }
    if (stall_.verdict == HangVerdict::kRankNotCalled) {
      return absl::StrCat(" It may wait in communicator ", where,
                          " meanwhile; that is not certain.");
    }
    if (stall_.verdict != HangVerdict::kBlockedElsewhere) return "";
    return stall_.suspects.front()->state != RankView::State::kLive
               ? absl::StrCat(" It ended while it waited in communicator ", where,
                              ": look there first.")
               : absl::StrCat(" Its process may wait in communicator ", where,
                              " meanwhile: look there first.");
  }

  std::string Silent() const {
    Ranks silent;
    for (const RankView* rank : stall_.suspects) {
      if (rank->process->heard_realtime_ns != 0) silent.push_back(rank);
    }
    return silent.empty()
               ? ""
               : absl::StrCat(" ", Capital(Numbers(silent)), Verb(silent, " is", " are"),
                              " known until ",
                              ClockWords(silent.front()->process->heard_realtime_ns), ": ",
                              Verb(silent, "its endpoint is", "their endpoints are"), " silent.");
  }

  std::string Usual() const {
    if (!stall_.is_usual) return "";
    if (stall_.verdict == HangVerdict::kBlockedElsewhere) return " The wait there is expected.";
    return absl::StrCat(" It has waited up to ",
                        DurationWords(static_cast<int64_t>(stall_.longest_wait_before_ns)),
                        " here before, and then resumed.");
  }

  // In Sends and Recvs, each waits for the next one.
  std::string CircleOfPeers() const {
    std::vector<std::string> waits;
    const std::size_t count = stall_.circle.size();
    for (std::size_t i = 0; i < count; ++i) {
      const RankView& rank = *stall_.circle[i].second;
      const auto peer = static_cast<uint64_t>(stall_.circle[(i + 1) % count].second->rank());
      const std::vector<uint64_t>& sends = rank.communicator->peers.sends_to;
      const bool is_send = std::binary_search(sends.begin(), sends.end(), peer);
      waits.push_back(absl::StrCat("rank ", rank.rank(), " waits in ", is_send ? "Send" : "Recv",
                                   " for rank ", peer));
    }
    return absl::StrCat("Ranks seem to wait for each other in a circle: ", JoinFirst(waits, "; "),
                        ".");
  }

  std::string Circle() const {
    std::string steps;
    const std::size_t count = stall_.circle.size();
    const bool is_of_peers =
        std::all_of(stall_.circle.begin(), stall_.circle.end(),
                    [this](const auto& step) { return step.first == stall_.circle.front().first; });
    if (is_of_peers) return CircleOfPeers();
    for (std::size_t i = 0; i < count; ++i) {
      const auto& [view, rank] = stall_.circle[i];
      const auto& next = stall_.circle[(i + 1) % count];
      absl::StrAppend(&steps, i == 0 ? "" : "; ", Name(*rank), " is missing on communicator ",
                      CommunicatorText(view->comm_id));
      if (next.first != view) {
        absl::StrAppend(&steps, ", and has work in flight on ",
                        CommunicatorText(next.first->comm_id));
      }
    }
    return absl::StrCat("Ranks seem to wait for each other in a circle: ", steps,
                        ". They use the communicators in different orders. Their stacks show "
                        "whether they wait for that work.");
  }

  // All ranks of a host whose processes were last seen to run at the same moment.
  bool IsHostPaused() const {
    constexpr int64_t kTogetherNs = 1500000000;
    const Ranks& stopped = stall_.suspects;
    const ProcessSnapshot& first = *stopped.front()->process;
    std::size_t of_host = 0;
    for (const RankView& rank : stall_.view->ranks) {
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
    const Ranks& stopped = stall_.suspects;
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
          Capital(Names(stopped)), " ", Has(stopped), " done nothing since ",
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
    const Ranks& first = stall_.suspects;
    const Ranks later = Without(facts().failed, first);
    const bool are_victims = first.front()->is_failed_by_peer;
    return absl::StrCat(
        "The driver reports that ", Verb(first, "a GPU", "GPUs"),
        " can do no more work for this process. ", are_victims ? "Most likely over a link: " : "",
        are_victims ? Enumerate(first, kMostListed, error)
                    : Capital(Enumerate(first, kMostListed, error)),
        ".",
        later.empty()
            ? ""
            : absl::StrCat(" Later, or over a link: ", Enumerate(later, kMostListed, error), "."));
  }

  std::string NotSeen() const {
    return absl::StrCat(
        stall_.view->has_point_to_point
            ? "All ranks that are seen here wait. "
            : "All ranks that are seen here have launched the same work, and it makes no "
              "progress. ",
        "Not seen ",
        IsOfDump()                                    ? "in any dump"
        : stall_.view->ranks.front().is_of_many_hosts ? "at the endpoints that answered"
                                                      : "at this endpoint",
        ": rank ", absl::StrJoin(stall_.unseen, ", "),
        IsOfDump() ? "." : ". Its process is gone, or is measured elsewhere.");
  }

  std::string BeingMade() const {
    const Ranks& here = stall_.waiting;
    const Ranks& absent = stall_.waits->absent;
    const bool is_one = stall_.unseen.size() == 1;
    return absl::StrCat(
        Capital(Numbers(here)), Verb(here, " is", " are"), " creating this communicator, and ",
        Verb(here, "its process has", "their processes have"), " called nothing since. ",
        absent.empty()
            ? absl::StrCat(is_one ? "Rank " : "Ranks ", absl::StrJoin(stall_.unseen, ", "))
            : Capital(Names(absent)),
        is_one ? " has" : " have", " not joined",
        absent.empty()
            ? is_one ? ", or is measured elsewhere." : ", or are measured elsewhere."
            : absl::StrCat(". (The ranks are those of communicator ",
                           CommunicatorText(absent.front()->communicator->comm_id), ".)"));
  }

  static std::string WhyNotLaunched(const Ranks& ranks) {
    const bool may_have_returned = std::any_of(
        ranks.begin(), ranks.end(), [](const RankView* rank) { return MayHaveReturned(*rank); });
    return may_have_returned
               ? "inside NCCL (setting up a connection?), or a call that failed or was to its own "
                 "rank"
               : "inside NCCL (setting up a connection, or a group that was not ended)";
  }

  // " Rank 3 (pid 103) has called Send or Recv but not launched: ..."
  std::string NotLaunched() const {
    const Ranks inside = Without(facts().inside, stall_.waiting);
    const Ranks idle = Idle();
    return absl::StrCat(
        idle.empty() ? "" : absl::StrCat(" Nothing in flight here: ", Names(idle), "."),
        inside.empty() ? ""
                       : absl::StrCat(" ", Capital(Names(inside)), " ", Has(inside),
                                      " called Send or Recv but not launched: still ",
                                      WhyNotLaunched(inside), "."));
  }
  Ranks Idle() const {
    Ranks idle;
    for (const RankView* rank : facts().live) {
      if (rank->activity.is_idle()) idle.push_back(rank);
    }
    return idle;
  }

  std::string ForWhom() const {
    if (IsOfDump()) return " Which of them blocks the other is not known.";
    std::vector<std::string> waits;
    bool is_any = false;
    for (const RankView* rank : stall_.waiting) {
      const PeersSnapshot& peers = rank->communicator->peers;
      is_any |= !peers.sends_to.empty() || !peers.receives_from.empty();
      AddWaits(*rank, peers.sends_to, true, &waits);
      AddWaits(*rank, peers.receives_from, false, &waits);
    }
    if (!is_any) return " NCCL has not reported the peers of these Sends and Recvs.";
    return absl::StrCat(" ",
                        waits.empty()
                            ? "Each Send and Recv with a known peer has its counterpart in flight"
                            : Capital(JoinFirst(waits, "; ")),
                        ". Which rank blocks the others is not known.");
  }

  void AddWaits(const RankView& rank, const std::vector<uint64_t>& numbers, bool sends,
                std::vector<std::string>* waits) const {
    for (const uint64_t number : numbers) {
      const RankView* peer = stall_.view->Find(static_cast<int64_t>(number));
      if (peer == nullptr) continue;
      const PeersSnapshot& others = peer->communicator->peers;
      const std::vector<uint64_t>& back = sends ? others.receives_from : others.sends_to;
      const bool is_mutual =
          peer->activity.is_in_flight() && others.are_known &&
          std::binary_search(back.begin(), back.end(), static_cast<uint64_t>(rank.rank()));
      if (is_mutual) continue;
      waits->push_back(absl::StrCat(
          "rank ", rank.rank(), " waits in ", sends ? "Send" : "Recv", " for rank ", number,
          peer->activity.is_idle() ? ", which has nothing in flight here" : ""));
    }
  }

  std::string Queued() const {
    return absl::StrCat(QueuedWords(stall_, std::nullopt), " Probably a ", EarlierWork());
  }

  // Work that GPUs that have not begun may be behind.
  std::string EarlierWork() const {
    std::string hidden;
    for (const auto& [op, calls] : AbandonedCallsOf(*stall_.waiting.front()->communicator)) {
      if (facts().abandoned.Of(*stall_.waiting.front(), op) == 0) hidden = op;
    }
    return absl::StrCat(
        "kernel outside of NCCL",
        hidden.empty() ? "" : absl::StrCat(", or ", hidden, ", whose launch NCCL does not report"),
        ".");
  }

  std::string BusyInGraphs() const {
    constexpr uint64_t kShortPauseNs = 1000000000;  // no shorter pause is worth a word
    const WorkFacts& work = facts().work;
    return absl::StrCat(
        "The GPUs of all ranks are busy, and no collective ",
        work.unread.empty() ? "has" : "was seen to have", " finished here since ",
        ClockWords(stall_.since_ns), ", longer than ever before in CUDA graphs",
        work.longest_pause_ns < kShortPauseNs
            ? ""
            : absl::StrCat(" (", DurationWords(static_cast<int64_t>(work.longest_pause_ns)), ")"),
        work.unread.empty()
            ? ""
            : absl::StrCat(". What ", Numbers(work.unread), Verb(work.unread, " has", " have"),
                           " finished cannot be read: a call of the driver does not return"),
        ". Whether they wait for each other, and for which rank, is not known.");
  }

  // Every clause is a fact: all ranks are inside only if that is known of each.
  std::string NoProgress() const {
    std::vector<const RankView*> completed;
    std::vector<const RankView*> behind;
    for (const RankView* rank : facts().live) {
      if (rank->activity.is_idle()) completed.push_back(rank);
      if (rank->activity.oldest_launch == OldestLaunch::kNotBegun) behind.push_back(rank);
    }
    const std::string op = stall_.op.empty() ? "" : absl::StrCat(" (", stall_.op, ")");
    const bool are_all_seen = stall_.are_all_seen();
    const std::string all = are_all_seen ? "All ranks have" : "All ranks of this node have";
    const std::string not_begun =
        behind.empty() ? ""
                       : absl::StrCat(Verb(behind, " The GPU of ", " The GPUs of "), Names(behind),
                                      " ", Has(behind), " not begun it: work before it on the ",
                                      Verb(behind, "stream", "streams"), " has not ended.");
    if (!completed.empty()) {
      return absl::StrCat(all, " called it", op, "; ", Numbers(completed), " ", Has(completed),
                          " nothing in flight.", Waiters(), not_begun);
    }
    const bool is_begun =
        std::any_of(stall_.waiting.begin(), stall_.waiting.end(), [](const RankView* rank) {
          return rank->activity.oldest_launch == OldestLaunch::kBegun &&
                 rank->communicator->launches - rank->communicator->launches_completed == 1;
        });
    if (stall_.view->nranks == 1 && !stall_.suspects.empty()) {
      return absl::StrCat(Capital(Names(stall_.suspects)), " has not completed ",
                          stall_.op.empty() ? "a call" : stall_.op,
                          " in a communicator without other ranks: the cause is its GPU.");
    }
    if (!stall_.suspects.empty()) {
      const Ranks& late = stall_.suspects;
      return absl::StrCat(Capital(Names(late)), " ", Has(late),
                          " not completed a call that others have completed: the cause is ",
                          Verb(late, "its GPU", "their GPUs"), " or the network to ",
                          Verb(late, "it", "them"), ".", Waiters());
    }
    return absl::StrCat(
        all, " called and launched the same work, and none of it has completed", op,
        ": the cause is ", are_all_seen ? "" : "a rank on another node, ",
        is_begun ? "a GPU or the network."
                 : "a GPU, the network, or earlier work of GPUs that are not known to have begun "
                   "it.",
        are_all_seen ? "" : " Compare with the other nodes.", not_begun);
  }

  std::string WhyUnknown() const {
    if (stall_.view->is_mixed) {
      return "several communicators have this ID, and which ranks belong together is not known";
    }
    switch (facts().calls_known) {
      case CallsKnown::kOverflowed:
        return IsOfDump() ? "some dumps do not tell how far their ranks have come here"
                          : "calls were counted without their operation, because there were too "
                            "many kinds";
      case CallsKnown::kEventMaskChanged:
        return "calls may be missing, because another program changed NCCL's profiler event mask";
      case CallsKnown::kCaptured:
        return WhyReplaysUnknown();
      case CallsKnown::kYes:
        break;
    }
    const Ranks behind = BehindUnseen(facts());
    if (!behind.empty()) {
      return absl::StrCat(
          Names(behind), " ", Has(behind), " called fewer operations than ",
          Name(*facts().live[facts().most]),
          ", but whether there is work in flight cannot be seen: ", WhyUnseen(*behind.front()));
    }
    if (facts().is_mismatched) return "their processes still make calls";
    const Ranks& owing = facts().owing;
    if (stall_.view->has_point_to_point && !owing.empty()) {
      return absl::StrCat("this communicator also uses Send and Recv. ", Capital(Names(owing)), " ",
                          Has(owing), " nothing in flight and ", Has(owing), " not called ",
                          CallWords(facts().owed), ", which ", Name(*facts().live[facts().most]),
                          " has");
    }
    return "whether ranks that others wait for wait themselves cannot be seen";
  }

  std::string WhyReplaysUnknown() const {
    if (facts().work.idle.size() > facts().work.busy.size()) {
      return absl::StrCat("only the ", Verb(facts().work.busy, "GPU of ", "GPUs of "),
                          Numbers(facts().work.busy), Verb(facts().work.busy, " is", " are"),
                          " busy, in a CUDA graph or in a kernel that is not NCCL's");
    }
    switch (facts().replays.known) {
      case ReplaysKnown::kDiffer:
        return "the ranks have not captured the same CUDA graphs, or called differently beside "
               "them, so their replays cannot be compared";
      case ReplaysKnown::kMayLeave:
        return "operations were captured into CUDA graphs that a rank may leave before the others "
               "arrive";
      case ReplaysKnown::kYes:
        return "as far as is known, all ranks are equally far in their CUDA graphs, and whether a "
               "replay is stalled cannot be seen";
      case ReplaysKnown::kNotFollowed:
        break;
    }
    return "the communicator is used in CUDA graphs, whose replays cannot be seen";
  }

 public:
  static std::string WhyNothingLaunched(const Ranks& ranks) {
    const bool are_in_group = std::all_of(ranks.begin(), ranks.end(), [](const RankView* rank) {
      return rank->communicator->are_unreported_in_group;
    });
    return are_in_group
               ? "still inside NCCL (setting up a connection, or a group that was not ended)"
               : "the call waits in NCCL, or has failed";
  }

  // "among captured calls 1 to 60 of 65 of graph 1"
  static std::string PlaceInReplay(const Stall& stall) {
    const ReplayPlace& at = stall.replay;
    const std::string of = absl::StrCat(" of ", at.calls, " of graph ", at.graph);
    if (at.until <= at.before) {
      return at.before == 0 ? absl::StrCat("before captured call 1", of)
                            : absl::StrCat("after captured call ", at.before, of);
    }
    return at.until == at.before + 1
               ? absl::StrCat("at captured call ", at.until, of)
               : absl::StrCat("among captured calls ", at.before + 1, " to ", at.until, of);
  }

  static std::vector<std::string> MissingPeerCalls(const Stall& stall) {
    std::vector<std::string> calls;
    for (const PeerOwes& each : stall.peers) {
      const std::string call =
          absl::StrCat(each.sends ? "Recv from rank " : "Send to rank ", each.rank->rank());
      calls.push_back(stall.suspects.size() == 1
                          ? call
                          : absl::StrCat(call, " (rank ", each.peer->rank(), ")"));
    }
    return calls;
  }

 private:
  const Stall& stall_;
};

// "AllReduce (up to 64KiB)" if the suspects have one launch in flight, of one kind.
std::string Launched(const Ranks& suspects) {
  Calls what;
  for (const RankView* rank : suspects) {
    const CommunicatorSnapshot& communicator = *rank->communicator;
    if (communicator.launches - communicator.launches_completed != 1 ||
        communicator.last_call_op.empty()) {
      return "what the others wait in";
    }
    what[{communicator.last_call_op, communicator.last_call_size_class}] = 1;
  }
  return what.size() == 1 ? CallWords(what) : "what the others wait in";
}

std::string Ended(const Ranks& suspects) {
  return Capital(Enumerate(suspects, kMostListed, [](const RankView* rank) {
    return absl::StrCat("the process of ", Name(*rank),
                        rank->process->end == ProcessEnd::kExit
                            ? " exited without finalizing the communicator"
                            : " ended without finalizing the communicator");
  }));
}

std::string Fill(const char* text, const Stall& stall) {
  const Ranks& who = stall.suspects;
  const std::string names = Names(who);
  return absl::StrReplaceAll(
      text, {{"{Who}", Capital(names)},
             {"{who}", names},
             {"{has}", Has(who)},
             {"{is}", Verb(who, "is", "are")},
             {"{its}", Verb(who, "its", "their")},
             {"{GPU}", Verb(who, "GPU", "GPUs")},
             {"{runs}", Verb(who, "runs", "run")},
             {"{stream}", Verb(who, "stream", "streams")},
             {"{program}", Verb(who, "program", "programs")},
             {"{launched}", Launched(who)},
             {"{ended}", Ended(who)},
             {"{since}", ClockWords(stall.since_ns)},
             {"{op}", stall.op.empty() ? "the same" : stall.op},
             {"{all}", stall.are_all_seen() ? "All ranks" : "All ranks of this node"},
             {"{inside}", Sentences::WhyNothingLaunched(who)},
             {"{place}", Sentences::PlaceInReplay(stall)}});
}

}  // namespace

std::string StallWords(const Stall& stall) { return Sentences(stall).Make(); }

std::string MissingPeerCall(const Stall& stall) {
  const std::vector<std::string> calls = Sentences::MissingPeerCalls(stall);
  return calls.size() == 1 ? calls.front() : "";
}

std::string QueuedWords(const Stall& queued, std::optional<uint64_t> unseen_elsewhere) {
  const Ranks& ranks = queued.waiting;
  return absl::StrCat(
      Capital(Names(ranks)), " ", Has(ranks), " launched",
      queued.op.empty() ? "" : absl::StrCat(" ", queued.op), ", and ",
      Verb(ranks, "its GPU has", "their GPUs have"), " not begun it. Earlier work of ",
      Verb(ranks, "this GPU", "these GPUs"), " has not ended since ", ClockWords(queued.since_ns),
      ".",
      unseen_elsewhere
          ? absl::StrCat(" It may wait in communicator ", CommunicatorText(*unseen_elsewhere),
                         ", whose work cannot be seen.")
          : "",
      queued.are_all_seen() ? "" : " It is not known whether ranks that are not seen here wait.");
}

std::string AheadWords(const Ranks& behind, const RankView& ahead, const Calls& calls) {
  const Ranks one = {&ahead};
  return absl::StrCat(Capital(Numbers(behind)), " ", Has(behind), " not called ", CallWords(calls),
                      " that ", Numbers(one), " has called; whether ", Numbers(one),
                      " waits cannot be seen.");
}

}  // namespace nccl_pulse

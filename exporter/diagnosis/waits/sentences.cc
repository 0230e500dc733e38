#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/base/communicator_id.h"
#include "exporter/diagnosis/facts/call_counts.h"
#include "exporter/diagnosis/waits/stall.h"
#include "exporter/diagnosis/words/rank_words.h"
#include "exporter/diagnosis/words/words.h"
#include "metrics/driver_error.h"

namespace nccl_pulse {
namespace {

constexpr char kWaitsUnseen[] =
    " Whether {whom} {waits|wait} in communicator {where} meanwhile cannot be seen.";

template <typename Predicate>
bool AreAll(const Ranks& ranks, const Predicate& predicate) {
  return std::all_of(ranks.begin(), ranks.end(), predicate);
}

// Returns a communicator on the rank's GPU whose work is not visible, where the rank may wait.
std::optional<uint64_t> UnseenOnGpuOf(const RankView& rank, int64_t now_ns, bool with_unreported) {
  const std::vector<CommunicatorSnapshot>& all = rank.process->communicators;
  for (std::size_t i = 0; i < std::min(all.size(), kMostSearched); ++i) {
    const CommunicatorSnapshot& each = all[i];
    if (&each == rank.communicator || each.finalized || each.comm_id == 0 ||
        CompareGpus(each, *rank.communicator) == SameGpu::kNo) {
      continue;
    }
    const RankActivity activity = ActivityOf(*rank.process, each, now_ns);
    const bool is_unknown =
        activity.is_unknown() &&
        (with_unreported || activity.reason != UnknownReason::kLaunchNotReported);
    if (is_unknown || activity.is_quiet()) return each.comm_id;
  }
  return std::nullopt;
}

std::vector<std::string> MissingPeerCalls(const Stall& stall, const Ranks& who) {
  std::vector<std::string> calls;
  for (const PeerOwes& each : stall.peers) {
    const std::string call =
        absl::StrCat(each.sends ? "Recv from rank " : "Send to rank ", each.rank->rank());
    calls.push_back(who.size() == 1 ? call : absl::StrCat(call, " (rank ", each.peer->rank(), ")"));
  }
  return calls;
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
  std::string Op(const char* otherwise) const {
    return stall_.hang.op.empty() ? otherwise : stall_.hang.op;
  }
  const char* AllRanks() const {
    return stall_.are_all_seen() ? "All ranks" : "All ranks that are seen here";
  }
  const RankView& Ahead() const { return *facts().live[facts().most]; }

  std::string Verdict() const;

  std::string Suspects(const char* text) const {
    const Ranks& who = stall_.suspects;
    return Fill(text, who,
                {{"launched", LaunchedWords(who)},
                 {"ended", EndedWords(who)},
                 {"since", ClockWords(stall_.hang.since_realtime_ns)},
                 {"op", Op("the same")},
                 {"all", AllRanks()},
                 {"inside", WhyNotLaunched(who)},
                 {"position", PositionWords(stall_.hang.replay)}});
  }

  // True if Waiters() is needed: the other sentences name the waiting ranks themselves.
  bool HasWaiters() const {
    return stall_.hang.verdict != HangVerdict::kMismatched &&
           stall_.hang.verdict != HangVerdict::kNoProgress &&
           stall_.hang.verdict != HangVerdict::kPointToPoint &&
           stall_.hang.verdict != HangVerdict::kUnknown &&
           stall_.hang.situation != Situation::kBeingMade;
  }

  // " Ranks 1 and 2 wait in AllReduce."
  std::string Waiters() const {
    const Ranks& waiting = stall_.waiting;
    const bool is_event = stall_.hang.verdict == HangVerdict::kProcessGone ||
                          stall_.hang.verdict == HangVerdict::kProcessStopped ||
                          stall_.hang.verdict == HangVerdict::kDriverError;
    if (waiting.empty()) {
      return is_event ? Fill(" Ranks that others wait for may wait for {it|them} outside NCCL.",
                             stall_.suspects)
                      : "";
    }
    const bool are_unreported = AreAll(waiting, [](const RankView* rank) {
      return rank->activity.reason == UnknownReason::kLaunchNotReported;
    });
    if (are_unreported && !IsInsideSendOrRecv(*waiting.front())) {
      const std::string& op = waiting.front()->communicator->last_call_op;
      return Fill(
          WaitsForAll(op)
              ? " {Ranks} {has|have} called {op}, whose launch NCCL does not report, and "
                "which no rank leaves before all ranks have called it."
              : " {Ranks} {has|have} called {op}, whose launch NCCL does not report: whether "
                "{it still waits|they still wait} cannot be seen.",
          waiting, {{"op", op.empty() ? "it" : op}});
    }
    const bool are_behind = AreAll(waiting, [](const RankView* rank) {
      return rank->activity.oldest_launch == OldestLaunch::kNotBegun;
    });
    if (are_behind) {
      return Fill(
          " {Ranks} {has|have} launched {op}, but earlier work of {its GPU|their GPUs} has "
          "not ended since {since}: probably a {earlier}",
          waiting,
          {{"op", Op("it")},
           {"since", ClockWords(stall_.hang.since_realtime_ns)},
           {"earlier", EarlierWork()}});
    }
    const bool is_unknown = stall_.hang.op.empty() || stall_.hang.op == kUnknownCollective;
    const std::string in = stall_.hang.situation == Situation::kInGraphs ? " in a CUDA graph"
                           : stall_.hang.replay.graph != 0
                               ? absl::StrCat(" ", PositionWords(stall_.hang.replay))
                           : is_unknown ? ""
                                        : absl::StrCat(" in ", stall_.hang.op);
    return Fill(are_unreported ? " {Ranks} {waits|wait}{in}, not launched: {why}."
                               : " {Ranks} {waits|wait}{in}.",
                waiting, {{"in", in}, {"why", WhyNotLaunched(waiting)}});
  }

  std::string Victims() const {
    std::string text;
    for (const auto& [state, what] :
         {std::pair(RankView::State::kGone, " {Who} ended while {it|they} waited."),
          std::pair(RankView::State::kFinalized,
                    " {Who} finalized the communicator while {it|they} waited.")}) {
      text += FillIfAny(what, Where(stall_.victims, [&, state = state](const auto* rank) {
                          return rank->state == state && !Contains(stall_.followed, rank);
                        }));
    }
    return text;
  }

  // Returns a sentence about ranks that are not running, except the suspects.
  std::string NotRunning() const {
    const bool are_said = stall_.hang.verdict == HangVerdict::kProcessStopped;
    const Ranks stopped = Where(facts().live, [&](const RankView* rank) {
      return rank->is_stopped && !(are_said && Contains(stall_.suspects, rank));
    });
    const bool do_run = AreAll(stopped, [](const RankView* rank) { return IsInDriver(*rank); });
    return FillIfAny(
        do_run ? " {Who} {has|have} done nothing for a while." : " {Who} {is|are} not running.",
        stopped);
  }

  // Returns a sentence about ranks that have not called either, for verdicts about an event.
  std::string AlsoOwing() const {
    const bool is_event = stall_.hang.verdict == HangVerdict::kProcessGone ||
                          stall_.hang.verdict == HangVerdict::kProcessStopped;
    if (!is_event || facts().is_mismatched) return "";
    Ranks others = Without(facts().owing, stall_.suspects);
    if (stall_.elsewhere) others = Without(others, stall_.also_blocked);  // Elsewhere() names these
    return FillIfAny(" {Who} {has|have} not called {calls} either.", others,
                     {{"calls", CallWords(facts().owed)}});
  }

  std::string Unseen() const {
    if (stall_.hang.verdict != HangVerdict::kRankNotCalled || stall_.owed.empty()) return "";
    std::string text = Behind(" {Who} {has|have} also", stall_.suspects);
    if (!text.empty()) text += ".";
    const RankView& first = *stall_.suspects.front();
    if (IsExiting(first) || first.state != RankView::State::kLive) return text;
    if (const auto elsewhere = UnseenOnGpuOf(first, facts().now_ns, false)) {
      absl::StrAppend(&text,
                      Fill(kWaitsUnseen, {&first},
                           {{"whom", Numbers({&first})}, {"where", CommunicatorText(*elsewhere)}}));
    }
    return text;
  }

  // Returns a sentence about ranks that have called less, and may wait unseen; "" if none.
  std::string Behind(const char* who, const Ranks& except) const {
    const Ranks behind = Without(BehindUnseen(facts()), except);
    if (behind.empty()) return "";
    return Fill(absl::StrCat(who,
                             " called fewer operations than {ahead}; whether {it waits|they wait} "
                             "cannot be seen: {why}"),
                behind, {{"ahead", Name(Ahead())}, {"why", WhyUnseen(*behind.front())}});
  }

  std::string Exiting() const {
    const Ranks exiting = Where(stall_.suspects, [](const RankView* rank) {
      return IsExiting(*rank) && rank->is_live_process();
    });
    if (exiting.empty()) return "";
    return Fill(" {Ranks} {has|have} been in exit() since {since}.", exiting,
                {{"since", ClockWords(exiting.front()->process->last_poll_realtime_ns)}});
  }

  std::string Followed() const { return FillIfAny(" {Who} followed.", stall_.followed); }

  // Returns the sentence for counts by RAS: it counts launches, so the rank may be inside the call.
  std::string LaunchedLess() const {
    Calls owed = WithoutSizes(stall_.owed);
    owed.erase({kUnknownCollective, -1});
    return Fill(
        owed.empty()
            ? "{Who} {runs|run} without the plugin, and {its GPU runs|their GPUs run} nothing "
              "while the others are busy, as NVML reports."
            : "{Who} {runs|run} without the plugin, and {has|have} launched {calls} less than "
              "the others, as NCCL's RAS reports.",
        stall_.suspects, {{"calls", CallWords(owed)}});
  }

  std::string NotCalled() const { return NotCalledBy(stall_.suspects); }
  std::string NotCalledBy(const Ranks& who) const {
    const auto is_gone = [](const auto* rank) { return rank->state == RankView::State::kGone; };
    if (AreAll(who, is_gone)) return EndedWords(who) + ".";
    if (!stall_.peers.empty()) {
      return Fill(
          "{Who} {has|have} not called what others wait for: {calls}; and {has|have} nothing "
          "in flight.",
          who, {{"calls", JoinFirst(MissingPeerCalls(stall_, who), ", ")}});
    }
    if (!stall_.peer_op.empty()) {
      return Fill("{Who} {has|have} not called {op}, and has nothing in flight here.", who,
                  {{"op", stall_.peer_op}});
    }
    if (stall_.is_exchange) {
      return Fill(
          "{Who} {has|have} made fewer Sends and Recvs than the others, and {has|have} "
          "nothing in flight here.",
          who);
    }
    if (stall_.owed.empty()) {
      return Fill(stall_.hang.verdict == HangVerdict::kBlockedElsewhere
                      ? "{Who} {has|have} not come to what the others wait in."
                      : "{Who} {has|have} not called what the others wait in.",
                  who);
    }
    const bool are_idle = AreAll(who, [](const auto* rank) { return rank->activity.is_idle(); });
    const bool are_seen = AreAll(
        who, [](const auto* rank) { return !rank->activity.is_unknown() || IsExiting(*rank); });
    const char* text =
        are_idle   ? "{Who} {has|have} not called {calls}, and {has|have} nothing in flight here."
        : are_seen ? "{Who} {has|have} not called {calls}."
                   : "{Who} {has|have} not called {calls}. Whether {its|their} earlier calls have "
                     "completed cannot be seen.";
    return Fill(text, who, {{"calls", NumberedCallWords(stall_.owed, stall_.before)}});
  }

  std::string Elsewhere() const {
    const Ranks& blocked = stall_.also_blocked;
    const bool is_not_begun = stall_.hang.verdict == HangVerdict::kRankNotBegun;
    if (!stall_.elsewhere) {
      return is_not_begun
                 ? FillIfAny(" {Ranks} {has|have} not begun {its launch|their launches} either.",
                             blocked)
                 : "";
    }
    const char* text = "";
    if (stall_.hang.verdict == HangVerdict::kUnknown) {
      text =
          stall_.is_posted
              ? " A rank that others wait for has work in flight in communicator {where}, which it "
                "may have posted ahead: its stack shows whether it waits there."
              : kWaitsUnseen;
    } else if (!blocked.empty()) {
      text =
          " {Ranks} {has|have} not {done} it either, but may wait in communicator {where} "
          "meanwhile.";
    } else if (stall_.hang.verdict == HangVerdict::kBlockedElsewhere) {
      text = stall_.suspects.front()->state != RankView::State::kLive
                 ? " It ended while it waited in communicator {where}: look there first."
                 : " Its process may wait in communicator {where} meanwhile: look there first.";
    } else if (stall_.hang.verdict == HangVerdict::kRankNotCalled) {
      return Fill(
          " {Ranks} {waits|wait} in communicator {where}, for ranks that wait for {it|them}.",
          stall_.suspects, {{"where", CommunicatorText(*stall_.elsewhere)}});
    }
    return Fill(text, blocked,
                {{"whom", blocked.empty() ? "ranks that others wait for" : Numbers(blocked)},
                 {"where", CommunicatorText(*stall_.elsewhere)},
                 {"done", is_not_begun ? "begun" : "called"}});
  }

  std::string Silent() const {
    const Ranks silent = Where(stall_.suspects, [](const RankView* rank) {
      return rank->process->heard_realtime_ns != 0;
    });
    if (silent.empty()) return "";
    return Fill(
        " {Ranks} {is|are} known until {until}: {its endpoint is|their endpoints are} silent.",
        silent, {{"until", ClockWords(silent.front()->process->heard_realtime_ns)}});
  }

  std::string Usual() const {
    if (!stall_.hang.is_usual) return "";
    if (stall_.hang.verdict == HangVerdict::kBlockedElsewhere)
      return " The wait there is expected.";
    return absl::StrCat(" It has waited up to ",
                        DurationWords(static_cast<int64_t>(stall_.hang.longest_wait_before_ns)),
                        " here before, and then resumed.");
  }

  // Returns the sentence about ranks that wait for each other in a circle: in Send and Recv of one
  // communicator, or over several communicators.
  std::string Circle() const {
    std::vector<std::string> steps;
    const std::size_t count = stall_.circle.size();
    const bool is_of_peers =
        std::all_of(stall_.circle.begin(), stall_.circle.end(),
                    [this](const auto& step) { return step.first == stall_.circle.front().first; });
    for (std::size_t i = 0; i < count; ++i) {
      const auto& [view, rank] = stall_.circle[i];
      const auto& [next_view, next] = stall_.circle[(i + 1) % count];
      if (is_of_peers) {
        const auto peer = static_cast<uint64_t>(next->rank());
        const PeersSnapshot& peers = rank->communicator->peers;
        const bool sends = peers.is_receiving_from < 0 && HasPeer(peers.sends_to, next->rank());
        steps.push_back(PeerWaitWords(*rank, sends, peer));
        continue;
      }
      steps.push_back(
          absl::StrCat(Name(*rank), " is missing on communicator ", CommunicatorText(view->comm_id),
                       next_view == view ? ""
                                         : absl::StrCat(", and has work in flight on ",
                                                        CommunicatorText(next_view->comm_id))));
    }
    return absl::StrCat("Ranks seem to wait for each other in a circle: ",
                        is_of_peers ? JoinFirst(steps, "; ") : absl::StrJoin(steps, "; "), ".",
                        is_of_peers ? ""
                                    : " They use the communicators in different orders, or one has "
                                      "left out a call. Their stacks "
                                      "show whether they wait for that work.");
  }

  // True if the suspects are all ranks of a host, and their processes were last seen running at the
  // same moment.
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
    const bool are_alike = AreAll(
        stopped, [state](const RankView* rank) { return rank->process->run_state == state; });
    std::string text =
        "{Who} {is|are} not running: stopped, held by a debugger, or paused with its container or "
        "host.";
    if (are_alike && *WhyNotRunning(state) != '\0') {
      text = absl::StrCat("{Who} {is|are} not running: ", WhyNotRunning(state), ".");
    } else if (are_alike && state != RunState::kUninterruptible && IsHostPaused()) {
      text =
          "{Who} have done nothing since {since}. They stopped at the same moment: their host was "
          "paused, or their container.";
    } else if (are_alike && state == RunState::kRunning) {
      text =
          "{Who} {has|have} done nothing since {since}, though {its process runs: probably a "
          "driver "
          "call does not return|their processes run: probably driver calls do not return}.";
    } else if (are_alike && state == RunState::kUninterruptible) {
      text =
          "{Who} {has|have} done nothing since {since}, though {its process is|their processes "
          "are} "
          "in uninterruptible sleep (D): in a driver, or I/O.";
    }
    return Fill(text, stopped,
                {{"since", ClockWords(stopped.front()->process->last_poll_realtime_ns)}});
  }

  std::string Failed() const {
    const auto list = [](const Ranks& ranks) {
      return Enumerate(ranks, kMostListed, [](const RankView* rank) {
        const char* name = DriverErrorName(rank->failed->driver_error);
        return absl::StrCat(Name(*rank), ": ", name == nullptr ? "error" : name, " (",
                            rank->failed->driver_error, ") since ",
                            ClockWords(rank->failed->driver_error_realtime_ns));
      });
    };
    const Ranks& first = stall_.suspects;
    Ranks later;
    for (const RankView& rank : stall_.view->ranks) {
      const bool has_failed = rank.failed != nullptr && rank.state != RankView::State::kFinalized;
      if (has_failed && !Contains(first, &rank)) later.push_back(&rank);
    }
    return Fill(
        "The driver reports that {a GPU|GPUs} can do no more work for this process. {first}."
        "{later}",
        first,
        {{"first", first.front()->is_failed_by_peer
                       ? absl::StrCat("Most likely over a link: ", list(first))
                       : Capital(list(first))},
         {"later",
          later.empty() ? "" : absl::StrCat(" Later, or over a link: ", list(later), ".")}});
  }

  std::string NotSeen() const {
    const char* where = IsOfDump() ? "in any dump"
                        : stall_.view->ranks.front().is_of_many_hosts
                            ? "at the endpoints that answered"
                            : "at this endpoint";
    return absl::StrCat(
        stall_.view->has_point_to_point
            ? ""
            : "All ranks that are seen here have launched the same work, and it makes no "
              "progress. ",
        "Not seen ", where, ": rank ", absl::StrJoin(stall_.unseen, ", "),
        IsOfDump() ? "."
                   : ". Its process has ended or is not monitored, or another endpoint serves it.");
  }

  std::string BeingMade() const {
    const Ranks& absent = stall_.waits->absent;
    const bool is_one = stall_.unseen.size() == 1;
    const std::string creating = Fill(
        "{Ranks} {is|are} creating this communicator, and {its process has|their processes have} "
        "called nothing since. ",
        stall_.waiting);
    if (absent.empty()) {
      return absl::StrCat(creating, is_one ? "Rank " : "Ranks ", absl::StrJoin(stall_.unseen, ", "),
                          is_one ? " has not joined, or another endpoint serves it."
                                 : " have not joined, or other endpoints serve them.");
    }
    return absl::StrCat(creating, Capital(Names(absent)), is_one ? " has" : " have",
                        " not joined. (The ranks are those of communicator ",
                        CommunicatorText(absent.front()->communicator->comm_id), ".)");
  }

  std::string PointToPoint() const {
    const Ranks inside =
        Without(Where(facts().live, [](const RankView* rank) { return IsInsideSendOrRecv(*rank); }),
                stall_.waiting);
    const Ranks idle =
        Where(facts().live, [](const RankView* rank) { return rank->activity.is_idle(); });
    return absl::StrCat(absl::StripLeadingAsciiWhitespace(Waiters()), ForWhom(),
                        FillIfAny(" Nothing in flight here: {who}.", idle),
                        FillIfAny(" {Who} {has|have} called Send or Recv but not launched: {why}.",
                                  inside, {{"why", WhyNotLaunched(inside)}}));
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
      if (peer == nullptr) {
        waits->push_back(PeerWaitWords(rank, sends, number) + ", which is not seen");
        continue;
      }
      const PeersSnapshot& others = peer->communicator->peers;
      const bool is_mutual = peer->activity.is_in_flight() && others.are_known &&
                             HasPeer(sends ? others.receives_from : others.sends_to, rank.rank());
      if (is_mutual) continue;
      waits->push_back(
          absl::StrCat(PeerWaitWords(rank, sends, number),
                       peer->activity.is_idle() ? ", which has nothing in flight here" : ""));
    }
  }

  std::string Queued() const {
    return absl::StrCat(QueuedWords(stall_, false), " Probably a ", EarlierWork());
  }

  // Returns words for the earlier work that delays GPUs which have not begun.
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
    constexpr uint64_t kShortPauseNs = 1000000000;  // shorter pauses are not mentioned
    const WorkFacts& work = facts().work;
    return absl::StrCat(
        "The GPUs of all ranks are busy, and no collective ",
        work.unread.empty() ? "has" : "was seen to have", " finished here since ",
        ClockWords(stall_.hang.since_realtime_ns), ", longer than ever before in CUDA graphs",
        work.longest_pause_ns < kShortPauseNs
            ? ""
            : absl::StrCat(" (", DurationWords(static_cast<int64_t>(work.longest_pause_ns)), ")"),
        FillIfAny(
            ". What {ranks} {has|have} finished cannot be read: a call of the driver does not "
            "return",
            work.unread),
        ". Whether they wait for each other, and for which rank, is not known.");
  }

  // Returns the sentence for ranks that are all in the same call.
  std::string NoProgress() const {
    const Ranks& late = stall_.suspects;
    const Ranks completed =
        Where(facts().live, [](const RankView* rank) { return rank->activity.is_idle(); });
    const std::string not_begun = FillIfAny(
        " The {GPU|GPUs} of {who} {has|have} not begun it: work before it on the {stream|streams} "
        "has "
        "not ended.",
        Where(facts().live, [](const RankView* rank) {
          return rank->activity.oldest_launch == OldestLaunch::kNotBegun;
        }));
    const std::string op = stall_.hang.op.empty() ? "" : absl::StrCat(" (", stall_.hang.op, ")");
    if (!completed.empty()) {
      return absl::StrCat(AllRanks(), " have called it", op,
                          Fill("; {ranks} {has|have} nothing in flight.", completed), Waiters(),
                          not_begun);
    }
    if (stall_.view->nranks == 1 && !late.empty()) {
      return Fill(
          "{Who} has not completed {op} in a communicator without other ranks: the cause is "
          "its GPU.",
          late, {{"op", Op("a call")}});
    }
    if (!late.empty()) {
      return absl::StrCat(
          Fill(
              "{Who} {has|have} not completed a call that others have completed: the cause is {its "
              "GPU|their GPUs} or the network to {it|them}.",
              late),
          Waiters());
    }
    const bool are_begun = AreAll(facts().live, [](const RankView* rank) {
      return rank->activity.oldest_launch == OldestLaunch::kBegun &&
             rank->communicator->launches - rank->communicator->launches_completed == 1;
    });
    const bool is_of_one_node = !stall_.view->ranks.front().is_of_many_hosts;
    return absl::StrCat(
        AllRanks(), " have called and launched the same work, and none of it has completed", op,
        ": the cause is ", stall_.are_all_seen() ? "" : "a rank that is not seen here, ",
        are_begun ? "a GPU or the network."
                  : "a GPU, the network, or earlier work of GPUs that are not known to have begun "
                    "it.",
        is_of_one_node && stall_.view->nnodes != 1 ? " Compare with the other nodes." : "",
        not_begun);
  }

  std::string CannotTell() const {
    if (!stall_.also_blocked.empty() && !stall_.owed.empty()) {
      return absl::StrCat(NotCalledBy(stall_.also_blocked), Waiters());
    }
    return absl::StrCat(absl::StripLeadingAsciiWhitespace(Waiters()),
                        " The reason is not known: ", WhyUnknown(), ".");
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
    if (std::string behind = Behind("{who} {has|have}", {}); !behind.empty()) return behind;
    if (facts().is_mismatched) return "their processes still make calls";
    if (stall_.view->has_point_to_point && !facts().owing.empty()) {
      return Fill(
          "this communicator also uses Send and Recv. {Who} {has|have} nothing in flight and "
          "{has|have} not called {calls}, which {ahead} has",
          facts().owing, {{"calls", CallWords(facts().owed)}, {"ahead", Name(Ahead())}});
    }
    return "whether ranks that others wait for wait themselves cannot be seen";
  }

  std::string WhyReplaysUnknown() const {
    if (facts().work.idle.size() > facts().work.busy.size()) {
      return Fill(
          "only the {GPU|GPUs} of {ranks} {is|are} busy, in a CUDA graph or in a kernel that is "
          "not NCCL's",
          facts().work.busy);
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

  const Stall& stall_;
};

std::string Sentences::Verdict() const {
  const Situation situation = stall_.hang.situation;
  if (situation == Situation::kFromOutside) return LaunchedLess();
  const bool is_owed = stall_.hang.verdict == HangVerdict::kRankNotCalled && !stall_.owed.empty();
  if (is_owed && situation != Situation::kFinalized) return NotCalled();
  const char* text = WordsOf(stall_.hang.verdict, situation, &VerdictWords::sentence);
  if (text != nullptr) return Suspects(text);
  switch (stall_.hang.verdict) {
    case HangVerdict::kMismatched:
      return MismatchWords(*stall_.waits->mismatch);
    case HangVerdict::kCircularWait:
      return Circle();
    case HangVerdict::kProcessStopped:
      return Stopped();
    case HangVerdict::kDriverError:
      return Failed();
    case HangVerdict::kRankNotSeen:
      return situation == Situation::kBeingMade ? BeingMade() : NotSeen();
    case HangVerdict::kPointToPoint:
      return PointToPoint();
    case HangVerdict::kNoProgress:
      return situation == Situation::kQueued     ? Queued()
             : situation == Situation::kInGraphs ? BusyInGraphs()
                                                 : NoProgress();
    case HangVerdict::kUnknown:
      return CannotTell();
    default:
      return NotCalled();
  }
}

}  // namespace

std::string StallWords(const Stall& stall) { return Sentences(stall).Make(); }

std::string MissingPeerCall(const Stall& stall) {
  const std::vector<std::string> calls = MissingPeerCalls(stall, stall.suspects);
  return calls.size() == 1 ? calls.front() : "";
}

std::string QueuedWords(const Stall& queued, bool with_elsewhere) {
  std::optional<uint64_t> unseen;
  for (const RankView* rank : queued.waiting) {
    if (with_elsewhere && !unseen) unseen = UnseenOnGpuOf(*rank, queued.waits->facts.now_ns, true);
  }
  constexpr char kNotBegun[] =
      "{Who} {has|have} launched{op}, and {its GPU has|their GPUs have} not begun it. Earlier work "
      "of {this GPU|these GPUs} has not ended since {since}.";
  constexpr char kBacklog[] =
      "{Who} {has|have} launched{op}, and nothing was seen to end since {since}. {Its GPU "
      "was|Their "
      "GPUs were} far behind before, and may go on unseen.";
  return absl::StrCat(
      Fill(queued.waits->has_backlog ? kBacklog : kNotBegun, queued.waiting,
           {{"op", queued.hang.op.empty() ? "" : absl::StrCat(" ", queued.hang.op)},
            {"since", ClockWords(queued.hang.since_realtime_ns)}}),
      unseen ? absl::StrCat(" It may wait in communicator ", CommunicatorText(*unseen),
                            ", whose work cannot be seen.")
             : "",
      queued.are_all_seen() ? "" : " It is not known whether ranks that are not seen here wait.");
}

}  // namespace nccl_pulse

#include "exporter/hang.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "metrics/size_class.h"

namespace nccl_pulse {
namespace {

// Counts still move: what is read of them now may belong to different moments.
constexpr int64_t kQuietNs = 1000000000;
constexpr std::size_t kMostListed = 8;
constexpr std::size_t kMostOperations = 3;

using State = RankView::State;
using Ranks = std::vector<const RankView*>;
using Calls = std::map<std::pair<std::string, int>, uint64_t>;  // by operation and size class

// ---- words --------------------------------------------------------------------------------------

// "rank 3 (pid 4711, GPU 3)"
std::string Name(const RankView& rank) {
  const std::string& gpu = rank.communicator->gpu;
  return absl::StrCat("rank ", rank.rank(), " (pid ", rank.process->pid,
                      gpu.empty() ? "" : absl::StrCat(", GPU ", gpu), ")");
}

template <typename List, typename Formatter>
std::string Enumerate(const List& list, std::size_t most, const Formatter& formatter) {
  std::string text;
  std::size_t count = 0;
  for (const auto& each : list) {
    if (count == most) return absl::StrCat(text, " and ", list.size() - count, " more");
    if (count > 0) text += count + 1 == list.size() ? " and " : ", ";
    text += formatter(each);
    ++count;
  }
  return text;
}

std::string Names(const Ranks& ranks) {
  return Enumerate(ranks, kMostListed, [](const RankView* rank) { return Name(*rank); });
}

std::string Numbers(const Ranks& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      Enumerate(ranks, kMostListed,
                                [](const RankView* rank) { return absl::StrCat(rank->rank()); }));
}

bool Contains(const Ranks& ranks, const RankView* rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

const char* Verb(const Ranks& ranks, const char* one, const char* several) {
  return ranks.size() == 1 ? one : several;
}

std::string Capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] -= 'a' - 'A';
  return text;
}

std::string SizeWords(int size_class) {
  const std::string_view name = SizeClassName(size_class);
  if (name.substr(0, 3) == "le_") return absl::StrCat("up to ", name.substr(3));
  if (name.substr(0, 3) == "gt_") return absl::StrCat("over ", name.substr(3));
  return std::string(name);
}

// "AllReduce (up to 1MiB)", "2 x AllGather (up to 4KiB)"
std::string CallWords(const Calls& calls) {
  return Enumerate(calls, kMostOperations, [](const auto& each) {
    const auto& [kind, count] = each;
    return absl::StrCat(count == 1 ? "" : absl::StrCat(count, " x "), kind.first,
                        kind.second < 0 ? "" : absl::StrCat(" (", SizeWords(kind.second), ")"));
  });
}

// ---- facts --------------------------------------------------------------------------------------

Calls CollectiveCalls(const RankView& rank) {
  Calls calls;
  for (const CallCountSnapshot& call : rank.communicator->calls) {
    if (IsCollective(call.op) && !call.captured) calls[{call.op, call.size_class}] += call.calls;
  }
  return calls;
}

Calls WithoutSizes(const Calls& calls) {
  Calls sums;
  for (const auto& [kind, count] : calls) sums[{kind.first, -1}] += count;
  return sums;
}

uint64_t Total(const Calls& calls) {
  uint64_t total = 0;
  for (const auto& [kind, count] : calls) total += count;
  return total;
}

// What `more` has and `less` has not.
Calls Excess(const Calls& more, const Calls& less) {
  Calls excess;
  for (const auto& [kind, count] : more) {
    const auto found = less.find(kind);
    const uint64_t there = found == less.end() ? 0 : found->second;
    if (count > there) excess[kind] = count - there;
  }
  return excess;
}

std::string OnlyOperation(const Calls& calls) {
  std::set<std::string> names;
  for (const auto& [kind, count] : calls) names.insert(kind.first);
  return names.size() == 1 ? *names.begin() : "";
}

// The last moment at which something of this rank's progressed, or 0 when nothing is in flight.
int64_t NoProgressSince(const RankView& rank) {
  const int64_t since = rank.InFlightSince();
  return since == 0 ? 0 : std::max(since, rank.communicator->last_completion_realtime_ns);
}

class Finder {
 public:
  Finder(const CommunicatorView& view, int64_t hang_after_ns, int64_t now_ns)
      : view_(view), hang_after_ns_(hang_after_ns), now_ns_(now_ns) {}

  std::optional<Hang> Find() {
    Sort();
    if (stuck_.empty()) return std::nullopt;
    hang_.since_realtime_ns = INT64_MAX;
    for (const RankView* rank : stuck_) {
      hang_.since_realtime_ns = std::min(hang_.since_realtime_ns, NoProgressSince(*rank));
      hang_.waiting.push_back(rank->rank());
    }
    hang_.op = LastCalled();
    Decide();
    return std::move(hang_);
  }

 private:
  void Sort() {
    for (const RankView& rank : view_.ranks) {
      if (rank.state == State::kGone) gone_.push_back(&rank);
      if (rank.state == State::kFinalized) finalized_.push_back(&rank);
      if (rank.state != State::kLive) continue;
      live_.push_back(&rank);
      const int64_t since = NoProgressSince(rank);
      if (since != 0 && ElapsedNs(now_ns_, since) >= hang_after_ns_) stuck_.push_back(&rank);
      const int64_t polled = rank.process->last_poll_realtime_ns;
      if (polled != 0 && ElapsedNs(now_ns_, polled) >= std::min(kStoppedAfterNs, hang_after_ns_)) {
        stopped_.push_back(&rank);
      }
    }
  }

  // What all waiting ranks called last, when that is one operation.
  std::string LastCalled() const {
    std::set<std::string> names;
    for (const RankView* rank : stuck_) names.insert(rank->communicator->last_call_op);
    if (names.size() == 1 && !names.begin()->empty()) return *names.begin();
    std::set<std::string> all;
    for (const RankView* rank : stuck_) {
      for (const auto& call : rank->communicator->calls) all.insert(call.op);
    }
    return all.size() == 1 ? *all.begin() : "";
  }

  void Conclude(HangVerdict verdict, const Ranks& suspects, std::string text) {
    hang_.verdict = verdict;
    for (const RankView* rank : suspects) {
      hang_.suspects.push_back(rank->rank());
      // Whom the others wait for does not wait.
      if (verdict != HangVerdict::kMismatched) {
        hang_.waiting.erase(std::remove(hang_.waiting.begin(), hang_.waiting.end(), rank->rank()),
                            hang_.waiting.end());
      }
    }
    hang_.text = std::move(text);
  }

  // " Ranks 0, 1 and 2 wait in AllReduce.", without those that are waited for.
  std::string Waiters(const Ranks& without = {}) const {
    Ranks waiters;
    for (const RankView* rank : stuck_) {
      if (!Contains(without, rank)) waiters.push_back(rank);
    }
    if (waiters.empty()) return "";
    return absl::StrCat(" ", Capital(Numbers(waiters)), Verb(waiters, " waits", " wait"),
                        hang_.op.empty() ? "" : absl::StrCat(" in ", hang_.op), ".");
  }

  // Which ranks have called less than the one that has called most.
  void CompareCalls() {
    for (const RankView* rank : live_) calls_.push_back(CollectiveCalls(*rank));
    for (std::size_t i = 1; i < calls_.size(); ++i) {
      if (Total(calls_[i]) > Total(calls_[most_])) most_ = i;
    }
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      is_quiet_ &= ElapsedNs(now_ns_, live_[i]->communicator->last_launch_realtime_ns) >= kQuietNs;
      is_mismatched_ |= !Excess(calls_[i], calls_[most_]).empty();
      const Calls missing = Excess(calls_[most_], calls_[i]);
      if (missing.empty()) continue;
      behind_.push_back(live_[i]);
      if (!live_[i]->IsIdle() || Contains(stopped_, live_[i])) continue;
      owing_.push_back(live_[i]);
      for (const auto& [kind, count] : missing) owed_[kind] = std::max(owed_[kind], count);
    }
  }

  bool AreCallsKnown() const {
    return std::none_of(live_.begin(), live_.end(), [](const RankView* rank) {
      return rank->communicator->captured || rank->communicator->overflowed_operations != 0;
    });
  }

  void Decide() {
    if (AreCallsKnown()) CompareCalls();
    if (!gone_.empty()) return DecideGone();
    const bool stopped_called_all =
        std::none_of(stopped_.begin(), stopped_.end(),
                     [this](const RankView* rank) { return Contains(behind_, rank); });
    // Who has called everything is not who the others wait for when another one has not.
    if (!stopped_.empty() && (owing_.empty() || !stopped_called_all)) return DecideStopped();
    if (!finalized_.empty()) {
      return Conclude(HangVerdict::kRankNotCalled, finalized_,
                      absl::StrCat(Capital(Names(finalized_)), Verb(finalized_, " has", " have"),
                                   " ended this communicator.", Waiters()));
    }
    if (!AreCallsKnown()) {
      return DecideUnknown(
          std::any_of(live_.begin(), live_.end(),
                      [](const RankView* rank) { return rank->communicator->captured; })
              ? "the communicator is used in CUDA graphs, whose replays cannot be seen"
              : "calls were counted without their operation, because there were too many kinds");
    }
    DecideByCalls();
  }

  // What else is wrong, behind a verdict on other ranks.
  std::string AlsoOwing() const {
    if (owing_.empty() || is_mismatched_) return "";
    return absl::StrCat(" ", Capital(Names(owing_)), Verb(owing_, " has", " have"), " not called ",
                        CallWords(owed_), " either.");
  }

  void DecideGone() {
    const auto how = [](const RankView* rank) {
      return rank->process->end == ProcessEnd::kExit ? "exited without ending the communicator"
                                                     : "was killed or crashed";
    };
    std::string text = Enumerate(gone_, kMostListed, [&how](const RankView* rank) {
      return absl::StrCat("the process of ", Name(*rank), " ", how(rank));
    });
    Conclude(HangVerdict::kProcessGone, gone_,
             absl::StrCat(Capital(std::move(text)), ".", Waiters(), AlsoOwing()));
  }

  void DecideStopped() {
    Conclude(HangVerdict::kProcessStopped, stopped_,
             absl::StrCat(Capital(Names(stopped_)), Verb(stopped_, " does", " do"),
                          " not run: stopped (a signal, a debugger), or stuck in the GPU driver.",
                          Waiters(stopped_), AlsoOwing()));
  }

  void DecideByCalls() {
    if (is_mismatched_ && is_quiet_) return DecideMismatch(calls_);
    if (is_mismatched_) return DecideUnknown("their processes still make calls");
    if (!owing_.empty()) return DecideOwing(owing_, owed_, *live_[most_]);
    if (std::any_of(behind_.begin(), behind_.end(),
                    [](const RankView* rank) { return !rank->communicator->has_heartbeat; })) {
      return DecideUnknown(absl::StrCat(Names(behind_), Verb(behind_, " has", " have"),
                                        " called fewer operations than ", Name(*live_[most_]),
                                        ", but whether there is work in flight cannot be seen"));
    }
    if (behind_.empty() && is_quiet_ && !view_.has_point_to_point && DecideOrder()) return;
    // All have called what they wait in.
    if (view_.has_point_to_point && IsPointToPointPossible()) return DecidePointToPoint();
    DecideLaunched();
  }

  void DecideUnknown(const std::string& why) {
    Conclude(HangVerdict::kUnknown, {},
             absl::StrCat(absl::StripLeadingAsciiWhitespace(Waiters()),
                          " For whom is not known: ", why, "."));
  }

  // By operation if they differ in that, else by operation and size.
  void DecideMismatch(const std::vector<Calls>& calls) {
    std::vector<Calls> compared;
    for (const Calls& each : calls) compared.push_back(WithoutSizes(each));
    const bool by_size = std::all_of(compared.begin(), compared.end(),
                                     [&](const Calls& each) { return each == compared.front(); });
    if (by_size) compared = calls;
    Calls common = compared.front();
    for (const Calls& each : compared) {
      for (auto& [kind, count] : common) {
        const auto found = each.find(kind);
        count = std::min(count, found == each.end() ? 0 : found->second);
      }
    }
    std::map<std::string, Ranks> by_words;
    std::set<std::string> operations;
    for (std::size_t i = 0; i < compared.size(); ++i) {
      const Calls excess = Excess(compared[i], common);
      by_words[CallWords(excess)].push_back(live_[i]);
      for (const auto& [kind, count] : excess) operations.insert(kind.first);
    }
    const std::string sides = absl::StrJoin(by_words, "; ", [](std::string* out, const auto& side) {
      absl::StrAppend(out, Names(side.second), Verb(side.second, " has", " have"), " called ",
                      side.first.empty() ? "neither" : side.first);
    });
    hang_.op = absl::StrJoin(operations, ",");
    Conclude(HangVerdict::kMismatched, live_,
             absl::StrCat("The ranks have called different ", by_size ? "sizes" : "operations",
                          ", which never complete: ", sides, "."));
  }

  // All have called equally often, but not the same last: then not in one order either.
  bool DecideOrder() {
    std::map<std::string, Ranks> by_words;
    std::set<std::string> operations;
    for (const RankView* rank : live_) {
      const CommunicatorSnapshot& communicator = *rank->communicator;
      if (communicator.last_call_op.empty()) return false;
      operations.insert(communicator.last_call_op);
      by_words[CallWords({{{communicator.last_call_op, communicator.last_call_size_class}, 1}})]
          .push_back(rank);
    }
    if (by_words.size() < 2) return false;
    const std::string sides = absl::StrJoin(by_words, "; ", [](std::string* out, const auto& side) {
      absl::StrAppend(out, Names(side.second), Verb(side.second, " has", " have"), " called ",
                      side.first, " last");
    });
    hang_.op = absl::StrJoin(operations, ",");
    Conclude(HangVerdict::kMismatched, live_,
             absl::StrCat("The ranks have called the same operations, but not in the same order: ",
                          sides, "."));
    return true;
  }

  void DecideOwing(const Ranks& owing, const Calls& owed, const RankView& ahead) {
    hang_.op = OnlyOperation(owed);
    const std::string calls = CallWords(owed);
    // Behind a Send or Recv in flight a rank may wait for another one than the one that owes a
    // collective, unless nobody else is left.
    const bool all_seen = static_cast<int32_t>(live_.size()) == view_.nranks;
    const bool others_wait = std::all_of(live_.begin(), live_.end(), [&](const RankView* rank) {
      return rank->InFlightSince() != 0 || Contains(owing, rank);
    });
    if (view_.has_point_to_point && !(all_seen && others_wait)) {
      return DecideUnknown(absl::StrCat("Send and Recv are used on this communicator, too. ",
                                        Capital(Names(owing)), Verb(owing, " has", " have"),
                                        " nothing in flight and ", Verb(owing, "has", "have"),
                                        " not called ", calls, ", which ", Name(ahead), " has"));
    }
    Conclude(HangVerdict::kRankNotCalled, owing,
             absl::StrCat(Capital(Names(owing)), Verb(owing, " has", " have"), " not called ",
                          calls, ", and ", Verb(owing, "has", "have"), " nothing in flight here.",
                          Waiters(owing), AlsoStopped()));
  }

  std::string AlsoStopped() const {
    return stopped_.empty() ? ""
                            : absl::StrCat(" ", Capital(Names(stopped_)),
                                           Verb(stopped_, " does", " do"), " not run.");
  }

  bool IsPointToPointPossible() const {
    return !std::all_of(stuck_.begin(), stuck_.end(), [](const RankView* rank) {
      return IsCollective(rank->communicator->last_call_op);
    });
  }

  void DecidePointToPoint() {
    // Of two ranks, one's Send is the other's Recv.
    if (view_.nranks == 2 && live_.size() == 2) {
      for (const auto& [waits, other] :
           {std::pair(live_[0], live_[1]), std::pair(live_[1], live_[0])}) {
        if (waits->InFlightSince() == 0 || !other->IsIdle()) continue;
        for (const auto& [called, owed] : {std::pair("Send", "Recv"), std::pair("Recv", "Send")}) {
          if (waits->CallsOf(called) <= other->CallsOf(owed)) continue;
          hang_.op = called;
          return Conclude(HangVerdict::kRankNotCalled, {other},
                          absl::StrCat(Capital(Name(*other)), " has not called ", owed,
                                       ", and has nothing in flight here.", Waiters()));
        }
      }
    }
    Ranks idle;
    for (const RankView* rank : live_) {
      if (rank->IsIdle()) idle.push_back(rank);
    }
    Conclude(HangVerdict::kPointToPoint, {},
             absl::StrCat(
                 absl::StripLeadingAsciiWhitespace(Waiters()),
                 " For whom is not known: Send and Recv do not tell their peer.",
                 idle.empty() ? "" : absl::StrCat(" Nothing in flight here: ", Names(idle), ".")));
  }

  void DecideLaunched() {
    uint64_t launches = 0;
    int64_t oldest_ns = INT64_MAX;
    for (const RankView* rank : live_) launches = std::max(launches, rank->communicator->launches);
    for (const RankView* rank : stuck_) oldest_ns = std::min(oldest_ns, rank->InFlightSince());
    Ranks inside;
    for (const RankView* rank : live_) {
      const CommunicatorSnapshot& communicator = *rank->communicator;
      if (rank->IsIdle() && communicator.launches < launches &&
          communicator.last_launch_realtime_ns < oldest_ns && !view_.has_point_to_point) {
        inside.push_back(rank);
      }
    }
    if (!inside.empty()) {
      return Conclude(HangVerdict::kRankNotLaunched, inside,
                      absl::StrCat(Capital(Names(inside)), Verb(inside, " has", " have"),
                                   " called but not launched: inside NCCL (setting up a "
                                   "connection, a group that was not ended).",
                                   Waiters(inside)));
    }
    const Ranks late = RanksNotBegun();
    if (!late.empty()) return DecideNotBegun(late);
    const bool all_seen = static_cast<int32_t>(live_.size()) >= view_.nranks;
    if (!all_seen && view_.nnodes == 1) return DecideNotSeen();
    Conclude(HangVerdict::kNoProgress, {},
             absl::StrCat(all_seen ? "All ranks have" : "All ranks of this node have",
                          " called and launched the same work, and it does not progress",
                          hang_.op.empty() ? "" : absl::StrCat(" (", hang_.op, ")"), ": ",
                          all_seen ? "a GPU or the network."
                                   : "a rank on another node, a GPU or the network. Compare with "
                                     "the other nodes.",
                          WhoHasNotBegun()));
  }

  // The ranks whose GPU has not come to a launch that another one's has.
  Ranks RanksNotBegun() const {
    Ranks late;
    if (view_.has_point_to_point) return late;  // launches of two ranks do not correspond
    for (std::size_t i = 0; i < live_.size(); ++i) {
      if (live_[i]->oldest_launch() != OldestLaunch::kNotBegun) continue;
      for (std::size_t j = 0; j < live_.size(); ++j) {
        if (live_[j]->oldest_launch() != OldestLaunch::kBegun || !HaveSameLaunches(i, j)) continue;
        if (live_[i]->communicator->launches_completed <=
            live_[j]->communicator->launches_completed) {
          late.push_back(live_[i]);
          break;
        }
      }
    }
    return late;
  }

  // Launch number n of one is that of the other: they have put their calls into as many.
  bool HaveSameLaunches(std::size_t i, std::size_t j) const {
    return Total(calls_[i]) - live_[i]->communicator->launches ==
           Total(calls_[j]) - live_[j]->communicator->launches;
  }

  void DecideNotBegun(const Ranks& late) {
    std::set<std::pair<std::string, int>> what;  // "" when there are several
    for (const RankView* rank : late) {
      const CommunicatorSnapshot& communicator = *rank->communicator;
      const bool is_last = communicator.launches - communicator.launches_completed == 1;
      what.insert({is_last ? communicator.last_call_op : "", communicator.last_call_size_class});
    }
    const bool is_known = what.size() == 1 && !what.begin()->first.empty();
    Conclude(
        HangVerdict::kRankNotBegun, late,
        absl::StrCat(Capital(Names(late)), Verb(late, " has", " have"), " launched ",
                     is_known ? CallWords({{*what.begin(), 1}}) : "what the others wait in",
                     Verb(late, ", but its GPU has not begun it: work before it on the stream has",
                          ", but their GPUs have not begun it: work before it on the streams has"),
                     " not ended.", Waiters(late)));
  }

  // Where that accuses nobody.
  std::string WhoHasNotBegun() const {
    Ranks late;
    for (const RankView* rank : live_) {
      if (rank->oldest_launch() == OldestLaunch::kNotBegun) late.push_back(rank);
    }
    if (late.empty()) return "";
    return absl::StrCat(late.size() == live_.size()
                            ? " No GPU here has begun"
                            : absl::StrCat(Verb(late, " The GPU of ", " The GPUs of "), Names(late),
                                           Verb(late, " has", " have"), " not begun"),
                        " it: work before it on the ", Verb(late, "stream", "streams"),
                        " has not ended.");
  }

  void DecideNotSeen() {
    std::vector<int32_t> missing;
    std::size_t at = 0;
    for (int32_t rank = 0; rank < view_.nranks && missing.size() <= kMostListed; ++rank) {
      while (at < live_.size() && live_[at]->rank() < rank) ++at;
      if (at == live_.size() || live_[at]->rank() != rank) missing.push_back(rank);
    }
    if (missing.size() > kMostListed) missing.pop_back();
    hang_.suspects = missing;
    hang_.verdict = HangVerdict::kRankNotSeen;
    hang_.text = absl::StrCat(
        "All ranks that are seen here have launched the same work, and it does not progress. Not "
        "seen at this endpoint: rank ",
        absl::StrJoin(missing, ", "), ". Its process is gone, or is measured elsewhere.",
        Waiters());
  }

  const CommunicatorView& view_;
  const int64_t hang_after_ns_;
  const int64_t now_ns_;
  Ranks live_, finalized_, gone_, stopped_, stuck_;
  // Of the live ranks, where calls are known.
  std::vector<Calls> calls_;
  std::size_t most_ = 0;  // index of the one that has called most
  bool is_quiet_ = true;
  bool is_mismatched_ = false;
  Ranks behind_;
  Ranks owing_;  // of them those that are known to have nothing in flight
  Calls owed_;   // by those
  Hang hang_;
};

const RankView* FindRank(const CommunicatorView& view, int32_t rank) {
  for (const RankView& each : view.ranks) {
    if (each.rank() == rank) return &each;
  }
  return nullptr;
}

bool Contains(const std::vector<int32_t>& ranks, int32_t rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

bool IsOnSameGpu(const RankView& a, const RankView& b) {
  return a.process == b.process && a.communicator->gpu == b.communicator->gpu;
}

// Where a rank's process waits on the same GPU besides `here`; views.size(): nowhere.
std::size_t WaitsElsewhere(const std::vector<CommunicatorView>& views,
                           const std::vector<std::optional<Hang>>& hangs, std::size_t here,
                           const RankView& suspect) {
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (i == here || !hangs[i]) continue;
    for (const RankView& rank : views[i].ranks) {
      if (IsOnSameGpu(rank, suspect) && Contains(hangs[i]->waiting, rank.rank())) return i;
    }
  }
  return views.size();
}

// The communicator in which a rank's GPU works on, or waits in, what may stand before a launch of
// `here` that it has not begun; views.size(): none. What has not begun either is behind the same.
std::size_t BusyElsewhere(const std::vector<CommunicatorView>& views, std::size_t here,
                          const RankView& suspect) {
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (i == here) continue;
    for (const RankView& rank : views[i].ranks) {
      const int64_t since = rank.InFlightSince();
      if (since == 0 || rank.state != State::kLive || !IsOnSameGpu(rank, suspect)) continue;
      // Of those that have begun the time is exact, as it is of the suspect's.
      if (rank.oldest_launch() == OldestLaunch::kUnknown ||
          (rank.oldest_launch() == OldestLaunch::kBegun && since < suspect.InFlightSince())) {
        return i;
      }
    }
  }
  return views.size();
}

// A communicator in which it may wait without that being seen; views.size(): none.
std::size_t MayWaitUnseen(const std::vector<CommunicatorView>& views, std::size_t here,
                          const RankView& suspect) {
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (i == here) continue;
    for (const RankView& rank : views[i].ranks) {
      const bool is_seen = rank.communicator->has_heartbeat && !rank.communicator->captured;
      if (!is_seen && rank.state == State::kLive && IsOnSameGpu(rank, suspect)) return i;
    }
  }
  return views.size();
}

// Nobody is named after all.
void Acquit(const std::string& why, Hang* hang) {
  hang->verdict = HangVerdict::kUnknown;
  hang->waiting.insert(hang->waiting.end(), hang->suspects.begin(), hang->suspects.end());
  std::sort(hang->waiting.begin(), hang->waiting.end());
  hang->suspects.clear();
  hang->text += why;
}

// Of the ranks that have not called or begun, those that wait in another communicator hold nobody
// up: who holds them up does.
void FollowWaits(const std::vector<CommunicatorView>& views, int64_t hang_after_ns,
                 int64_t now_realtime_ns, std::vector<std::optional<Hang>>* hangs) {
  if (std::none_of(hangs->begin(), hangs->end(), [](const std::optional<Hang>& hang) {
        return hang && (hang->verdict == HangVerdict::kRankNotCalled ||
                        hang->verdict == HangVerdict::kRankNotBegun);
      })) {
    return;
  }
  // Of two communicators that wait for each other one has begun to a bit later.
  std::vector<std::optional<Hang>> before = *hangs;
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!before[i]) before[i] = Finder(views[i], hang_after_ns / 2, now_realtime_ns).Find();
  }
  for (std::size_t i = 0; i < views.size(); ++i) {
    if (!(*hangs)[i]) continue;
    const bool is_begun = before[i]->verdict != HangVerdict::kRankNotBegun;
    if (is_begun && before[i]->verdict != HangVerdict::kRankNotCalled) continue;
    Hang& hang = *(*hangs)[i];
    std::vector<int32_t> free;
    std::size_t elsewhere = views.size();
    std::size_t unseen = views.size();
    for (const int32_t rank : hang.suspects) {
      const RankView* suspect = FindRank(views[i], rank);
      if (suspect == nullptr || suspect->state != State::kLive) {
        free.push_back(rank);
        continue;
      }
      const std::size_t there =
          is_begun ? WaitsElsewhere(views, before, i, *suspect) : BusyElsewhere(views, i, *suspect);
      if (!is_begun && unseen == views.size()) unseen = MayWaitUnseen(views, i, *suspect);
      if (there == views.size()) {
        free.push_back(rank);
      } else {
        elsewhere = there;
      }
    }
    const auto id = [&views](std::size_t at) {
      return absl::StrCat(absl::Hex(views[at].comm_id, absl::kZeroPad16));
    };
    if (!free.empty() && unseen != views.size()) {
      Acquit(absl::StrCat(" Whether it waits in communicator ", id(unseen),
                          " meanwhile cannot be seen."),
             &hang);
      continue;
    }
    if (elsewhere == views.size()) continue;
    const std::string where = id(elsewhere);
    if (free.empty()) {
      hang.verdict = HangVerdict::kBlockedElsewhere;
      hang.text += absl::StrCat(" Its process waits in communicator ", where,
                                " meanwhile: look there first.");
    } else {
      hang.suspects = free;
      hang.text += absl::StrCat(" Some of them wait in communicator ", where, " meanwhile.");
    }
  }
}

}  // namespace

const char* HangVerdictName(HangVerdict verdict) {
  switch (verdict) {
    case HangVerdict::kRankNotCalled:
      return "rank_not_called";
    case HangVerdict::kRankNotLaunched:
      return "rank_not_launched";
    case HangVerdict::kRankNotBegun:
      return "rank_not_begun";
    case HangVerdict::kMismatched:
      return "mismatched_operations";
    case HangVerdict::kBlockedElsewhere:
      return "blocked_elsewhere";
    case HangVerdict::kProcessGone:
      return "process_gone";
    case HangVerdict::kProcessStopped:
      return "process_stopped";
    case HangVerdict::kRankNotSeen:
      return "rank_not_seen";
    case HangVerdict::kPointToPoint:
      return "point_to_point";
    case HangVerdict::kNoProgress:
      return "no_progress";
    case HangVerdict::kUnknown:
      break;
  }
  return "unknown";
}

std::vector<std::optional<Hang>> FindHangs(const std::vector<CommunicatorView>& views,
                                           int64_t hang_after_ns, int64_t now_realtime_ns) {
  std::vector<std::optional<Hang>> hangs;
  hangs.reserve(views.size());
  for (const CommunicatorView& view : views) {
    hangs.push_back(Finder(view, hang_after_ns, now_realtime_ns).Find());
  }
  FollowWaits(views, hang_after_ns, now_realtime_ns, &hangs);
  return hangs;
}

}  // namespace nccl_pulse

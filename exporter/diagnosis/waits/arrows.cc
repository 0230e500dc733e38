#include "exporter/diagnosis/waits/arrows.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/diagnosis/facts/call_facts.h"
#include "exporter/diagnosis/facts/call_order.h"
#include "exporter/diagnosis/facts/exchange.h"

namespace nccl_pulse {
namespace {

// The first connections of a large job take tens of seconds. NCCL gives up a connection that is
// refused within a minute or so (src/misc/socket.cc, 2.28).
constexpr int64_t kLongConnectNs = 300000000000;
// Work in flight on one GPU, and communicators in which others wait for one host, that are followed. Jobs
// have a few; an endpoint can make up any number.
constexpr std::size_t kMostFollowed = 32;

bool Has(const std::vector<uint64_t>& ranks, const RankView& rank) {
  return std::binary_search(ranks.begin(), ranks.end(), static_cast<uint64_t>(rank.rank()));
}

bool IsUnseen(const RankView& rank) {
  return rank.activity.is_unknown() || rank.activity.is_quiet();
}

// Two ranks have come to the same place of their program: in one communicator, or in two with Send
// and Recv in which they have the same place.
bool AreAtOnePlace(const CommunicatorView& a, const RankView& rank_a, const CommunicatorView& b,
                   const RankView& rank_b) {
  const bool are_places_alike =
      a.has_point_to_point
          ? b.has_point_to_point && a.nranks == b.nranks && rank_a.rank() == rank_b.rank()
          : &a == &b;
  const CommunicatorSnapshot& one = *rank_a.communicator;
  const CommunicatorSnapshot& other = *rank_b.communicator;
  return are_places_alike && one.launches_completed == other.launches_completed &&
         one.last_call_op == other.last_call_op;
}

// The process has done something since it came to this communicator.
bool HasGoneOn(const RankView& rank) {
  const CommunicatorSnapshot& made = *rank.communicator;
  if (made.launches != 0 || !made.calls.empty() || made.captured) return true;
  if (AreCallsKnown(*rank.process, made) != CallsKnown::kYes) return true;
  const auto& all = rank.process->communicators;
  return std::any_of(all.begin(), all.end(), [&made](const CommunicatorSnapshot& each) {
    return std::max({each.last_launch_realtime_ns, each.unreported_since_realtime_ns,
                     each.graph_moved_realtime_ns, each.init_realtime_ns}) > made.init_realtime_ns;
  });
}

// Ranks of `other` that are not seen in `here`, if the ranks that are seen are the same in both.
Ranks AbsentIn(const CommunicatorView& other, const CommunicatorView& here) {
  if (other.nranks != here.nranks || other.is_mixed) return {};
  for (const RankView& rank : here.ranks) {
    const RankView* there = other.Find(rank.rank());
    if (there == nullptr || there->process != rank.process) return {};
  }
  Ranks absent;
  for (const RankView& rank : other.ranks) {
    if (here.Find(rank.rank()) == nullptr) absent.push_back(&rank);
  }
  return absent;
}

class Builder {
 public:
  Builder(const std::vector<CommunicatorView>& views, int64_t hang_after_ns, int64_t now_ns)
      : views_(views), hang_after_ns_(hang_after_ns), now_ns_(now_ns) {
    waits_.views.reserve(views.size());
    for (std::size_t i = 0; i < views.size(); ++i) AddActors(i);
    calls_.resize(views.size());
    unseen_.assign(views.size(), kNoActor);
    unknown_.assign(views.size(), kNoActor);
    behind_beside_graphs_.resize(views.size());
  }

  Waits Build() {
    ShareUnsurePlaces();
    for (Place& place : places_) SumUp(&place);
    for (std::size_t i = 0; i < views_.size(); ++i) AddWaits(i);
    AddCalls();
    for (std::size_t place = 0; place < places_.size(); ++place) AddOwnWork(place);
    return std::move(waits_);
  }

 private:
  struct MemberPlace {
    std::size_t view, at;
  };
  // A thread of a process on one GPU.
  struct Place {
    uint32_t host = kNoActor;
    uint32_t event = kNoActor;
    bool is_gpu_sure = true;  // false: its communicators may be on several GPUs
    bool owes_unseen = false;
    std::vector<MemberPlace> members;
    std::vector<std::size_t> owes_in;  // views in whose calls others wait for this host
    // Members in flight, the oldest first, and members with unseen work: kMostFollowed at most of each.
    std::vector<MemberPlace> busy, unseen;
    // The first launch of a member that has completed something a moment ago.
    int64_t first_moving_ns = INT64_MAX;
    int64_t last_live_ns = 0;     // when a live member was made, or launched last
    bool has_ended_wait = false;  // a member ended or was aborted while it waited
  };

  WaitGraph& graph() { return waits_.graph; }
  Actor& actor(uint32_t id) { return waits_.graph.actors[id]; }
  const Member& member(const MemberPlace& at) const { return waits_.views[at.view].members[at.at]; }
  std::size_t PlaceOf(const RankView& rank) const { return place_of_.at(&rank); }
  int64_t Age(int64_t since_ns) const { return since_ns == 0 ? 0 : ElapsedNs(now_ns_, since_ns); }
  bool IsLong(int64_t since_ns) const { return since_ns != 0 && Age(since_ns) >= hang_after_ns_; }
  // Long enough to be followed: two that wait for each other did not begin at the same time.
  bool IsHalf(int64_t since_ns) const {
    return since_ns != 0 && Age(since_ns) >= hang_after_ns_ / 2;
  }

  // Ranks may make that call at different places of their programs: a Recv is posted ahead of its
  // Send, and a Broadcast ahead of its root's. What is inside NCCL holds its host there. A Broadcast
  // that another rank is beyond has begun at its root.
  bool MayBePostedAhead(const MemberPlace& at) const {
    const Member& each = member(at);
    if (IsInsideNccl(*each.rank) && !MayHaveReturned(*each.rank)) return false;
    if (views_[at.view].has_point_to_point) return true;
    if (WaitsForAll(each.rank->communicator->last_call_op)) return false;
    const std::vector<Member>& members = waits_.views[at.view].members;
    return std::none_of(members.begin(), members.end(), [&each](const Member& other) {
      return other.is_live() && other.called > each.called;
    });
  }

  // ---- actors

  std::size_t AddPlace(const RankView& rank) {
    const auto key_of = [](const CommunicatorSnapshot& each) {
      return each.uuid.empty() ? each.gpu : each.uuid;
    };
    const auto& all = rank.process->communicators;
    const auto [known, is_first] = are_gpus_sure_.try_emplace(rank.process, false);
    if (is_first) {
      known->second = std::all_of(all.begin(), all.end(), [&all](const auto& each) {
        return CompareGpus(each, all.front()) != SameGpu::kPerhaps || &each == &all.front();
      });
    }
    const bool is_sure = known->second;
    const auto index = static_cast<std::size_t>(rank.communicator - all.data());
    const std::tuple key(
        rank.process, is_sure ? key_of(*rank.communicator) : absl::StrCat("#", index), rank.thread);
    const auto [found, is_new] = places_by_gpu_.try_emplace(key, places_.size());
    if (is_new) {
      places_of_[rank.process].push_back(places_.size());
      Place& place = places_.emplace_back();
      place.is_gpu_sure = is_sure;
      place.host = graph().Add({ActorKind::kHost,
                                IsExiting(rank) ? Stand::kExiting : Stand::kOutside,
                                IsExiting(rank) ? rank.process->last_poll_realtime_ns : 0,
                                kNoView,
                                &rank,
                                0,
                                false,
                                false,
                                {}});
    }
    place_of_[&rank] = found->second;
    return found->second;
  }

  // Computes once what the rules below ask of all members: they stay linear in the communicators.
  void SumUp(Place* place) {
    for (const MemberPlace& at : place->members) {
      const Member& each = member(at);
      const CommunicatorSnapshot& communicator = *each.rank->communicator;
      if (each.is_in_flight()) place->busy.push_back(at);
      place->has_ended_wait |= each.is_in_flight() && !each.is_live();
      if (!each.is_live()) continue;
      place->last_live_ns = std::max({place->last_live_ns, communicator.last_launch_realtime_ns,
                                      communicator.init_realtime_ns});
      const bool is_unseen = each.doing == Doing::kUnknown || each.doing == Doing::kUnreported ||
                             each.rank->activity.is_quiet();
      if (is_unseen && place->unseen.size() < kMostFollowed) place->unseen.push_back(at);
      const int64_t completed_ns = communicator.last_completion_realtime_ns;
      if (communicator.has_heartbeat && completed_ns != 0 &&
          ElapsedNs(now_ns_, completed_ns) < hang_after_ns_) {
        place->first_moving_ns = std::min(
            place->first_moving_ns,
            each.launched_ns != 0 ? each.launched_ns : communicator.last_launch_realtime_ns);
      }
    }
    std::stable_sort(place->busy.begin(), place->busy.end(), [this](const auto& a, const auto& b) {
      return member(a).launched_ns < member(b).launched_ns;
    });
    if (place->busy.size() > kMostFollowed) {
      for (auto at = place->busy.begin() + kMostFollowed; at != place->busy.end(); ++at) {
        waits_.views[at->view].is_beyond_limit = true;
      }
      place->busy.resize(kMostFollowed);
    }
    std::sort(place->busy.begin(), place->busy.end(), [](const auto& a, const auto& b) {
      return std::tie(a.view, a.at) < std::tie(b.view, b.at);
    });
  }

  // Others wait in a call of that communicator for the rank's host.
  void Owe(const RankView& rank, std::size_t view) {
    std::vector<std::size_t>& owes_in = places_[PlaceOf(rank)].owes_in;
    const bool is_known = std::find(owes_in.begin(), owes_in.end(), view) != owes_in.end();
    if (!is_known && owes_in.size() < kMostFollowed) owes_in.push_back(view);
  }

  // A communicator on an unknown GPU has a host of its own, which may wait for any of the process' work.
  void ShareUnsurePlaces() {
    std::map<const ProcessSnapshot*, std::vector<MemberPlace>> of_process;
    for (const Place& place : places_) {
      if (place.is_gpu_sure) continue;
      auto& all = of_process[actorOf(place).rank->process];
      all.insert(all.end(), place.members.begin(), place.members.end());
    }
    for (Place& place : places_) {
      if (!place.is_gpu_sure) place.members = of_process.at(actorOf(place).rank->process);
    }
  }

  void AddActors(std::size_t i) {
    const CommunicatorView& view = views_[i];
    ViewWaits& waits = waits_.views.emplace_back();
    waits.facts = GatherFacts(view, hang_after_ns_ / 2, now_ns_);
    const bool counts_launches = view.has_point_to_point && AreLaunchesExchanges(view);
    for (const RankView& rank : view.ranks) {
      const std::size_t place = AddPlace(rank);
      places_[place].members.push_back({i, waits.members.size()});
      waits.members.push_back(MemberOf(waits.facts, rank, counts_launches));
      waits.gpus.push_back(AddGpu(i, waits.members.back()));
    }
    counts_launches_.push_back(counts_launches);
  }

  uint32_t AddGpu(std::size_t view, const Member& each) {
    if (!each.is_in_flight()) return kNoActor;
    Actor gpu{ActorKind::kGpu, Stand::kInside, each.since_ns, view, each.rank, 0, false, false, {}};
    const bool is_not_begun = each.doing == Doing::kNotBegun;
    if (is_not_begun) gpu.stand = Stand::kBehindOwn;
    if (each.is_live()) {
      if (!IsHalf(each.since_ns)) gpu.stand = Stand::kMoving;
      // Dumps are written in a hang, and tell no time.
      const bool is_queued = is_not_begun && !each.rank->process->is_of_dump;
      gpu.is_start =
          is_queued ? Age(each.since_ns) >= std::max(kQueuedFactor * hang_after_ns_, kLeastQueuedNs)
                    : IsLong(each.since_ns);
      gpu.is_queued_start = is_queued && gpu.is_start;
    }
    return graph().Add(std::move(gpu));
  }

  uint32_t Host(const RankView& rank) { return places_[PlaceOf(rank)].host; }

  uint32_t Event(const RankView& rank, const LastEvent& event) {
    Place& place = places_[PlaceOf(rank)];
    if (place.event == kNoActor) {
      const Stand stand = event.kind == LastEvent::Kind::kFailed ? Stand::kFailed
                          : event.kind == LastEvent::Kind::kGone ? Stand::kGone
                                                                 : Stand::kStopped;
      place.event =
          graph().Add({ActorKind::kEvent, stand, event.at_ns, kNoView, &rank, 0, false, false, {}});
    }
    return place.event;
  }

  uint32_t Left(std::size_t view, const RankView& rank) {
    const auto [found, is_new] = left_.try_emplace(&rank, 0);
    if (is_new) {
      found->second =
          graph().Add({ActorKind::kLeft, Stand::kLeft, 0, view, &rank, 0, false, false, {}});
    }
    return found->second;
  }

  uint32_t OfView(std::size_t view, ActorKind kind, Stand stand, std::vector<uint32_t>* made) {
    uint32_t& id = (*made)[view];
    if (id == kNoActor) id = graph().Add({kind, stand, 0, view, nullptr, 0, false, false, {}});
    return id;
  }
  uint32_t Unknown(std::size_t view) {
    return OfView(view, ActorKind::kUnknown, Stand::kUnknown, &unknown_);
  }
  uint32_t Unseen(std::size_t view) {
    return OfView(view, ActorKind::kUnseen, Stand::kUnseen, &unseen_);
  }

  uint32_t Call(std::size_t view, uint64_t number) {
    const auto [found, is_new] = calls_[view].try_emplace(number, 0);
    if (is_new) {
      found->second = graph().Add(
          {ActorKind::kCall, Stand::kInside, 0, view, nullptr, number, false, false, {}});
    }
    return found->second;
  }

  // An event early enough to be the cause of a wait that began then.
  static std::optional<LastEvent> CauseOf(const RankView& rank, int64_t wait_began_ns) {
    std::optional<LastEvent> event = LastEventOf(rank);
    if (event && ElapsedNs(event->at_ns, wait_began_ns) >= kCauseSlackNs) event.reset();
    return event;
  }

  // ---- who waits

  void AddWaits(std::size_t i) {
    const CommunicatorView& view = views_[i];
    ViewWaits& waits = waits_.views[i];
    if (view.is_mixed) return AddUnknown(i);
    FindMismatch(&waits);
    if (AddBeingMade(i)) return;
    const CommunicatorFacts& facts = waits.facts;
    if (AddAllStopped(i)) return;
    const bool is_comparable = facts.calls_known == CallsKnown::kYes;
    if (facts.calls_known == CallsKnown::kCaptured) AddGraphs(i);
    // More calls are owed than launches are in flight: a call whose launch NCCL does not report may have
    // begun before those that have not.
    const bool is_begun_hidden =
        is_comparable && IsBehindOwnWork(facts) && IsOwedProven(facts) && !AreOwedLaunched(facts);
    for (std::size_t at = 0; at < waits.members.size(); ++at) {
      const Member& each = waits.members[at];
      if (waits.gpus[at] == kNoActor) continue;
      if (actor(waits.gpus[at]).stand == Stand::kMoving) continue;
      if (each.doing == Doing::kNotBegun && (is_begun_hidden || waits.mismatch)) {
        TakeForBegun(waits.gpus[at], each);
        graph().Point(waits.gpus[at], Call(i, FrontOf(each)), Sure::kMust);
      } else if (each.doing == Doing::kNotBegun && waits.has_known_replays &&
                 !facts.replays.behind.empty()) {
        continue;  // it is behind a replay that others have not begun
      } else if (each.doing == Doing::kNotBegun) {
        AddBehind(i, at);
      } else if (view.nranks == 1) {
        actor(waits.gpus[at]).stand = Stand::kAlone;
      } else if (is_comparable && UsesCall(i, each)) {
        graph().Point(waits.gpus[at], Call(i, NumberOf(waits, each)), Sure::kMust);
      } else if (!is_comparable && actor(waits.gpus[at]).arrows.empty()) {
        AddNotComparable(i, at);
      }
    }
    if (is_comparable && view.has_point_to_point && !counts_launches_[i]) AddPeers(i);
    AddInsideNccl(i);
    if (is_comparable) AddUnreported(i);
  }

  // Nobody of it runs: a whole job that is suspended, say.
  bool AddAllStopped(std::size_t i) {
    const ViewWaits& waits = waits_.views[i];
    const CommunicatorFacts& facts = waits.facts;
    if (facts.live.empty() || facts.stopped.size() != facts.live.size()) return false;
    for (std::size_t at = 0; at < waits.gpus.size(); ++at) {
      const uint32_t gpu = waits.gpus[at];
      if (gpu == kNoActor) continue;
      TakeForBegun(gpu, waits.members[at]);
      if (!actor(gpu).is_start) continue;
      for (const RankView* rank : facts.stopped) {
        const std::optional<LastEvent> event = LastEventOf(*rank);
        if (event) graph().Point(gpu, Event(*rank, *event), Sure::kMust);
      }
    }
    return true;
  }

  // The calls that its ranks wait in can't be compared.
  void AddUnknown(std::size_t i) {
    for (const uint32_t gpu : waits_.views[i].gpus) {
      if (gpu != kNoActor && actor(gpu).stand != Stand::kMoving) {
        graph().Point(gpu, Unknown(i), Sure::kMust);
      }
    }
  }

  void FindMismatch(ViewWaits* waits) const {
    const CommunicatorFacts& facts = waits->facts;
    if (facts.calls_known != CallsKnown::kYes) return;
    waits->mismatch = CompareCallOrder(facts);
    if (waits->mismatch || !facts.is_quiet) return;
    if (facts.is_mismatched) {
      waits->mismatch = CompareSides(facts);
    } else if (facts.behind.empty() && facts.owing.empty() && !facts.view->has_point_to_point) {
      waits->mismatch = CompareOrder(facts);
    }
  }

  // It waits in a collective, and which one is known.
  bool UsesCall(std::size_t i, const Member& each) const {
    return FrontOf(each) != 0 &&
           (!views_[i].has_point_to_point || counts_launches_[i] ||
            (each.in_flight == 1 && IsCollective(each.rank->communicator->last_call_op)) ||
            IsOwedProven(waits_.views[i].facts));
  }
  void TakeForBegun(uint32_t gpu, const Member& each) {
    actor(gpu).stand = Stand::kInside;
    actor(gpu).is_start = each.is_live() && IsLong(each.since_ns);
    actor(gpu).is_queued_start = false;
  }

  // The collective that it waits in. Completions may be known late, but in dumps: what an idle rank has
  // called, and so completed, is not what the others wait in.
  static uint64_t NumberOf(const ViewWaits& waits, const Member& each) {
    const uint64_t number = FrontOf(each);
    if (each.is_front_exact && each.rank->process->is_of_dump) return number;
    const bool waits_for_all = WaitsForAll(each.rank->communicator->last_call_op);
    uint64_t idle = UINT64_MAX;
    for (const Member& other : waits.members) {
      if (!other.is_live() || other.doing != Doing::kIdle) continue;
      // Alone of a Broadcast its root is done while others wait in it.
      if (!waits_for_all && !WaitsForAll(other.rank->communicator->last_call_op)) continue;
      idle = std::min(idle, other.called);
    }
    return idle < each.called ? std::max(number, idle + 1) : number;
  }
  static uint64_t FrontOf(const Member& each) { return each.front != 0 ? each.front : each.called; }

  // Calls were counted without their operation, or captured beside graphs that tell nothing.
  void AddNotComparable(std::size_t i, std::size_t at) {
    ViewWaits& waits = waits_.views[i];
    const Member& each = waits.members[at];
    const uint32_t gpu = waits.gpus[at];
    bool is_any = AddBehindBesideGraphs(i, at);
    for (const Member& other : waits.members) {
      const std::optional<LastEvent> own = LastEventOf(*other.rank);
      if (other.rank == each.rank && !(own && own->kind == LastEvent::Kind::kStopped)) continue;
      if (const auto event = CauseOf(*other.rank, each.since_ns);
          event && other.rank->state != RankView::State::kFinalized) {
        graph().Point(gpu, Event(*other.rank, *event), Sure::kMust);
        is_any = true;
      } else if (IsExiting(*other.rank)) {
        graph().Point(gpu, Host(*other.rank), Sure::kMay);
        is_any = true;
      } else if (other.rank->state == RankView::State::kFinalized && !other.is_in_flight()) {
        graph().Point(gpu, Left(i, *other.rank), Sure::kMay);
        is_any = true;
      }
    }
    if (!is_any) graph().Point(gpu, Unknown(i), Sure::kMust);
  }

  // Calls beside CUDA graphs are counted. Where all ranks have ended the same replays, those that have
  // made fewer of these calls hold up a rank that waits in one.
  bool AddBehindBesideGraphs(std::size_t i, std::size_t at) {
    const ViewWaits& waits = waits_.views[i];
    const Member& each = waits.members[at];
    const ReplayFacts& replays = waits.facts.replays;
    const bool is_any_within =
        std::any_of(waits.members.begin(), waits.members.end(),
                    [](const Member& other) { return other.rank->activity.is_in_replay; });
    if (replays.known != ReplaysKnown::kYes || !replays.behind.empty() || is_any_within ||
        each.in_flight != 1 || !WaitsForAll(each.rank->communicator->last_call_op)) {
      return false;
    }
    if (!behind_beside_graphs_[i]) behind_beside_graphs_[i] = FindBehindBesideGraphs(i);
    const Ranks& behind = *behind_beside_graphs_[i];
    if (Contains(behind, each.rank)) return false;
    for (const RankView* rank : behind) {
      graph().Point(waits.gpus[at], Host(*rank), Sure::kMust);
      Owe(*rank, i);
    }
    return !behind.empty();
  }

  // Empty: no rank is behind, several calls are owed to each other, or too many ranks are behind.
  Ranks FindBehindBesideGraphs(std::size_t i) const {
    Calls most;
    for (const Member& each : waits_.views[i].members) {
      Calls calls = CollectiveCalls(*each.rank->communicator);
      if (Total(calls) > Total(most)) most = std::move(calls);
    }
    Ranks behind;
    for (const Member& each : waits_.views[i].members) {
      const Calls calls = CollectiveCalls(*each.rank->communicator);
      if (!each.is_live() || !Excess(calls, most).empty()) return {};
      if (!Excess(most, calls).empty()) behind.push_back(each.rank);
    }
    return behind.size() <= kMostFollowed ? behind : Ranks();
  }

  // ---- collectives

  // Calls gain arrows while hosts are found to owe them, so this goes on until nothing is added.
  void AddCalls() {
    for (std::size_t i = 0; i < views_.size(); ++i) {
      for (const auto& [number, call] : calls_[i]) AddArrowsOfCall(i, number, call);
    }
  }

  void AddArrowsOfCall(std::size_t i, uint64_t number, uint32_t call) {
    ViewWaits& waits = waits_.views[i];
    const CommunicatorFacts& facts = waits.facts;
    if (waits.mismatch) {
      const uint32_t differ = graph().Add(
          {ActorKind::kMismatch, Stand::kMismatched, 0, i, nullptr, number, false, false, {}});
      return graph().Point(call, differ, Sure::kMust);
    }
    if (facts.is_mismatched)
      return graph().Point(call, Unknown(i), Sure::kMust);  // they still call
    int64_t began_ns = 0;
    bool is_any_begun = false;
    std::set<uint64_t> hidden_of_begun;  // calls without a launch, of ranks that have begun
    uint64_t most_launches = 0;
    int64_t oldest_ns = INT64_MAX;
    for (const Member& each : waits.members) {
      if (each.is_live()) {
        most_launches = std::max(most_launches, each.rank->communicator->launches);
      }
      if (each.doing != Doing::kInside || NumberOf(waits, each) != number) continue;
      if (each.is_live()) {
        began_ns = std::max(began_ns, each.since_ns);
        oldest_ns = std::min(oldest_ns, each.launched_ns);
      }
      is_any_begun |= each.is_begun;
      if (each.is_begun) hidden_of_begun.insert(CallsWithoutLaunch(each));
    }
    if (began_ns == 0) {
      for (const Member& each : waits.members) {
        if (FrontOf(each) == number) began_ns = std::max(began_ns, each.since_ns);
      }
    }
    actor(call).since_ns = began_ns;
    for (std::size_t at = 0; at < waits.members.size(); ++at) {
      const Member& each = waits.members[at];
      const std::optional<LastEvent> cause = CauseOf(*each.rank, began_ns);
      if (each.called < number) {
        PointToOwing(i, at, call, cause);
      } else if (cause && each.rank->state != RankView::State::kFinalized &&
                 IsHeldUpByEvent(*cause, each, most_launches)) {
        graph().Point(call, Event(*each.rank, *cause), Sure::kMust);
      } else if (each.doing == Doing::kNotBegun) {
        const bool are_compared =
            each.is_front_exact || (!facts.view->has_point_to_point &&
                                    hidden_of_begun.count(CallsWithoutLaunch(each)) != 0);
        if (FrontOf(each) <= number && is_any_begun && are_compared) {
          graph().Point(call, waits.gpus[at], Sure::kMust);
        }
      } else if (each.doing == Doing::kInside) {
        if (each.front != 0 && NumberOf(waits, each) < number) {
          graph().Point(call, waits.gpus[at], Sure::kMust);
        }
      } else if (each.doing == Doing::kUnreported && each.is_live() &&
                 !facts.view->has_point_to_point &&
                 each.rank->communicator->launches < most_launches &&
                 each.rank->communicator->last_launch_realtime_ns < oldest_ns) {
        actor(Host(*each.rank)).stand = Stand::kInsideNccl;
        graph().Point(call, Host(*each.rank), Sure::kMust);
      }
    }
    // A rank that nobody sees is an explanation only where the ranks that are seen give none.
    const bool are_all_seen = static_cast<int32_t>(waits.members.size()) >= views_[i].nranks;
    const bool do_all_live = facts.are_all_live() || facts.stopped.size() == facts.live.size();
    if (actor(call).arrows.empty() && do_all_live) AddStopped(i, call, began_ns);
    if (number != 0 && actor(call).arrows.empty()) AddUnknownMembers(i, call, began_ns);
    if (!are_all_seen && views_[i].are_all_expected && actor(call).arrows.empty()) {
      graph().Point(call, Unseen(i), Sure::kMust);
    }
  }

  // The last resort: a GPU works on while its process is stopped, but the threads that serve the network
  // do not.
  void AddStopped(std::size_t i, uint32_t call, int64_t began_ns) {
    for (const Member& each : waits_.views[i].members) {
      const std::optional<LastEvent> cause = CauseOf(*each.rank, began_ns);
      if (cause && cause->kind == LastEvent::Kind::kStopped && each.is_live()) {
        graph().Point(call, Event(*each.rank, *cause), Sure::kMust);
      }
    }
  }

  // All have called. Whether all are inside can't be told if one of them is not seen since.
  void AddUnknownMembers(std::size_t i, uint32_t call, int64_t began_ns) {
    for (const Member& each : waits_.views[i].members) {
      const bool is_unknown = each.doing == Doing::kUnknown ||
                              (each.rank->is_stopped && !CauseOf(*each.rank, began_ns));
      if (each.is_live() && is_unknown) return graph().Point(call, Unknown(i), Sure::kMust);
    }
  }

  // Launch n of one rank is launch n of another if both have put the same number of calls into launches.
  static uint64_t CallsWithoutLaunch(const Member& each) {
    return each.called - each.rank->communicator->launches;
  }

  // A rank that has called, and then failed, ended or stopped where the others wait for it.
  static bool IsHeldUpByEvent(const LastEvent& cause, const Member& each, uint64_t most_launches) {
    switch (cause.kind) {
      case LastEvent::Kind::kFailed:
        return true;
      case LastEvent::Kind::kGone:
        return each.is_in_flight();
      case LastEvent::Kind::kStopped:
        return each.doing == Doing::kNotBegun || each.rank->communicator->launches < most_launches;
    }
    return false;
  }

  void PointToOwing(std::size_t i, std::size_t at, uint32_t call,
                    const std::optional<LastEvent>& cause) {
    ViewWaits& waits = waits_.views[i];
    const Member& each = waits.members[at];
    const RankView& rank = *each.rank;
    if (rank.state == RankView::State::kFinalized && !WaitedAnywhere(rank)) {
      return graph().Point(call, Left(i, rank), Sure::kMust);
    }
    if (cause && rank.state != RankView::State::kFinalized)
      return graph().Point(call, Event(rank, *cause), Sure::kMust);
    const bool is_unseen = each.doing == Doing::kUnknown || each.doing == Doing::kUnreported;
    if (is_unseen && !IsExiting(rank) && !IsNamedByCounts(waits.facts, rank)) {
      return graph().Point(call, Unknown(i), Sure::kMust);
    }
    if (waits.gpus[at] != kNoActor && actor(waits.gpus[at]).stand == Stand::kMoving) {
      return graph().Point(call, waits.gpus[at], Sure::kMust);
    }
    // It is inside a call that others have gone beyond: a Broadcast's root can. Of other calls dumps
    // alone know exactly what has completed.
    const bool is_inside_earlier =
        each.doing == Doing::kInside &&
        (rank.process->is_of_dump ? each.is_front_exact
                                  : !views_[i].has_point_to_point && each.is_live() &&
                                        !WaitsForAll(rank.communicator->last_call_op));
    if (is_inside_earlier) {
      return graph().Point(call, waits.gpus[at], Sure::kMust);
    }
    graph().Point(call, Host(rank), Sure::kMust);
    Owe(rank, i);
  }

  // It waited on another communicator when this one was aborted.
  bool WaitedAnywhere(const RankView& rank) const { return places_[PlaceOf(rank)].has_ended_wait; }

  static bool IsNamedByCounts(const CommunicatorFacts& facts, const RankView& rank) {
    return Contains(NamedByCounts(facts), &rank);
  }

  // ---- GPUs that have not begun

  void AddBehind(std::size_t i, std::size_t at) {
    ViewWaits& waits = waits_.views[i];
    const Member& each = waits.members[at];
    const uint32_t gpu = waits.gpus[at];
    const Place& place = places_[PlaceOf(*each.rank)];
    bool is_behind = false;
    // Its GPU has completed, a moment ago, some of what was launched before.
    if (place.first_moving_ns <= each.launched_ns) {
      actor(gpu).stand = Stand::kMoving;
      actor(gpu).is_start = false;
      return;
    }
    for (const MemberPlace& other_at : place.busy) {
      const Member& other = member(other_at);
      if (other.rank == each.rank || !IsBusyBefore(other, each)) continue;
      if (HaveOthersGoneOn(i, other_at, false) || HasGoneOnSinceAbort(place, other)) continue;
      graph().Point(gpu, waits_.views[other_at.view].gpus[other_at.at],
                    !place.is_gpu_sure           ? Sure::kUnsure
                    : MayBePostedAhead(other_at) ? Sure::kPosted
                                                 : Sure::kMay);
      is_behind = true;
    }
    if (is_behind) return;
    for (const MemberPlace& other_at : place.unseen) {
      if (member(other_at).rank == each.rank) continue;
      graph().Point(gpu, Unknown(other_at.view), Sure::kMay);
      is_behind = true;
    }
    if (is_behind) return;
    for (const MemberPlace& queued : place.busy) {
      if (member(queued).doing == Doing::kNotBegun) AddAwaitedByKernel(gpu, queued);
    }
  }

  // The GPU works on, or waits in, a launch that may be in front of the one of `later`; or that one
  // was launched earlier and has not begun either.
  static bool IsBusyBefore(const Member& each, const Member& later) {
    if (!each.is_in_flight()) return false;
    const bool is_begun_unknown = each.doing == Doing::kInside && !each.is_begun;
    return is_begun_unknown || each.launched_ns < later.launched_ns;
  }

  // A kernel in front of `gpu` may wait for whoever has not called what is queued behind it, where all
  // that have launched that call are behind their own kernels, and few have not called.
  void AddAwaitedByKernel(uint32_t gpu, const MemberPlace& queued) {
    const ViewWaits& waits = waits_.views[queued.view];
    const CommunicatorFacts& facts = waits.facts;
    if (facts.calls_known != CallsKnown::kYes || !IsBehindOwnWork(facts)) return;
    if (views_[queued.view].has_point_to_point && !counts_launches_[queued.view] &&
        !IsOwedProven(facts)) {
      return;
    }
    const uint64_t number = FrontOf(member(queued));
    Ranks owing;
    std::size_t waiting = 0;
    for (const Member& each : waits.members) {
      if (each.doing == Doing::kNotBegun) ++waiting;
      if (each.doing == Doing::kIdle && each.is_live() && each.called < number) {
        owing.push_back(each.rank);
      }
    }
    if (owing.size() >= waiting) return;
    const uint32_t there = waits.gpus[queued.at];
    for (const RankView* rank : owing) {
      if (rank->process == member(queued).rank->process) continue;
      graph().Point(gpu, there, Sure::kMay);
      graph().Point(there, Host(*rank), Sure::kMay);
    }
  }

  // ---- Send and Recv

  struct PeerWait {
    std::size_t at, peer;  // members
    bool sends, is_mutual;
  };

  void AddPeers(std::size_t i) {
    ViewWaits& waits = waits_.views[i];
    const CommunicatorView& view = views_[i];
    std::vector<PeerWait> all;
    std::vector<std::size_t> missing;
    bool are_known = true;
    bool are_all_here = true;
    const bool are_all_behind = IsBehindOwnWork(waits.facts);
    const auto add = [&](std::size_t at, uint64_t number, bool sends) {
      const RankView* peer = view.Find(static_cast<int64_t>(number));
      if (peer == nullptr) {
        are_all_here = false;
        const bool is_rank = number < static_cast<uint64_t>(view.nranks);
        if (is_rank && DoAllSeenWait(i)) graph().Point(waits.gpus[at], Unseen(i), Sure::kMay);
        return;
      }
      const auto peer_at = static_cast<std::size_t>(peer - view.ranks.data());
      const PeersSnapshot& others = peer->communicator->peers;
      const bool has_come = waits.members[peer_at].is_in_flight();
      const bool is_mutual =
          has_come && others.are_known &&
          Has(sends ? others.receives_from : others.sends_to, *waits.members[at].rank);
      if (!has_come) missing.push_back(peer_at);
      all.push_back({at, peer_at, sends, is_mutual});
    };
    for (std::size_t at = 0; at < waits.members.size(); ++at) {
      const Member& each = waits.members[at];
      if (waits.gpus[at] == kNoActor || !each.is_live()) continue;
      if (actor(waits.gpus[at]).stand == Stand::kMoving) continue;
      if (each.doing == Doing::kInside && UsesCall(i, each)) continue;
      // One that has not begun waits for its own GPU first, unless that is so on all ranks.
      if (each.doing == Doing::kNotBegun && !are_all_behind) continue;
      const PeersSnapshot& peers = each.rank->communicator->peers;
      are_known &= peers.are_known;
      for (const uint64_t peer : peers.sends_to) add(at, peer, true);
      for (const uint64_t peer : peers.receives_from) add(at, peer, false);
      if (!peers.are_known) AddUnknownPeers(i, at);
    }
    std::sort(missing.begin(), missing.end());
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    const bool is_one_missing = are_known && are_all_here && missing.size() == 1;
    const bool are_all_come = are_known && are_all_here && missing.empty();
    std::vector<int> certain(waits.members.size());
    for (const PeerWait& wait : all) certain[wait.at] += IsCertain(i, wait, are_all_come) ? 1 : 0;
    for (const PeerWait& wait : all) {
      const bool is_certain = certain[wait.at] == 1 && IsCertain(i, wait, are_all_come);
      if (certain[wait.at] == 1 && !is_certain) continue;  // it is in the other call
      AddPeer(i, wait, is_one_missing, is_certain);
    }
  }

  void AddPeer(std::size_t i, const PeerWait& wait, bool is_one_missing, bool is_certain) {
    ViewWaits& waits = waits_.views[i];
    const uint32_t gpu = waits.gpus[wait.at];
    const Member& each = waits.members[wait.at];
    const Member& peer = waits.members[wait.peer];
    const std::optional<LastEvent> cause = CauseOf(*peer.rank, each.since_ns);
    if (cause && peer.rank->state != RankView::State::kFinalized) {
      return graph().Point(gpu, Event(*peer.rank, *cause), Sure::kMust);
    }
    if (peer.is_in_flight()) {
      if (!wait.is_mutual || is_certain) {
        graph().Point(gpu, waits.gpus[wait.peer], is_certain ? Sure::kMust : Sure::kPerhaps);
      } else if (peer.doing == Doing::kNotBegun && each.is_begun) {
        graph().Point(gpu, waits.gpus[wait.peer], Sure::kMay);
      }
      return;
    }
    if (peer.rank->state == RankView::State::kFinalized && !WaitedAnywhere(*peer.rank)) {
      return graph().Point(gpu, Left(i, *peer.rank), Sure::kMay);
    }
    const bool is_seen = peer.doing == Doing::kIdle || IsExiting(*peer.rank) || !peer.is_live();
    if (!is_seen) return graph().Point(gpu, Unknown(i), Sure::kPerhaps);
    const bool is_awaited = (is_one_missing || WaitsForOne(each)) && !MayHaveSent(wait, each, peer);
    graph().Point(gpu, Host(*peer.rank),
                  is_awaited              ? Sure::kMust
                  : IsExiting(*peer.rank) ? Sure::kMay
                                          : Sure::kPerhaps);
    if (is_awaited) Owe(*peer.rank, i);
  }

  // The only call that it has in flight is one with one peer.
  static bool WaitsForOne(const Member& each) {
    const PeersSnapshot& peers = each.rank->communicator->peers;
    return peers.are_known && each.in_flight == 1 &&
           peers.sends_to.size() + peers.receives_from.size() == 1;
  }

  // A small Send ends before its Recv, which then waits for its own GPU or for the network.
  static bool MayHaveSent(const PeerWait& wait, const Member& each, const Member& peer) {
    return !wait.sends && (each.doing == Doing::kNotBegun ||
                           peer.rank->communicator->last_launch_realtime_ns > each.launched_ns);
  }

  bool IsCertain(std::size_t i, const PeerWait& wait, bool are_all_come) const {
    const Member& each = waits_.views[i].members[wait.at];
    const int32_t receiver = each.rank->communicator->peers.is_sending_to;
    if (receiver >= 0) {
      return wait.sends && waits_.views[i].members[wait.peer].rank->rank() == receiver;
    }
    return are_all_come && !wait.is_mutual && each.in_flight == 1 && each.doing != Doing::kNotBegun;
  }

  // All ranks that are seen wait, and others should be here.
  bool DoAllSeenWait(std::size_t i) const {
    const ViewWaits& waits = waits_.views[i];
    return views_[i].are_all_expected && !waits.facts.are_all_seen() &&
           std::all_of(waits.members.begin(), waits.members.end(), [this](const Member& each) {
             return (each.is_in_flight() || IsInsideNccl(*each.rank)) && IsHalf(each.since_ns);
           });
  }

  void AddUnknownPeers(std::size_t i, std::size_t at) {
    const ViewWaits& waits = waits_.views[i];
    const uint32_t gpu = waits.gpus[at];
    const CommunicatorFacts& facts = waits.facts;
    if (!facts.owing.empty() && !IsOwedProven(facts)) {
      return graph().Point(gpu, Unknown(i), Sure::kMust);
    }
    AddPeerByCounts(i, at);
    const bool do_all_wait =
        std::all_of(waits.members.begin(), waits.members.end(),
                    [](const Member& each) { return !each.is_live() || each.is_in_flight(); });
    for (std::size_t other = 0; other < waits.members.size(); ++other) {
      const Member& each = waits.members[other];
      const auto cause = CauseOf(*each.rank, waits.members[at].since_ns);
      if (other == at) continue;
      if (cause && each.rank->state != RankView::State::kFinalized) {
        graph().Point(gpu, Event(*each.rank, *cause), Sure::kMay);
      } else if (IsExiting(*each.rank)) {
        graph().Point(gpu, Host(*each.rank), Sure::kMay);
      } else if (do_all_wait && each.doing == Doing::kNotBegun && waits.members[at].is_begun) {
        graph().Point(gpu, waits.gpus[other], Sure::kMay);
      }
    }
    if (DoAllSeenWait(i) && actor(gpu).arrows.empty()) graph().Point(gpu, Unseen(i), Sure::kMay);
  }

  // Of two ranks, each Send of one is the other's Recv.
  void AddPeerByCounts(std::size_t i, std::size_t at) {
    const ViewWaits& waits = waits_.views[i];
    if (views_[i].nranks != 2 || waits.members.size() != 2) return;
    const RankView& each = *waits.members[at].rank;
    const RankView& other = *waits.members[1 - at].rank;
    if (waits.members[1 - at].doing != Doing::kIdle) return;
    const bool owes = each.CallsOf("Send") > other.CallsOf("Recv") ||
                      each.CallsOf("Recv") > other.CallsOf("Send");
    if (!owes) return;
    const uint32_t from = waits.gpus[at] != kNoActor ? waits.gpus[at] : Host(each);
    graph().Point(from, Host(other), Sure::kMust);
    Owe(other, i);
  }

  // ---- hosts inside NCCL

  // A Send or Recv that was called and not launched.
  void AddInsideNccl(std::size_t i) {
    ViewWaits& waits = waits_.views[i];
    for (std::size_t at = 0; at < waits.members.size(); ++at) {
      const Member& each = waits.members[at];
      if (!each.is_live() || !IsInsideNccl(*each.rank) || !IsHalf(each.since_ns)) continue;
      Actor& host = actor(Host(*each.rank));
      host.stand = Stand::kInsideNccl;
      host.since_ns = each.since_ns;
      host.view = i;
      host.is_start |= IsLong(each.since_ns);
      if (!MayHaveReturned(*each.rank)) AddPeerByCounts(i, at);
      const uint32_t id = Host(*each.rank);
      if (DoAllSeenWait(i) && actor(id).arrows.empty()) graph().Point(id, Unseen(i), Sure::kMay);
    }
  }

  // NCCL reports no launch of these collectives: only calls are compared, once nobody calls.
  void AddUnreported(std::size_t i) {
    ViewWaits& waits = waits_.views[i];
    const CommunicatorFacts& facts = waits.facts;
    if (facts.unreported.empty()) return;
    Ranks waiting;
    for (const RankView* rank : facts.live) {
      if (!facts.HasCalledAll(*rank)) continue;
      if (!Contains(facts.unreported, rank)) return;  // it goes on, or is idle
      waiting.push_back(rank);
    }
    for (const RankView* rank : facts.behind) {
      if (rank->activity.is_in_flight()) return;  // it is on its way
      if (rank->activity.reason == UnknownReason::kLaunchNotReported &&
          !Contains(facts.unreported, rank)) {
        return;  // it made a call a moment ago
      }
    }
    const bool do_all_wait = facts.unreported.size() == facts.live.size();
    if (facts.is_mismatched && !do_all_wait) return;
    Ranks behind = facts.owing;
    if (behind.empty()) behind = facts.behind;
    if (!behind.empty() && MayAllHaveLeft(facts, behind)) {
      waits.behind_one = std::move(behind);
      return;
    }
    const bool is_any_behind = !behind.empty() || !facts.ended_owing.empty();
    if (!is_any_behind && !DoAllConnect(facts)) return;  // they may just have nothing to do
    if (facts.is_mismatched) waits.mismatch = CompareSides(facts);
    for (const RankView* rank : waiting) {
      const int64_t since_ns = UnreportedSince(*facts.view, *rank);
      // It may have left a Broadcast.
      const bool is_inside = WaitsForAll(rank->communicator->last_call_op);
      Actor& host = actor(Host(*rank));
      if (is_inside) host.stand = Stand::kInsideNccl;
      host.since_ns = since_ns;
      host.view = i;
      host.is_start |= IsLong(since_ns);
      const Member& each = waits.members[rank - views_[i].ranks.data()];
      graph().Point(Host(*rank), Call(i, each.called), is_inside ? Sure::kMust : Sure::kUnsure);
    }
  }

  bool DoAllConnect(const CommunicatorFacts& facts) const {
    return facts.are_all_live() &&
           std::all_of(facts.live.begin(), facts.live.end(), [&](const RankView* rank) {
             return rank->communicator->are_unreported_in_group &&
                    Age(UnreportedSince(*facts.view, *rank)) >= kLongConnectNs;
           });
  }

  // NCCL tells the profiler of a communicator on each rank alone, after all have exchanged their
  // addresses. Whoever has come that far waits, in connecting, for those that have not.
  bool AddBeingMade(std::size_t i) {
    const CommunicatorView& view = views_[i];
    ViewWaits& waits = waits_.views[i];
    const CommunicatorFacts& facts = waits.facts;
    if (facts.live.empty() || facts.live.size() != view.ranks.size()) return false;
    if (facts.are_all_seen() || !view.are_all_expected) return false;
    int64_t since_ns = 0;
    for (const RankView* rank : facts.live) {
      if (HasGoneOn(*rank)) return false;
      since_ns = std::max(since_ns, rank->communicator->init_realtime_ns);
    }
    if (!IsHalf(since_ns)) return false;
    waits.absent = FindAbsent(i);
    // The other ranks' endpoint may just not be among those that were asked.
    if (waits.absent.empty() && view.nnodes != 1) return false;
    waits.is_being_made = true;
    for (const RankView* rank : facts.live) {
      Actor& host = actor(Host(*rank));
      host.stand = Stand::kInsideNccl;
      host.since_ns = since_ns;
      host.view = i;
      host.is_start |= IsLong(since_ns);
      const uint32_t id = Host(*rank);
      if (waits.absent.empty()) graph().Point(id, Unseen(i), Sure::kMust);
      for (const RankView* absent : waits.absent) {
        if (actor(Host(*absent)).stand == Stand::kOutside) {
          actor(Host(*absent)).stand = Stand::kNotJoined;
        }
        graph().Point(id, Host(*absent), Sure::kMust);
      }
    }
    return true;
  }

  // The processes of the missing ranks, by a communicator whose other ranks are the same.
  Ranks FindAbsent(std::size_t i) const {
    constexpr std::size_t kLeastAlike =
        2;  // two ranks may be the same two of several communicators
    const CommunicatorView& view = views_[i];
    if (view.ranks.size() < kLeastAlike) return {};
    for (const std::size_t number : places_of_.at(view.ranks.front().process)) {
      const Place& place = places_[number];
      if (place.members.size() > kMostFollowed * kMostFollowed) continue;
      for (const MemberPlace& at : place.members) {
        if (at.view == i) continue;
        Ranks absent = AbsentIn(views_[at.view], view);
        if (!absent.empty()) return absent;
      }
    }
    return {};
  }
  const Actor& actorOf(const Place& place) const { return waits_.graph.actors[place.host]; }

  // ---- CUDA graphs

  void AddGraphs(std::size_t i) {
    ViewWaits& waits = waits_.views[i];
    const CommunicatorFacts& facts = waits.facts;
    const ReplayFacts& replays = facts.replays;
    const bool are_told =
        replays.known == ReplaysKnown::kYes && (!replays.behind.empty() || replays.are_all_within);
    waits.has_known_replays = are_told;
    if (are_told) {
      const uint32_t call = Call(i, 0);
      int64_t began_ns = 0;
      for (std::size_t at = 0; at < waits.members.size(); ++at) {
        const Member& each = waits.members[at];
        if (waits.gpus[at] == kNoActor || Contains(replays.behind, each.rank)) continue;
        if (actor(waits.gpus[at]).stand == Stand::kMoving) continue;
        if (each.doing == Doing::kNotBegun && !replays.behind.empty()) {
          TakeForBegun(waits.gpus[at], each);
        }
        began_ns = std::max(began_ns, each.since_ns);
        graph().Point(waits.gpus[at], call, Sure::kMust);
      }
      for (const Member& each : waits.members) {
        const std::optional<LastEvent> cause = CauseOf(*each.rank, began_ns);
        if (cause && each.rank->state != RankView::State::kFinalized) {
          graph().Point(call, Event(*each.rank, *cause), Sure::kMust);
        }
      }
      for (const RankView* rank : replays.behind) {
        actor(Host(*rank)).stand = std::min(actor(Host(*rank)).stand, Stand::kBehindReplay);
        graph().Point(call, Host(*rank), Sure::kMust);
      }
      return;
    }
    waits.facts.work = CompareWork(views_[i], hang_after_ns_, now_ns_);
    const WorkFacts& work = facts.work;
    if (!work.stands()) return;
    const uint32_t call = Call(i, 0);
    for (const RankView* rank : work.busy) {
      const int64_t since_ns = rank->communicator->work.moved_realtime_ns;
      uint32_t& gpu = waits.gpus[rank - views_[i].ranks.data()];
      if (gpu == kNoActor) {
        gpu = graph().Add(
            {ActorKind::kGpu, Stand::kInside, since_ns, i, rank, 0, IsLong(since_ns), false, {}});
      }
      graph().Point(gpu, call, Sure::kMust);
    }
    // If only a few GPUs are busy, these may run kernels of their own.
    if (work.idle.size() > work.busy.size()) return graph().Point(call, Unknown(i), Sure::kMust);
    for (const RankView* rank : work.idle) {
      const uint32_t idle =
          graph().Add({ActorKind::kGpu, Stand::kIdleGpu, 0, i, rank, 0, false, false, {}});
      graph().Point(call, idle, Sure::kMust);
    }
  }

  // ---- hosts and their own work

  void AddOwnWork(std::size_t at) {
    const Place& place = places_[at];
    for (const MemberPlace& each_at : place.busy) {
      const Member& each = member(each_at);
      const uint32_t gpu = waits_.views[each_at.view].gpus[each_at.at];
      if (gpu == kNoActor || !IsFollowed(each) || HasGoneOnSinceAbort(place, each)) continue;
      // In the replay of a graph of several communicators it is behind in each of them.
      const ViewWaits& waits = waits_.views[each_at.view];
      if (waits.has_known_replays && Contains(waits.facts.replays.behind, each.rank)) continue;
      const bool have_gone_on =
          std::any_of(place.owes_in.begin(), place.owes_in.end(),
                      [&](std::size_t here) { return HaveOthersGoneOn(here, each_at, true); });
      if (have_gone_on) continue;
      const Sure sure = !place.is_gpu_sure          ? Sure::kUnsure
                        : MayBePostedAhead(each_at) ? Sure::kPosted
                                                    : Sure::kMay;
      graph().Point(place.host, gpu, sure);
    }
    const Stand stand = actor(place.host).stand;
    const std::vector<Arrow>& arrows = actor(place.host).arrows;
    const bool is_in_call = std::any_of(arrows.begin(), arrows.end(), [this](const Arrow& arrow) {
      return actor(arrow.to).kind == ActorKind::kCall;
    });
    if (!place.owes_in.empty() && !is_in_call && stand != Stand::kInsideNccl) AddUnseenWork(place);
    if (stand == Stand::kBehindReplay) AddUnseenReplays(place);
  }

  // It has worked on another communicator since this one was aborted: it shrank, or restarted.
  static bool HasGoneOnSinceAbort(const Place& place, const Member& aborted) {
    if (aborted.rank->state != RankView::State::kFinalized) return false;
    return place.last_live_ns > aborted.rank->communicator->last_completion_realtime_ns;
  }

  // Its host may wait for it: it is in flight, and not just since a moment ago.
  bool IsFollowed(const Member& each) const {
    return !each.is_live() ||
           (each.launched_ns != 0 ? IsHalf(each.launched_ns) : IsHalf(each.since_ns));
  }

  // A rank that waits `here` has the same work in flight, and has gone on behind it to what the rank
  // of `work` has not called here, or its GPU not begun. So nobody waits for that work first.
  //
  // The answer is the same for all ranks that have come to the same place of their program.
  bool HaveOthersGoneOn(std::size_t here, const MemberPlace& work, bool is_called) {
    const Member& own = member(work);
    const CommunicatorView& view = views_[work.view];
    const auto [known, is_new] = have_gone_on_.try_emplace(
        {here,
         view.has_point_to_point ? views_.size() + static_cast<std::size_t>(view.nranks)
                                 : work.view,
         view.has_point_to_point ? own.rank->rank() : 0, own.rank->communicator->launches_completed,
         own.rank->communicator->last_call_op, is_called},
        false);
    if (is_new) known->second = FindOthersGoneOn(here, work, is_called);
    return known->second;
  }
  bool FindOthersGoneOn(std::size_t here, const MemberPlace& work, bool is_called) const {
    const Member& own = member(work);
    for (const Member& waits : waits_.views[here].members) {
      if (!waits.is_in_flight() || !waits.is_live()) continue;
      const int64_t came = is_called        ? waits.rank->communicator->last_launch_realtime_ns
                           : waits.is_begun ? waits.launched_ns
                                            : 0;
      for (const MemberPlace& other_at : places_[PlaceOf(*waits.rank)].busy) {
        const Member& other = member(other_at);
        if (other.launched_ns != 0 && came > other.launched_ns &&
            AreAtOnePlace(views_[other_at.view], *other.rank, views_[work.view], *own.rank)) {
          return true;
        }
      }
    }
    return false;
  }

  // Its GPU may be behind work that is not seen, on a communicator whose graphs are not followed.
  void AddUnseenReplays(const Place& place) {
    for (const MemberPlace& each_at : place.members) {
      const RankView& rank = *member(each_at).rank;
      const GraphPlace& graphs = rank.communicator->graph_place;
      const bool are_followed = graphs.captures != 0 && graphs.captures == graphs.followed;
      const bool is_unseen = member(each_at).is_live() && IsUnseen(rank) && !are_followed;
      if (is_unseen) graph().Point(place.host, Unknown(each_at.view), Sure::kMay);
    }
  }

  // It may be in a call elsewhere whose launch NCCL does not report, or behind one.
  void AddUnseenWork(const Place& place) {
    for (const MemberPlace& each_at : place.unseen) {
      const Member& each = member(each_at);
      if (each.doing != Doing::kUnreported || !IsLong(each.since_ns)) continue;
      for (const std::size_t here : place.owes_in) {
        if (here == each_at.view) continue;
        const CommunicatorSnapshot* owed = nullptr;
        for (const MemberPlace& own : place.members) {
          if (own.view == here) owed = member(own).rank->communicator;
        }
        if (owed != nullptr &&
            ElapsedNs(owed->last_launch_realtime_ns, each.since_ns) < hang_after_ns_ &&
            std::find(place.owes_in.begin(), place.owes_in.end(), each_at.view) ==
                place.owes_in.end()) {
          graph().Point(place.host, Unknown(each_at.view), Sure::kMay);
        }
      }
    }
  }

  const std::vector<CommunicatorView>& views_;
  const int64_t hang_after_ns_, now_ns_;
  Waits waits_;
  std::vector<Place> places_;
  std::unordered_map<const ProcessSnapshot*, bool> are_gpus_sure_;
  std::unordered_map<const ProcessSnapshot*, std::vector<std::size_t>> places_of_;
  std::map<std::tuple<std::size_t, std::size_t, int32_t, uint64_t, std::string_view, bool>, bool>
      have_gone_on_;
  std::map<std::tuple<const ProcessSnapshot*, std::string, uint32_t>, std::size_t> places_by_gpu_;
  std::unordered_map<const RankView*, std::size_t> place_of_;
  std::unordered_map<const RankView*, uint32_t> left_;
  std::vector<bool> counts_launches_;                       // of each view
  std::vector<std::map<uint64_t, uint32_t>> calls_;         // of each view, by number
  std::vector<uint32_t> unseen_, unknown_;                  // of each view
  std::vector<std::optional<Ranks>> behind_beside_graphs_;  // of each view; null: not looked for
};

}  // namespace

Waits BuildWaits(const std::vector<CommunicatorView>& views, int64_t hang_after_ns,
                 int64_t now_realtime_ns) {
  return Builder(views, hang_after_ns, now_realtime_ns).Build();
}

}  // namespace nccl_pulse

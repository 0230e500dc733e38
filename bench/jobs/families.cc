#include "bench/jobs/families.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace nccl_pulse {
namespace {

constexpr int64_t kMs = 1000000;
constexpr int64_t kSecond = 1000 * kMs;
constexpr int64_t kHangAfterNs = 10 * kSecond;

using Kind = Deed::Kind;
using Leave = JobEnding::Leave;

// --- Building blocks

// Returns roughly the length of the longest step.
int64_t StepNs(const Scenario& s) {
  const int slots = 2 * s.layout.pipeline - 1;
  return s.layout.slowdown * std::max(30, 10 + 8 * slots) * kMs;
}

bool Toss(Generator* random) { return Between(random, 0, 1) == 0; }

int AnyRank(const Scenario& s, Generator* random) {
  return static_cast<int>(Between(random, 0, s.layout.ranks() - 1));
}

int AnotherRank(const Scenario& s, int rank, Generator* random) {
  const int other = static_cast<int>(Between(random, 0, s.layout.ranks() - 2));
  return other + static_cast<int>(other >= rank);
}

// Draws the job, the culprit, the time of the fault, and the time of the poll, with time enough for
// a hang in between.
void Draw(Scenario* s, Generator* random, JobLayout (*make)(Generator*) = MakeLayout,
          int least_nodes = 1) {
  do {
    s->layout = make(random);
  } while (s->layout.nodes() < least_nodes);
  s->groups = GroupsOf(s->layout, s->seed);
  s->options.rank = AnyRank(*s, random);
  s->options.fault_ns = Between(random, 3, 8) * StepNs(*s);
  s->options.asked_ns = s->options.fault_ns + Between(random, 13, 90) * kSecond;
  s->options.asked_within_ns = Between(random, 0, 1500) * kMs;
  s->options.imbalance = static_cast<double>(Between(random, 2, 30)) / 100;
  s->options.is_blocking = Between(random, 0, 4) == 0;
  s->truth = Truth::kCulprits;
  s->culprits = {s->options.rank};
}

Deed& Add(Scenario* s, Kind kind, int rank, int64_t at_ns) {
  Deed& deed = s->options.deeds.emplace_back();
  deed.kind = kind;
  deed.rank = rank;
  deed.at_ns = at_ns;
  return deed;
}

void AddAtStep(Scenario* s, Kind kind, int rank, int step) { Add(s, kind, rank, 0).step = step; }

// Stalls the program or the GPU of the culprit.
void Stand(Scenario* s, Generator* random) {
  Add(s, Toss(random) ? Kind::kHalts : Kind::kSticks, s->options.rank, s->options.fault_ns);
}

void EndNode(Scenario* s, int node, int but, int64_t at_ns, Generator* random) {
  for (int rank = 0; rank < s->layout.ranks(); ++rank) {
    if (s->layout.NodeOf(rank) != node || rank == but) continue;
    Add(s, Kind::kDies, rank, at_ns + Between(random, 0, 200) * kMs).end =
        Toss(random) ? ProcessEnd::kLost : ProcessEnd::kExit;
  }
}

void ForAll(Scenario* s, Kind kind, int but, int64_t at_ns, int step = -1) {
  for (int rank = 0; rank < s->layout.ranks(); ++rank) {
    if (rank != but) Add(s, kind, rank, at_ns).step = step;
  }
}

// Ends the job with an AllReduce, a Broadcast from rank 0 or a Reduce to it.
JobEnding& End(Scenario* s, Generator* random, const char* op, Leave leave) {
  s->layout.has_world = true;
  s->groups = GroupsOf(s->layout, s->seed);
  JobEnding& ending = s->options.ending;
  ending.step = static_cast<int>(Between(random, 3, 8));
  ending.op = op;
  ending.root = op == std::string("AllReduce") ? -1 : 0;
  ending.size_class = ending.root_size_class = static_cast<int>(Between(random, 0, 5));
  ending.leave = leave;
  ending.within_ns = Between(random, 0, 2000) * kMs;
  return ending;
}

Leave AnyWayToLeave(Generator* random) {
  constexpr Leave kWays[] = {Leave::kFinalizes, Leave::kExits, Leave::kUnderscoreExits};
  return kWays[Between(random, 0, 2)];
}

// Schedules several polls after `steps` steps.
void AskSlow(Scenario* s, Generator* random, int64_t steps) {
  s->layout.slowdown = 1 << Between(random, 4, 6);
  s->options.sampling_exponent = static_cast<int>(Between(random, 0, 1));
  s->options.asked_ns = StepNs(*s) * (steps << s->options.sampling_exponent);
  s->options.run_on_ns = 4 * kSecond;
}

Deed& Slow(Scenario* s, int rank, Generator* random) {
  Deed& deed = Add(s, Kind::kSlows, rank, 0);
  deed.step = 0;
  deed.factor = static_cast<double>(Between(random, 14, 25)) / 10;
  return deed;
}

// --- Ends of processes

void LauncherEndsANode(Scenario* s, Generator* random) {
  Draw(s, random, MakeLayout, 2);
  const int rank = s->options.rank;
  const int64_t at_ns = s->options.fault_ns;
  Add(s, Kind::kDies, rank, at_ns);
  EndNode(s, s->layout.NodeOf(rank), rank, at_ns + Between(random, 50, 2000) * kMs, random);
}

// A watchdog ends some waiting ranks, before or after the job's threshold.
void Watchdog(Scenario* s, Generator* random, Kind kind, bool ends_nodes) {
  Draw(s, random, MakeLayout, 2);
  Stand(s, random);
  const bool is_threshold_short = Toss(random);
  const int64_t threshold_ns =
      is_threshold_short ? kHangAfterNs : Between(random, 60, 300) * kSecond;
  const int64_t at_ns =
      s->options.fault_ns +
      (is_threshold_short ? Between(random, 4, 9) * kSecond : Between(random, 15, 55) * kSecond);
  s->hang_after_ns.assign(s->layout.nodes(), threshold_ns);
  s->options.asked_ns = s->options.fault_ns + threshold_ns + Between(random, 3, 60) * kSecond;
  const int64_t victims = Between(random, 1, std::min(4, s->layout.ranks() - 2));
  for (int64_t i = 0; i < victims; ++i) {
    const int victim = AnotherRank(*s, s->options.rank, random);
    Add(s, kind, victim, at_ns + Between(random, 0, 300) * kMs);
    if (!ends_nodes) continue;
    return EndNode(s, s->layout.NodeOf(victim), victim, at_ns + Between(random, 400, 900) * kMs,
                   random);
  }
}
void WatchdogKills(Scenario* s, Generator* random) { Watchdog(s, random, Kind::kDies, false); }
void WatchdogAborts(Scenario* s, Generator* random) { Watchdog(s, random, Kind::kAborts, false); }
// The launcher also ends the culprit if it is on that node.
void WatchdogAndLauncher(Scenario* s, Generator* random) { Watchdog(s, random, Kind::kDies, true); }

// --- Ends of jobs

// A healthy job in whose last call the root of a Reduce, or all ranks but the root of a Broadcast,
// still have work of their own. With any imbalance it takes less than a minute, from which a GPU
// behind its own work is a suspected hang.
void HealthyEnd(Scenario* s, Generator* random) {
  Draw(s, random);
  const bool is_reduce = Toss(random);
  JobEnding& ending = End(s, random, is_reduce ? "Reduce" : "Broadcast", AnyWayToLeave(random));
  const int64_t work_ns = Between(random, 15, 45) * kSecond;
  (is_reduce ? ending.root_work_ns : ending.work_ns) = work_ns;
  s->options.asked_ns = ending.step * StepNs(*s) + work_ns * Between(random, 80, 120) / 100;
  s->truth = Truth::kNobody;
}

void AllIsDone(Scenario* s, Generator* random) {
  Draw(s, random);
  JobEnding& ending = End(s, random, "AllReduce", Leave::kUnderscoreExits);
  ending.within_ns = Between(random, 1, 20) * kSecond;
  s->options.asked_ns = ending.step * StepNs(*s) + Between(random, 0, 30) * kSecond;
  s->truth = Truth::kOk;
}

// In the job's last call, the root of a Reduce waits for one rank. All others have left.
void MissingAtTheEnd(Scenario* s, Generator* random) {
  Draw(s, random);
  JobEnding& ending = End(s, random, "Reduce", AnyWayToLeave(random));
  s->options.rank = AnotherRank(*s, 0, random);
  s->culprits = {s->options.rank};
  AddAtStep(s, Toss(random) ? Kind::kHalts : Kind::kSticks, s->options.rank, ending.step);
  s->options.asked_ns = ending.step * StepNs(*s) + Between(random, 13, 90) * kSecond;
}

void UnequalBroadcast(Scenario* s, Generator* random) {
  Draw(s, random);
  JobEnding& ending = End(s, random, "Broadcast", Leave::kStays);
  if (Toss(random)) {
    ending.root_size_class = ending.size_class = 4;
    ending.bytes = uint64_t{1} << 20;
    ending.root_bytes = 786432;
  } else {
    ending.root_size_class = ending.size_class++;
  }
  s->options.asked_ns = ending.step * StepNs(*s) + Between(random, 13, 90) * kSecond;
  s->culprits = {0};
  s->truth = Truth::kSides;
}

// --- Waits outside NCCL

// The culprit's kernel waits for a rank that halts. The culprit is in the earlier stage: a later
// stage's GPU would wait in Recv for the halted rank before it reaches the kernel.
void SecondHand(Scenario* s, Generator* random) {
  Draw(s, random);
  const int step = static_cast<int>(Between(random, 3, 8));
  int other = AnotherRank(*s, s->options.rank, random);
  const int ranks_of_stage = s->layout.ranks() / s->layout.pipeline;
  if (other / ranks_of_stage < s->options.rank / ranks_of_stage) std::swap(other, s->options.rank);
  s->culprits = {s->options.rank};
  AddAtStep(s, Kind::kSticks, s->options.rank, step);
  AddAtStep(s, Kind::kHalts, other, step);
}

// A kernel on one GPU does not end. The culprit is in the first stage, as in SecondHand.
void ForeignKernelOnOne(Scenario* s, Generator* random) {
  Draw(s, random);
  s->options.rank %= s->layout.ranks() / s->layout.pipeline;
  s->culprits = {s->options.rank};
  const int step = static_cast<int>(Between(random, 3, 8));
  s->options.is_blocking = false;
  AddAtStep(s, Kind::kSticks, s->options.rank, step);
  ForAll(s, Kind::kHalts, s->options.rank, 0, step);
  // No NCCL launch waits for the kernel, so the job may be healthy.
  s->truth = Truth::kNotOk;
}

void AllStall(Scenario* s, Generator* random) {
  Draw(s, random);
  ForAll(s, Kind::kHalts, -1, 0, static_cast<int>(Between(random, 3, 8)));
  s->culprits = {};
  s->truth = Truth::kNotOk;
}

void AllAreStopped(Scenario* s, Generator* random) {
  Draw(s, random);
  ForAll(s, Kind::kStops, -1, s->options.fault_ns);
  s->culprits = {};
  for (int rank = 0; rank < s->layout.ranks(); ++rank) s->culprits.insert(rank);
  s->truth = Truth::kNotOk;
}

void SuspendedBefore(Scenario* s, Generator* random) {
  Draw(s, random);
  s->layout.slowdown = 32;
  const int64_t paused_ns = Between(random, 15, 60) * kSecond;
  const int64_t at_ns = Between(random, 10, 40) * kSecond;
  ForAll(s, Kind::kPauses, -1, at_ns);
  for (Deed& deed : s->options.deeds) deed.for_ns = paused_ns;
  s->options.fault_ns = at_ns + paused_ns + Between(random, 10, 60) * kSecond;
  s->options.asked_ns = s->options.fault_ns + Between(random, 13, 60) * kSecond;
  Stand(s, random);
}

// --- Several faults, and waits that end

// The culprit swaps or dumps core, and is killed while the others wait. Then the launcher ends its
// node.
void StallsAndDies(Scenario* s, Generator* random) {
  Draw(s, random, MakeLayout, 2);
  const int rank = s->options.rank;
  const int64_t died_ns = s->options.fault_ns + Between(random, 15, 40) * kSecond;
  Add(s, Kind::kHalts, rank, s->options.fault_ns);
  Add(s, Kind::kDies, rank, died_ns);
  EndNode(s, s->layout.NodeOf(rank), rank, died_ns + Between(random, 50, 2000) * kMs, random);
  s->options.asked_ns = died_ns + Between(random, 3, 60) * kSecond;
}

// Ranks of any node notice the end of a peer and exit, in any order.
void OthersExitToo(Scenario* s, Generator* random) {
  Draw(s, random, MakeLayout, 2);
  const int rank = s->options.rank;
  Add(s, Kind::kDies, rank, s->options.fault_ns);
  for (int other = 0; other < s->layout.ranks(); ++other) {
    if (other == rank || Between(random, 0, 2) != 0) continue;
    Add(s, Kind::kDies, other, s->options.fault_ns + Between(random, 1500, 8000) * kMs).end =
        ProcessEnd::kExit;
  }
}

void SlowThenAnother(Scenario* s, Generator* random) {
  Draw(s, random);
  Slow(s, AnotherRank(*s, s->options.rank, random), random);
  Stand(s, random);
}

// Ranks that have not called may wait for a GPU outside of NCCL, so either or both are named.
void HostAndGpu(Scenario* s, Generator* random) {
  Draw(s, random);
  const int other = AnotherRank(*s, s->options.rank, random);
  Add(s, Kind::kHalts, s->options.rank, s->options.fault_ns);
  Add(s, Kind::kSticks, other, s->options.fault_ns + Between(random, 0, 3000) * kMs);
  s->culprits.insert(other);
}

void NodeStalls(Scenario* s, Generator* random) {
  Draw(s, random, MakeLayout, 2);
  const int node = s->layout.NodeOf(s->options.rank);
  for (int rank = 0; rank < s->layout.ranks(); ++rank) {
    if (s->layout.NodeOf(rank) != node) continue;
    Add(s, Kind::kHalts, rank, s->options.fault_ns);
    s->culprits.insert(rank);
  }
}

void StallsOnce(Scenario* s, Generator* random) {
  Draw(s, random);
  Deed& stall = Add(s, Kind::kPauses, s->options.rank, s->options.fault_ns);
  stall.for_ns = Between(random, 11, 20) * kSecond;
  s->options.asked_ns = s->options.fault_ns + stall.for_ns + Between(random, 15, 60) * kSecond;
  s->truth = Truth::kNobody;
}

// --- Jobs that continue without some ranks

// The last ranks die. The others shrink the job or are restarted.
void GoOn(Scenario* s, Generator* random, bool is_restart, bool hangs_again) {
  auto before = std::make_shared<Scenario>();
  before->seed = s->seed;
  do {
    Draw(before.get(), random, MakeLayout, 2);
  } while (before->layout.pipeline > 1 || before->layout.experts > 1);
  Draw(s, random);
  s->layout = before->layout;
  s->layout.data -= static_cast<int>(Between(random, 1, s->layout.data - 2));
  s->groups = GroupsOf(s->layout, s->seed + 0x5eed);
  const int64_t died_ns = before->options.fault_ns;
  const int64_t left_ns = died_ns + Between(random, 3, 40) * kSecond;
  for (int rank = 0; rank < before->layout.ranks(); ++rank) {
    const bool stays = rank < s->layout.ranks();
    Add(before.get(), stays && !is_restart ? Kind::kAborts : Kind::kDies, rank,
        stays ? left_ns : died_ns + Between(random, 0, 900) * kMs);
  }
  s->options.start_ns = left_ns + Between(random, 1, 20) * kSecond;
  s->options.attempt = is_restart ? 1 : 0;
  s->options.rank = AnyRank(*s, random);
  s->culprits = {s->options.rank};
  s->options.fault_ns = s->options.start_ns + Between(random, 3, 8) * StepNs(*s);
  s->options.asked_ns = s->options.fault_ns + Between(random, 13, 60) * kSecond;
  before->options.asked_ns = s->options.asked_ns;
  s->before = std::move(before);
  if (hangs_again) {
    Stand(s, random);
  } else {
    s->truth = Truth::kOk;
  }
}
void Shrinks(Scenario* s, Generator* random) { GoOn(s, random, false, false); }
void ShrinksAndHangs(Scenario* s, Generator* random) { GoOn(s, random, false, true); }
void Restarts(Scenario* s, Generator* random) { GoOn(s, random, true, false); }
void RestartsAndHangs(Scenario* s, Generator* random) { GoOn(s, random, true, true); }

// --- What watchers and endpoints know

// The endpoints of the culprit and some others are silent in the first polls, or in the last ones.
void Partial(Scenario* s, Generator* random, bool is_silent_first) {
  Draw(s, random, MakeLayout, 2);
  Stand(s, random);
  std::vector<Answer> some(s->layout.nodes(), Answer::kNow);
  some[s->layout.NodeOf(s->options.rank)] = Toss(random) ? Answer::kNone : Answer::kStale;
  const int64_t more = Between(random, 0, s->layout.nodes() - 2);
  for (int64_t i = 0; i < more; ++i) {
    some[Between(random, 0, s->layout.nodes() - 1)] = Toss(random) ? Answer::kNone : Answer::kStale;
  }
  // One waiting rank's endpoint answers.
  const auto heard = (s->layout.NodeOf(s->options.rank) + 1) % s->layout.nodes();
  some[heard] = Answer::kNow;
  s->answers.assign(s->layout.nodes(), Answer::kNow);
  s->answers_later = some;
  if (is_silent_first) std::swap(s->answers, s->answers_later);
  s->later_from = static_cast<int>(Between(random, 2, 4));
  s->options.run_on_ns = 6 * kSecond;
}
void FallsSilent(Scenario* s, Generator* random) { Partial(s, random, false); }
void AnswersLater(Scenario* s, Generator* random) { Partial(s, random, true); }

// An unmeasured communicator's call does not end, although all ranks have begun it.
void BeyondTheLimit(Scenario* s, Generator* random) {
  Draw(s, random);
  s->layout.has_world = true;
  s->groups = GroupsOf(s->layout, s->seed);
  const auto world = std::find_if(s->groups.begin(), s->groups.end(), [](const JobGroup& group) {
    return group.kind == GroupKind::kWorld;
  });
  s->options.fault = Fault::kNetworkStuck;
  s->options.group = s->options.unmeasured_group = static_cast<int>(world - s->groups.begin());
  s->options.is_blocking = true;
  s->culprits = {};
  s->truth = Truth::kNotOk;
}

// The job has two job IDs, alternating by node. The report is filtered by one of them.
void TwoIds(Scenario* s, Generator* random) {
  Draw(s, random, MakeLayout, 2);
  Stand(s, random);
  s->options.other_job_id = "4712";
  s->asked_job_id = Toss(random) ? "4711" : "4712";
}

void StrangersThreshold(Scenario* s, Generator* random) {
  Draw(s, random, MakeLayout, 2);
  Stand(s, random);
  s->hang_after_ns.assign(s->layout.nodes(), kHangAfterNs);
  s->hang_after_ns[Between(random, 0, s->layout.nodes() - 1)] = 3600 * kSecond;
}

// --- Stragglers

JobLayout PlainLayout(Generator* random) {
  JobLayout layout;
  layout.data = static_cast<int>(Between(random, 3, 24));
  layout.layers = static_cast<int>(Between(random, 1, 4));
  layout.has_world = false;
  return layout;
}
JobLayout Ring(Generator* random) {
  JobLayout layout = PlainLayout(random);
  layout.name = "ring";
  layout.is_ring = true;
  return layout;
}
JobLayout Broadcasts(Generator* random) {
  JobLayout layout = PlainLayout(random);
  layout.name = "Broadcasts alone";
  layout.has_broadcasts_alone = true;
  return layout;
}

void SlowInARing(Scenario* s, Generator* random) {
  Draw(s, random, Ring);
  AskSlow(s, random, Between(random, 20, 60));
  Slow(s, s->options.rank, random);
  s->truth = Truth::kSlowOrNotCompared;
}

void SlowInBroadcasts(Scenario* s, Generator* random) {
  Draw(s, random, Broadcasts);
  AskSlow(s, random, Between(random, 20, 60));
  Slow(s, s->options.rank, random);
  s->truth = Truth::kSlowOrNotCompared;
}

JobLayout OneNode(Generator* random) {
  JobLayout layout;
  layout.name = "data";
  layout.data = 2 << Between(random, 0, 2);
  layout.has_world = false;
  return layout;
}

// One rank has 5 % more work for its GPU in each step of 12 ms, and the work of all varies by up to
// 10 %.
void SlightlyLate(Scenario* s, Generator* random) {
  Draw(s, random, OneNode);
  s->options.asked_ns = Between(random, 20, 60) * kSecond;
  s->options.run_on_ns = 4 * kSecond;
  s->options.imbalance = static_cast<double>(Between(random, 1, 10)) / 100;
  Slow(s, s->options.rank, random).factor = 1.05;
}

void SlowByTurns(Scenario* s, Generator* random) {
  Draw(s, random);
  AskSlow(s, random, Between(random, 60, 120));
  const int other = AnotherRank(*s, s->options.rank, random);
  const auto period = static_cast<int>(Between(random, 1, 10));
  const Deed first = Slow(s, s->options.rank, random);
  s->options.deeds.front().period = period;
  Deed second = first;
  second.rank = other;
  second.period = period;
  second.phase = 1;
  s->options.deeds.push_back(second);
  s->culprits = {s->options.rank, other};
  s->truth = Truth::kSlowOrNotCompared;
}

void TwoSlowNodes(Scenario* s, Generator* random) {
  do {
    s->options = {};
    Draw(s, random, MakeLayout, 4);
  } while (s->layout.pipeline > 1);
  AskSlow(s, random, Between(random, 30, 60));
  const auto first = static_cast<int>(Between(random, 0, s->layout.nodes() - 2));
  const auto second = static_cast<int>(Between(random, first + 1, s->layout.nodes() - 1));
  s->culprits = {};
  for (int rank = 0; rank < s->layout.ranks(); ++rank) {
    const int node = s->layout.NodeOf(rank);
    if (node != first && node != second) continue;
    Slow(s, rank, random).factor = 1.6;
    s->culprits.insert(rank);
  }
  s->truth = Truth::kSlowOrNotCompared;
}

void Recovered(Scenario* s, Generator* random) {
  Draw(s, random);
  const int64_t slow_steps = Between(random, 20, 40);
  AskSlow(s, random, slow_steps * 6);
  Slow(s, s->options.rank, random).until_step = static_cast<int>(slow_steps);
  s->truth = Truth::kOk;
}

}  // namespace

const std::vector<Family>& Families() {
  static const auto* const kFamilies = new std::vector<Family>{
      {"a rank dies, the launcher ends its node", 200, 8, LauncherEndsANode},
      {"a watchdog kills, any threshold", 201, 8, WatchdogKills},
      {"a watchdog aborts, any threshold", 202, 8, WatchdogAborts},
      {"a watchdog kills, the launcher ends that node", 203, 8, WatchdogAndLauncher},
      {"a rank stalls and dies, the launcher ends its node", 204, 8, StallsAndDies},
      {"a rank dies, others notice and exit", 205, 8, OthersExitToo},
      {"healthy end, ranks leave early", 210, 8, HealthyEnd},
      {"healthy end by _exit(0)", 211, 8, AllIsDone},
      {"a rank is missing at the end, others have left", 212, 8, MissingAtTheEnd},
      {"Broadcast of unequal sizes, its root is done", 213, 8, UnequalBroadcast},
      {"GPU stuck, another rank waits for it outside of NCCL", 220, 8, SecondHand},
      {"GPU stuck, all others wait for it outside of NCCL", 221, 8, ForeignKernelOnOne},
      {"all hosts stall outside of NCCL", 222, 8, AllStall},
      {"all processes are stopped", 223, 8, AllAreStopped},
      {"one stands, all were suspended before", 224, 8, SuspendedBefore},
      {"a rank is slow, another one stalls", 225, 8, SlowThenAnother},
      {"a host and another rank's GPU stall", 226, 8, HostAndGpu},
      {"all hosts of a node stall", 227, 8, NodeStalls},
      {"a rank stalls once and continues", 228, 8, StallsOnce},
      {"shrinks and goes on", 230, 8, Shrinks},
      {"shrinks, then one stands", 231, 8, ShrinksAndHangs},
      {"restarts smaller and goes on", 232, 8, Restarts},
      {"restarts smaller, then one stands", 233, 8, RestartsAndHangs},
      {"one stands, endpoints fall silent", 240, 8, FallsSilent},
      {"one stands, endpoints answer later", 241, 8, AnswersLater},
      {"a communicator beyond the limit stands", 242, 8, BeyondTheLimit},
      {"one stands, the job has two ids", 243, 8, TwoIds},
      {"one stands, a stranger's threshold is an hour", 244, 8, StrangersThreshold},
      {"straggler in a ring of Send and Recv", 250, 8, SlowInARing},
      {"straggler among Broadcasts alone", 251, 8, SlowInBroadcasts},
      {"two stragglers by turns", 252, 5, SlowByTurns},
      {"two slow nodes", 253, 8, TwoSlowNodes},
      {"a straggler that has recovered", 254, 8, Recovered},
      {"straggler of 5 %", 255, 8, SlightlyLate},
  };
  return *kFamilies;
}

const Family* FindFamily(const std::string& name) {
  const auto found = std::find_if(Families().begin(), Families().end(),
                                  [&name](const Family& family) { return name == family.name; });
  return found == Families().end() ? nullptr : &*found;
}

Scenario MakeFamily(const Family& family, uint64_t seed) {
  Generator random(seed * 1000 + family.number);
  Scenario scenario;
  scenario.seed = seed;
  scenario.fault = family.name;
  scenario.options.seed = random();
  family.make(&scenario, &random);
  if (scenario.answers.empty()) scenario.answers.assign(scenario.layout.nodes(), Answer::kNow);
  return scenario;
}

}  // namespace nccl_pulse

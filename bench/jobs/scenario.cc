#include "bench/jobs/scenario.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/jobs/describe.h"
#include "bench/jobs/families.h"
#include "bench/jobs/random_layouts.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/facts/last_heard.h"
#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/diagnosis/health.h"
#include "exporter/diagnosis/waits/arrows.h"
#include "exporter/exposition/snapshot_message.h"
#include "exporter/fleet/snapshot_union.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kMs = 1000000;
constexpr int64_t kSecond = 1000 * kMs;
constexpr int64_t kHangAfterNs = 10 * kSecond;
constexpr int64_t kLookEveryNs = kSecond;  // minimum pause of `pulse diagnose`
constexpr int64_t kScrapeEveryNs = 5 * kSecond;
constexpr int64_t kWatchedNs = 30 * kSecond;

constexpr char kMoreWork[] = "a stage is given more work";
constexpr char kOrderAhead[] = "wrong order, hosts run ahead";

// Jobs to which the fault happens.
enum class Jobs {
  kUsual,
  kManyLayers,
  kPostAhead,      // calls are posted ahead, on their own streams
  kCallsFail,      // calls of one rank have failed before, and were retried
  kBroadcasts,     // data-parallel ranks get each batch by a Broadcast
  kLargeMessages,  // pipelines of four stages, whose Sends end when they are received
  kExperts,
  kLists,  // data-parallel ranks exchange lists of tensors
};

struct FaultKind {
  const char* name;
  uint64_t number;  // part of the seed: existing jobs stay the same when faults are added
  Fault fault;
  bool is_hang;
  // The fault begins after healthy minutes, and endpoints are scraped all the time.
  bool is_later = false;
  Jobs jobs = Jobs::kUsual;
  Watchdog watchdog = Watchdog::kNone;
  enum class Endpoint {
    kAnswers,
    kAway,     // the endpoint of the culprit's node does not answer
    kWatched,  // only the endpoint of the culprit's node is polled
  };
  Endpoint endpoint = Endpoint::kAnswers;
  // Fault of another job at the same endpoints; null: no other job.
  const char* other = nullptr;
  bool has_same_ids = false;  // the other job's communicators have the same IDs
  bool stands_long = false;   // see StandLong
};

bool IsOfSizes(Fault fault) { return fault == Fault::kSmallerRecv || fault == Fault::kLargerRecv; }

bool IsCircleOfPeers(Fault fault) {
  return fault == Fault::kPeerCircle || fault == Fault::kReceiveCircle;
}

FaultKind Long(FaultKind kind) {
  kind.stands_long = true;
  return kind;
}

FaultKind Away(FaultKind kind) {
  kind.endpoint = FaultKind::Endpoint::kAway;
  return kind;
}

FaultKind Watched(FaultKind kind) {
  kind.endpoint = FaultKind::Endpoint::kWatched;
  return kind;
}

FaultKind Beside(FaultKind kind, const char* other, bool has_same_ids) {
  kind.other = other;
  kind.has_same_ids = has_same_ids;
  return kind;
}

const std::vector<FaultKind>& Kinds() {
  static const auto* const kKinds = new std::vector<FaultKind>{
      {"host stuck", 0, Fault::kHostStuck, true},
      {"GPU stuck", 1, Fault::kGpuStuck, true},
      {"process gone", 2, Fault::kProcessGone, true},
      {"process gone, not known", 3, Fault::kProcessVanished, true},
      {"node gone", 4, Fault::kNodeGone, true},
      {"wrong order", 5, Fault::kWrongOrder, true},
      {kOrderAhead, 6, Fault::kWrongOrder, true},
      {"wrong size", 7, Fault::kWrongSize, true},
      {"circle of two", 8, Fault::kCircle, true},
      {"wrong root", 80, Fault::kWrongRoot, true, false, Jobs::kBroadcasts},
      {"host stuck, large messages", 81, Fault::kHostStuck, true, false, Jobs::kLargeMessages},
      {"GPU stuck, large messages", 82, Fault::kGpuStuck, true, false, Jobs::kLargeMessages},
      {"circle of Sends", 83, Fault::kPeerCircle, true, false, Jobs::kLargeMessages},
      {"circle of Recvs", 89, Fault::kReceiveCircle, true, false, Jobs::kLargeMessages},
      {"Recv smaller than its Send", 90, Fault::kSmallerRecv, true, false, Jobs::kLargeMessages},
      {"Recv larger than its Send", 91, Fault::kLargerRecv, true, false, Jobs::kLargeMessages},
      {"dead link of a pipeline", 84, Fault::kDeadLink, true, false, Jobs::kLargeMessages},
      {"dead link, ranks without tokens", 85, Fault::kDeadLink, true, false, Jobs::kExperts},
      {"network stuck", 9, Fault::kNetworkStuck, true},
      {"host pauses, calls posted ahead", 36, Fault::kHostStuck, true, false, Jobs::kPostAhead},
      {"GPU stuck, calls posted ahead", 37, Fault::kGpuStuck, true, false, Jobs::kPostAhead},
      {"host stuck, a watchdog kills", 50, Fault::kHostStuck, true, false, Jobs::kUsual,
       Watchdog::kKills},
      {"host stuck, a watchdog aborts", 51, Fault::kHostStuck, true, false, Jobs::kUsual,
       Watchdog::kAborts},
      {"GPU stuck, a watchdog kills", 52, Fault::kGpuStuck, true, false, Jobs::kUsual,
       Watchdog::kKills},
      {"network stuck, a watchdog aborts", 53, Fault::kNetworkStuck, true, false, Jobs::kUsual,
       Watchdog::kAborts},
      {"host stuck, calls had failed", 39, Fault::kHostStuck, true, false, Jobs::kCallsFail},
      {"GPU stuck, calls had failed", 40, Fault::kGpuStuck, true, false, Jobs::kCallsFail},
      {"wrong size, calls had failed", 41, Fault::kWrongSize, true, false, Jobs::kCallsFail},
      {"network stuck, calls had failed", 42, Fault::kNetworkStuck, true, false, Jobs::kCallsFail},
      Away({"host stuck, its endpoint is away", 54, Fault::kHostStuck, true}),
      {"a rank does not come to a communicator", 55, Fault::kNotMade, true},
      Beside({"two jobs hang", 56, Fault::kHostStuck, true}, "host stuck", false),
      Beside({"host stuck, another job in a checkpoint", 57, Fault::kHostStuck, true},
             "checkpoint, as before", false),
      Beside({"two jobs with the same ids hang", 58, Fault::kHostStuck, true}, "host stuck", true),
      Beside({"host stuck, a healthy job has the same ids", 59, Fault::kHostStuck, true}, "healthy",
             true),
      {"host stuck, lists of tensors", 86, Fault::kHostStuck, true, false, Jobs::kLists},
      {"GPU stuck, lists of tensors", 87, Fault::kGpuStuck, true, false, Jobs::kLists},
      Long({"process stopped", 60, Fault::kStopped, true}),
      Long({"a debugger at one that waits", 61, Fault::kLooked, true}),
      Long({"driver call", 62, Fault::kDriverCall, true}),
      Long({"host paused", 63, Fault::kHostPaused, true}),
      Long({"driver error", 64, Fault::kGpuFails, true}),
      Long({"in exit()", 65, Fault::kExits, true}),
      Long({"foreign kernel on all GPUs", 66, Fault::kForeign, true}),
      Long({"foreign kernel waits for a host", 67, Fault::kForeignHost, true}),
      Long({"host stuck, a long wait long before", 68, Fault::kLongBefore, true}),
      {"straggler at the host", 10, Fault::kSlowHost, false},
      {"straggler at the GPU", 11, Fault::kSlowGpu, false},
      {"slow node", 12, Fault::kSlowNode, false},
      {"straggler at the host, later", 20, Fault::kSlowHost, false, true},
      {"straggler at the GPU, later", 21, Fault::kSlowGpu, false, true},
      {"slow node, later", 22, Fault::kSlowNode, false, true},
      Watched({"straggler at the host, its node alone", 60, Fault::kSlowHost, false}),
      Watched({"straggler at the GPU, its node alone", 61, Fault::kSlowGpu, false}),
      {"network slow", 13, Fault::kNetworkSlow, false},
      {"healthy", 14, Fault::kNone, false},
      {"checkpoint, as before", 15, Fault::kPause, false},
      Away({"checkpoint, its endpoint is away", 72, Fault::kPause, false}),
      {"evaluation", 16, Fault::kAllPause, false},
      Long({"queued behind long kernels", 70, Fault::kQueued, true}),
      Long({"a collective that moves", 71, Fault::kMoves, true}),
      {"sequences of unequal length", 17, Fault::kSequences, false},
      {"stages with unequal work", 18, Fault::kStages, false},
      {"input that comes late, now and then", 19, Fault::kInput, false},
      {"network slow, later", 23, Fault::kNetworkSlow, false, true},
      {"healthy, for long", 24, Fault::kNone, false, true},
      {"sequences of unequal length, for long", 25, Fault::kSequences, false, true},
      {"stages with unequal work, for long", 26, Fault::kStages, false, true},
      {"input that comes late, for long", 27, Fault::kInput, false, true},
      {"sequences that become longer", 28, Fault::kLonger, false, true},
      {"training and evaluation by turns", 29, Fault::kEvaluates, false, true},
      {"a node that pauses once", 30, Fault::kNodePauses, false, true},
      {kMoreWork, 31, Fault::kStageGrows, false, true},
      {"straggler at the GPU, many layers", 32, Fault::kSlowGpu, false, false, Jobs::kManyLayers},
      {"slow node, many layers", 33, Fault::kSlowNode, false, false, Jobs::kManyLayers},
      {"healthy, many layers", 34, Fault::kNone, false, false, Jobs::kManyLayers},
      {"sequences of unequal length, many layers", 35, Fault::kSequences, false, false,
       Jobs::kManyLayers},
      {"healthy, calls posted ahead", 38, Fault::kNone, false, false, Jobs::kPostAhead},
      {"healthy, calls had failed", 43, Fault::kNone, false, false, Jobs::kCallsFail},
      {"healthy, lists of tensors", 88, Fault::kNone, false, false, Jobs::kLists},
  };
  return *kKinds;
}

JobLayout MakeLayoutFor(Jobs jobs, Generator* random) {
  switch (jobs) {
    case Jobs::kManyLayers:
      return MakeDeepLayout(random);
    case Jobs::kPostAhead:
      return MakeLayoutThatPostsAhead(random);
    case Jobs::kLargeMessages:
      return MakePipeline(random);
    case Jobs::kExperts:
      return MakeExperts(random);
    default:
      return MakeLayout(random);
  }
}

bool IsOfKind(const JobGroup& group, GroupKind kind) { return group.kind == kind; }

// Returns a group with collectives; for kCircle the data-parallel one.
int PickGroup(const Scenario& scenario, Generator* random) {
  std::vector<int> candidates;
  int data = 0;
  for (std::size_t i = 0; i < scenario.groups.size(); ++i) {
    const JobGroup& group = scenario.groups[i];
    const bool is_data = IsOfKind(group, GroupKind::kData);
    const bool is_tensor = IsOfKind(group, GroupKind::kTensor);
    const bool wants_data_only =
        scenario.options.fault == Fault::kCircle || scenario.options.fault == Fault::kWrongRoot;
    if (is_data) data = static_cast<int>(i);
    // With two ranks that differ, either may be wrong.
    if (group.members.size() < 4 && scenario.options.fault != Fault::kNetworkStuck) continue;
    if (is_data || (is_tensor && !wants_data_only)) candidates.push_back(static_cast<int>(i));
  }
  if (candidates.empty()) return data;
  return candidates[Between(random, 0, static_cast<int64_t>(candidates.size()) - 1)];
}

bool IsHealthy(const Scenario& scenario) {
  switch (scenario.options.fault) {
    case Fault::kNone:
    case Fault::kPause:
    case Fault::kAllPause:
    case Fault::kNetworkSlow:
    case Fault::kSequences:
    case Fault::kStages:
    case Fault::kInput:
    case Fault::kLonger:
    case Fault::kEvaluates:
    case Fault::kNodePauses:
    case Fault::kStageGrows:
    case Fault::kQueued:
    case Fault::kMoves:
      return true;
    default:
      return false;
  }
}

std::set<int> RanksOfNode(const JobLayout& layout, int node) {
  std::set<int> ranks;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    if (layout.NodeOf(rank) == node) ranks.insert(rank);
  }
  return ranks;
}

// Returns a group that crosses the network.
int PickNetworkGroup(const Scenario& scenario, Generator* random) {
  std::vector<int> candidates;
  for (std::size_t i = 0; i < scenario.groups.size(); ++i) {
    const JobGroup& group = scenario.groups[i];
    const bool has_collectives =
        IsOfKind(group, GroupKind::kData) || IsOfKind(group, GroupKind::kWorld);
    if (group.nodes > 1 && has_collectives) candidates.push_back(static_cast<int>(i));
  }
  return candidates[Between(random, 0, static_cast<int64_t>(candidates.size()) - 1)];
}

// Returns the rank's narrowest group: experts, tensor-parallel or data-parallel.
int GroupOf(const Scenario& scenario, int rank) {
  for (const GroupKind kind : {GroupKind::kExperts, GroupKind::kTensor, GroupKind::kData}) {
    for (std::size_t i = 0; i < scenario.groups.size(); ++i) {
      const std::vector<int>& members = scenario.groups[i].members;
      if (IsOfKind(scenario.groups[i], kind) &&
          std::find(members.begin(), members.end(), rank) != members.end()) {
        return static_cast<int>(i);
      }
    }
  }
  return 0;
}

// Picks two neighbors of a pipeline, the first behind the other; or two experts.
void PickPeers(Scenario* scenario, Generator* random) {
  JobRunOptions& options = scenario->options;
  const bool is_pipeline = scenario->layout.pipeline > 1;
  const GroupKind kind = is_pipeline ? GroupKind::kPipeline : GroupKind::kExperts;
  std::vector<int> groups;
  for (std::size_t i = 0; i < scenario->groups.size(); ++i) {
    if (IsOfKind(scenario->groups[i], kind)) groups.push_back(static_cast<int>(i));
  }
  options.group = groups[Between(random, 0, static_cast<int64_t>(groups.size()) - 1)];
  const std::vector<int>& members = scenario->groups[options.group].members;
  const int64_t at = Between(random, 1, static_cast<int64_t>(members.size()) - 1);
  options.rank = members[at];
  options.other = members[is_pipeline ? at - 1 : Between(random, 0, at - 1)];
}

// Draws the begin and the length of a long stall, and the state of its processes.
void StandLong(Scenario* scenario, Generator* random) {
  JobRunOptions& options = scenario->options;
  const Fault fault = options.fault;
  constexpr RunState kStates[] = {RunState::kUnknown, RunState::kStopped, RunState::kTraced};
  constexpr RunState kRuns[] = {RunState::kRunning, RunState::kUninterruptible};
  options.run_state =
      fault == Fault::kDriverCall ? kRuns[Between(random, 0, 1)] : kStates[Between(random, 0, 2)];
  options.change_step = static_cast<int>(Between(random, 3, 8));
  if (fault == Fault::kForeign || fault == Fault::kForeignHost) {
    options.asked_ns = options.fault_ns + Between(random, 13, 400) * kSecond;
  }
  if (fault == Fault::kForeignHost) {
    options.group = GroupOf(*scenario, options.rank);
    // If hosts wait for each message of a pipeline, no NCCL work follows that kernel.
    options.is_blocking &= scenario->layout.pipeline == 1;
  }
  if (fault == Fault::kHostPaused && Between(random, 0, 3) == 0) {
    options.run_state = RunState::kRunning;  // just resumed
  }
  if (fault == Fault::kLooked) {
    options.pause_ns = Between(random, 10, 60) * kSecond;
    options.asked_ns = options.fault_ns + options.pause_ns + Between(random, 6, 60) * kSecond;
  }
  if (fault == Fault::kLongBefore) {
    options.change_step = static_cast<int>(Between(random, 40, 60));
    options.pause_ns = Between(random, 60, 300) * kSecond;
    options.asked_ns = Between(random, 13, 60) * kSecond;
  }
  if (fault == Fault::kQueued || fault == Fault::kMoves) {
    options.pause_ns = Between(random, 15, 55) * kSecond;
    options.asked_ns = options.pause_ns * Between(random, 50, 90) / 100;
  }
  if (fault == Fault::kMoves) options.group = PickNetworkGroup(*scenario, random);
}

// Some endpoints of uninvolved nodes do not answer, or return old data.
void LoseEndpoints(Scenario* scenario, Generator* random) {
  const int culprit = scenario->layout.NodeOf(scenario->options.rank);
  scenario->answers.assign(scenario->layout.nodes(), Answer::kNow);
  if (scenario->options.fault == Fault::kNodeGone) scenario->answers[culprit] = Answer::kNone;
  const bool needs_all =
      scenario->options.fault == Fault::kNodeGone ||
      scenario->options.fault == Fault::kProcessVanished ||
      scenario->options.fault == Fault::kHostPaused ||
      scenario->options.fault == Fault::kNetworkStuck ||
      scenario->options.fault == Fault::kDeadLink || IsCircleOfPeers(scenario->options.fault) ||
      IsOfSizes(scenario->options.fault) || scenario->options.fault == Fault::kSlowNode ||
      scenario->options.fault == Fault::kSlowHost || scenario->options.fault == Fault::kSlowGpu;
  if (needs_all || scenario->layout.nodes() < 3 || Between(random, 0, 3) != 0) return;
  const auto node = static_cast<int>(Between(random, 0, scenario->layout.nodes() - 1));
  if (node == culprit) return;
  scenario->answers[node] = Between(random, 0, 1) == 0 ? Answer::kNone : Answer::kStale;
}

// Begins with healthy minutes, then minutes with the fault.
void BeginLater(Scenario* scenario, Generator* random) {
  JobRunOptions& options = scenario->options;
  options.page_every_ns = Between(random, 5, 30) * kSecond;
  options.fault_ns = Between(random, 120, 600) * kSecond;
  options.asked_ns = options.fault_ns + Between(random, 60, 600) * kSecond;
  const int slots = 2 * scenario->layout.pipeline - 1;
  const int64_t step_ns = scenario->layout.slowdown * std::max(30, 10 + 8 * slots) * kMs;
  options.change_step = static_cast<int>(options.fault_ns / step_ns);
  options.change_steps = static_cast<int>(Between(random, 10, 200));
  // Short enough that the diagnosis does not take the healthy pause for the stall.
  options.pause_ns =
      std::min(Between(random, 5, 60) * kSecond, (options.asked_ns - options.fault_ns) / 2);
}

// Returns the global rank of an unseen member of a communicator.
int GlobalRank(const Scenario& scenario, const JobRank& rank) {
  if (rank.process != nullptr) {
    return std::stoi(rank.process->global_rank) + (rank.process->pid >= kOtherPids ? kOtherJob : 0);
  }
  for (const JobGroup& group : scenario.groups) {
    if (group.comm_id == rank.comm_id) return group.members[rank.rank];
  }
  if (scenario.other != nullptr) {
    const int number = GlobalRank(*scenario.other, rank);
    return number < 0 ? -1 : number + kOtherJob;
  }
  return -1;
}

// Adds another job. Its ranks may share hosts, and may have the same job id, or none.
void AddOther(const FaultKind& kind, Scenario* scenario) {
  Scenario other = MakeScenario(kind.other, scenario->seed + kOtherJob);
  if (kind.has_same_ids) {
    other.layout = scenario->layout;
    other.groups = scenario->groups;
    other.options.rank %= other.layout.ranks();
    // The other job now has its own, perhaps shorter, steps.
    other.options.asked_ns =
        std::min(other.options.asked_ns, other.options.fault_ns + 60 * kSecond);
    if (other.options.fault == Fault::kHostStuck) other.culprits = {other.options.rank};
  }
  other.answers.assign(other.layout.nodes(), Answer::kNow);
  other.options.run_on_ns = 0;
  other.options.is_other_job = true;
  other.options.has_own_hosts = scenario->seed % 2 == 0;
  other.options.job_id = scenario->seed % 3 == 0 ? "4712" : scenario->options.job_id;
  if (scenario->seed % 3 == 1) scenario->options.job_id = other.options.job_id = "";
  if (other.options.fault == Fault::kHostStuck) {
    for (const int rank : other.culprits) scenario->culprits.insert(rank + kOtherJob);
  }
  scenario->other = std::make_shared<const Scenario>(std::move(other));
}

std::string RootWords(const JobVerdict& verdict) {
  std::string words;
  for (const JobRoot& root : verdict.roots) {
    absl::StrAppend(&words, HangVerdictName(root.verdict), root.is_usual ? " (usual)" : "");
    for (const JobRank& rank : root.ranks) {
      absl::StrAppend(&words, " ", rank.process == nullptr ? "?" : rank.process->global_rank);
    }
    absl::StrAppend(&words, ": ", root.text, " | ");
  }
  for (const JobStraggler& straggler : verdict.stragglers) {
    absl::StrAppend(&words, "straggler: ", straggler.text, " | ");
  }
  if (!verdict.doubt.empty()) absl::StrAppend(&words, "doubt: ", verdict.doubt);
  return words;
}

Outcome Compare(const std::set<int>& named, const std::set<int>& culprits, bool is_place) {
  if (named.empty()) return is_place ? Outcome::kPlace : Outcome::kNothing;
  const bool has_all = std::includes(named.begin(), named.end(), culprits.begin(), culprits.end());
  if (has_all) return named.size() == culprits.size() ? Outcome::kRight : Outcome::kAlso;
  // If the other ranks wait only for some of the node's ranks, only these are suspects.
  const bool is_part = std::includes(culprits.begin(), culprits.end(), named.begin(), named.end());
  return is_part ? Outcome::kRight : Outcome::kWrong;
}

// Returns the ranks of a rank's pipeline stage; nothing if all ranks are of one stage.
std::set<int> StageOf(const JobLayout& layout, int rank) {
  std::set<int> ranks;
  const int of_stage = layout.tensor * layout.data;
  const int first = rank / of_stage * of_stage;
  for (int each = first; layout.pipeline > 1 && each < first + of_stage; ++each) ranks.insert(each);
  return ranks;
}

bool AreAllUsual(const JobVerdict& verdict) {
  return std::all_of(verdict.roots.begin(), verdict.roots.end(),
                     [](const JobRoot& root) { return root.is_usual; });
}

bool HasOtherSide(const JobVerdict& verdict) {
  return std::any_of(verdict.roots.begin(), verdict.roots.end(),
                     [](const JobRoot& root) { return root.verdict == HangVerdict::kMismatched; });
}

Outcome OutcomeByTruth(const Scenario& scenario, const std::set<int>& named,
                       const JobVerdict& verdict, const Health& health) {
  const bool is_idle = health.status == HealthStatus::kIdle;
  const bool is_ok = health.status == HealthStatus::kOk || health.status == HealthStatus::kUnused;
  const bool is_calm = AreAllUsual(verdict);
  switch (scenario.truth) {
    case Truth::kNobody:
      if (!named.empty()) return Outcome::kWrong;
      return is_calm ? Outcome::kRight : Outcome::kPlace;
    case Truth::kOk:
      if (!named.empty()) return Outcome::kWrong;
      return is_ok || is_idle ? Outcome::kRight : is_calm ? Outcome::kNothing : Outcome::kPlace;
    case Truth::kNotOk:
      if (!std::includes(scenario.culprits.begin(), scenario.culprits.end(), named.begin(),
                         named.end())) {
        return Outcome::kWrong;
      }
      return named.empty() && is_ok ? Outcome::kNothing : Outcome::kRight;
    case Truth::kSides:
      if (named.empty() && HasOtherSide(verdict)) return Outcome::kRight;
      break;
    case Truth::kSlowOrNotCompared:
      for (const char* said : {"not compared", "wait for each other"}) {
        const bool is_said = health.summary.find(said) != std::string::npos;
        if (named.empty() && is_calm && is_said) return Outcome::kRight;
      }
      break;
    default:
      break;
  }
  return Compare(named, scenario.culprits, !is_calm);
}

Outcome OutcomeOf(const Scenario& scenario, const JobVerdict& verdict, const Health& health) {
  std::set<int> named;
  bool is_place = false;
  for (const JobRoot& root : verdict.roots) {
    if (root.is_usual) continue;
    for (const JobRank& rank : root.ranks) named.insert(GlobalRank(scenario, rank));
    const int group = scenario.options.group;
    is_place |= group >= 0 && root.communicators.size() == 1 &&
                root.communicators.front() == scenario.groups[group].comm_id;
  }
  for (const JobStraggler& straggler : verdict.stragglers) {
    for (const JobRank& rank : straggler.ranks) named.insert(GlobalRank(scenario, rank));
  }
  if (scenario.truth != Truth::kByFault) {
    return OutcomeByTruth(scenario, named, verdict, health);
  }
  if (scenario.options.fault == Fault::kQueued || scenario.options.fault == Fault::kMoves) {
    return AreAllUsual(verdict) ? Outcome::kRight : Outcome::kWrong;
  }
  if (scenario.options.fault == Fault::kStageGrows) {
    // The stage looks like a slow node, and the text says so.
    const std::set<int> stage = StageOf(scenario.layout, scenario.options.rank);
    return std::includes(stage.begin(), stage.end(), named.begin(), named.end()) ? Outcome::kRight
                                                                                 : Outcome::kWrong;
  }
  if (IsHealthy(scenario)) return named.empty() && !is_place ? Outcome::kRight : Outcome::kWrong;
  if (scenario.options.fault == Fault::kNetworkStuck ||
      scenario.options.fault == Fault::kDeadLink) {
    if (!named.empty()) return Outcome::kWrong;
    return is_place ? Outcome::kRight : Outcome::kNothing;
  }
  if (scenario.options.fault == Fault::kForeign) {
    // In a pipeline the later stages wait for the first.
    const std::set<int> first = StageOf(scenario.layout, 0);
    if (!std::includes(first.begin(), first.end(), named.begin(), named.end())) {
      return Outcome::kWrong;
    }
    return AreAllUsual(verdict) ? Outcome::kNothing : Outcome::kRight;
  }
  if ((scenario.options.fault == Fault::kCircle || IsCircleOfPeers(scenario.options.fault)) &&
      !verdict.roots.empty() && verdict.roots.front().verdict == HangVerdict::kCircularWait) {
    // Any of the ranks that wait there may be the second one.
    return named.count(scenario.options.rank) != 0 && named.size() == 2 ? Outcome::kRight
                                                                        : Outcome::kAlso;
  }
  if (verdict.roots.empty() && verdict.stragglers.empty()) return Outcome::kNothing;
  // One culprit of two is not enough.
  if (scenario.other != nullptr && !named.empty() && named.size() < scenario.culprits.size()) {
    return scenario.culprits.count(*named.begin()) != 0 ? Outcome::kNothing : Outcome::kWrong;
  }
  return Compare(named, scenario.culprits, is_place || !verdict.roots.empty());
}

}  // namespace

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kRight:
      return "right";
    case Outcome::kPlace:
      return "place only";
    case Outcome::kNothing:
      return "nobody named";
    case Outcome::kAlso:
      return "others named, too";
    case Outcome::kWrong:
      break;
  }
  return "another named";
}

const std::vector<std::string>& FaultNames() {
  static const auto* const kNames = [] {
    auto* names = new std::vector<std::string>;
    for (const FaultKind& kind : Kinds()) names->push_back(kind.name);
    for (const Family& family : Families()) names->push_back(family.name);
    return names;
  }();
  return *kNames;
}

Scenario MakeScenario(const std::string& fault, uint64_t seed) {
  if (const Family* family = FindFamily(fault)) return MakeFamily(*family, seed);
  const auto kind = std::find_if(Kinds().begin(), Kinds().end(),
                                 [&fault](const FaultKind& each) { return fault == each.name; });
  if (kind == Kinds().end()) {
    std::fprintf(stderr, "no fault or family is named '%s'\n", fault.c_str());
    std::abort();
  }
  Generator random(seed * 1000 + kind->number);
  Scenario scenario;
  scenario.seed = seed;
  scenario.fault = fault;
  JobRunOptions& options = scenario.options;
  options.fault = kind->fault;
  options.seed = random();
  const bool needs_call = kind->fault == Fault::kWrongOrder || kind->fault == Fault::kWrongSize ||
                          kind->fault == Fault::kCircle || kind->fault == Fault::kNetworkStuck ||
                          kind->fault == Fault::kNotMade || kind->fault == Fault::kWrongRoot;
  const bool is_watched = kind->endpoint == FaultKind::Endpoint::kWatched;
  scenario.layout = is_watched ? MakeNodeLayout(&random) : MakeLayoutFor(kind->jobs, &random);
  scenario.layout.has_second = kind->fault == Fault::kCircle;
  scenario.layout.has_world |= kind->fault == Fault::kMoves;
  scenario.layout.has_broadcast = kind->jobs == Jobs::kBroadcasts;
  scenario.layout.has_lists = kind->jobs == Jobs::kLists;
  scenario.groups = GroupsOf(scenario.layout, seed);
  options.rank = static_cast<int>(Between(&random, 0, scenario.layout.ranks() - 1));
  if (needs_call) {
    options.group = PickGroup(scenario, &random);
    const auto& members = scenario.groups[options.group].members;
    options.rank = members[Between(&random, 0, static_cast<int64_t>(members.size()) - 1)];
  }
  if (kind->fault == Fault::kDeadLink || IsCircleOfPeers(kind->fault) || IsOfSizes(kind->fault))
    PickPeers(&scenario, &random);
  if (kind->fault == Fault::kReceiveCircle) std::swap(options.rank, options.other);
  const int64_t step_ns = scenario.layout.slowdown * 30 * kMs;  // roughly the longest step
  options.fault_ns = Between(&random, 3, 8) * step_ns;
  options.asked_ns = options.fault_ns + Between(&random, 13, 90) * kSecond;
  options.asked_within_ns = Between(&random, 0, 1500) * kMs;
  options.imbalance = static_cast<double>(Between(&random, 2, 30)) / 100;
  // Calls in the wrong order are only recognized if the host waits for each call.
  options.is_blocking = kind->fault == Fault::kWrongOrder || Between(&random, 0, 4) == 0;
  if (fault == kOrderAhead) options.is_blocking = false;
  if (!kind->is_hang) {
    options.sampling_exponent = static_cast<int>(Between(&random, 0, 2));
    options.fault_ns = 0;
    // With faster calls, two endpoints would have none in common.
    scenario.layout.slowdown = 1 << Between(&random, 4, 6);
    options.asked_ns = scenario.layout.slowdown * 30 * kMs *
                       (Between(&random, 20, 40) << options.sampling_exponent);
    options.slowness = static_cast<double>(Between(&random, 14, 25)) / 10;
  }
  if (kind->jobs == Jobs::kPostAhead) options.is_blocking = false;
  if (kind->jobs == Jobs::kManyLayers) {
    // Steps of half a second to four seconds, polled after 20 to 100 of them.
    const auto step_ms = static_cast<int64_t>(8 * scenario.layout.layers + 10);
    const int64_t wanted_ms = int64_t{500} << Between(&random, 0, 3);
    scenario.layout.slowdown = static_cast<int>(std::max<int64_t>(1, wanted_ms / step_ms));
    options.asked_ns = scenario.layout.slowdown * step_ms * kMs * Between(&random, 20, 100);
  }
  if (kind->is_later) BeginLater(&scenario, &random);
  if (kind->watchdog != Watchdog::kNone) {
    options.watchdog = kind->watchdog;
    options.watchdog_ns = options.fault_ns + Between(&random, 15, 60) * kSecond;
    options.asked_ns = options.watchdog_ns + Between(&random, 1, 30) * kSecond;
  }
  if (!kind->is_hang) options.run_on_ns = (kLooksForStragglers - 1) * kLookEveryNs;
  if (kind->fault == Fault::kPause || kind->fault == Fault::kAllPause) {
    options.pause_ns = Between(&random, 12, 40) * kSecond;
    options.asked_ns = options.pause_ns * Between(&random, 10, 130) / 100;
    options.run_on_ns = 0;  // one poll
  }
  if (kind->stands_long) StandLong(&scenario, &random);
  if (kind->fault == Fault::kNodeGone || kind->fault == Fault::kSlowNode ||
      kind->fault == Fault::kHostPaused) {
    scenario.culprits = RanksOfNode(scenario.layout, scenario.layout.NodeOf(options.rank));
  } else {
    scenario.culprits = {options.rank};
    if (IsOfSizes(kind->fault)) scenario.culprits.insert(options.other);
  }
  options.change_step = kind->fault == Fault::kNotMade ? 4 : options.change_step;
  LoseEndpoints(&scenario, &random);
  if (kind->jobs == Jobs::kCallsFail) {
    const int64_t until_ns = kind->is_hang ? options.fault_ns : options.asked_ns;
    options.failing_ns = Between(&random, 0, until_ns / 2);
    options.failing_calls = static_cast<int>(Between(&random, 1, 3));
    // The culprit, or another rank.
    options.failing_rank = Between(&random, 0, 1) == 0
                               ? options.rank
                               : static_cast<int>(Between(&random, 0, scenario.layout.ranks() - 1));
  }
  if (kind->endpoint == FaultKind::Endpoint::kAway) {
    const int node = scenario.layout.NodeOf(options.rank);
    scenario.answers[node] = Between(&random, 0, 1) == 0 ? Answer::kNone : Answer::kStale;
    // The culprits look like the ranks of any other endpoint that does not answer.
    for (int each = 0; each < scenario.layout.nodes(); ++each) {
      if (scenario.answers[each] != Answer::kNow) {
        scenario.culprits.merge(RanksOfNode(scenario.layout, each));
      }
    }
  }
  scenario.is_on_its_node = is_watched;
  if (is_watched) options.run_on_ns = kWatchedNs;
  if (kind->other != nullptr) AddOther(*kind, &scenario);
  return scenario;
}

namespace {

constexpr auto KeyOf(const ProcessSnapshot& process) {
  return std::tie(process.hostname, process.pid);
}

// Adds the earlier job's processes to the endpoints' answers.
void AddBefore(const Scenario& before, std::vector<NodeSnapshot>* nodes) {
  std::vector<NodeSnapshot> old = RunJob(before.layout, before.groups, before.options);
  if (nodes->size() < old.size()) {
    const int64_t asked_ns = nodes->front().asked_realtime_ns;
    nodes->resize(old.size());
    for (NodeSnapshot& node : *nodes) {
      if (node.asked_realtime_ns == 0) node.asked_realtime_ns = asked_ns;
    }
  }
  for (std::size_t node = 0; node < old.size(); ++node) {
    SnapshotSet& set = (*nodes)[node].set;
    for (ProcessSnapshot& process : old[node].set.ended) set.ended.push_back(std::move(process));
    for (ProcessSnapshot& process : old[node].set.processes) {
      for (ProcessSnapshot& now : set.processes) {
        if (KeyOf(now) != KeyOf(process)) continue;
        std::move(process.communicators.begin(), process.communicators.end(),
                  std::back_inserter(now.communicators));
      }
    }
  }
}

// Answers of all endpoints.
struct Asked {
  SnapshotUnion all;
  int64_t hang_after_ns = INT64_MAX;  // the shortest threshold of an endpoint
  std::string error = {};             // set if an answer cannot be read
  std::set<std::string> heard = {};   // nodes
};

void Ask(const Scenario& scenario, const std::vector<Answer>& answers, const JobRunOptions& options,
         int64_t now, Asked* asked) {
  std::vector<NodeSnapshot> nodes = RunJob(scenario.layout, scenario.groups, options);
  if (scenario.before != nullptr) AddBefore(*scenario.before, &nodes);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    // Old data is not used (docs/detection.md).
    if (node < answers.size() && answers[node] != Answer::kNow) continue;
    const int64_t hang_after_ns =
        scenario.hang_after_ns.empty() ? kHangAfterNs : scenario.hang_after_ns[node];
    const std::string text =
        WriteSnapshots(nodes[node].set, nodes[node].asked_realtime_ns, hang_after_ns);
    SnapshotMessage message;
    if (!ReadSnapshots(text, now, UINT64_MAX, &message, &asked->error)) return;
    asked->hang_after_ns = std::min(asked->hang_after_ns, message.hang_after_ns);
    for (const ProcessSnapshot& process : message.set.processes)
      asked->heard.insert(process.hostname);
    asked->all.Add(std::move(message));
  }
}

// Returns the ranks that a node's endpoint names, from scrape to scrape.
Judged WatchNode(const Scenario& scenario) {
  const int node = scenario.layout.NodeOf(scenario.options.rank);
  JobRunOptions options = scenario.options;
  Diagnosis diagnosis;
  std::set<int> named;
  Judged judged;
  for (; options.look_again_ns <= options.run_on_ns; options.look_again_ns += kScrapeEveryNs) {
    const NodeSnapshot read = RunJob(scenario.layout, scenario.groups, options)[node];
    for (const CommunicatorDiagnosis& each : diagnosis.Update(read.set, read.asked_realtime_ns)) {
      if (!each.has_named_straggler()) continue;
      for (const ProcessSnapshot& process : read.set.processes) {
        for (const CommunicatorSnapshot& communicator : process.communicators) {
          if (communicator.comm_id != each.comm_id || communicator.rank != each.straggler->rank)
            continue;
          named.insert(std::stoi(process.global_rank));
        }
      }
      judged.said = each.straggler->text;
    }
    ++judged.looks;
  }
  judged.outcome = Compare(named, scenario.culprits, false);
  return judged;
}

}  // namespace

const char* ExpectedName(const Scenario& scenario) {
  switch (scenario.truth) {
    case Truth::kCulprits:
      return "ranks";
    case Truth::kSides:
      return "ranks or mismatch";
    case Truth::kNobody:
      return "no rank";
    case Truth::kOk:
      return "healthy";
    case Truth::kNotOk:
      return "ranks or not healthy";
    case Truth::kSlowOrNotCompared:
      return "ranks or unknown";
    case Truth::kByFault:
      break;
  }
  if (IsHealthy(scenario)) return "no rank";
  switch (scenario.options.fault) {
    case Fault::kNetworkStuck:
    case Fault::kDeadLink:
      return "communicator";
    case Fault::kForeign:
      return "first stage or hang";
    case Fault::kCircle:
    case Fault::kPeerCircle:
    case Fault::kReceiveCircle:
      return "rank and its opposite";
    default:
      return "ranks";
  }
}

Polls::Polls(const Scenario& scenario) : scenario_(scenario), options_(scenario.options) {
  if (options_.fault == Fault::kNodeGone) options_.fault = Fault::kHostStuck;
}

Polls::Poll Polls::Next() {
  if (number_++ > 0) options_.look_again_ns += kLookEveryNs;
  Poll poll;
  poll.realtime_ns =
      kJobStart + options_.asked_ns + options_.asked_within_ns + options_.look_again_ns + kSecond;
  const bool is_later = !scenario_.answers_later.empty() && number_ >= scenario_.later_from;
  Asked asked{SnapshotUnion({scenario_.asked_job_id, {}})};
  Ask(scenario_, is_later ? scenario_.answers_later : scenario_.answers, options_, poll.realtime_ns,
      &asked);
  if (scenario_.other != nullptr) {
    Ask(*scenario_.other, scenario_.other->answers, scenario_.other->options, poll.realtime_ns,
        &asked);
  }
  poll.set = asked.all.Take();
  poll.hang_after_ns = asked.hang_after_ns;
  poll.error = std::move(asked.error);
  poll.heard = std::move(asked.heard);
  poll.is_last = options_.look_again_ns >= options_.run_on_ns;
  return poll;
}

Judged Judge(const Scenario& scenario) {
  if (scenario.is_on_its_node) return WatchNode(scenario);
  Polls polls(scenario);
  Diagnosis diagnosis;
  LastHeard last_heard;
  for (int looks = 1;; ++looks) {
    Polls::Poll poll = polls.Next();
    if (!poll.error.empty()) return {Outcome::kWrong, poll.error, looks, ""};
    SnapshotSet& set = poll.set;
    const int64_t now = poll.realtime_ns;
    last_heard.AddTo(poll.heard, &set);
    const DiagnosisResult result = diagnosis.Update(set, now);
    last_heard.Keep(set, result, now,
                    [](const ProcessSnapshot& process) { return process.hostname; });
    const JobVerdict verdict = JudgeJob(set, result, now);
    const bool is_enough =
        scenario.answers_later.empty() && !IsAnotherLookWorthwhile(result, verdict);
    if (!poll.is_last && !is_enough) continue;
    const Health health = HealthOf(set, result, now);
    const std::string words =
        absl::StrCat(RootWords(verdict), HealthStatusName(health.status), ": ", health.summary);
    std::vector<CommunicatorView> views = GroupByCommunicator(set, now);
    for (CommunicatorView& view : views) view.hang_after_ns = poll.hang_after_ns;
    return {OutcomeOf(scenario, verdict, health), words, looks,
            DescribeWaits(views, BuildWaits(views, now).graph)};
  }
}

std::vector<std::string> LabelsOverLooks(const Scenario& scenario) {
  constexpr int64_t kLater[] = {0, kSecond / 3, 2 * kSecond, 10 * kSecond};
  std::vector<std::string> all;
  JobRunOptions options = scenario.options;
  options.run_on_ns += 12 * kSecond;
  for (const int64_t later_ns : kLater) {
    options.look_again_ns = later_ns;
    options.asked_within_ns = later_ns % kSecond;
    Asked asked{SnapshotUnion({scenario.asked_job_id, {}})};
    const int64_t now = kJobStart + options.asked_ns + options.asked_within_ns + later_ns + kSecond;
    Ask(scenario, scenario.answers, options, now, &asked);
    const SnapshotSet set = asked.all.Take();
    Diagnosis diagnosis;
    std::string& labels = all.emplace_back();
    for (const JobRoot& root : JudgeJob(set, diagnosis.Update(set, now), now).roots) {
      if (root.is_usual) continue;
      const JobRank first =
          root.ranks.empty() ? JobRank{root.communicators.front(), -1} : root.ranks.front();
      absl::StrAppend(&labels, HangVerdictName(root.verdict), " ", first.comm_id, " ", first.rank,
                      " ", first.process == nullptr ? "?" : first.process->global_rank, " ",
                      root.op, " ", root.missing_call, "; ");
    }
  }
  return all;
}

}  // namespace nccl_pulse

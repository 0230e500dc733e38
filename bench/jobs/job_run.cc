#include "bench/jobs/job_run.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "bench/jobs/job_member.h"
#include "bench/jobs/job_rank.h"

namespace nccl_pulse {
namespace {

constexpr int64_t kUs = 1000;
constexpr int64_t kMs = 1000 * kUs;
constexpr int64_t kSecond = 1000 * kMs;
constexpr int64_t kCallNs = 10 * kUs;
constexpr uint64_t kMessageBytes = 4 << 20;       // of a pipeline
constexpr int kFirstPause = 4, kSecondPause = 8;  // steps

struct Instance {
  std::size_t came = 0;
  int64_t last_begun_ns = 0;
  const char* op = nullptr;
  int size_class = 0;
  int root = -1;
  uint64_t bytes = 0;
  bool is_broken = false;
  bool has_root = false;
  int64_t root_begun_ns = 0;
  std::vector<int> waiting;  // in a call that is left early
  std::vector<int> absent;
};

class Run {
 public:
  Run(const JobLayout& layout, const std::vector<JobGroup>& groups, const JobRunOptions& options)
      : layout_(layout),
        groups_(groups),
        options_(options),
        random_(options.seed),
        instances_(groups.size()),
        first_instance_(groups.size()) {
    JobRandom asked(options.seed ^ 0xa5ced);
    for (int node = 0; node < layout.nodes(); ++node) {
      asked_ns_.push_back(
          options.asked_ns + options.look_again_ns +
          static_cast<int64_t>(asked.Share() * static_cast<double>(options.asked_within_ns)));
    }
    end_ns_ = options.asked_ns + options.asked_within_ns + options.run_on_ns;
    const bool is_paused = Is(Fault::kPause) || Is(Fault::kAllPause) || Is(Fault::kQueued) ||
                           Is(Fault::kMoves) || Is(Fault::kLongBefore);
    if (is_paused) end_ns_ = kNever / 2;  // no end, see AskAfter
    std::vector<std::vector<JobStep>> programs = ProgramOf(layout, groups);
    std::vector<std::vector<JobStep>> evaluations;
    if (Is(Fault::kEvaluates)) evaluations = ProgramOf(layout, groups, Phase::kEvaluation);
    std::vector<int64_t> page_ns;  // first page of each node
    for (int node = 0; options.page_every_ns != 0 && node < layout.nodes(); ++node) {
      page_ns.push_back(
          static_cast<int64_t>(asked.Share() * static_cast<double>(options.page_every_ns)));
    }
    ranks_.resize(layout.ranks());
    for (int i = 0; i < layout.ranks(); ++i) {
      ranks_[i].program = std::move(programs[i]);
      if (!evaluations.empty()) ranks_[i].evaluation = std::move(evaluations[i]);
      if (!page_ns.empty()) ranks_[i].next_page_ns = page_ns[layout.NodeOf(i)];
      ranks_[i].seen_ns = is_paused ? kNever : asked_ns_[layout.NodeOf(i)];
      const bool is_slow = options.fault == Fault::kSlowNode
                               ? layout.NodeOf(i) == layout.NodeOf(options.rank)
                               : i == options.rank;
      if (is_slow && (options.fault == Fault::kSlowNode || options.fault == Fault::kSlowHost ||
                      options.fault == Fault::kSlowGpu)) {
        ranks_[i].slow = options.slowness;
      }
    }
    if (options.fault == Fault::kProcessGone || options.fault == Fault::kProcessVanished) {
      ranks_[options.rank].seen_ns = std::min(ranks_[options.rank].seen_ns, options.fault_ns);
    }
    for (int i = 0; i < layout.ranks(); ++i) HideStopped(i);
    for (RunningRank& rank : ranks_) rank.host_ns = options.start_ns;
    for (const Deed& deed : options.deeds) Expect(deed);
    if (options.ending.step >= 0) AddEnding();
    if (Is(Fault::kGpuFails)) FailGpus();
    for (std::size_t i = 0; i < groups.size(); ++i) Join(static_cast<int>(i));
  }

  std::vector<NodeSnapshot> Make() {
    for (int i = 0; i < layout_.ranks(); ++i) Wake(i);
    while (!awake_.empty()) {
      const int rank = awake_.front();
      awake_.pop_front();
      ranks_[rank].is_queued = false;
      Advance(rank);
    }
    return Snapshots();
  }

 private:
  bool IsFaulty(int rank) const {
    if (Is(Fault::kForeignHost) || Is(Fault::kLongBefore)) {
      return rank == options_.rank && ranks_[rank].steps > options_.change_step;
    }
    return IsCulprit(rank) && ranks_[rank].host_ns >= options_.fault_ns;
  }
  bool IsCulprit(int rank) const {
    return rank == options_.rank ||
           (Is(Fault::kHostPaused) && layout_.NodeOf(rank) == layout_.NodeOf(options_.rank));
  }
  // Returns the other rank of kLooked and kLongBefore.
  int Other() const { return (options_.rank + 1) % layout_.ranks(); }

  // Schedules a deed.
  void Expect(const Deed& deed) {
    RunningRank& rank = ranks_[deed.rank];
    const bool dies = deed.kind == Deed::Kind::kDies || deed.kind == Deed::Kind::kAborts;
    if (!dies && deed.kind != Deed::Kind::kStops) {
      rank.deeds.push_back(deed);
      return;
    }
    if (dies) rank.dies_ns = std::min(rank.dies_ns, deed.at_ns);
    if (deed.at_ns > rank.seen_ns) return;
    rank.has_aborted = deed.kind == Deed::Kind::kAborts;
    if (rank.has_aborted) return;
    rank.seen_ns = deed.at_ns;
    if (dies) rank.end = deed.end;
    if (!dies) rank.run_state = RunState::kStopped;
  }

  // Runs all due deeds of the rank.
  void Do(RunningRank* rank) {
    rank->is_halted |= rank->host_ns >= rank->dies_ns;
    for (std::size_t i = 0; i < rank->deeds.size();) {
      const Deed deed = rank->deeds[i];
      const bool is_due = deed.step >= 0 ? rank->at == 0 && rank->steps == deed.step + 1
                                         : rank->host_ns >= deed.at_ns;
      if (!is_due || deed.kind == Deed::Kind::kSlows) {
        ++i;
        continue;
      }
      rank->deeds.erase(rank->deeds.begin() + static_cast<std::ptrdiff_t>(i));
      rank->is_halted |= deed.kind == Deed::Kind::kHalts;
      rank->is_gpu_to_stick |= deed.kind == Deed::Kind::kSticks;
      // A host that waits for its GPU is also stopped meanwhile.
      rank->host_ns = std::max(rank->host_ns, deed.at_ns + deed.for_ns);
    }
  }

  double SlownessOf(int number) const {
    const RunningRank& rank = ranks_[number];
    double slowness = 1;
    for (const Deed& deed : rank.deeds) {
      if (deed.kind != Deed::Kind::kSlows || rank.steps < deed.step || rank.steps > deed.until_step)
        continue;
      if (deed.period != 0 && rank.steps / deed.period % 2 != deed.phase) continue;
      slowness *= deed.factor;
    }
    return slowness;
  }

  // The last call uses the widest group.
  void AddEnding() {
    const auto wide = std::max_element(
        groups_.begin(), groups_.end(),
        [](const JobGroup& a, const JobGroup& b) { return a.members.size() < b.members.size(); });
    const JobEnding& ending = options_.ending;
    for (std::size_t i = 0; i < wide->members.size(); ++i) {
      const bool is_root = static_cast<int>(i) == ending.root;
      std::vector<JobStep>& steps = ranks_[wide->members[i]].ending;
      steps.push_back(
          {StepKind::kGpuWork, -1, -1, "", 0, is_root ? ending.root_work_ns : ending.work_ns});
      JobStep call{StepKind::kCollective,
                   static_cast<int>(wide - groups_.begin()),
                   -1,
                   ending.op,
                   is_root ? ending.root_size_class : ending.size_class,
                   300 * kUs};
      call.root = ending.root;
      call.is_left_early = ending.root >= 0;
      call.bytes = is_root ? ending.root_bytes : ending.bytes;
      steps.push_back(call);
      steps.push_back({StepKind::kSync, -1, -1, "", 0, 0});
    }
  }

  void Leave(RunningRank* rank) {
    rank->is_halted = true;
    rank->host_ns +=
        static_cast<int64_t>(random_.Share() * static_cast<double>(options_.ending.within_ns));
    if (options_.ending.leave == JobEnding::Leave::kStays || rank->host_ns > rank->seen_ns) return;
    if (options_.ending.leave == JobEnding::Leave::kFinalizes) {
      rank->left_ns = rank->host_ns;
      return;
    }
    rank->seen_ns = rank->host_ns;
    rank->end =
        options_.ending.leave == JobEnding::Leave::kExits ? ProcessEnd::kExit : ProcessEnd::kLost;
  }

  // Freezes the endpoint's view of a rank whose process stops.
  void HideStopped(int number) {
    RunningRank& rank = ranks_[number];
    int64_t until_ns = kNever;
    const bool is_stopped = Is(Fault::kStopped) || Is(Fault::kDriverCall) ||
                            Is(Fault::kHostPaused) || Is(Fault::kExits);
    if (is_stopped && IsCulprit(number)) until_ns = options_.fault_ns;
    if (Is(Fault::kLooked) && number == Other()) until_ns = options_.fault_ns + options_.pause_ns;
    if (until_ns >= rank.seen_ns) return;
    rank.seen_ns = until_ns;
    if (!Is(Fault::kExits)) rank.run_state = options_.run_state;
  }

  // Fails the faulty rank's GPU, and soon after those of some peers that it reaches over links.
  void FailGpus() {
    constexpr uint32_t kOwn[] = {214, 700, 702, 715};
    constexpr uint32_t kLaunchFailed = 719;
    const auto fail = [this](int number, uint32_t error, int64_t after_ns) {
      RunningRank& rank = ranks_[number];
      rank.driver_error_ns = options_.fault_ns + after_ns;
      if (rank.driver_error_ns <= rank.seen_ns) rank.driver_error = error;
    };
    fail(options_.rank, kOwn[random_.Next() % std::size(kOwn)], 20 * kMs);
    for (const JobGroup& group : groups_) {
      if (!Spans(group, options_.rank) || group.nodes > 1) continue;
      for (const int member : group.members) {
        if (member == options_.rank || random_.Share() < 0.5) continue;
        fail(member, kLaunchFailed, static_cast<int64_t>(random_.Share() * 900 * kMs));
      }
    }
  }

  // True if the next kernel of this GPU never ends and is not NCCL's.
  bool IsForeign(int number) const {
    if (ranks_[number].has_erred || ranks_[number].steps <= options_.change_step) return false;
    if (Is(Fault::kForeign)) return true;
    const std::vector<int>* members =
        Is(Fault::kForeignHost) ? &groups_[options_.group].members : nullptr;
    return members != nullptr && number != options_.rank &&
           std::find(members->begin(), members->end(), number) != members->end();
  }
  bool Is(Fault fault) const { return options_.fault == fault; }

  void Join(int group) {
    const JobGroup& of = groups_[group];
    for (std::size_t i = 0; i < of.members.size(); ++i) {
      const int rank = of.members[i];
      CommunicatorSnapshot& snapshot = ranks_[rank].memberships[group].snapshot();
      snapshot.comm_id = of.comm_id;
      snapshot.rank = static_cast<int32_t>(i);
      snapshot.nranks = static_cast<int32_t>(of.members.size());
      snapshot.nnodes = of.nodes;
      snapshot.gpu = std::to_string(rank % layout_.gpus_per_node);
      snapshot.uuid = absl::StrFormat("GPU-%08x", rank);
      snapshot.init_realtime_ns = kJobStart + options_.start_ns;
      snapshot.has_heartbeat = true;
    }
  }

  void Wake(int rank) {
    if (ranks_[rank].is_queued) return;
    ranks_[rank].is_queued = true;
    awake_.push_back(rank);
  }

  void Advance(int number) {
    RunningRank& rank = ranks_[number];
    while (true) {
      AdvanceHost(number);
      AdvanceGpu(number);
      const JobStream& stream = rank.streams[0];
      if (!rank.waits_for_gpu || !stream.queue.empty()) return;
      rank.host_ns = std::max(rank.host_ns, stream.gpu_ns);
      rank.waits_for_gpu = false;
      ++rank.at;
    }
  }

  int64_t Work(int number, const JobStep& step) {
    const RunningRank& rank = ranks_[number];
    const bool is_slow =
        Is(Fault::kSlowNode) ||
        (step.kind == StepKind::kHostWork ? Is(Fault::kSlowHost) : Is(Fault::kSlowGpu));
    const double factor = (1 + options_.imbalance * (random_.Share() * 2 - 1)) *
                          (step.kind == StepKind::kGpuWork ? SlownessOf(number) : 1.0) *
                          (is_slow && rank.host_ns >= options_.fault_ns ? rank.slow : 1.0) *
                          LoadOf(options_, layout_, number, rank.steps);
    return static_cast<int64_t>(static_cast<double>(step.work_ns) * factor);
  }

  void AdvanceHost(int number) {
    RunningRank& rank = ranks_[number];
    while (!rank.is_halted && !rank.waits_for_gpu && rank.host_ns <= end_ns_) {
      if (rank.at == rank.steps_now().size()) {
        if (rank.is_ending) return Leave(&rank);
        rank.at = 0;
      }
      if (rank.at == 0) BeginStep(number);
      Do(&rank);
      if (rank.is_halted) return;
      if (IsFaulty(number) && Err(number)) return;
      const JobStep& step = rank.steps_now()[rank.at];
      switch (step.kind) {
        case StepKind::kHostWork:
          rank.host_ns += Work(number, step);
          // A slow host delays its GPU by the same work.
          if (Is(Fault::kSlowHost) && rank.slow > 1 && rank.host_ns >= options_.fault_ns) {
            rank.streams[0].queue.push_back(
                {&step, rank.host_ns, kNever, Work(number, step), false, {}});
          }
          break;
        case StepKind::kGpuWork: {
          JobItem item{&step, rank.host_ns, kNever, Work(number, step), rank.is_gpu_to_stick, {}};
          if (IsForeign(number)) rank.has_erred = item.is_stuck = true;
          if (Is(Fault::kQueued) && IsLongKernel(rank)) {
            if (!is_asked_) AskAfter(rank.host_ns);
            item.work_ns += options_.pause_ns;
          }
          rank.is_gpu_to_stick = false;
          rank.streams[0].queue.push_back(item);
          break;
        }
        case StepKind::kAwait: {
          const JobStream& other = rank.streams[step.awaited_stream];
          const std::size_t launched = other.ends_ns.size() + other.queue.size();
          rank.streams[step.stream].queue.push_back(
              {&step, rank.host_ns, kNever, 0, false, {}, launched});
          break;
        }
        case StepKind::kSync:
          rank.waits_for_gpu = true;
          return;
        default:
          Launch(number, &step, step);
          if (options_.is_blocking) {
            rank.waits_for_gpu = true;
            return;
          }
          break;
      }
      ++rank.at;
    }
  }

  // True for the optimizer's kernel, which one more call usually follows.
  bool IsLongKernel(const RunningRank& rank) const {
    return rank.steps == options_.change_step + 1 &&
           std::none_of(rank.program.begin() + static_cast<std::ptrdiff_t>(rank.at) + 1,
                        rank.program.end(),
                        [](const JobStep& step) { return step.kind == StepKind::kGpuWork; });
  }

  void BeginStep(int number) {
    RunningRank& rank = ranks_[number];
    const int step = rank.steps++;
    rank.is_evaluating = IsEvaluation(options_, step);
    rank.is_ending = step == options_.ending.step;
    if (Is(Fault::kNotMade) && step == options_.change_step) {
      rank.is_halted = true;
      made_ns_ = std::max(made_ns_, rank.host_ns);
    }
    const bool is_of_node = layout_.NodeOf(number) == layout_.NodeOf(options_.rank);
    // A node that is still paused at the poll would not be healthy.
    const bool is_over = rank.host_ns + options_.pause_ns < options_.asked_ns;
    if (Is(Fault::kNodePauses) && is_of_node && step == options_.change_step && is_over) {
      rank.host_ns += options_.pause_ns;
    }
    if (Is(Fault::kLongBefore)) {
      if (number == Other() && step == kFirstPause) rank.host_ns += options_.pause_ns;
      if (number == options_.rank && step == options_.change_step) AskAfter(rank.host_ns);
    }
    if (Is(Fault::kInput)) rank.host_ns += InputWaitNs(options_, layout_, number, step);
    const bool is_one = Is(Fault::kPause) && number == options_.rank;
    if (!is_one && !Is(Fault::kAllPause)) return;
    if (step == kFirstPause) rank.host_ns += options_.pause_ns;
    if (step != kSecondPause) return;
    if (number == options_.rank) AskAfter(rank.host_ns);
    rank.host_ns += 3600 * kSecond;
  }

  void AskAfter(int64_t begin_ns) {
    is_asked_ = true;
    for (int64_t& asked_ns : asked_ns_) asked_ns += begin_ns;
    end_ns_ = options_.asked_ns + options_.asked_within_ns + begin_ns;
    for (int i = 0; i < layout_.ranks(); ++i) ranks_[i].seen_ns = asked_ns_[layout_.NodeOf(i)];
  }

  // Applies the fault to the rank's next action. Returns true if the rank's program stalls.
  bool Err(int number) {
    RunningRank& rank = ranks_[number];
    const JobStep& step = rank.program[rank.at];
    const bool is_call = step.group == options_.group && step.kind == StepKind::kCollective;
    switch (options_.fault) {
      case Fault::kHostStuck:
      case Fault::kProcessGone:
      case Fault::kProcessVanished:
      case Fault::kStopped:
      case Fault::kLooked:
      case Fault::kDriverCall:
      case Fault::kHostPaused:
      case Fault::kExits:
      case Fault::kForeignHost:
      case Fault::kLongBefore:
        rank.is_halted = true;
        return true;
      case Fault::kGpuStuck:
      case Fault::kGpuFails:
        if (!rank.has_erred && step.kind == StepKind::kGpuWork) {
          rank.has_erred = rank.is_gpu_to_stick = true;
        }
        return false;
      case Fault::kWrongSize:
        if (!rank.has_erred && is_call) {
          rank.has_erred = true;
          rank.program[rank.at].size_class = step.size_class + 1;
        }
        return false;
      case Fault::kWrongRoot:
        if (!rank.has_erred && is_call && step.root >= 0) {
          rank.has_erred = true;
          rank.program[rank.at].root = 1;
        }
        return false;
      case Fault::kPeerCircle:
        if (step.kind == StepKind::kReceive) PutFirst(&rank, StepKind::kSend, step.peer);
        return false;
      case Fault::
          kReceiveCircle:  // a Send to a later stage: one to an earlier stage waits for none
        if (step.kind == StepKind::kSend && step.peer > number) {
          PutFirst(&rank, StepKind::kReceive, step.peer);
        }
        return false;
      case Fault::kSmallerRecv:
      case Fault::kLargerRecv:
        if (!rank.has_erred && step.kind == StepKind::kReceive && step.peer == options_.other) {
          rank.has_erred = true;
          rank.program[rank.at].bytes =
              Is(Fault::kLargerRecv) ? 2 * kMessageBytes : kMessageBytes / 2;
        }
        return false;
      case Fault::kWrongOrder:
        if (!rank.has_erred && is_call) Swap(&rank, options_.group, step.op);
        return false;
      case Fault::kCircle:
        if (!rank.has_erred && is_call) Swap(&rank, options_.group + 1, "");
        return false;
      default:
        return false;
    }
  }

  // Swaps the current step with the next Send or Recv (`kind`) that has this peer.
  static void PutFirst(RunningRank* rank, StepKind kind, int peer) {
    for (std::size_t i = rank->at + 1; i < rank->program.size() && !rank->has_erred; ++i) {
      const JobStep& step = rank->program[i];
      if (step.kind != kind || step.peer != peer) continue;
      std::swap(rank->program[rank->at], rank->program[i]);
      rank->has_erred = true;
      return;
    }
  }

  // Swaps the current step with the next collective of `group` other than `op`; for kCircle, with
  // one of the second communicator.
  void Swap(RunningRank* rank, int group, const std::string& op) {
    for (std::size_t i = rank->at + 1; i < rank->program.size(); ++i) {
      const JobStep& step = rank->program[i];
      if (step.kind != StepKind::kCollective) continue;
      const bool is_wanted = Is(Fault::kCircle) ? groups_[step.group].kind == GroupKind::kSecond
                                                : step.group == group && step.op != op;
      if (!is_wanted) continue;
      std::swap(rank->program[rank->at], rank->program[i]);
      rank->has_erred = true;
      return;
    }
  }

  void Launch(int number, const JobStep* of_program, const JobStep& step) {
    RunningRank& rank = ranks_[number];
    if (number == options_.failing_rank && rank.host_ns >= options_.failing_ns &&
        step.kind == StepKind::kCollective && failed_calls_ < options_.failing_calls) {
      ++failed_calls_;
      rank.memberships[step.group].Fail(step);
    }
    rank.host_ns += kCallNs;
    const bool is_exchange = step.kind == StepKind::kExchange;
    const int exchange = is_exchange ? rank.exchanges[step.group]++ : 0;
    JobItem item{of_program, rank.host_ns, kNever, step.work_ns, false, {}};
    item.is_absent = is_exchange && IsAbsent(step.group, exchange, number);
    // The program may change while calls are queued.
    item.own = step;
    item.step = nullptr;
    rank.streams[groups_[step.group].stream].queue.push_back(item);
    if (rank.host_ns > rank.seen_ns || item.is_absent) return;
    std::vector<int> peers;
    const std::vector<int>& members = groups_[step.group].members;
    for (std::size_t i = 0; is_exchange && i < members.size(); ++i) {
      if (members[i] == number || IsAbsent(step.group, exchange, members[i])) continue;
      peers.push_back(static_cast<int>(i));
    }
    rank.memberships[step.group].Launch(step, peers, rank.host_ns);
  }

  // True if kDeadLink leaves the rank nothing to exchange. `exchange`: number of the exchange.
  bool IsAbsent(int group, int exchange, int number) const {
    if (!Is(Fault::kDeadLink) || number == options_.rank || number == options_.other) return false;
    constexpr double kShare = 0.2;
    return JobRandom(options_.seed ^ static_cast<uint64_t>(group) << 48 ^
                     static_cast<uint64_t>(exchange) << 24 ^ static_cast<uint64_t>(number))
               .Share() < kShare;
  }

  void AdvanceGpu(int number) {
    const auto ended = [this, number] {
      std::size_t items = 0;
      for (const JobStream& stream : ranks_[number].streams) items += stream.ends_ns.size();
      return items;
    };
    // Work that ends on one stream may release another one.
    for (std::size_t before = SIZE_MAX; before != ended();) {
      before = ended();
      for (JobStream& stream : ranks_[number].streams) AdvanceStream(number, &stream);
    }
  }

  void AdvanceStream(int number, JobStream* stream) {
    RunningRank& rank = ranks_[number];
    while (!stream->queue.empty()) {
      JobItem& item = stream->queue.front();
      if (item.is_stuck) return;
      const JobStep& step = item.what();
      const int64_t begin_ns = std::max(stream->gpu_ns, item.launched_ns);
      if (begin_ns >= rank.dies_ns) return;
      switch (step.kind) {
        case StepKind::kHostWork:
        case StepKind::kGpuWork:
          End(stream, begin_ns + item.work_ns);
          break;
        case StepKind::kAwait: {
          const std::vector<int64_t>& ends_ns = rank.streams[step.awaited_stream].ends_ns;
          if (ends_ns.size() < item.awaited) return;
          End(stream, item.awaited == 0 ? begin_ns : std::max(begin_ns, ends_ns[item.awaited - 1]));
          break;
        }
        case StepKind::kSend:
          if (item.begun_ns == kNever) {
            Begin(&rank, &item, begin_ns);
            Message(number, step).push_back(begin_ns + (layout_.sends_wait ? 0 : step.work_ns));
            Wake(step.peer);
          }
          if (layout_.sends_wait) {
            std::deque<int64_t>& received = received_[KeyOf(number, step)];
            if (received.empty()) return;
            const int64_t end_ns = received.front();
            received.pop_front();
            Finish(number, step.group, end_ns);
          } else {
            Finish(number, step.group, begin_ns + step.work_ns);
          }
          break;
        case StepKind::kReceive: {
          Begin(&rank, &item, begin_ns);
          std::deque<int64_t>& messages = Message(number, step);
          const std::size_t taken = step.bytes > kMessageBytes ? 2 : 1;
          if (messages.size() < taken || IsLost(number, step, item.begun_ns)) return;
          const int64_t end_ns = std::max(item.begun_ns, messages[taken - 1]) + step.work_ns;
          messages.erase(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(taken));
          if (step.bytes == 0 || taken == 2) {  // else the Send still has data
            received_[KeyOf(number, step)].insert(received_[KeyOf(number, step)].end(), taken,
                                                  end_ns);
            Wake(step.peer);
          }
          Finish(number, step.group, end_ns);
          break;
        }
        default:
          if (item.begun_ns != kNever) return;  // the others have not arrived
          Begin(&rank, &item, begin_ns);
          Arrive(number, item);
          break;
      }
    }
  }

  // Returns the messages for this Send or Recv of the rank that were sent and not received.
  std::deque<int64_t>& Message(int number, const JobStep& step) {
    return messages_[KeyOf(number, step)];
  }
  static std::tuple<int, int, int> KeyOf(int number, const JobStep& step) {
    const bool sends = step.kind == StepKind::kSend;
    return {step.group, sends ? number : step.peer, sends ? step.peer : number};
  }
  // True if kDeadLink loses this message in a pipeline.
  bool IsLost(int number, const JobStep& step, int64_t begun_ns) const {
    const bool is_link = (number == options_.rank && step.peer == options_.other) ||
                         (number == options_.other && step.peer == options_.rank);
    return Is(Fault::kDeadLink) && is_link && begun_ns >= options_.fault_ns;
  }

  static void End(JobStream* stream, int64_t end_ns) {
    stream->gpu_ns = end_ns;
    stream->ends_ns.push_back(end_ns);
    stream->queue.pop_front();
  }

  // Notes that the launch has reached the front of its stream.
  static void Begin(RunningRank* rank, JobItem* item, int64_t begin_ns) {
    if (item->begun_ns != kNever) return;
    item->begun_ns = begin_ns;
    if (item->launched_ns > rank->seen_ns || begin_ns > rank->seen_ns) return;
    rank->memberships[item->what().group].Begin(item->launched_ns, begin_ns);
  }

  void Arrive(int number, JobItem item) {
    const JobStep step = item.what();
    const int group = step.group;
    const JobGroup& of = groups_[group];
    const uint64_t at = ranks_[number].memberships[group].next_instance++;
    std::deque<Instance>& instances = instances_[group];
    while (instances.size() <= at - first_instance_[group]) instances.emplace_back();
    Instance& instance = instances[at - first_instance_[group]];
    if (instance.op == nullptr) {
      instance.op = step.op;
      instance.size_class = step.size_class;
      instance.root = step.root;
      instance.bytes = step.bytes;
    }
    instance.is_broken |= std::strcmp(instance.op, step.op) != 0 ||
                          instance.size_class != step.size_class || instance.root != step.root ||
                          instance.bytes != step.bytes;
    if (step.is_left_early) return ArriveAndLeave(number, item, &instance);
    if (item.is_absent) {
      instance.absent.push_back(number);
      End(&ranks_[number].streams[of.stream], item.begun_ns);
    }
    instance.last_begun_ns = std::max(instance.last_begun_ns, item.begun_ns);
    if (++instance.came < of.members.size() || instance.is_broken) return;
    if (Is(Fault::kNetworkStuck) && group == options_.group &&
        instance.last_begun_ns >= options_.fault_ns) {
      instance.is_broken = true;
      return;
    }
    const bool is_slow = Is(Fault::kNetworkSlow) && of.nodes > 1 && Spans(of, options_.rank) &&
                         instance.last_begun_ns >= options_.fault_ns;
    int64_t end_ns = instance.last_begun_ns + step.work_ns * (is_slow ? 10 : 1);
    if (Is(Fault::kMoves) && group == options_.group && !has_moved_ &&
        ranks_[number].steps > options_.change_step) {
      has_moved_ = true;
      AskAfter(instance.last_begun_ns);
      end_ns += options_.pause_ns;
      // One rank of each node has the network.
      int node = -1;
      for (const int member : of.members) {
        if (layout_.NodeOf(member) == node) continue;
        node = layout_.NodeOf(member);
        ranks_[member].memberships[group].Move(instance.last_begun_ns, end_ns);
      }
    }
    if (DiesBefore(of, end_ns)) {
      instance.is_broken = true;
      return;
    }
    const std::vector<int> absent = instance.absent;
    const int64_t last_begun_ns = instance.last_begun_ns;
    while (!instances.empty() && instances.front().came == of.members.size()) {
      instances.pop_front();
      ++first_instance_[group];
    }
    const bool is_dead = Is(Fault::kDeadLink) && group == options_.group && !is_link_dead_ &&
                         last_begun_ns >= options_.fault_ns;
    is_link_dead_ |= is_dead;
    for (const int member : of.members) {
      const bool is_at_end = member == options_.rank || member == options_.other;
      if (is_dead && is_at_end) continue;
      if (std::find(absent.begin(), absent.end(), member) != absent.end()) continue;
      Finish(member, group, end_ns);
      if (member != number) Wake(member);
    }
  }

  // Handles a call that each rank leaves when its own part is done.
  void ArriveAndLeave(int number, const JobItem& item, Instance* instance) {
    const JobStep& step = item.what();
    const JobGroup& of = groups_[step.group];
    const bool is_root = ranks_[number].memberships[step.group].snapshot().rank == step.root;
    const bool is_reduce = std::strcmp(step.op, "Reduce") == 0;
    instance->last_begun_ns = std::max(instance->last_begun_ns, item.begun_ns);
    ++instance->came;
    if (is_root) {
      instance->has_root = true;
      instance->root_begun_ns = item.begun_ns;
    }
    if (is_root != is_reduce) {
      Finish(number, step.group, item.begun_ns + step.work_ns);
    } else {
      instance->waiting.push_back(number);
    }
    const bool can_end = is_reduce ? instance->came == of.members.size() : instance->has_root;
    if (!can_end || instance->is_broken) return;
    for (const int member : std::exchange(instance->waiting, {})) {
      const int64_t begun_ns = ranks_[member].streams[of.stream].queue.front().begun_ns;
      Finish(member, step.group,
             std::max(begun_ns, is_reduce ? instance->last_begun_ns : instance->root_begun_ns) +
                 step.work_ns);
      if (member != number) Wake(member);
    }
  }

  bool DiesBefore(const JobGroup& group, int64_t end_ns) const {
    return !options_.deeds.empty() &&
           std::any_of(group.members.begin(), group.members.end(),
                       [&](int member) { return ranks_[member].dies_ns < end_ns; });
  }

  // True if one of the group's ranks is on the node of `rank`.
  bool Spans(const JobGroup& group, int rank) const {
    return std::any_of(group.members.begin(), group.members.end(),
                       [&](int member) { return layout_.NodeOf(member) == layout_.NodeOf(rank); });
  }

  // Ends the item at the front of its stream.
  void Finish(int number, int group, int64_t end_ns) {
    RunningRank& rank = ranks_[number];
    JobStream& stream = rank.streams[groups_[group].stream];
    const JobItem item = stream.queue.front();
    End(&stream, end_ns);
    for (; rank.next_page_ns <= std::min(end_ns, rank.seen_ns);
         rank.next_page_ns += options_.page_every_ns) {
      MakePage(options_, rank.next_page_ns, &rank);
    }
    if (end_ns > rank.seen_ns || item.launched_ns > rank.seen_ns) return;
    rank.memberships[item.what().group].Finish(item.what(), item.launched_ns, item.begun_ns, end_ns,
                                               options_.sampling_exponent);
  }

  // True for ranks that the watchdog ends: some of the ranks that wait at that time.
  bool IsVictim(int number) {
    constexpr double kShare = 0.3;
    constexpr int64_t kPatienceNs = 11 * kSecond;
    const RunningRank& rank = ranks_[number];
    if (options_.watchdog == Watchdog::kNone || number == options_.rank) return false;
    const auto has_stood = [this](const JobStream& stream) {
      return !stream.queue.empty() &&
             stream.queue.front().begun_ns <= options_.watchdog_ns - kPatienceNs;
    };
    return std::any_of(std::begin(rank.streams), std::end(rank.streams), has_stood) &&
           JobRandom(options_.seed + static_cast<uint64_t>(number)).Share() < kShare;
  }

  static void End(Watchdog watchdog, int64_t at_ns, ProcessSnapshot* process) {
    const int64_t now = kJobStart + at_ns;
    if (watchdog == Watchdog::kKills) {
      process->end = ProcessEnd::kLost;
      process->end_realtime_ns = process->last_poll_realtime_ns = now;
      return;
    }
    for (CommunicatorSnapshot& communicator : process->communicators) {
      communicator.finalized = true;
      if (communicator.launches == communicator.launches_completed) continue;
      communicator.launches_completed = communicator.launches;
      communicator.oldest_inflight_realtime_ns = 0;
      communicator.oldest_launch = OldestLaunch::kUnknown;
      communicator.last_completion_realtime_ns = now;
    }
  }

  // Adds a second communicator of a group's ranks.
  void MakeCommunicator(int number, ProcessSnapshot* process) const {
    const JobGroup& group = groups_[options_.group];
    const auto found = std::find(group.members.begin(), group.members.end(), number);
    if (found == group.members.end()) return;
    CommunicatorSnapshot& made = process->communicators.emplace_back();
    made.comm_id = group.comm_id + 1;
    made.rank = static_cast<int32_t>(found - group.members.begin());
    made.nranks = static_cast<int32_t>(group.members.size());
    made.nnodes = group.nodes;
    made.gpu = process->communicators.front().gpu;
    made.uuid = process->communicators.front().uuid;
    made.init_realtime_ns = kJobStart + made_ns_;
    made.has_heartbeat = true;
  }

  std::vector<NodeSnapshot> Snapshots() {
    std::vector<NodeSnapshot> nodes(layout_.nodes());
    for (int node = 0; node < layout_.nodes(); ++node) {
      nodes[node].asked_realtime_ns = kJobStart + asked_ns_[node];
    }
    for (int i = 0; i < layout_.ranks(); ++i) {
      const int node = layout_.NodeOf(i);
      if (Is(Fault::kProcessVanished) && i == options_.rank) continue;
      ProcessSnapshot process = ProcessOf(layout_, options_, i, &ranks_[i]);
      if (IsVictim(i)) End(options_.watchdog, options_.watchdog_ns, &process);
      if (ranks_[i].has_aborted) End(Watchdog::kAborts, ranks_[i].dies_ns, &process);
      if (Is(Fault::kNotMade) && i != options_.rank) MakeCommunicator(i, &process);
      SnapshotSet& set = nodes[node].set;
      (process.end == ProcessEnd::kLive ? set.processes : set.ended).push_back(std::move(process));
    }
    return nodes;
  }

  const JobLayout& layout_;
  const std::vector<JobGroup>& groups_;
  const JobRunOptions& options_;
  JobRandom random_;
  std::vector<int64_t> asked_ns_;  // by node
  int64_t end_ns_ = 0;
  int failed_calls_ = 0;
  int64_t made_ns_ = 0;  // of kNotMade
  bool is_asked_ = false, has_moved_ = false, is_link_dead_ = false;
  std::vector<RunningRank> ranks_;
  std::deque<int> awake_;
  std::vector<std::deque<Instance>> instances_;  // by group, without ended ones
  std::vector<uint64_t> first_instance_;
  std::map<std::tuple<int, int, int>, std::deque<int64_t>> messages_;  // group, from, to
  std::map<std::tuple<int, int, int>, std::deque<int64_t>> received_;  // end of each
};

}  // namespace

std::vector<NodeSnapshot> RunJob(const JobLayout& layout, const std::vector<JobGroup>& groups,
                                 const JobRunOptions& options) {
  return Run(layout, groups, options).Make();
}

}  // namespace nccl_pulse

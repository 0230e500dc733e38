// The jobs of bench/jobs without the plugin: of what their processes measured, RAS keeps the counts of
// launched collectives, NVML whether GPUs have worked. Verdicts are right, or no rank is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/jobs/job_run.h"
#include "bench/jobs/scenario.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/job_verdict.h"
#include "exporter/fleet/job_report.h"
#include "exporter/outside/outside_look.h"
#include "exporter/outside/outside_monitor.h"
#include "tests/outside/made_up_ras.h"

namespace nccl_pulse::outside {
namespace {

constexpr int64_t kSecondNs = 1000000000;
constexpr int64_t kApartNs = 10 * kSecondNs + 200000000;

uint64_t CallsOf(const CommunicatorSnapshot& communicator, const char* op) {
  uint64_t calls = 0;
  for (const CallCountSnapshot& each : communicator.calls) {
    if (each.op == op && !each.captured) calls += each.calls;
  }
  return calls;
}

bool IsHere(const ProcessSnapshot& process) { return process.end == ProcessEnd::kLive; }

std::vector<ProcessSnapshot> ProcessesOf(const NodeSnapshot& node) {
  std::vector<ProcessSnapshot> all = node.set.processes;
  all.insert(all.end(), node.set.ended.begin(), node.set.ended.end());
  return all;
}

// What RAS reports of the whole job, asked on a node that still has processes.
std::string RasOf(const std::vector<NodeSnapshot>& nodes) {
  std::map<uint64_t, MadeUpCommunicator> communicators;
  for (const NodeSnapshot& node : nodes) {
    for (const ProcessSnapshot& process : ProcessesOf(node)) {
      for (const CommunicatorSnapshot& each : process.communicators) {
        MadeUpCommunicator& made = communicators[each.comm_id];
        made.hash = absl::StrCat("0x", absl::Hex(each.comm_id));
        made.size = each.nranks;
        MadeUpRank& rank = made.ranks.emplace_back();
        rank.rank = each.rank;
        rank.host = process.hostname;
        rank.pid = process.pid;
        EXPECT_TRUE(absl::SimpleAtoi(process.local_rank, &rank.gpu));
        rank.is_missing = !IsHere(process) || process.run_state == RunState::kStopped ||
                          process.run_state == RunState::kTraced;
        if (!rank.is_missing && each.finalized) rank.is_missing = rank.has_left = true;
        rank.all_reduces = CallsOf(each, "AllReduce");
        rank.all_gathers = CallsOf(each, "AllGather");
        rank.broadcasts = CallsOf(each, "Broadcast");
        rank.reduces = CallsOf(each, "Reduce");
        rank.reduce_scatters = CallsOf(each, "ReduceScatter");
      }
    }
  }
  std::vector<MadeUpCommunicator> all;
  for (auto& [id, made] : communicators) all.push_back(std::move(made));
  return RasText(all);
}

// `fault`: of the job. Another library's kernel that waits uses no memory, as NCCL's.
GpuUse UseOf(const ProcessSnapshot& process, Fault fault, int64_t now_ns) {
  bool is_idle = true;
  for (const CommunicatorSnapshot& each : process.communicators) {
    const int64_t inside_ns = each.oldest_inflight_realtime_ns;
    // A launch behind work of its own, which uses memory, doesn't wait.
    const bool has_begun =
        each.oldest_launch != OldestLaunch::kNotBegun || fault == Fault::kForeignHost;
    if (inside_ns != 0 && has_begun && now_ns - inside_ns >= kApartNs) return GpuUse::kBusy;
    is_idle &= inside_ns == 0 && now_ns - each.last_completion_realtime_ns >= kApartNs;
  }
  return is_idle ? GpuUse::kIdle : GpuUse::kMixed;
}

// When the node was asked. Its own clock may be an hour off.
int64_t NowOf(const NodeSnapshot& node) {
  int64_t now_ns = 0;
  for (const ProcessSnapshot& process : node.set.processes) {
    now_ns = std::max(now_ns, process.last_poll_realtime_ns);
  }
  return now_ns;
}

struct Said {
  std::set<int> stopped;   // ranks that are stopped, and may be named as that
  std::set<int> gone;      // likewise, if the culprit is one of them
  std::set<int> named;     // global ranks
  std::set<int> by_agent;  // by the engine, from what the node's agent reports
  std::string text;
};

// The job as all nodes see it, kApartNs before it is asked or then.
std::vector<NodeSnapshot> NodesOf(const Scenario& scenario, bool is_early) {
  JobRunOptions options = scenario.options;
  if (is_early) options.asked_ns -= kApartNs;
  options.asked_within_ns = 0;
  return RunJob(scenario.layout, scenario.groups, options);
}

// As the node of this number sees it.
Said Ask(const Scenario& scenario, const std::vector<NodeSnapshot>& before,
         const std::vector<NodeSnapshot>& after, std::size_t here) {
  if (here >= after.size()) return {};
  HostProcesses processes;
  std::vector<HostGpu> gpus;
  Said said;
  std::map<std::pair<uint64_t, int32_t>, int> ranks;
  for (const NodeSnapshot& node : after) {
    for (const ProcessSnapshot& process : ProcessesOf(node)) {
      for (const CommunicatorSnapshot& each : process.communicators) {
        int& rank = ranks[{each.comm_id, each.rank}];
        EXPECT_TRUE(absl::SimpleAtoi(process.global_rank, &rank));
        const bool is_stopped =
            process.run_state == RunState::kStopped || process.run_state == RunState::kTraced;
        if (is_stopped) said.stopped.insert(rank);
        if (!IsHere(process)) said.gone.insert(rank);
      }
    }
  }
  std::string name;
  for (const ProcessSnapshot& process : after[here].set.processes) {
    name = process.hostname;
    int gpu = 0;
    EXPECT_TRUE(absl::SimpleAtoi(process.local_rank, &gpu));
    if (!IsHere(process)) continue;
    HostProcess& found = processes.processes.emplace_back();
    found.pid = found.own_pid = process.pid;
    found.state = process.run_state == RunState::kUnknown ? RunState::kRunning : process.run_state;
    gpus.push_back(
        {gpu, UseOf(process, scenario.options.fault, NowOf(after[here])), {process.pid}});
  }
  std::sort(processes.processes.begin(), processes.processes.end(),
            [](const auto& a, const auto& b) { return a.pid < b.pid; });
  bool has_waited = false;
  int64_t now_ns = NowOf(after[here]) - kApartNs;
  Sources sources;
  sources.processes = [&](const std::vector<int32_t>*) { return processes; };
  sources.gpus = [&](int64_t) { return gpus; };
  sources.ask_ras = [&](const RasListener&, std::size_t) {
    return RasReport{RasOf(has_waited ? after : before), "", true};
  };
  sources.wait = [&](std::chrono::milliseconds) {
    now_ns += kApartNs;
    has_waited = true;
  };
  sources.now_realtime_ns = [&] { return now_ns; };
  sources.addresses = {name};
  sources.hostname = name;
  const auto add = [&ranks](const JobVerdict& verdict, std::set<int>* named) {
    for (const JobRoot& root : verdict.roots) {
      for (const JobRank& rank : root.ranks) {
        const auto found = ranks.find({rank.comm_id, rank.rank});
        named->insert(found == ranks.end() ? -1 : found->second);
      }
    }
  };
  const Looks looks = LookFromOutside(Options(), sources);
  for (const JobLook& look : looks.jobs) {
    absl::StrAppend(&said.text, JobText(look));
    add(look.verdict, &said.named);
  }
  has_waited = false;
  OutsideMonitor watch([] { return std::chrono::seconds(10); }, sources);
  watch.Round();
  sources.wait(std::chrono::milliseconds(0));
  watch.Round();
  SnapshotSet set = watch.Snapshots(now_ns);
  set.is_of_all_nodes = true;
  add(JudgeJob(set, Diagnosis(std::chrono::seconds(10)).Update(set, now_ns), now_ns),
      &said.by_agent);
  return said;
}

struct Kind {
  const char* fault;
  int least_named;  // of eight jobs, asked on the culprit's node; -1: of a healthy job none may be
  // False if only the node of the GPU knows what tells the culprit.
  bool is_asked_elsewhere = true;
};

class WithoutThePlugin : public testing::TestWithParam<Kind> {};

TEST_P(WithoutThePlugin, ARankIsNamedRightlyOrNotAtAll) {
  constexpr uint64_t kJobs = 8;
  int named = 0;
  for (uint64_t seed = 0; seed < kJobs; ++seed) {
    const Scenario scenario = MakeScenario(GetParam().fault, seed);
    const auto own = static_cast<std::size_t>(scenario.layout.NodeOf(scenario.options.rank));
    const std::vector<NodeSnapshot> before = NodesOf(scenario, true),
                                    after = NodesOf(scenario, false);
    for (const std::size_t here : {own, own == 0 ? std::size_t{1} : std::size_t{0}}) {
      if (here != own && !GetParam().is_asked_elsewhere) continue;
      const Said said = Ask(scenario, before, after, here);
      if (!said.by_agent.empty()) {
        EXPECT_EQ(said.by_agent, said.named) << "seed " << seed << " on node " << here;
      }
      if (said.named.empty()) continue;
      // That it is stopped is true, though it may wait itself.
      if (said.named == said.stopped && said.named != scenario.culprits) continue;
      // The order of deaths isn't known.
      const auto has = [](const std::set<int>& all, const std::set<int>& some) {
        return std::includes(all.begin(), all.end(), some.begin(), some.end());
      };
      if (GetParam().least_named >= 0 && said.named != scenario.culprits &&
          has(said.gone, said.named) && has(said.named, scenario.culprits)) {
        continue;
      }
      EXPECT_EQ(said.named, GetParam().least_named < 0 ? std::set<int>() : scenario.culprits)
          << "seed " << seed << " on node " << here << ", " << scenario.layout.name << "\n"
          << said.text;
      named += here == own && said.named == scenario.culprits ? 1 : 0;
    }
  }
  EXPECT_GE(named, GetParam().least_named);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, WithoutThePlugin,
    testing::Values(
        Kind{"host stuck", 8}, Kind{"GPU stuck", 0}, Kind{"process gone", 8},
        Kind{"process stopped", 7}, Kind{"network stuck", 0}, Kind{"process gone, not known", 0},
        Kind{"wrong size", 0}, Kind{"host paused", 6}, Kind{"driver call", 6},
        Kind{"GPU stuck, large messages", 0}, Kind{"dead link of a pipeline", 0},
        Kind{"network slow", -1}, Kind{"host stuck, large messages", 8},
        Kind{"host pauses, calls posted ahead", 8}, Kind{"wrong order", 8},
        Kind{"a debugger at one that waits", 4}, Kind{"in exit()", 8}, Kind{"node gone", 0},
        Kind{"driver error", 0}, Kind{"wrong root", 0}, Kind{"circle of Sends", 0},
        Kind{"dead link, ranks without tokens", 0},
        Kind{"a rank does not come to a communicator", 0},
        Kind{"foreign kernel waits for a host", 8}, Kind{"foreign kernel on all GPUs", 0},
        Kind{"all processes are stopped", 0}, Kind{"host stuck, another job in a checkpoint", 8},
        Kind{"healthy end, ranks leave early", -1}, Kind{"healthy end by _exit(0)", -1},
        Kind{"Broadcast of unequal sizes, its root is done", 0},
        Kind{"all hosts stall outside of NCCL", 0},
        Kind{"GPU stuck, another rank waits for it outside of NCCL", 0, false},
        Kind{"GPU stuck, all others wait for it outside of NCCL", 0},
        Kind{"GPU stuck, a watchdog kills", 0, false}, Kind{"network stuck, a watchdog aborts", 0},
        Kind{"one stands, all were suspended before", 0},
        Kind{"a rank dies, the launcher ends its node", 0}, Kind{"a collective that moves", -1},
        Kind{"healthy", -1}, Kind{"sequences of unequal length", -1},
        Kind{"straggler at the host", -1}, Kind{"queued behind long kernels", -1}),
    [](const auto& info) {
      std::string name = info.param.fault;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !absl::ascii_isalnum(c); }, '_');
      return name;
    });

}  // namespace
}  // namespace nccl_pulse::outside

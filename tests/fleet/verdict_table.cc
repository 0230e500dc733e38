// Jobs with one thing wrong, or nothing, each on one node and with each rank on a node of its own.
// Prints for each row a line of JSON: what is expected, what the engine says, `pulse diagnose
// --json`, what `pulse watch` says, which has made its round over the same endpoints, and its
// metrics; of one node also the JSON of its endpoint, and `pulse status`. one_verdict_test.py
// compares them.
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "exporter/cli/status/status_table.h"
#include "exporter/diagnosis/waits/hang.h"
#include "exporter/exposition/json/communicators_json.h"
#include "exporter/fleet/job_report.h"
#include "exporter/watch/watch_page.h"
#include "exporter/watch/watcher.h"
#include "nlohmann/json.hpp"
#include "tests/exporter/diagnosis/hang_job.h"
#include "tests/fleet/job_endpoints.h"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

struct Row {
  const char* name;
  const char* verdict;  // "": no hang
  int rank;             // in the job, -1: nobody is named
  const char* first;    // what its first step begins with; PID stands for that rank's
  std::function<SimulatedJob(int nnodes)> make;
  bool is_slow = false;     // no hang, and this rank comes late
  bool is_stopped = false;  // this rank's process
  const char* state = "";   // "": hang, slow or ok, by the fields above

  std::string StateName() const {
    return *state != '\0' ? state : *verdict != '\0' ? "hang" : is_slow ? "slow" : "ok";
  }
};

constexpr int kRanks = 4;

void WaitFor(SimulatedJob* job, int missing) {
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != missing) job->Launch(kComm, rank, "AllReduce");
  }
}

SimulatedJob Running(int nnodes) { return RunningJob(0, nnodes); }

void WaitedBeforeIn(SimulatedJob* job) {
  for (const int rank : {1, 2, 3}) {
    job->Of(kComm, rank).longest_waits = {WaitedBefore("AllReduce", 540 * kSecond)};
  }
}

// Rank 1 comes late.
SimulatedJob Late(int nnodes) {
  SimulatedJob job(kRanks);
  job.AddCommunicator(kComm, {0, 1, 2, 3}, 0, nnodes);
  for (int i = 0; i < 600; ++i) {
    job.Collective(kComm, "AllReduce", {0, 40 * kMs, 0, 0}, kMs);
    job.Advance(50 * kMs);
  }
  return job;
}

// All but `missing` wait. What else is the matter, `change` makes.
std::function<SimulatedJob(int)> Waiting(
    int missing, const std::function<void(SimulatedJob*)>& change = [](SimulatedJob*) {}) {
  return [=](int nnodes) {
    SimulatedJob job = Running(nnodes);
    WaitFor(&job, missing);
    change(&job);
    return job;
  };
}

// All have replayed a graph a hundred times, and have begun it once more, but for `missing`, which
// is at its stamp `passed` of three of the last replay.
SimulatedJob Replaying(int nnodes, int missing, uint64_t replays, uint32_t passed) {
  SimulatedJob job = Running(nnodes);
  const uint32_t before[] = {0, 60, 61, 65};
  const auto stand = [&](int rank, uint64_t begun, uint32_t stamp) {
    CommunicatorSnapshot& comm = job.Of(kComm, rank);
    comm.captured = true;
    comm.calls.push_back({"AllReduce", 4, "ncclFloat32", true, 65, 0});
    comm.graph_replays = begun;
    comm.graph_replays_in_flight = stamp < 3 ? 1 : 0;
    comm.graph_moved_realtime_ns = job.now();
    GraphPosition& position = comm.graph_position;
    position.captures = position.followed = position.graph = 1;
    position.stamps = 3;
    position.passed = stamp;
    position.calls_before = before[stamp - 1];
    position.calls_until = before[stamp];
    position.calls = 65;
    position.has_head = true;
  };
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == missing) {
      stand(rank, replays, passed);
    } else {
      stand(rank, 101, 2);
    }
  }
  return job;
}

// All have replayed short graphs until now. The GPUs of others than `missing` wait in one.
SimulatedJob InShortGraphs(int nnodes, int missing) {
  SimulatedJob job = Running(nnodes);
  for (int rank = 0; rank < kRanks; ++rank) {
    CommunicatorSnapshot& comm = job.Of(kComm, rank);
    comm.captured = true;
    comm.work.state = WorkState::kProven;
    comm.work.moved_realtime_ns = job.now();
    comm.work.gpu_use = rank == missing ? GpuUse::kIdle : GpuUse::kBusy;
  }
  return job;
}

SimulatedJob Circle(int nnodes) {
  SimulatedJob job = Running(nnodes);
  job.AddCommunicator(kOther, {0, 1, 2, 3}, 0, nnodes);
  for (const int rank : {0, 2}) job.Launch(kComm, rank, "AllReduce");
  job.Advance(kMs);
  for (const int rank : {1, 3}) job.Launch(kOther, rank, "AllReduce");
  return job;
}

// Rank 1 does not come to kComm because it waits in kOther for rank 2.
SimulatedJob Chain(int nnodes) {
  SimulatedJob job = Running(nnodes);
  job.AddCommunicator(kOther, {1, 2}, 0, nnodes == 1 ? 1 : 2);
  job.Launch(kOther, 0, "AllReduce");
  job.Advance(kMs);
  for (const int rank : {0, 3}) job.Launch(kComm, rank, "AllReduce");
  return job;
}

const std::vector<Row>& Rows() {
  static const auto* const kRows = new std::vector<Row>{
      {"nothing", "", -1, "",
       [](int nnodes) {
         SimulatedJob job = Running(nnodes);
         WaitedBeforeIn(&job);
         return job;
       }},
      {"not_called", "rank_not_called", 2, "py-spy dump --pid PID", Waiting(2)},
      {"not_launched", "rank_not_launched", 3, "gdb -p PID",
       [](int nnodes) {
         SimulatedJob job = Running(nnodes);
         job.Call(kComm, 3, "AllReduce");
         job.Advance(kMs);
         WaitFor(&job, 3);
         return job;
       }},
      {"not_begun", "rank_not_begun", 1, "nvidia-smi and dmesg (Xid)",
       Waiting(-1,
               [](SimulatedJob* job) {
                 SetBegun(job, kComm, {kBegun, kNotBegun, kBegun, kBegun});
               })},
      {"replay_not_launched", "rank_not_begun", 2, "py-spy dump --pid PID",
       [](int nnodes) { return Replaying(nnodes, 2, 100, 3); }},
      {"replay_behind", "rank_not_begun", 0, "py-spy dump --pid PID",
       [](int nnodes) { return Replaying(nnodes, 0, 101, 1); }},
      {"replay_all_alike", "no_progress", -1, "check the network",
       [](int nnodes) { return Replaying(nnodes, 1, 101, 2); }},
      {"graph_not_launched", "rank_not_begun", 2, "py-spy dump --pid PID",
       [](int nnodes) { return InShortGraphs(nnodes, 2); }},
      {"graphs_all_busy", "no_progress", -1, "check the network",
       [](int nnodes) { return InShortGraphs(nnodes, -1); }},
      {"other_operation", "mismatched_operations", 2, "py-spy dump --pid PID",
       Waiting(2, [](SimulatedJob* job) { job->Launch(kComm, 2, "Broadcast"); })},
      {"other_size", "mismatched_operations", 3, "py-spy dump --pid PID",
       Waiting(3, [](SimulatedJob* job) { job->Launch(kComm, 3, "AllReduce", 6); })},
      {"circle", "circular_wait", 1, "py-spy dump --pid PID", Circle},
      {"chain", "rank_not_called", 2, "py-spy dump --pid PID", Chain},
      {"gone", "process_gone", 2, "its log, and dmesg",
       Waiting(2,
               [](SimulatedJob* job) {
                 job->process(2).end = ProcessEnd::kLost;
                 job->process(2).end_realtime_ns = job->now();
               })},
      {"finalized", "rank_not_called", 2, "py-spy dump --pid PID",
       Waiting(2, [](SimulatedJob* job) { job->Of(kComm, 2).finalized = true; })},
      {"exiting", "rank_not_called", 2, "gdb -p PID",
       Waiting(2,
               [](SimulatedJob* job) {
                 job->process(2).poller = PollerState::kEnded;
                 job->process(2).last_poll_realtime_ns = job->now();
               })},
      {"driver_error", "driver_error", 1, "nvidia-smi -q and dmesg (Xid)",
       Waiting(-1,
               [](SimulatedJob* job) {
                 CommunicatorSnapshot& comm = job->Of(kComm, 1);
                 comm.has_heartbeat = false;
                 comm.driver_error = 214;
                 comm.driver_error_realtime_ns = job->now();
               })},
      {"queued", "no_progress", -1, "nvidia-smi and py-spy dump",
       Waiting(-1,
               [](SimulatedJob* job) {
                 SetBegun(job, kComm, {kNotBegun, kNotBegun, kNotBegun, kNotBegun});
                 job->Advance(60 * kSecond);
               })},
      {"stopped", "process_stopped", 2, "cat /proc/PID/status", Waiting(2), /*is_slow=*/false,
       /*is_stopped=*/true},
      {"not_seen", "rank_not_seen", 4, "check that its process",
       [](int nnodes) {
         SimulatedJob job = RunningJob(5, nnodes);
         WaitFor(&job, -1);
         return job;
       }},
      {"peer", "rank_not_called", 1, "py-spy dump --pid PID",
       [](int nnodes) {
         SimulatedJob job(2);
         job.AddCommunicator(kComm, {0, 1}, 0, nnodes == 1 ? 1 : 2);
         job.Launch(kComm, 0, "Recv");
         return job;
       }},
      {"send_and_recv", "point_to_point", -1, "py-spy dump for the ranks",
       [](int nnodes) {
         SimulatedJob job(kRanks);
         job.AddCommunicator(kComm, {0, 1, 2, 3}, 0, nnodes);
         job.Launch(kComm, 1, "Recv");
         job.Launch(kComm, 2, "Recv");
         return job;
       }},
      {"network", "no_progress", -1, "check the network", Waiting(-1)},
      {"usual", "", -1, "", Waiting(0, WaitedBeforeIn), /*is_slow=*/false, /*is_stopped=*/false,
       "wait"},
      {"usual_and_missing", "", -1, "",
       [](int nnodes) {
         SimulatedJob job = RunningJob(5, nnodes);
         WaitFor(&job, 0);
         WaitedBeforeIn(&job);
         return job;
       },
       /*is_slow=*/false, /*is_stopped=*/false, "incomplete"},
      {"late", "", 1, "nvidia-smi -q -d PERFORMANCE", Late, /*is_slow=*/true},
      {"late_and_missing", "", 1, "nvidia-smi -q -d PERFORMANCE",
       [](int nnodes) {
         SimulatedJob job = Late(nnodes);
         job.AddCommunicator(kOther, {2, 3}, 3, nnodes);
         return job;
       },
       /*is_slow=*/true, /*is_stopped=*/false, "incomplete"},
      {"missing", "", -1, "", [](int nnodes) { return RunningJob(5, nnodes); }, /*is_slow=*/false,
       /*is_stopped=*/false, "incomplete"},
      {"idle", "", -1, "", Running, /*is_slow=*/false, /*is_stopped=*/false, "idle"},
      {"ended", "", -1, "",
       [](int nnodes) {
         SimulatedJob job = Running(nnodes);
         for (int rank = 0; rank < kRanks; ++rank) End(&job, rank);
         return job;
       },
       /*is_slow=*/false, /*is_stopped=*/false, "ended"},
  };
  return *kRows;
}

Json RowJson(const Row& row, bool is_one_node) {
  SimulatedJob job = row.make(is_one_node ? 1 : kRanks);
  const int64_t stopped = job.now();
  if (!row.is_slow) job.Advance(kHangAfter + kSecond);
  if (row.is_stopped) job.process(row.rank).last_poll_realtime_ns = stopped;
  std::vector<int> node_of(job.Set().processes.size());
  if (!is_one_node) std::iota(node_of.begin(), node_of.end(), 0);
  JobEndpoints endpoints(&job, node_of);
  JobLookOptions options;
  options.pause = std::chrono::milliseconds(0);
  options.ask = endpoints.ask();
  const JobLook look = LookAtJob(endpoints.addresses(), options);
  Watcher::Options watching;
  watching.look = options;
  watching.find = [&endpoints](auto* found, auto*, auto*) {
    *found = endpoints.addresses();
    return true;
  };
  Watcher watcher(std::move(watching));
  watcher.Round();

  Json engine = {{"verdict", ""}, {"rank", -1}, {"first", ""}};
  const auto rank_of = [](const std::vector<JobRank>& ranks) {
    if (ranks.empty()) return -1;
    const ProcessSnapshot* process = ranks.front().process;
    return process == nullptr ? ranks.front().rank : std::stoi(process->global_rank);
  };
  if (!look.verdict.roots.empty() && !look.verdict.roots.front().is_usual) {
    const JobRoot& root = look.verdict.roots.front();
    engine = {{"verdict", HangVerdictName(root.verdict)},
              {"rank", rank_of(root.ranks)},
              {"first", FirstStep(root)}};
  } else if (!look.verdict.stragglers.empty()) {
    const JobStraggler& straggler = look.verdict.stragglers.front();
    engine = {{"verdict", ""}, {"rank", rank_of(straggler.ranks)}, {"first", FirstStep(straggler)}};
  }
  std::string first = row.first;
  if (const std::size_t at = first.find("PID"); at != first.npos) {
    first.replace(at, 3, absl::StrCat(100 + row.rank));
  }
  Json node = nullptr;
  std::string status;
  if (is_one_node) {
    const SnapshotSet set = job.Set();
    const std::string page = CommunicatorsJson(set, job.now(), Diagnosis().Update(set, job.now()));
    node = Json::parse(page);
    StatusOptions wide;
    wide.width = 1 << 20;
    status = StatusTable(node, nullptr, wide);
  }
  return {{"name", absl::StrCat(row.name, is_one_node ? " on one node" : " on four nodes")},
          {"expected", {{"verdict", row.verdict}, {"rank", row.rank}, {"first", first}}},
          {"state", row.StateName()},
          {"engine", std::move(engine)},
          {"json", Json::parse(JobJson(look))},
          {"watch", watcher.state()->jobs.at(0).findings.text},
          {"metrics", WatchMetrics(*watcher.state())},
          {"node", std::move(node)},
          {"status", std::move(status)}};
}

int Main() {
  for (const Row& row : Rows()) {
    for (const bool is_one_node : {true, false}) {
      std::printf("%s\n", RowJson(row, is_one_node).dump().c_str());
    }
  }
  return 0;
}

}  // namespace
}  // namespace nccl_pulse

int main() { return nccl_pulse::Main(); }

// What an endpoint may answer to make `pulse diagnose` stumble: messages with many bytes changed,
// put together to a job, judged and put into words.
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bench/jobs/scenario.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/exposition/snapshot_message.h"
#include "exporter/fleet/job_report.h"
#include "exporter/fleet/snapshot_union.h"
#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

constexpr uint64_t kSmallRoom = uint64_t{8} << 20;
constexpr int kRounds = 300;

class Vandal {
 public:
  explicit Vandal(uint64_t seed) : random_(seed) {}

  std::string Damaged(std::string text) {
    for (uint64_t left = Below(40); left != 0; --left) {
      // Behind the mark and the version.
      const std::size_t at = 12 + Below(text.size() - 12);
      switch (Below(4)) {
        case 0:
          text[at] = static_cast<char>(Below(256));
          break;
        case 1:
          text[at] = '\x7f';
          break;
        case 2:  // a number of ten bytes: all bits
          text.insert(at, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
          break;
        default:
          text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
          break;
      }
    }
    return text;
  }
  uint64_t Below(uint64_t end) { return random_() % end; }

 private:
  std::mt19937_64 random_;
};

int64_t Extreme(Vandal* vandal) {
  constexpr int64_t kExtremes[] = {INT64_MIN, INT64_MAX, -1, 0, 1, 1760000000000000000};
  return kExtremes[vandal->Below(std::size(kExtremes))];
}

// Well-formed, and nothing in it true.
void Lie(Vandal* vandal, SnapshotSet* set) {
  for (ProcessSnapshot& process : set->processes) {
    if (vandal->Below(3) == 0) process.last_poll_realtime_ns = Extreme(vandal);
    if (vandal->Below(3) == 0) process.start_realtime_ns = Extreme(vandal);
    if (vandal->Below(5) == 0) process.end = static_cast<ProcessEnd>(vandal->Below(256));
    if (vandal->Below(5) == 0) process.poller = static_cast<PollerState>(vandal->Below(256));
    if (vandal->Below(3) == 0) process.sampling_exponent = static_cast<int>(Extreme(vandal));
    for (CommunicatorSnapshot& comm : process.communicators) {
      if (vandal->Below(3) == 0) comm.rank = static_cast<int32_t>(Extreme(vandal));
      if (vandal->Below(3) == 0) comm.nranks = static_cast<int32_t>(Extreme(vandal));
      if (vandal->Below(3) == 0) comm.nnodes = static_cast<int32_t>(Extreme(vandal));
      if (vandal->Below(3) == 0) comm.oldest_inflight_realtime_ns = Extreme(vandal);
      if (vandal->Below(3) == 0) comm.last_completion_realtime_ns = Extreme(vandal);
      if (vandal->Below(3) == 0) comm.last_launch_realtime_ns = Extreme(vandal);
      if (vandal->Below(3) == 0) comm.oldest_operation_realtime_ns = Extreme(vandal);
      if (vandal->Below(3) == 0) comm.unreported_since_realtime_ns = Extreme(vandal);
      if (vandal->Below(3) == 0) comm.unreported_calls = static_cast<uint64_t>(Extreme(vandal));
      if (vandal->Below(3) == 0) comm.launches = static_cast<uint64_t>(Extreme(vandal));
      if (vandal->Below(4) == 0) comm.launches_completed = static_cast<uint64_t>(Extreme(vandal));
      if (vandal->Below(4) == 0) {
        comm.last_call_size_class =
            static_cast<decltype(comm.last_call_size_class)>(Extreme(vandal));
      }
      if (vandal->Below(4) == 0) comm.oldest_launch = static_cast<OldestLaunch>(vandal->Below(256));
      if (vandal->Below(4) == 0)
        comm.operations_source = static_cast<CompletionSource>(vandal->Below(256));
      for (CallCountSnapshot& call : comm.calls) {
        if (vandal->Below(4) == 0) call.calls = static_cast<uint64_t>(Extreme(vandal));
        if (vandal->Below(4) == 0)
          call.size_class = static_cast<decltype(call.size_class)>(Extreme(vandal));
      }
      for (auto* calls : {&comm.timed_calls, &comm.picked_calls}) {
        for (TimedCallSnapshot& call : *calls) {
          if (vandal->Below(4) == 0) call.kind = static_cast<LatencyKind>(vandal->Below(256));
          if (vandal->Below(4) == 0)
            call.size_class = static_cast<decltype(call.size_class)>(Extreme(vandal));
          if (vandal->Below(4) == 0) call.duration_ns = static_cast<uint64_t>(Extreme(vandal));
          if (vandal->Below(4) == 0) call.end_realtime_ns = Extreme(vandal);
        }
      }
      for (LongestWaitSnapshot& wait : comm.longest_waits) {
        if (vandal->Below(2) == 0) wait.longest_ns = static_cast<uint64_t>(Extreme(vandal));
      }
    }
  }
}

// What the nodes of a job say, with lies or damage of the round's own.
void JudgeWhatIsHostile(int round, std::vector<NodeSnapshot> nodes, int* read) {
  Vandal vandal(round);
  SnapshotUnion all{JobFilter{}};
  JobLook look;
  for (NodeSnapshot& node : nodes) {
    look.now_realtime_ns = node.asked_realtime_ns;
    if (round % 2 == 0) Lie(&vandal, &node.set);
    std::string text = WriteSnapshots(node.set, node.asked_realtime_ns, 10000000000);
    if (round % 2 == 1) text = vandal.Damaged(std::move(text));
    SnapshotMessage message;
    std::string error;
    ++look.endpoints;
    if (!ReadSnapshots(text, node.asked_realtime_ns, kSmallRoom, &message, &error)) continue;
    EXPECT_LE(message.bytes, kSmallRoom);
    ++look.heard;
    ++*read;
    all.Add(std::move(message));
  }
  look.set = all.Take();
  look.diagnosis = Diagnosis().Update(look.set, look.now_realtime_ns);
  look.verdict = JudgeJob(look.set, look.diagnosis, look.now_realtime_ns);
  look.health = HealthOf(look.set, look.diagnosis, look.now_realtime_ns);
  EXPECT_NE(JobText(look), "");
  EXPECT_NE(JobJson(look), "");
}

// Memory and undefined behaviour are for the sanitizers to find; here it must end, and say
// something.
TEST(HostileSnapshots, AreReadJudgedAndPutIntoWords) {
  const int faults = static_cast<int>(FaultNames().size());
  int read = 0;
  for (int fault = 0; fault < faults; ++fault) {
    const Scenario scenario = MakeScenario(FaultNames()[fault], 3);
    // To run the job takes longer than all else: once for all of its rounds.
    const std::vector<NodeSnapshot> nodes =
        RunJob(scenario.layout, scenario.groups, scenario.options);
    for (int round = fault; round < kRounds; round += faults)
      JudgeWhatIsHostile(round, nodes, &read);
  }
  EXPECT_GT(read, kRounds);
}

// Millions of fields that no version knows take no memory, but time.
TEST(HostileSnapshots, AreReadWithinTheirShareOfTheTime) {
  std::string text = WriteSnapshots({}, 1, 1);
  for (int i = 0; i < 2 << 20; ++i) text.append("\x28\x01");
  SnapshotMessage message;
  std::string error;
  WorkBudget budget(std::chrono::nanoseconds(0));
  const WorkBudget::Share share(&budget);
  EXPECT_FALSE(ReadSnapshots(text, 1, kSmallRoom, &message, &error, &share));
  EXPECT_EQ(error, "snapshots that take too long to read");
}

// One after the other, endpoints whose snapshots take all the memory that they may.
TEST(HostileSnapshots, LeaveMemoryForTheOtherEndpoints) {
  SnapshotSet large, small;
  large.processes.resize(1);
  large.processes[0].hostname = "evil";
  large.processes[0].communicators.resize(20000);
  for (CommunicatorSnapshot& each : large.processes[0].communicators) each.comm_id = 1;
  small.processes.resize(8);
  for (ProcessSnapshot& each : small.processes) {
    each.hostname = "good";
    each.pid = static_cast<int32_t>(&each - small.processes.data()) + 1;
    each.communicators.resize(3);
  }
  constexpr std::size_t kEndpoints = 12;
  std::vector<Address> endpoints(kEndpoints);
  JobLookOptions options;
  options.most_bytes = uint64_t{64} << 20;
  options.ask = [&](const auto& requests, const auto& client, const auto& done) {
    EXPECT_LE(client.most_bytes_together, options.most_bytes);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      FleetAnswer answer;
      answer.status = 200;
      answer.body = WriteSnapshots(i + 1 == requests.size() ? small : large, 1, 10000000000);
      done(i, std::move(answer));
    }
  };
  const JobLook look = LookAtJob(endpoints, options);
  EXPECT_LT(look.heard, kEndpoints / 2);
  for (const auto& [problem, names] : look.unheard) {
    EXPECT_EQ(problem, "it answers with more than it is given room for");
  }
  std::size_t honest = 0;
  for (const ProcessSnapshot& each : look.set.processes) honest += each.hostname == "good" ? 1 : 0;
  EXPECT_EQ(honest, small.processes.size());
}

}  // namespace
}  // namespace nccl_pulse

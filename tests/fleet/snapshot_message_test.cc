// What an endpoint tells `pulse diagnose`: the diagnosis of what was read is that of what was
// written.
#include "exporter/exposition/snapshot_message.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <protozero/pbf_writer.hpp>
#include <string>

#include "bench/jobs/scenario.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/stragglers/mean_lateness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {
namespace {

using testing::ContainsRegex;

constexpr uint64_t kRoom = uint64_t{64} << 20;

// All that is said, as text.
std::string Said(const SnapshotSet& set, int64_t now) {
  std::string said;
  for (const CommunicatorDiagnosis& each : Diagnosis().Update(set, now)) {
    said += std::to_string(each.comm_id) + " note " + each.note + "\n";
    if (each.hang) {
      said += std::string(HangVerdictName(each.hang->verdict)) + " " + each.hang->text + " " +
              each.hang->op + " " + std::to_string(each.hang->since_realtime_ns) + " " +
              std::to_string(each.hang->longest_wait_before_ns) + "\n";
      for (const int32_t rank : each.hang->suspects) said += " " + std::to_string(rank);
      for (const int32_t rank : each.hang->waiting) said += " w" + std::to_string(rank);
    }
    if (each.queued) said += each.queued->text;
    if (each.straggler) said += each.straggler->text;
    for (const RankLoss& loss : each.losses) said += " " + std::to_string(loss.seconds);
  }
  return said;
}

SnapshotMessage Reread(const SnapshotSet& set, int64_t now, std::optional<int64_t> put_at = {}) {
  SnapshotMessage message;
  std::string error;
  EXPECT_TRUE(ReadSnapshots(WriteSnapshots(set, now, kHangAfter), put_at, kRoom, &message, &error))
      << error;
  return message;
}

// Returns what protoc makes of it by the schema, "" where there is no protoc.
std::string ByProtoc(const std::string& message) {
  if (std::system("command -v protoc > /dev/null") != 0) return "";
  const std::string path = testing::TempDir() + "/message";
  std::ofstream(path, std::ios::binary) << message;
  const std::string command =
      "protoc --decode=nccl_pulse.Snapshots exporter/exposition/snapshots.proto < " + path;
  FILE* decoded = popen(command.c_str(), "r");
  std::string text;
  for (int c = 0; (c = std::fgetc(decoded)) != EOF;) text.push_back(static_cast<char>(c));
  EXPECT_EQ(pclose(decoded), 0);
  return text;
}

TEST(SnapshotMessage, DiagnosisIsTheSame) {
  int hangs = 0;
  for (const std::string& fault : FaultNames()) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const Scenario scenario = MakeScenario(fault, seed);
      if (scenario.options.page_every_ns != 0) break;  // minutes of the same
      for (const NodeSnapshot& node : RunJob(scenario.layout, scenario.groups, scenario.options)) {
        const int64_t now = node.asked_realtime_ns;
        const std::string said = Said(node.set, now);
        EXPECT_EQ(Said(Reread(node.set, now).set, now), said) << fault << " " << seed;
        hangs += static_cast<int>(said.find("rank_not") != said.npos);
      }
    }
  }
  EXPECT_GT(hangs, 10);  // else this compares nothing with nothing
}

TEST(SnapshotMessage, KeepsWhatTheDiagnosisReads) {
  SnapshotSet set({ExampleProcess()});
  ProcessSnapshot& process = set.processes[0];
  process.pid_namespace = 77;
  process.poller = PollerState::kRunning;
  process.event_mask_changes = 2;
  process.foreign_event_mask = 0x40;
  CommunicatorSnapshot& comm = process.communicators[0];
  comm.last_call_op = "AllReduce";
  comm.last_call_size_class = 4;
  comm.oldest_launch = OldestLaunch::kNotBegun;
  comm.captured = true;
  comm.overflowed_calls = 9;
  comm.unreported_calls = 3;
  comm.are_unreported_in_group = true;
  comm.unreported_since_realtime_ns = 1760000002600000000;
  comm.longest_waits = {{"AllReduce", 4, 7000000000, 1760000602000000000}};
  comm.driver_error = 214;
  comm.driver_error_realtime_ns = 1760000002900000000;
  comm.network_moved_realtime_ns = 1760000002950000000;
  process.run_state = RunState::kTraced;
  process.static_labels = "team=red";
  process.nccl_environment = "NCCL=2.28.9 NCCL_IB_HCA=mlx5_0";
  set.server_labels = "rack=7";
  process.last_poll_realtime_ns = 1760000002990000000;
  process.seen_pid = 12;
  process.seen_in = 78;
  process.user = 0;  // root is not the default
  process.is_from_outside = true;
  comm.finalized = true;
  comm.graph_replays = 1077;
  comm.graph_replays_in_flight = 1;
  comm.graph_moved_realtime_ns = 1760000002500000000;
  comm.work = {WorkState::kProven,  WorkRefutal::kAhead, true,         77,
               1760000002400000000, 12000000000,         GpuUse::kIdle};
  comm.work.is_being_proven = true;
  comm.graph_position = {5, 4, 3, 2, 7, 60, 61, 65, true};
  comm.timed_calls = {
      {"AllReduce", LatencyKind::kDurationStream, 4, 0, 17, 5000, 1760000002700000000, 3}};
  comm.picked_calls = {
      {"AllGather", LatencyKind::kDurationKernel, 2, 0, 9, 700, 1760000002100000000, 0}};
  comm.call_order = {41, 40, {{"AllReduce", "ncclFloat32", 4096}, {"Reduce", "", 8, true, 3}}, {}};
  comm.peers = {{1, 5}, {7}, true, 5, 6};
  comm.peer_calls = {{9, true, 41, {512, 1024}, "ncclFloat32"}};
  comm.untimed.push_back({"AllReduce", UntimedReason::kUnreported, 2});
  comm.call_order.calls = std::string("\0\x81\xff\n", 4);
  process.hang_after_ns = 7000000000;
  process.unmeasured_communicators = 3;
  process.pace.assign(2, {60000, 120, 480, 30000, 500});
  set.ended = {ExampleProcess()};
  set.ended[0].end = ProcessEnd::kLost;
  set.ended[0].end_realtime_ns = 1760000002800000000;
  set.rejected[2] = 5;
  set.unread_processes = 4;
  set.outside_notes = {{7, "Rank 2 is frozen by its cgroup."}};
  const int64_t now = 1760000003000000000;
  const SnapshotMessage message = Reread(set, now);
  EXPECT_EQ(message.written_realtime_ns, now);
  EXPECT_EQ(message.hang_after_ns, kHangAfter);
  EXPECT_EQ(message.set.rejected, set.rejected);
  EXPECT_EQ(message.set.unread_processes, 4u);
  ASSERT_EQ(message.set.outside_notes.size(), 1u);
  EXPECT_EQ(message.set.outside_notes[0].comm_id, 7u);
  EXPECT_EQ(message.set.outside_notes[0].text, "Rank 2 is frozen by its cgroup.");
  EXPECT_EQ(message.set.processes[0].hang_after_ns, 7000000000);
  EXPECT_EQ(message.set.processes[0].unmeasured_communicators, 3u);
  ASSERT_EQ(message.set.ended.size(), 1u);
  EXPECT_EQ(message.set.ended[0].end, ProcessEnd::kLost);
  EXPECT_EQ(message.set.ended[0].end_realtime_ns, 1760000002800000000);
  const ProcessSnapshot& read = message.set.processes.at(0);
  EXPECT_EQ(read.pid, 4711);
  EXPECT_EQ(read.pid_namespace, 77u);
  EXPECT_EQ(read.hostname, "node-1");
  EXPECT_EQ(read.global_rank, "11");
  EXPECT_EQ(read.job_id, "99");
  EXPECT_EQ(read.sampling_exponent, 7);
  EXPECT_EQ(read.poller, PollerState::kRunning);
  EXPECT_EQ(read.run_state, RunState::kTraced);
  EXPECT_EQ(read.user, 0);
  EXPECT_TRUE(read.is_from_outside);
  EXPECT_EQ(read.event_mask, 0xdbu);
  EXPECT_EQ(read.event_mask_changes, 2u);
  EXPECT_EQ(read.foreign_event_mask, 0x40u);
  EXPECT_EQ(read.start_realtime_ns, process.start_realtime_ns);
  EXPECT_EQ(read.last_poll_realtime_ns, process.last_poll_realtime_ns);
  ASSERT_EQ(read.pace.size(), 2u);
  EXPECT_EQ(read.pace.back().length_ms, 60000u);
  EXPECT_EQ(read.pace.back().collectives, 120u);
  EXPECT_EQ(read.pace.back().others, 480u);
  EXPECT_EQ(read.pace.back().inside_ms, 30000u);
  EXPECT_EQ(read.pace.back().error_ms, 500u);
  const CommunicatorSnapshot& kept = read.communicators.at(0);
  EXPECT_EQ(kept.comm_id, comm.comm_id);
  EXPECT_EQ(kept.name, comm.name);
  EXPECT_EQ(kept.rank, 3);
  EXPECT_EQ(kept.nranks, 8);
  EXPECT_EQ(kept.nnodes, 2);
  EXPECT_EQ(kept.uuid, comm.uuid);
  EXPECT_EQ(kept.pci_bus_id, comm.pci_bus_id);
  ASSERT_EQ(kept.calls.size(), 3u);
  EXPECT_EQ(kept.calls[2].calls, 1u);
  EXPECT_TRUE(kept.calls[2].captured);
  EXPECT_EQ(kept.launches, 111u);
  EXPECT_EQ(kept.launches_completed, 108u);
  EXPECT_EQ(kept.oldest_inflight_realtime_ns, comm.oldest_inflight_realtime_ns);
  EXPECT_EQ(kept.oldest_launch, OldestLaunch::kNotBegun);
  EXPECT_EQ(kept.operations_source, CompletionSource::kProxy);
  EXPECT_EQ(kept.last_launch_realtime_ns, comm.last_launch_realtime_ns);
  EXPECT_EQ(kept.last_completion_realtime_ns, comm.last_completion_realtime_ns);
  EXPECT_TRUE(kept.captured);
  EXPECT_EQ(kept.overflowed_calls, 9u);
  EXPECT_EQ(kept.unreported_calls, 3u);
  EXPECT_TRUE(kept.are_unreported_in_group);
  EXPECT_EQ(kept.unreported_since_realtime_ns, comm.unreported_since_realtime_ns);
  ASSERT_EQ(kept.longest_waits.size(), 1u);
  EXPECT_EQ(kept.longest_waits[0].longest_ns, 7000000000u);
  EXPECT_EQ(kept.longest_waits[0].size_class, 4);
  EXPECT_EQ(kept.longest_waits[0].counts_until_realtime_ns, 1760000602000000000);
  EXPECT_EQ(kept.driver_error, 214u);
  EXPECT_EQ(kept.driver_error_realtime_ns, 1760000002900000000);
  EXPECT_EQ(kept.network_moved_realtime_ns, 1760000002950000000);
  EXPECT_EQ(kept.graph_replays, 1077u);
  EXPECT_EQ(kept.work.state, WorkState::kProven);
  EXPECT_EQ(kept.work.refutal, WorkRefutal::kAhead);
  EXPECT_TRUE(kept.work.are_operations_known);
  EXPECT_EQ(kept.work.operations, 77u);
  EXPECT_EQ(kept.work.moved_realtime_ns, 1760000002400000000);
  EXPECT_EQ(kept.work.longest_pause_ns, 12000000000u);
  EXPECT_TRUE(kept.work.is_being_proven);
  EXPECT_EQ(kept.work.gpu_use, GpuUse::kIdle);
  EXPECT_EQ(kept.graph_replays_in_flight, 1u);
  EXPECT_EQ(kept.graph_moved_realtime_ns, comm.graph_moved_realtime_ns);
  EXPECT_EQ(kept.graph_position.PackCaptures(), comm.graph_position.PackCaptures());
  EXPECT_EQ(kept.graph_position.PackCalls(), comm.graph_position.PackCalls());
  EXPECT_EQ(kept.call_order.first, 41u);
  EXPECT_EQ(kept.call_order.in_flight, 40u);
  EXPECT_EQ(kept.call_order.calls, comm.call_order.calls) << "bytes, not a text";
  ASSERT_EQ(kept.call_order.kinds.size(), 2u);
  EXPECT_EQ(kept.call_order.kinds[0].op, "AllReduce");
  EXPECT_EQ(kept.call_order.kinds[0].datatype, "ncclFloat32");
  EXPECT_FALSE(kept.call_order.kinds[0].is_unlaunched);
  EXPECT_EQ(kept.call_order.kinds[0].root, -1);
  EXPECT_EQ(kept.call_order.kinds[1].bytes, 8u);
  EXPECT_TRUE(kept.call_order.kinds[1].is_unlaunched);
  EXPECT_EQ(kept.call_order.kinds[1].root, 3);
  EXPECT_EQ(kept.peers.sends_to, comm.peers.sends_to);
  EXPECT_EQ(kept.peers.receives_from, comm.peers.receives_from);
  EXPECT_TRUE(kept.peers.are_known);
  EXPECT_EQ(kept.peers.is_sending_to, 5);
  EXPECT_EQ(kept.peers.is_receiving_from, 6);
  ASSERT_EQ(kept.peer_calls.size(), 1u);
  EXPECT_EQ(kept.peer_calls[0].peer, 9);
  EXPECT_TRUE(kept.peer_calls[0].receives);
  EXPECT_EQ(kept.peer_calls[0].calls, 41u);
  EXPECT_EQ(kept.peer_calls[0].totals, comm.peer_calls[0].totals);
  EXPECT_EQ(kept.peer_calls[0].datatype, "ncclFloat32");
  ASSERT_EQ(kept.abandoned_calls.size(), 1u);
  EXPECT_EQ(kept.abandoned_calls[0].op, "AllReduce");
  EXPECT_EQ(kept.abandoned_calls[0].calls, 2u);
  ASSERT_EQ(kept.timed_calls.size(), 1u);
  EXPECT_EQ(kept.timed_calls[0].graph, 3u);
  EXPECT_EQ(kept.timed_calls[0].call_number, 17u);
  EXPECT_EQ(kept.timed_calls[0].end_realtime_ns, 1760000002700000000);
  ASSERT_EQ(kept.picked_calls.size(), 1u);
  EXPECT_EQ(kept.picked_calls[0].op, "AllGather");
  EXPECT_EQ(kept.picked_calls[0].call_number, 9u);
  EXPECT_TRUE(kept.latencies.empty());
  const std::vector<UsualDurationSnapshot> usual = UsualDurationsOf(comm);
  ASSERT_GE(usual.size(), 1u);
  ASSERT_EQ(kept.usual_durations.size(), usual.size());
  EXPECT_EQ(kept.usual_durations[0].kind, usual[0].kind);
  EXPECT_EQ(kept.usual_durations[0].op, usual[0].op);
  EXPECT_EQ(kept.usual_durations[0].size_class, usual[0].size_class);
  EXPECT_EQ(kept.usual_durations[0].calls, usual[0].calls);
  EXPECT_EQ(kept.usual_durations[0].ns, usual[0].ns);
  const std::string decoded = ByProtoc(WriteSnapshots(set, now, kHangAfter));
  if (decoded.empty()) GTEST_SKIP() << "not to be had here: protoc";
  // protoc shows a field that the schema lacks by its number.
  EXPECT_THAT(decoded, Not(ContainsRegex("(^|\n) *[0-9]+(:| [{])")));
  EXPECT_THAT(decoded, HasSubstr("\n    rank: 3\n"));
  std::ifstream schema("exporter/exposition/snapshots.proto");
  for (std::string line; std::getline(schema, line);) {
    const std::size_t equals = line.find(" = ");
    if (line.substr(0, 2) != "  " || equals == line.npos) continue;
    const std::string name = line.substr(line.rfind(' ', equals - 1) + 1);
    EXPECT_THAT(decoded, ContainsRegex("(^|[ \n])" + name.substr(0, name.find(' ')) + "[: ]"))
        << "the example has none";
  }
}

// A node whose clock is an hour ahead: its ages are what they were.
TEST(SnapshotMessage, AgesAreThoseOfTheSender) {
  SimulatedJob job = RunningJob();
  LaunchOn(&job, {0, 1, 2}, "AllReduce");
  job.Advance(kHangAfter);
  const SnapshotMessage message = Reread(job.Set(), job.now(), job.now() - 3600 * kSecond);
  const DiagnosisResult there = Diagnosis().Update(job.Set(), job.now());
  const DiagnosisResult here = Diagnosis().Update(message.set, job.now() - 3600 * kSecond);
  ASSERT_TRUE(there.at(0).hang && here.at(0).hang);
  EXPECT_EQ(here[0].hang->since_realtime_ns, there[0].hang->since_realtime_ns - 3600 * kSecond);
  EXPECT_EQ(here[0].hang->text, there[0].hang->text);
}

std::string ErrorOf(std::string_view text, uint64_t room = kRoom) {
  SnapshotMessage message;
  std::string error;
  EXPECT_FALSE(ReadSnapshots(text, {}, room, &message, &error));
  EXPECT_TRUE(message.set.processes.empty());
  return error;
}

TEST(SnapshotMessage, SaysWhatItCannotRead) {
  const std::string good = WriteSnapshots(SnapshotSet({ExampleProcess()}), 1, kHangAfter);
  EXPECT_THAT(ErrorOf(""), HasSubstr("something else"));
  EXPECT_THAT(ErrorOf("<html>"), HasSubstr("something else"));
  EXPECT_THAT(ErrorOf(good.substr(0, good.size() - 3)), HasSubstr("damaged"));
  EXPECT_THAT(ErrorOf(good, 1000), HasSubstr("more than"));
  std::string other = good;
  const std::size_t version = other.find('\x10');  // field 2, a number
  ASSERT_NE(version, other.npos);
  other[version + 1] = 2;
  EXPECT_EQ(ErrorOf(other), "version 2 of the snapshots; this program knows 1");
}

// Every message that has one byte changed, or ends early, is read or refused; nothing else happens.
TEST(SnapshotMessage, DamageIsHarmless) {
  const std::string good = WriteSnapshots(SnapshotSet({ExampleProcess()}), 1, kHangAfter);
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char change : {'\x00', '\x7f', '\xff'}) {
      std::string bad = good;
      bad[i] = change;
      SnapshotMessage message;
      std::string error;
      if (ReadSnapshots(bad, {}, kRoom, &message, &error)) {
        Diagnosis().Update(message.set, 1760000003000000000);
      } else {
        EXPECT_NE(error, "");
      }
    }
  }
}

// What a list took while it grew is free again: 2,000 endpoints share the room.
TEST(SnapshotMessage, TakesTheRoomThatItKeeps) {
  SnapshotSet set;
  set.processes.resize(512);
  for (ProcessSnapshot& process : set.processes) process.pid = 1;
  const std::string half = WriteSnapshots(set, kStart, kSecond);
  const std::string text = half + half;  // a list in two parts grows in between
  constexpr uint64_t kKept = 1024 * sizeof(ProcessSnapshot);
  SnapshotMessage message;
  std::string error;
  ASSERT_TRUE(ReadSnapshots(text, kStart, kKept * 8 / 5, &message, &error)) << error;
  EXPECT_EQ(message.set.processes.size(), 1024u);
  EXPECT_GE(message.bytes, kKept);
  EXPECT_LE(message.bytes, kKept + (kKept >> 4));
  // Not without room for the last two copies of the list.
  EXPECT_FALSE(ReadSnapshots(text, kStart, kKept * 5 / 4, &message, &error));
  // A list in one part needs room for itself alone.
  EXPECT_TRUE(ReadSnapshots(half, kStart, kKept * 5 / 8, &message, &error)) << error;
}

// Two bytes of a message may be a whole communicator in memory.
TEST(SnapshotMessage, MemoryIsBounded) {
  std::string process;
  for (int i = 0; i < 100000; ++i) process += std::string("\x9a\x01\x00", 3);  // field 19, empty
  std::string text;
  protozero::pbf_writer out(text);
  out.add_uint64(1, 0x45534c50);
  out.add_uint64(2, 1);
  out.add_message(8, process);
  EXPECT_THAT(ErrorOf(text, 1 << 20), HasSubstr("more than"));
}

// A byte of it may be a hundred in memory when it is compared.
TEST(SnapshotMessage, AnOrderOfCallsIsBounded) {
  ProcessSnapshot process = ExampleProcess();
  CallOrderSnapshot& order = process.communicators[0].call_order;
  const auto write = [&process] { return WriteSnapshots(SnapshotSet({process}), 1, kHangAfter); };
  order.calls = std::string(CallOrderSnapshot::kMostCalls, '\0');
  order.kinds.resize(CallOrderSnapshot::kMostKinds, {"AllReduce", "", 8});
  EXPECT_EQ(Reread(SnapshotSet({process}), 1).set.processes.size(), 1u);
  order.calls += '\0';
  EXPECT_THAT(ErrorOf(write()), HasSubstr("damaged"));
  order.calls.pop_back();
  order.kinds.push_back(order.kinds[0]);
  EXPECT_THAT(ErrorOf(write()), HasSubstr("damaged"));
}

// Terminals and pages get what is printable.
TEST(SnapshotMessage, TextsAreMadePrintable) {
  ProcessSnapshot process = ExampleProcess();
  process.hostname = "no\x1b[2Jde\n\xff";
  EXPECT_EQ(Reread(SnapshotSet({process}), 1).set.processes[0].hostname, "no?[2Jde??");
}

}  // namespace
}  // namespace nccl_pulse

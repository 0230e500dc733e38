#include "exporter/exposition/json/communicators_json.h"

#include "exporter/diagnosis/facts/rank_view.h"
#include "exporter/exposition/json/latency_json.h"
#include "gtest/gtest.h"
#include "metrics/size_class.h"
#include "nlohmann/json.hpp"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

Json Parse(const SnapshotSet& snapshots) {
  return Json::parse(CommunicatorsJson(snapshots, 1760000003250000000));
}

TEST(CommunicatorsJson, OneRank) {
  const Json json = Parse(SnapshotSet({ExampleProcess()}));
  EXPECT_EQ(json["time"], 1760000003.25);
  ASSERT_EQ(json["communicators"].size(), 1u);
  const Json& comm = json["communicators"][0];
  EXPECT_EQ(comm["comm"], "00ab12cd34ef5678");
  EXPECT_EQ(comm["name"], "tp \"group\" \\ 0");
  EXPECT_EQ(comm["nranks"], 8);
  ASSERT_EQ(comm["ranks"].size(), 1u);
  const Json& rank = comm["ranks"][0];
  EXPECT_EQ(rank["rank"], 3);
  EXPECT_EQ(rank["active"], true);
  EXPECT_EQ(rank["process"]["pid"], 4711);
  EXPECT_EQ(rank["process"]["state"], "live");
  EXPECT_EQ(rank["process"]["ended"], nullptr);
  EXPECT_EQ(rank["process"]["global_rank"], "11");
  EXPECT_EQ(rank["gpu"]["pci_bus_id"], "00000000:18:00.0");
  EXPECT_EQ(rank["launches"], Json({{"made", 111},
                                    {"completed", 108},
                                    {"in_flight", 3},
                                    {"in_flight_since", 1760000002.25}}));
  EXPECT_EQ(rank["last_launch"], 1760000002.5);
  EXPECT_EQ(rank["last_timed_operation"], nullptr);
  const Json expected = {
      {"op", "AllReduce"}, {"calls", 111}, {"bytes", 105906200}, {"sequence", 111}};
  EXPECT_EQ(rank["operations"], Json::array({expected}));
  ASSERT_EQ(rank["latencies"].size(), 3u);
  const Json& latency = rank["latencies"][0];
  EXPECT_EQ(latency["measure"], "duration");
  EXPECT_EQ(latency["source"], "kernel");
  EXPECT_EQ(latency["count"], 31);
  EXPECT_EQ(latency["bus_bytes_per_second"], 7168 / 2.5);
  EXPECT_EQ(latency["max"], 1024);
  EXPECT_EQ(rank["latencies"][1]["measure"], "completion");
  EXPECT_EQ(rank["latencies"][1]["bus_bytes_per_second"], nullptr);
  EXPECT_EQ(rank["latencies"][2]["size"], "overflow");
}

TEST(CommunicatorsJson, ReplaysOfGraphs) {
  ProcessSnapshot process = ExampleProcess();
  EXPECT_EQ(Parse(SnapshotSet({process}))["communicators"][0]["ranks"][0]["replays"], nullptr);
  CommunicatorSnapshot& comm = process.communicators[0];
  comm.captured = true;
  comm.work = {WorkState::kProven, {}, true, 2154, 1760000002400000000, 12500000000, {}};
  comm.graph_replays = 1077;
  comm.graph_replays_in_flight = 1;
  comm.graph_moved_realtime_ns = 1760000002500000000;
  comm.graph_position = {5, 4, 3, 2, 7, 60, 61, 65, true};
  const Json replays = Parse(SnapshotSet({process}))["communicators"][0]["ranks"][0]["replays"];
  EXPECT_EQ(replays, Json({{"graphs", 5},
                           {"followed", 4},
                           {"begun", 1077},
                           {"in_flight", 1},
                           {"last",
                            {{"graph", 3},
                             {"stamp", 2},
                             {"stamps", 7},
                             {"calls_before", 60},
                             {"calls_until", 61},
                             {"calls", 65},
                             {"passed", 1760000002.5}}}}));
  EXPECT_EQ(Parse(SnapshotSet({process}))["communicators"][0]["ranks"][0]["work"],
            Json({{"state", "proven"},
                  {"reason", nullptr},
                  {"operations", 2154},
                  {"op", "AllReduce"},
                  {"size", "le_1MiB"},
                  {"moved", 1760000002.4},
                  {"longest_pause", 12.5},
                  {"gpu", nullptr}}));
}

TEST(CommunicatorsJson, ReplayedOperationsOfOneKind) {
  ProcessSnapshot process = ExampleProcess();
  CommunicatorSnapshot& comm = process.communicators[0];
  comm.captured = true;
  comm.work.state = WorkState::kProven;
  comm.work.are_operations_known = true;
  comm.work.operations = 2154;
  const auto replayed = [&process] {
    uint64_t sum = 0;
    const Json all = Parse(SnapshotSet({process}));
    for (const Json& each : all["communicators"][0]["operations"]) {
      const bool is_kind = each["op"] == "AllReduce" && each["size"] == "le_4KiB";
      EXPECT_TRUE(is_kind || each["replayed"] == 0) << each;
      sum += each["replayed"].get<uint64_t>();
    }
    return sum;
  };
  comm.calls.clear();
  EXPECT_EQ(replayed(), 0u);
  comm.calls.push_back({"AllReduce", SizeClassOf(4096), "ncclFloat32", true, 16, 65536});
  EXPECT_EQ(replayed(), 2154u);
  const Json work = Parse(SnapshotSet({process}))["communicators"][0]["ranks"][0]["work"];
  EXPECT_EQ(work["op"], "AllReduce");
  EXPECT_EQ(work["size"], "le_4KiB");
  comm.calls.push_back({"AllReduce", SizeClassOf(1 << 20), "ncclFloat32", true, 1, 1 << 20});
  EXPECT_EQ(replayed(), 0u);
}

TEST(CommunicatorsJson, RanksOfSeveralProcessesAreOneCommunicator) {
  ProcessSnapshot second = ExampleProcess();
  second.pid = 4712;
  second.communicators[0].rank = 1;
  second.communicators.push_back(ExampleCommunicator());
  second.communicators[1].comm_id = 1;
  second.end = ProcessEnd::kLost;
  second.end_realtime_ns = 1760000003000000000;
  const Json json = Parse(SnapshotSet({ExampleProcess(), second}));
  ASSERT_EQ(json["communicators"].size(), 2u);
  EXPECT_EQ(json["communicators"][0]["comm"], "0000000000000001");
  const Json& ranks = json["communicators"][1]["ranks"];
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0]["rank"], 1);
  EXPECT_EQ(ranks[0]["active"], false);
  EXPECT_EQ(ranks[0]["process"]["state"], "lost");
  EXPECT_EQ(ranks[1]["rank"], 3);
}

TEST(CommunicatorsJson, WhatTheDiagnosisSays) {
  ProcessSnapshot process = ExampleProcess();
  process.communicators[0].last_call_op = "AllReduce";
  process.communicators[0].last_call_size_class = 4;
  const Json json = Json::parse(
      CommunicatorsJson(SnapshotSet({process}), 1760000003250000000, ExampleDiagnosis()));
  const Json& comm = json["communicators"][0];
  EXPECT_EQ(comm["hang"], Json({{"verdict", "rank_not_called"},
                                {"meaning", "a rank has not made a call that the others have made"},
                                {"since", 1760000002.25},
                                {"op", "AllReduce"},
                                {"suspects", {3}},
                                {"waiting", {1, 2}},
                                {"circle", Json::array()},
                                {"replay", nullptr},
                                {"longest_wait_before", 0.0},
                                {"usual", false},
                                {"text", "Rank 3 (pid 4711, GPU 3) has not called AllReduce."},
                                {"first_step", "py-spy dump --pid 4711"}}));
  EXPECT_EQ(comm["straggler"]["rank"], 3);
  EXPECT_EQ(comm["straggler"]["seconds_per_second"], 0.25);
  EXPECT_EQ(comm["straggler"]["matched_calls"], 100);
  const Json& rank = comm["ranks"][0];
  EXPECT_EQ(rank["state"], "in_flight");
  EXPECT_EQ(rank["state_word"], "in flight");
  EXPECT_EQ(rank["state_since"], 1760000002.25);
  EXPECT_EQ(rank["in_flight_since"], 1760000002.25);
  EXPECT_EQ(rank["begun"], nullptr);
  EXPECT_EQ(rank["process"]["last_poll"], 1760000003.0);
  EXPECT_EQ(rank["straggler_seconds"], 1.5);
  EXPECT_EQ(rank["last_call"], Json({{"op", "AllReduce"}, {"size", "le_1MiB"}, {"calls", 111}}));
  for (const auto& [oldest, begun] :
       {std::pair(OldestLaunch::kBegun, true), std::pair(OldestLaunch::kNotBegun, false)}) {
    ProcessSnapshot process = ExampleProcess();
    process.communicators[0].oldest_launch = oldest;
    EXPECT_EQ(Parse(SnapshotSet({process}))["communicators"][0]["ranks"][0]["begun"], begun);
    process.communicators[0].launches_completed = process.communicators[0].launches;
    EXPECT_EQ(Parse(SnapshotSet({process}))["communicators"][0]["ranks"][0]["begun"], nullptr);
  }
  const Json none = Parse(SnapshotSet({ExampleProcess()}));
  EXPECT_EQ(none["communicators"][0]["hang"], nullptr);
  EXPECT_EQ(none["communicators"][0]["straggler"], nullptr);
  EXPECT_EQ(none["communicators"][0]["ranks"][0]["straggler_seconds"], nullptr);
  EXPECT_EQ(none["communicators"][0]["ranks"][0]["last_call"], nullptr);
}

TEST(CommunicatorsJson, WhatIsUnknownAndWhy) {
  ProcessSnapshot process = ExampleProcess();
  process.event_mask_changes = 1;
  process.foreign_event_mask = 0x202;
  CommunicatorSnapshot& comm = process.communicators[0];
  comm.launches_completed = comm.launches;
  comm.unreported_calls = 2;
  comm.unreported_since_realtime_ns = 1760000001000000000;
  comm.longest_waits = {{"AllReduce", 4, 540000000000, 1760000600000000000},
                        {"Broadcast", 0, 1, 0}};
  comm.driver_error = 700;
  comm.driver_error_realtime_ns = 1760000002000000000;
  process.run_state = RunState::kUninterruptible;
  const Json json = Parse(SnapshotSet({process}));
  const Json& rank = json["communicators"][0]["ranks"][0];
  EXPECT_EQ(rank["state"], "unknown");
  EXPECT_EQ(rank["unknown"], "driver_error");
  EXPECT_EQ(rank["unreported_calls"], 2);
  EXPECT_EQ(rank["unreported_since"], 1760000001.0);
  EXPECT_EQ(rank["launches"]["completed"], 111);
  EXPECT_EQ(rank["launches"]["in_flight"], nullptr);
  EXPECT_EQ(rank["longest_waits"], Json::array({{{"op", "AllReduce"},
                                                 {"size", "le_1MiB"},
                                                 {"seconds", 540.0},
                                                 {"until", 1760000600.0}}}));
  EXPECT_EQ(rank["driver_error"],
            Json({{"code", 700}, {"name", "CUDA_ERROR_ILLEGAL_ADDRESS"}, {"since", 1760000002.0}}));
  EXPECT_EQ(rank["process"]["run_state"], "uninterruptible");
  EXPECT_EQ(rank["process"]["poller_started"], true);
  EXPECT_EQ(rank["process"]["event_mask_changes"], 1);
  EXPECT_EQ(rank["process"]["foreign_event_mask"], "0x202");
  EXPECT_EQ(json["health"]["status"], "incomplete");
  EXPECT_EQ(json["health"]["unknown_ranks"], 1);
  EXPECT_EQ(json["health"]["summary"], "Cannot tell whether a rank hangs.");
  process.communicators[0].driver_error = 0;
  EXPECT_EQ(Parse(SnapshotSet({process}))["communicators"][0]["ranks"][0]["unknown"],
            "launch_not_reported");
  const Json known = Parse(SnapshotSet({ExampleProcess()}));
  EXPECT_EQ(known["communicators"][0]["ranks"][0]["unknown"], nullptr);
  EXPECT_EQ(known["communicators"][0]["ranks"][0]["driver_error"], nullptr);
  EXPECT_EQ(known["communicators"][0]["ranks"][0]["process"]["run_state"], nullptr);
  EXPECT_EQ(known["communicators"][0]["ranks"][0]["process"]["foreign_event_mask"], nullptr);
  EXPECT_EQ(known["health"]["status"], "ok");
}

// State, health, verdict and metrics go by one time after which a background thread stands.
TEST(CommunicatorsJson, WhenABackgroundThreadStands) {
  for (const int64_t hang_after_ns : {kDefaultHangAfterNs, int64_t{2000000000}}) {
    const bool stands = hang_after_ns != kDefaultHangAfterNs;
    ProcessSnapshot process = ExampleProcess();
    process.poller = PollerState::kRunning;
    process.last_poll_realtime_ns = 1760000003000000000;
    const int64_t now_ns = process.last_poll_realtime_ns + 3000000000;
    process.hang_after_ns = hang_after_ns;
    const SnapshotSet set({process});
    const Json json = Json::parse(CommunicatorsJson(set, now_ns, {}));
    EXPECT_EQ(json["communicators"][0]["ranks"][0]["state"], stands ? "stopped" : "in_flight");
    EXPECT_EQ(json["health"]["stopped_processes"], stands ? 1 : 0);
    const std::vector<CommunicatorView> views = GroupByCommunicator(set, now_ns);
    EXPECT_EQ(views.at(0).ranks.at(0).is_stopped, stands);
  }
}

TEST(CommunicatorsJson, ProcessesWithoutThePlugin) {
  EXPECT_EQ(Json::parse(CommunicatorsJson({}, 0))["without_plugin"], nullptr);
  const std::vector<ProcessWithoutPlugin> found = {
      {1018, 77, "3", "2.28.9", "frozen by its cgroup", {0, 1}, 1760000000500000000},
      {1019, -1, "", "", "", {}, 0}};
  EXPECT_EQ(Json::parse(CommunicatorsJson({}, 0, {}, &found))["without_plugin"],
            Json::array({{{"pid", 1018},
                          {"user", 77},
                          {"global_rank", "3"},
                          {"gpus", {0, 1}},
                          {"nccl", "2.28.9"},
                          {"stopped", "frozen by its cgroup"},
                          {"since", 1760000000.5}},
                         {{"pid", 1019},
                          {"user", nullptr},
                          {"global_rank", nullptr},
                          {"gpus", Json::array()},
                          {"nccl", nullptr},
                          {"stopped", nullptr},
                          {"since", nullptr}}}));
}

TEST(CommunicatorsJson, CirclesAndQueues) {
  DiagnosisResult diagnosis = ExampleDiagnosis();
  diagnosis[0].hang->circle = {{0x00ab12cd34ef5678, 3}, {1, 0}};
  diagnosis[0].hang->is_usual = true;
  diagnosis[0].hang->longest_wait_before_ns = 540000000000;
  diagnosis[0].queued = Queued{1760000002250000000, "AllReduce", {3}, "Rank 3 has launched."};
  const Json json = Json::parse(
      CommunicatorsJson(SnapshotSet({ExampleProcess()}), 1760000003250000000, diagnosis));
  const Json& comm = json["communicators"][0];
  EXPECT_EQ(comm["hang"]["circle"], Json::array({{{"comm", "00ab12cd34ef5678"}, {"rank", 3}},
                                                 {{"comm", "0000000000000001"}, {"rank", 0}}}));
  EXPECT_EQ(comm["hang"]["usual"], true);
  EXPECT_EQ(comm["hang"]["longest_wait_before"], 540.0);
  EXPECT_EQ(comm["queued"], Json({{"since", 1760000002.25},
                                  {"op", "AllReduce"},
                                  {"ranks", {3}},
                                  {"text", "Rank 3 has launched."}}));
  EXPECT_EQ(comm["note"], nullptr);
  EXPECT_EQ(json["health"]["status"], "waiting");
}

TEST(CommunicatorsJson, RanksThatEndedStandThereWhileOthersUseTheCommunicator) {
  SnapshotSet set({ExampleProcess()});
  ProcessSnapshot ended = ExampleProcess();
  ended.end = ProcessEnd::kLost;
  ended.communicators[0].rank = 7;
  ended.communicators.push_back(ExampleCommunicator());
  ended.communicators[1].comm_id = 5;  // nobody's any longer
  set.ended = {ended};
  const Json json = Parse(set);
  ASSERT_EQ(json["communicators"].size(), 1u);
  ASSERT_EQ(json["communicators"][0]["ranks"].size(), 2u);
  EXPECT_EQ(json["communicators"][0]["ranks"][1]["rank"], 7);
  EXPECT_EQ(json["communicators"][0]["ranks"][1]["state"], "gone");
}

TEST(CommunicatorsJson, OperationsAreSumsOverTheRanks) {
  ProcessSnapshot second = ExampleProcess();
  second.communicators[0].rank = 4;
  const Json json = Parse(SnapshotSet({ExampleProcess(), second}));
  const Json& operations = json["communicators"][0]["operations"];
  ASSERT_EQ(operations.size(), 2u);
  EXPECT_EQ(operations[0]["op"], "AllReduce");
  EXPECT_EQ(operations[0]["size"], "le_1MiB");
  EXPECT_EQ(operations[0]["calls"], 222);
  EXPECT_EQ(operations[0]["bytes"], 2 * 105906200);
  ASSERT_EQ(operations[0]["latencies"].size(), 2u);
  const Json& latency = operations[0]["latencies"][0];
  EXPECT_EQ(latency["measure"], "duration");
  EXPECT_EQ(latency["count"], 62);
  EXPECT_EQ(latency["bus_bytes_per_second"], 7168 / 2.5);
  EXPECT_EQ(latency["p50"], json["communicators"][0]["ranks"][0]["latencies"][0]["p50"]);
  // Bounds of the zero cell and of the pairs that cells 8, 9 and the last ones belong to.
  const Json expected = {{9.537e-07, 2}, {1.907e-06, 4}, {2.268e-06, 8}, {1024, 16}, {nullptr, 32}};
  EXPECT_EQ(latency["buckets"], expected);
  EXPECT_EQ(operations[1]["size"], "overflow");
  EXPECT_EQ(operations[1]["calls"], 0);
}

TEST(CommunicatorsJson, BucketsAreBounded) {
  HistogramSnapshot histogram;
  histogram.cells.fill(1);
  const Json buckets = BucketsJson(histogram);
  ASSERT_EQ(buckets.size(), 122u);
  EXPECT_EQ(buckets[0][1], 1);
  EXPECT_EQ(buckets[60][1], 2);
  EXPECT_EQ(buckets[121], Json({nullptr, 1}));
  for (std::size_t i = 1; i + 1 < buckets.size(); ++i) EXPECT_GT(buckets[i][0], buckets[i - 1][0]);
}

TEST(CommunicatorsJson, WhatIsNotKnownIsNull) {
  ProcessSnapshot process = ExampleProcess();
  CommunicatorSnapshot& comm = process.communicators[0];
  comm.has_heartbeat = false;
  comm.last_completion_realtime_ns = 0;
  comm.uuid = "";
  TimedCallSnapshot call;
  call.op = "Broken\xff";  // not UTF-8: still JSON
  call.end_realtime_ns = 1;
  comm.timed_calls = {call};
  const Json json = Parse(SnapshotSet({process}));
  const Json& rank = json["communicators"][0]["ranks"][0];
  EXPECT_EQ(rank["launches"]["made"], 111);
  EXPECT_EQ(rank["launches"]["completed"], nullptr);
  EXPECT_EQ(rank["launches"]["in_flight_since"], nullptr);
  EXPECT_EQ(rank["last_completion"], nullptr);
  EXPECT_EQ(rank["gpu"]["uuid"], nullptr);
  EXPECT_EQ(rank["last_timed_operation"]["op"], "Broken\xef\xbf\xbd");
  EXPECT_EQ(Parse(SnapshotSet())["communicators"], Json::array());
}

TEST(HistogramQuantile, LiesInItsBucket) {
  HistogramSnapshot histogram;
  histogram.cells[CellIndex(1000000)] = 90;   // 1 ms
  histogram.cells[CellIndex(50000000)] = 10;  // 50 ms
  EXPECT_NEAR(HistogramQuantile(histogram, 0.5), 0.001, 0.0001);
  EXPECT_NEAR(HistogramQuantile(histogram, 0.89), 0.001, 0.0001);
  EXPECT_NEAR(HistogramQuantile(histogram, 0.95), 0.05, 0.005);
  EXPECT_EQ(HistogramQuantile(histogram, 1), CellUpperBoundSeconds(CellIndex(50000000)));
  HistogramSnapshot all_long;
  all_long.cells[kOverflowCell] = 1;
  EXPECT_EQ(HistogramQuantile(all_long, 0.5), 1024);
  HistogramSnapshot all_short;
  all_short.cells[kZeroCell] = 4;
  EXPECT_EQ(HistogramQuantile(all_short, 0.5), CellUpperBoundSeconds(kZeroCell) / 2);
}

}  // namespace
}  // namespace nccl_pulse

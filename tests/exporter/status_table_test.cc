#include "exporter/cli/status/status_table.h"

#include "exporter/cli/status/status_words.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/testing/simulated_job.h"
#include "exporter/exposition/json/communicators_json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/exporter/diagnosis/hang_job.h"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

Json Page(const SimulatedJob& job) {
  return Json::parse(
      CommunicatorsJson(job.Set(), job.now(), Diagnosis().Update(job.Set(), job.now())));
}

SimulatedJob JobOfThree() {
  SimulatedJob job(3);
  job.AddCommunicator(kComm, {0, 1, 2});
  for (int i = 0; i < 100; ++i) job.Collective(kComm, "AllReduce", {0, 0, 0}, kMs);
  return job;
}

struct StatusTableTest : testing::Test {
  SimulatedJob job = JobOfThree();
};

TEST_F(StatusTableTest, AHealthyJob) {
  const Json before = Page(job);
  for (int i = 0; i < 50; ++i) job.Collective(kComm, "AllReduce", {0, 0, 0}, kMs);
  job.Advance(950 * kMs);
  const std::string table = StatusTable(Page(job), &before, {});
  EXPECT_THAT(table,
              HasSubstr("1 communicator, 3 processes\nNo hang and no straggler is suspected.\n"));
  EXPECT_THAT(table, HasSubstr("00000000000000c0  3 ranks; p50, p99, bus: AllReduce <=1MiB, "
                               "duration (stream), since its start\n"));
  EXPECT_THAT(table, HasSubstr("   RANK  PID  GPU  STATE     FOR  LAST CALL              CALLS  "
                               "CALLS/S      P50      P99  BUS\n"
                               "      0  100    0  idle   950 ms  AllReduce <=1MiB #150    150     "
                               "  50  1.02 ms  1.06 ms    -\n"));
  EXPECT_EQ(FindingOf(Page(job)), Finding::kNone);
}

// Two containers, each with a process 1.
TEST_F(StatusTableTest, ProcessesAreToldApartByMoreThanTheirPids) {
  for (int i = 0; i < 3; ++i) {
    job.process(i).pid = 1;
    job.process(i).pid_namespace = 4026532000 + i;
  }
  job.process(2).seen_pid = 4711;
  const std::string table = StatusTable(Page(job), nullptr, {});
  EXPECT_THAT(table, HasSubstr("1 communicator, 3 processes\n"));
  EXPECT_THAT(table, HasSubstr("      0  1@4026532000    0  "));
  EXPECT_THAT(table, HasSubstr("      2          4711    2  "));
}

TEST_F(StatusTableTest, AnOldPageSaysSoInTheFirstLine) {
  Json page = Page(JobOfThree());
  EXPECT_THAT(StatusTable(page, nullptr, {}), Not(HasSubstr(" ago")));
  page["age_seconds"] = 2;
  EXPECT_THAT(StatusTable(page, nullptr, {}), Not(HasSubstr(" ago")));
  page["age_seconds"] = 17;
  EXPECT_THAT(StatusTable(page, nullptr, {}),
              HasSubstr("  as of 17 s ago  1 communicator, 3 processes\n"));
}

TEST_F(StatusTableTest, AHangStandsFirstAndIsMarked) {
  job.AddCommunicator(1, {0, 1, 2});  // a lower id, and nothing wrong
  job.Launch(kComm, 0, "AllReduce");
  job.Launch(kComm, 2, "AllReduce");
  job.Advance(43 * kSecond);
  const Json page = Page(job);
  EXPECT_EQ(FindingOf(page), Finding::kHang);
  const std::string table = StatusTable(page, nullptr, {});
  EXPECT_THAT(table,
              HasSubstr("\nHANG  Rank 1 (pid 101, GPU 1) has not called AllReduce #101 (up to "
                        "1MiB), and has nothing in flight\n"
                        "      here. Ranks 0 and 2 wait in AllReduce.\n"
                        "      Communicator 00000000000000c0 has made no progress for 43 s.\n"
                        "      Next: py-spy dump --pid 101"));
  EXPECT_THAT(table, HasSubstr("\n      0  100    0  waits  43 s  AllReduce <=1MiB #101"));
  EXPECT_THAT(table, HasSubstr("\n>>    1  101    1  idle   43 s  AllReduce <=1MiB #100"));
  EXPECT_LT(table.find("\n00000000000000c0"), table.find("\n0000000000000001"));
  EXPECT_THAT(table, Not(HasSubstr("\033")));
  StatusOptions color;
  color.color = true;
  EXPECT_THAT(StatusTable(page, nullptr, color), HasSubstr("\033[1;31mHANG\033[0m"));
}

TEST_F(StatusTableTest, SpellsABandwidthWithoutExponent) {
  EXPECT_EQ(ByteRate(211e9), "211 GB/s");
  EXPECT_EQ(ByteRate(1.94e6), "1.94 MB/s");
  EXPECT_EQ(ByteRate(2040), "2.04 kB/s");
  EXPECT_EQ(ByteRate(51), "51 B/s");
}

TEST_F(StatusTableTest, AStraggler) {
  job = SimulatedJob(3);
  job.AddCommunicator(kComm, {0, 1, 2});
  for (int i = 0; i < 100; ++i) {
    job.Collective(kComm, "AllReduce", {0, 2 * kMs, 0}, kMs);
    job.Advance(7 * kMs);
  }
  const std::string table = StatusTable(Page(job), nullptr, {});
  EXPECT_THAT(table, HasSubstr("SLOW  Rank 1 (pid 101, GPU 1) arrives last at 100 % of the late "
                               "calls; the others wait 2 ms per\n"
                               "      call, 20 % of the last 1 s.\n"
                               "      Communicator 00000000000000c0 waits for rank 1.\n"));
  EXPECT_THAT(table, HasSubstr("\n>     1  101"));
}

TEST_F(StatusTableTest, MarksEachStragglerOfSeveralByTurns) {
  const SimulatedJob job = TwoLateByTurnsJob(kComm, 100);
  const std::string table = StatusTable(Page(job), nullptr, {});
  EXPECT_THAT(table, HasSubstr("Communicator 00000000000000c0 waits for ranks 1, 3.\n"));
  EXPECT_THAT(table, HasSubstr("\n>     1  101"));
  EXPECT_THAT(table, HasSubstr("\n>     3  103"));
  EXPECT_THAT(table, HasSubstr("\n      2  102"));
}

TEST_F(StatusTableTest, CollectivesOfReplaysCountWithTheCalls) {
  for (int rank = 0; rank < 3; ++rank) {
    CommunicatorSnapshot& comm = job.Of(kComm, rank);
    comm.captured = true;
    comm.work.state = WorkState::kProven;
    comm.work.are_operations_known = true;
    comm.work.operations = 90000;
    comm.work.moved_realtime_ns = job.now();
  }
  const Json before = Page(job);
  job.Advance(kSecond);
  for (int rank = 0; rank < 3; ++rank) {
    job.Of(kComm, rank).work.operations += 20000;
    job.Of(kComm, rank).work.moved_realtime_ns = job.now();
  }
  const std::string table = StatusTable(Page(job), &before, {});
  EXPECT_THAT(table, HasSubstr("  replaying    -  AllReduce <=1MiB #100   110k      20k  "));
  EXPECT_THAT(table, HasSubstr("No hang and no straggler is suspected.\n"));
  job.Advance(5 * kSecond);
  EXPECT_THAT(StatusTable(Page(job), nullptr, {}), HasSubstr("  quiet  5 s  "));
}

TEST_F(StatusTableTest, DeadStoppedEndedAndInvisible) {
  job.Launch(kComm, 0, "AllReduce");
  job.process(1).end = ProcessEnd::kLost;
  job.process(1).end_realtime_ns = job.now();
  job.Advance(20 * kSecond);
  job.Of(kComm, 2).captured = true;
  std::string table = StatusTable(Page(job), nullptr, {});
  EXPECT_THAT(table, HasSubstr("\nHANG  The process of rank 1 (pid 101, GPU 1) ended"));
  EXPECT_THAT(table, HasSubstr("\n>>    1  101    1  gone       20 s"));
  EXPECT_THAT(table, HasSubstr("\n      2  102    2  in graphs     -"));
  job.process(2).last_poll_realtime_ns -= 15 * kSecond;
  table = StatusTable(Page(job), nullptr, {});
  EXPECT_THAT(table, HasSubstr("  stopped  15 s"));
  for (int rank = 0; rank < 3; ++rank) job.Of(kComm, rank).finalized = true;
  table = StatusTable(Page(job), nullptr, {});
  EXPECT_THAT(table, HasSubstr("No communicator is in use.\n\n1 ended communicator not shown"));
  StatusOptions all;
  all.all = true;
  EXPECT_THAT(StatusTable(Page(job), nullptr, all), HasSubstr("  ended  "));
}

// One rank killed, the other stopped, and nothing else: no all clear.
TEST_F(StatusTableTest, NoAllClearWhileBlind) {
  const SimulatedJob job = LostAndStoppedJob(kComm);
  const std::string table = StatusTable(Page(job), nullptr, {});
  EXPECT_THAT(table,
              HasSubstr("\n1 process ended without finalizing: pid 100.\n"
                        "1 process is not running (stopped, held by a debugger, or paused): pid "
                        "101.\n"));
  EXPECT_THAT(table, Not(HasSubstr("No hang")));
  EXPECT_THAT(table, HasSubstr("  stopped  60 s"));
  EXPECT_EQ(FindingOf(Page(job)), Finding::kIncomplete);
  // Nothing tells what is in flight, on any rank.
  SimulatedJob blind = JobOfThree();
  for (int rank = 0; rank < 3; ++rank) blind.Of(kComm, rank).has_heartbeat = false;
  const std::string blind_table = StatusTable(Page(blind), nullptr, {});
  EXPECT_THAT(blind_table, Not(HasSubstr("No hang")));
  EXPECT_THAT(blind_table, HasSubstr("Cannot tell whether a rank hangs.\n"));
  EXPECT_THAT(blind_table,
              HasSubstr("\n   unknown: the end of its work is not reported (rank 0, 1, 2)\n"));
  EXPECT_EQ(FindingOf(Page(blind)), Finding::kIncomplete);
}

TEST_F(StatusTableTest, AnHourIsStillSaidInMinutes) {
  for (const int rank : {0, 2}) job.Launch(kComm, rank, "AllReduce");
  job.Advance(6000 * kSecond);
  EXPECT_THAT(StatusTable(Page(job), nullptr, {}), HasSubstr("no progress for 100 min 0 s"));
  job.Advance(1200 * kSecond);
  EXPECT_THAT(StatusTable(Page(job), nullptr, {}), HasSubstr("no progress for 2 h 0 min"));
}

TEST_F(StatusTableTest, AWaitThatIsUsualIsNoHang) {
  for (const int rank : {0, 2}) {
    job.Launch(kComm, rank, "AllReduce");
    job.Of(kComm, rank).longest_waits = {WaitedBefore("AllReduce", 540 * kSecond)};
  }
  job.Advance(120 * kSecond);
  const std::string table = StatusTable(Page(job), nullptr, {});
  EXPECT_THAT(table, HasSubstr("\n      Communicator 00000000000000c0 has made no progress for 2 "
                               "min 0 s: an expected wait.\n"));
  EXPECT_THAT(table, HasSubstr("\nWAIT  Rank 1 (pid 101, GPU 1) has not called"));
  EXPECT_THAT(table, HasSubstr("It has waited up to 9 min here"));
  EXPECT_EQ(FindingOf(Page(job)), Finding::kNone);
  job.Advance(800 * kSecond);
  EXPECT_EQ(FindingOf(Page(job)), Finding::kHang);
}

TEST_F(StatusTableTest, WorkBehindItsOwnGpuIsQueued) {
  for (int rank = 0; rank < 3; ++rank) {
    job.Launch(kComm, rank, "AllReduce");
    job.Of(kComm, rank).oldest_launch = OldestLaunch::kNotBegun;
  }
  job.Advance(50 * kSecond);
  const std::string table = StatusTable(Page(job), nullptr, {});
  EXPECT_THAT(table, HasSubstr("\n      0  100    0  queued  50 s"));
  EXPECT_THAT(table, HasSubstr("have not begun it"));
  EXPECT_EQ(FindingOf(Page(job)), Finding::kIncomplete);
}

TEST_F(StatusTableTest, ACallThatIsNotReported) {
  job.Call(kComm, 1, "Broadcast");
  job.Advance(4 * kSecond);
  const std::string table = StatusTable(Page(job), nullptr, {});
  EXPECT_THAT(table, HasSubstr("\n      1  101    1  unknown  4 s  Broadcast"));
  EXPECT_THAT(
      table,
      HasSubstr("\n   unknown: NCCL does not report the launch of its last call (rank 1)\n"));
  EXPECT_EQ(FindingOf(Page(job)), Finding::kIncomplete);
}

TEST_F(StatusTableTest, NarrowScreensLoseColumnsOnTheRight) {
  StatusOptions narrow;
  narrow.table_width = 80;
  const std::string table = StatusTable(Page(job), nullptr, narrow);
  EXPECT_THAT(table, HasSubstr("CALLS/S  "));
  EXPECT_THAT(table, Not(HasSubstr("BUS\n")));
}

TEST_F(StatusTableTest, OtherVersionsAndHostileText) {
  for (const char* text :
       {"{}", "[]", "null", R"({"communicators": 7})", R"({"communicators": [7, {}]})",
        R"({"communicators": [{"ranks": [7, {}, {"rank": "x", "latencies": {"a": 1}}]}]})",
        R"({"time": "x", "communicators": [{"hang": 7, "straggler": [], "ranks": 7}]})"}) {
    StatusOptions all;
    all.all = true;
    const Json page = Json::parse(text);
    EXPECT_FALSE(StatusTable(page, &page, all).empty()) << text;
    EXPECT_NE(FindingOf(page), Finding::kIncomplete) << text;
  }
  ProcessSnapshot process = ExampleProcess();
  process.hostname = "evil\033]0;x\007";
  Json page = Json::parse(CommunicatorsJson(SnapshotSet({process}), 1760000003250000000));
  page["communicators"][0]["name"] = "a\033[2Jb\nc";
  const std::string table = StatusTable(page, nullptr, {});
  EXPECT_THAT(table, Not(HasSubstr("\033")));
  EXPECT_THAT(table, HasSubstr("\"a?[2Jb?c\""));
}

TEST_F(StatusTableTest, ProcessesWithoutThePlugin) {
  const Json page = Json::parse(R"({"time": 1000, "communicators": [], "without_plugin": [
      {"pid": 1018, "global_rank": "3", "gpus": [0, 1], "nccl": "2.28.9", "since": 400},
      {"pid": 1019, "global_rank": "\u001b[2J", "gpus": [], "nccl": null, "since": null,
       "stopped": "frozen by its cgroup"}]})");
  EXPECT_THAT(StatusTable(page, nullptr, {}),
              HasSubstr("\n\nWithout the plugin (if they hang: pulse diagnose):\n"
                        "   pid 1018, rank 3, GPU 0, GPU 1, NCCL 2.28.9, for 10 min 0 s\n"
                        "   pid 1019, rank ?[2J, is frozen by its cgroup\n"));
  for (const char* text : {"null", "7", "[]"}) {
    EXPECT_EQ(WithoutPluginLines(Json::parse(text), 1000), "");
  }
}

}  // namespace
}  // namespace nccl_pulse

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bench/collective_overhead/report.h"
#include "bench/collective_overhead/rows.h"
#include "bench/collective_overhead/values.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nccl_pulse::overhead {
namespace {

using ::testing::HasSubstr;

Options FourConfigurations() {
  Options options;
  options.devices = {0, 1};
  options.configurations = {
      {"none", "none", {}}, {"twin", "none", {}}, {"free", "/f.so", {}}, {"dear", "/d.so", {}}};
  return options;
}

// free costs nothing, dear 5 % of the operations and 20 % of the compute beside; `twin` as the
// twin's time for each of none's.
PointResult Result(bool compute, double twin = 1, double free = 1) {
  PointResult result = {Launch::kProcesses,
                        {Operation::kAllReduce, Mode::kSync, compute, 4096},
                        {},
                        {"", "", "", ""}};
  for (int i = 0; i < 12; ++i) {
    const double us = 100 + i;
    // A round's own: some up, some down.
    const double own = 1 + 0.0002 * (i / 2 % 3 - 1);
    result.blocks.push_back({i / 2,
                             {{us, us * 1.1},
                              {us * twin * own, us * 1.1 * twin * own},
                              {us * free * own, us * 1.1 * free * own},
                              {us * 1.05, us * 1.32}}});
  }
  return result;
}

Machine TwoGpus() { return {"GPU", 22809, 13000, {-1, 0.001, 0.001, 0.002}}; }

const Row& RowOf(const std::vector<Row>& rows, const std::string& configuration) {
  for (const Row& row : rows) {
    if (row.configuration == configuration) return row;
  }
  ADD_FAILURE() << configuration;
  return rows.front();
}

TEST(RowsTest, TwinsComeFirstAndComputeHasTwoTimes) {
  const Options options = FourConfigurations();
  EXPECT_EQ(RowsOf(Result(false), options).size(), 3u);
  const std::vector<Row> rows = RowsOf(Result(true), options);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_TRUE(rows[0].twin);
  EXPECT_EQ(rows[0].verdict, Verdict::kAlike);
  EXPECT_EQ(rows[1].verdict, Verdict::kPass);
  EXPECT_EQ(rows[2].verdict, Verdict::kFail);
  EXPECT_NEAR(rows[2].comparison.ratio.mean, 1.05, 1e-4);
  EXPECT_EQ(rows[5].measured, Measured::kTotal);
  EXPECT_NEAR(rows[5].comparison.ratio.mean, 1.2, 1e-4);
}

// 1 % between none and its twin: a plugin stands beside the mean of the two.
TEST(RowsTest, PluginsAreComparedWithAllSetsWithoutOne) {
  const Options options = FourConfigurations();
  const std::vector<Row> rows = RowsOf(Result(false, 1.01), options);
  EXPECT_NEAR(RowOf(rows, "twin").comparison.ratio.mean, 1.01, 1e-4);
  EXPECT_NEAR(RowOf(rows, "dear").comparison.ratio.mean, 1.05 / 1.005, 1e-4);
  EXPECT_NEAR(RowOf(rows, "dear").comparison.base_us, 105.5 * 1.005, 0.1);
}

TEST(RowsTest, EachTwinStandsBesideTheOthers) {
  Options options = FourConfigurations();
  options.configurations[2] = {"third", "none", {}};
  const std::vector<Row> rows = RowsOf(Result(false, 1.02), options);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_NEAR(RowOf(rows, "twin").comparison.ratio.mean, 1.02, 1e-4);
  EXPECT_NEAR(RowOf(rows, "third").comparison.ratio.mean, 1 / 1.01, 1e-4);
}

TEST(RowsTest, BlocksWithoutAConfigurationAreNoPairs) {
  const Options options = FourConfigurations();
  PointResult result = Result(false);
  for (std::size_t i = 0; i < 5; ++i) result.blocks[i].samples[3] = {};
  const std::vector<Row> rows = RowsOf(result, options);
  EXPECT_EQ(RowOf(rows, "free").comparison.pairs, 12);
  EXPECT_EQ(RowOf(rows, "dear").comparison.pairs, 7);
  EXPECT_EQ(RowOf(rows, "dear").comparison.rounds.size(), 4u);
}

TEST(SuspectTest, FasterThanWithoutIsNoPass) {
  const std::vector<Row> rows = RowsOf(Result(false, 1, 0.98), FourConfigurations());
  EXPECT_EQ(RowOf(rows, "free").verdict, Verdict::kSuspect);
  EXPECT_EQ(RowOf(rows, "free").reason, "faster than without");
  EXPECT_EQ(RowOf(rows, "dear").verdict, Verdict::kFail);
  // Within what rounds differ by it is nothing.
  EXPECT_EQ(RowOf(RowsOf(Result(false, 1, 0.99999), FourConfigurations()), "free").verdict,
            Verdict::kPass);
}

TEST(SuspectTest, WhereATwinDiffersNothingIsJudged) {
  for (const double twin : {0.99, 1.01}) {
    const std::vector<Row> rows = RowsOf(Result(false, twin), FourConfigurations());
    EXPECT_EQ(RowOf(rows, "twin").verdict, Verdict::kDiffer);
    for (const char* plugin : {"free", "dear"}) {
      EXPECT_EQ(RowOf(rows, plugin).verdict, Verdict::kSuspect);
      EXPECT_EQ(RowOf(rows, plugin).reason, "a twin differs here");
    }
  }
}

TEST(SuspectTest, MoreTwinsThanChanceExplainsMakeTheWholeRunSuspect) {
  const Options options = FourConfigurations();
  std::vector<PointResult> results(10, Result(false));
  results[0] = results[1] = Result(false, 1.01);  // 2 of 10 may
  std::vector<Row> rows = RowsOf(results, options);
  EXPECT_EQ(rows.back().verdict, Verdict::kFail);
  results[2] = Result(false, 1.01);
  rows = RowsOf(results, options);
  EXPECT_EQ(rows.back().verdict, Verdict::kSuspect);
  EXPECT_EQ(rows.back().reason, "twins differ at 3 of 10");
  EXPECT_THAT(TwinText(rows, options), HasSubstr("AT FAULT"));
  // Threads' twins say nothing of processes.
  for (PointResult& result : results) result.launch = Launch::kThreads;
  results.push_back(Result(false));
  Options both = options;
  both.launches = {Launch::kThreads, Launch::kProcesses};
  rows = RowsOf(results, both);
  EXPECT_EQ(rows.back().verdict, Verdict::kFail);
  EXPECT_EQ(rows.front().launch, Launch::kThreads);
  EXPECT_EQ(rows[29].verdict, Verdict::kSuspect);
}

TEST(SuspectTest, SlowdownThatATwinShowsIsNoFinding) {
  Options options = FourConfigurations();
  PointResult result = Result(false);
  // The twin: +6 % and -0.2 % by turns, its interval holds 0; dear always 2 %.
  for (std::size_t i = 0; i < result.blocks.size(); ++i) {
    const double us = 100;
    const bool odd = i / 2 % 2 == 1;
    result.blocks[i].samples = {{us, us}, {us * (odd ? 1.08 : 0.998), us}, {us, us}, {0, 0}};
    result.blocks[i].samples[3].operations_us =
        (us + result.blocks[i].samples[1].operations_us) / 2 * 1.02;
  }
  const std::vector<Row> rows = RowsOf(result, options);
  EXPECT_EQ(RowOf(rows, "twin").verdict, Verdict::kAlike);
  EXPECT_GT(RowOf(rows, "dear").comparison.ratio.low, 1.0199);
  EXPECT_EQ(RowOf(rows, "dear").verdict, Verdict::kUndecided);
  EXPECT_EQ(RowOf(rows, "dear").reason, "a twin shows as much");
}

TEST(SuspectTest, WithoutATwinNothingIsJudged) {
  PointResult result = Result(false);
  for (Block& block : result.blocks) block.samples[1] = {};
  const std::vector<Row> rows = RowsOf(result, FourConfigurations());
  EXPECT_EQ(RowOf(rows, "dear").verdict, Verdict::kSuspect);
  EXPECT_EQ(RowOf(rows, "dear").reason, "no twin to compare with");
}

TEST(TextTest, TableAndSummarySayWhatFailed) {
  const Options options = FourConfigurations();
  const std::vector<Row> rows = RowsOf({Result(true)}, options);
  EXPECT_EQ(TwinText(rows, options),
            "processes: twins differ at 0 of 2 points; chance explains up to 1.\n");
  EXPECT_THAT(Markdown(rows, options), HasSubstr(", alike | "));
  EXPECT_THAT(Markdown(rows, options), HasSubstr("+5.00 % [+4.9"));
  const std::string summary = Summary(rows, options, TwoGpus());
  EXPECT_THAT(summary, HasSubstr("2 x GPU, NCCL 2.28.9, driver for CUDA 13.0"));
  EXPECT_THAT(summary, HasSubstr("free: 2 passed, 0 failed, 0 undecided, 0 suspect, 0 not "
                                 "measured; a process took 0.10 % of a processor"));
  EXPECT_THAT(summary, HasSubstr("dear: 0 passed, 2 failed"));
  EXPECT_THAT(summary, HasSubstr("failed: all_reduce 4 KiB sync+compute (total), processes: "
                                 "+20.00 %"));
}

TEST(TextTest, WhatWasNotMeasuredIsNamedWithTheReason) {
  const Options options = FourConfigurations();
  PointResult result = Result(false);
  result.blocks.clear();
  result.notes[3] = "hung, \"again\"";
  const std::vector<Row> rows = RowsOf({result}, options);
  EXPECT_THAT(Summary(rows, options, TwoGpus()),
              HasSubstr("not measured: all_reduce 4 KiB sync, processes: hung, \"again\""));
  EXPECT_THAT(Csv(rows), HasSubstr("undecided,,\"hung, \"\"again\"\"\"\n"));
  EXPECT_THAT(Markdown(rows, options), HasSubstr("| not measured | not measured | not measured |"));
}

TEST(TextTest, CsvHasAsManyFieldsInEveryLine) {
  const Options options = FourConfigurations();
  PointResult empty = Result(false);
  empty.blocks.clear();
  const std::string csv = Csv(RowsOf({Result(true), empty}, options));
  int fields = 0;
  for (std::size_t at = 0; at < csv.size(); ++at) {
    if (csv[at] == ',') ++fields;
    if (csv[at] != '\n') continue;
    EXPECT_EQ(fields, 20) << csv;
    fields = 0;
  }
  EXPECT_THAT(csv, HasSubstr("processes,all_reduce,4096,sync,with,operations,dear,12,6,105.5"));
}

TEST(WriteFileTest, ReplacesAndReports) {
  const std::string path = ::testing::TempDir() + "/written";
  ASSERT_EQ(WriteFile(path, "one, longer"), "");
  ASSERT_EQ(WriteFile(path, "two"), "");
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "two");
  EXPECT_THAT(WriteFile("/no/such/folder/file", "x"), HasSubstr("/no/such/folder/file"));
}

// By the definition of each operation, for every rank of a communicator of three.
TEST(ValuesTest, ExpectedResults) {
  constexpr uint64_t kCount = 100;
  constexpr int kRanks = 3;
  const auto all = [](Operation operation, int rank) {
    std::vector<float> values;
    for (const Segment& segment : Expected(operation, kCount, rank, kRanks)) {
      for (uint64_t i = 0; i < segment.count; ++i) {
        values.push_back(segment.period[i % kValuePeriod]);
      }
    }
    EXPECT_EQ(values.size(), ReceiveCount(operation, kCount, kRanks));
    return values;
  };
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto mine = static_cast<uint64_t>(rank);
    for (uint64_t i = 0; i < kCount; ++i) {
      const uint64_t kept = mine * kCount + i;
      EXPECT_EQ(all(Operation::kAllReduce, rank)[i], ValueOf(i, 0) + ValueOf(i, 1) + ValueOf(i, 2));
      EXPECT_EQ(all(Operation::kReduceScatter, rank)[i],
                ValueOf(kept, 0) + ValueOf(kept, 1) + ValueOf(kept, 2));
      EXPECT_EQ(all(Operation::kBroadcast, rank)[i], ValueOf(i, 0));
      EXPECT_EQ(all(Operation::kSendRecv, rank)[i], ValueOf(i, (rank + 2) % 3));
      for (int from = 0; from < kRanks; ++from) {
        const uint64_t at = static_cast<uint64_t>(from) * kCount + i;
        EXPECT_EQ(all(Operation::kAllGather, rank)[at], ValueOf(i, from));
        EXPECT_EQ(all(Operation::kAllToAll, rank)[at], ValueOf(kept, from));
      }
    }
  }
}

TEST(ValuesTest, NeverZero) {
  for (uint64_t i = 0; i < 200; ++i) EXPECT_GE(ValueOf(i, 5), 1);
}

}  // namespace
}  // namespace nccl_pulse::overhead

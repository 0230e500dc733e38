#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bench/collective_overhead/report.h"
#include "bench/collective_overhead/values.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nccl_pulse::overhead {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Options ThreeConfigurations() {
  Options options;
  options.devices = {0, 1};
  options.configurations = {
      {"none", "none", {}}, {"free", "/f.so", {}}, {"dear", "/d.so", {{"A", "say \"1\""}}}};
  return options;
}

// free costs nothing, dear 5 % of the operations and 20 % of the compute beside.
PointResult Result(bool compute) {
  PointResult result = {
      Launch::kProcesses, {Operation::kAllReduce, Mode::kSync, compute, 4096}, {}, {"", "", ""}};
  for (int i = 0; i < 12; ++i) {
    const double us = 100 + i;
    result.blocks.push_back({0, {{us, us * 1.1}, {us, us * 1.1}, {us * 1.05, us * 1.32}}});
  }
  return result;
}

Machine TwoGpus() { return {"GPU", 22809, 13000, {-1, 0.001, 0.002}}; }

TEST(RowsTest, ComputeHasTwoTimes) {
  const Options options = ThreeConfigurations();
  EXPECT_EQ(RowsOf(Result(false), options).size(), 2u);
  const std::vector<Row> rows = RowsOf(Result(true), options);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].comparison.verdict, Verdict::kPass);
  EXPECT_EQ(rows[1].comparison.verdict, Verdict::kFail);
  EXPECT_NEAR(rows[1].comparison.ratio.median, 1.05, 1e-9);
  EXPECT_EQ(rows[3].measured, Measured::kTotal);
  EXPECT_NEAR(rows[3].comparison.ratio.median, 1.2, 1e-9);
}

TEST(RowsTest, BlocksWithoutAConfigurationAreNoPairs) {
  const Options options = ThreeConfigurations();
  PointResult result = Result(false);
  for (int i = 0; i < 5; ++i) result.blocks[static_cast<std::size_t>(i)].samples[2] = {};
  const std::vector<Row> rows = RowsOf(result, options);
  EXPECT_EQ(rows[0].comparison.pairs, 12);
  EXPECT_EQ(rows[1].comparison.pairs, 7);
}

TEST(TextTest, TableAndSummarySayWhatFailed) {
  const Options options = ThreeConfigurations();
  const std::vector<Row> rows = RowsOf({Result(true)}, options);
  EXPECT_THAT(Table(rows), HasSubstr("+5.00 % [+5.00, +5.00]"));
  const std::string summary = Summary(rows, options, TwoGpus());
  EXPECT_THAT(summary, HasSubstr("2 x GPU, NCCL 2.28.9, driver for CUDA 13.0"));
  EXPECT_THAT(summary, HasSubstr("free: 2 passed, 0 failed, 0 undecided, 0 not measured; "
                                 "a process took 0.10 % of a processor"));
  EXPECT_THAT(summary, HasSubstr("dear: 0 passed, 2 failed"));
  EXPECT_THAT(summary, HasSubstr("failed: all_reduce 4 KiB sync+compute (total), processes: "
                                 "+20.00 %"));
}

TEST(TextTest, WhatWasNotMeasuredIsNamedWithTheReason) {
  const Options options = ThreeConfigurations();
  PointResult result = Result(false);
  result.blocks.clear();
  result.notes[2] = "hung, \"again\"";
  const std::vector<Row> rows = RowsOf({result}, options);
  EXPECT_THAT(Summary(rows, options, TwoGpus()),
              HasSubstr("not measured: all_reduce 4 KiB sync, processes: hung, \"again\""));
  EXPECT_THAT(Csv(rows), HasSubstr("undecided,\"hung, \"\"again\"\"\"\n"));
  EXPECT_THAT(Json({result}, options, TwoGpus()), HasSubstr("\"note\": \"hung, \\\"again\\\"\""));
  EXPECT_THAT(Markdown(rows, options), HasSubstr("| not measured | not measured |"));
}

TEST(TextTest, CsvHasAsManyFieldsInEveryLine) {
  const Options options = ThreeConfigurations();
  PointResult empty = Result(false);
  empty.blocks.clear();
  const std::string csv = Csv(RowsOf({Result(true), empty}, options));
  int fields = 0;
  for (std::size_t at = 0; at < csv.size(); ++at) {
    if (csv[at] == ',') ++fields;
    if (csv[at] != '\n') continue;
    EXPECT_EQ(fields, 19) << csv;
    fields = 0;
  }
  EXPECT_THAT(csv, HasSubstr("processes,all_reduce,4096,sync,with,operations,dear,12,12,105.5"));
}

TEST(TextTest, JsonHasNoInfinity) {
  const Options options = ThreeConfigurations();
  PointResult result = Result(true);
  result.blocks.resize(2);
  const std::string json = Json({result}, options, TwoGpus());
  EXPECT_THAT(json, HasSubstr("\"low\": null, \"high\": null"));
  EXPECT_THAT(json, Not(HasSubstr("inf")));
  EXPECT_THAT(json, HasSubstr("\"A\": \"say \\\"1\\\"\""));
  EXPECT_THAT(json,
              HasSubstr("\"samples_operations_us\": [[100, 101], [100, 101], [105, 106.05]]"));
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

// Processes of a job that were configured differently.
#include "exporter/diagnosis/facts/environment_differences.h"

#include "exporter/diagnosis/health.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

using testing::Contains;

class EnvironmentDifferencesTest : public testing::Test {
 protected:
  EnvironmentDifferencesTest() : job_(RunningJob()) {
    for (int i = 0; i < 4; ++i) Set(i, "NCCL=2.28.9 NCCL_DEBUG=WARN NCCL_IB_HCA=mlx5_0");
  }
  void Set(int process, const std::string& text) { job_.process(process).nccl_environment = text; }
  std::vector<std::string> Of() const { return EnvironmentDifferences(job_.Set().processes); }

  SimulatedJob job_;
};

TEST_F(EnvironmentDifferencesTest, EqualOnesAreNotNamed) { EXPECT_THAT(Of(), IsEmpty()); }

TEST_F(EnvironmentDifferencesTest, NamesTheRankThatLacksOne) {
  Set(2, "NCCL=2.28.9 NCCL_DEBUG=WARN");
  const std::string sentence =
      "NCCL_IB_HCA differs: \"mlx5_0\" in 3 processes; not set in global rank 2.";
  EXPECT_THAT(Of(), ElementsAre(sentence));
  // It stands in every verdict and on the page.
  const Health health =
      HealthOf(job_.Set(), Diagnosis().Update(job_.Set(), job_.now()), job_.now());
  EXPECT_THAT(health.notes, Contains(sentence));
}

TEST_F(EnvironmentDifferencesTest, NamesVersionsAndValues) {
  Set(1, "NCCL=2.27.5 NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0");
  EXPECT_THAT(
      Of(),
      ElementsAre("NCCL's version differs: \"2.28.9\" in 3 processes; \"2.27.5\" in global rank 1.",
                  "NCCL_DEBUG differs: \"WARN\" in 3 processes; \"INFO\" in global rank 1."));
}

TEST_F(EnvironmentDifferencesTest, UnknownIsNoDifference) {
  Set(0, "");                                    // an older plugin, or a dump
  Set(1, "NCCL_DEBUG=WARN NCCL_IB_HCA=mlx5_0");  // its version is not known
  Set(2, "NCCL=2.28.9 NCCL_DEBUG=WARN ...");     // the rest did not fit
  EXPECT_THAT(Of(), IsEmpty());
}

TEST_F(EnvironmentDifferencesTest, WhatDiffersEverywhereIsMeantTo) {
  for (int i = 0; i < 4; ++i) Set(i, "NCCL_HOSTID=" + std::to_string(i));
  EXPECT_THAT(Of(), IsEmpty());
}

TEST_F(EnvironmentDifferencesTest, OtherJobsAreNotCompared) {
  Set(0, "NCCL_DEBUG=INFO");
  for (int i = 1; i < 4; ++i) Set(i, "NCCL_DEBUG=WARN");
  std::vector<ProcessSnapshot> processes = job_.Set().processes;
  processes[0].communicators.clear();
  EXPECT_THAT(EnvironmentDifferences(processes), IsEmpty());
}

TEST_F(EnvironmentDifferencesTest, ThereAreNotTooMany) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "NCCL_V" + std::to_string(i) + "=1 ";
  Set(3, text);
  const std::vector<std::string> sentences = Of();
  ASSERT_THAT(sentences, SizeIs(9));
  EXPECT_EQ(sentences.back(), "14 more variables differ between processes.");
}

}  // namespace
}  // namespace nccl_pulse

#include "exporter/exposition/json/summary_json.h"

#include "exporter/diagnosis/diagnosis.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/exporter/diagnosis/hang_job.h"

namespace nccl_pulse {
namespace {

using Json = nlohmann::json;

std::string Text(const SimulatedJob& job) {
  return SummaryJson(job.Set(), Diagnosis().Update(job.Set(), job.now()), job.now());
}

Json Of(const SimulatedJob& job) {
  const std::string text = Text(job);
  EXPECT_LE(text.size(), 1024u);
  return Json::parse(text);
}

TEST(SummaryJson, SaysWhatStandsLongBeforeItIsAHang) {
  SimulatedJob job = RunningJob();
  EXPECT_EQ(Of(job)["stands"], Json::array());
  for (int rank = 0; rank < 3; ++rank) job.Launch(kComm, rank, "AllReduce");
  const int64_t since = job.now();
  job.Advance(1 * kSecond);
  EXPECT_EQ(Of(job)["stands"], Json::array());
  job.Advance(2 * kSecond);
  const Json json = Of(job);
  ASSERT_EQ(json["stands"].size(), 1u);
  EXPECT_EQ(json["stands"][0]["verdict"], "rank_not_called");
  EXPECT_EQ(json["stands"][0]["usual"], false);
  EXPECT_EQ(json["stands"][0]["hang_after"], 10.0);
  EXPECT_NEAR(json["stands"][0]["since"].get<double>(), static_cast<double>(since) / 1e9, 0.001);
  EXPECT_EQ(json["health"], "ok");
  job.Advance(10 * kSecond);
  EXPECT_EQ(Of(job)["health"], "hang");
}

TEST(SummaryJson, NamesJobsAndTheCommunicatorsThatLeadToOtherNodes) {
  SimulatedJob job(2);
  job.AddCommunicator(0x1111111122222222, {0, 1});
  job.AddCommunicator(0x3333333344444444, {0, 1}, 16, 8);
  job.AddCommunicator(0x5555555566666666, {0}, 4, 4);
  job.process(0).job_id = job.process(1).job_id = "4711";
  job.process(0).static_labels = job.process(1).static_labels = "team=a,workload=llama";
  Json json = Of(job);
  EXPECT_EQ(json["processes"], 2);
  EXPECT_EQ(json["jobs"],
            Json::array({{{"job_id", "4711"}, {"workload", "llama"}, {"processes", 2}}}));
  EXPECT_EQ(json["communicators"], Json::array({"44444444", "66666666"}));
  EXPECT_EQ(json["left_out"], 0);
  EXPECT_FALSE(json.contains("ended"));
  job.process(0).end = ProcessEnd::kLost;
  json = Of(job);
  EXPECT_EQ(json["communicators"], Json::array({"44444444", "66666666"}));
  EXPECT_EQ(json["ended"], Json::array({"66666666"}));
}

// Nodes of one job that leave something out keep the same.
TEST(SummaryJson, IsAKilobyteWhateverThereIs) {
  SimulatedJob job(4);
  for (int rank = 0; rank < 4; ++rank) {
    job.process(rank).job_id = std::string(150, 'a' + rank);
    job.process(rank).static_labels = "workload=" + std::string(100, '\x01');
  }
  for (int i = 0; i < 200; ++i) job.AddCommunicator(0x1000 + i, {0, 1, 2, 3}, 2000 - i, 200);
  for (int i = 0; i < 200; ++i) job.Launch(0x1000 + i, 0, "AllReduce");
  job.Advance(20 * kSecond);
  const Json json = Of(job);
  EXPECT_EQ(json["stands"].size(), 3u);
  EXPECT_GE(json["communicators"].size(), 20u);
  EXPECT_EQ(json["communicators"][0], "00001000");
  const std::size_t kept =
      json["stands"].size() + json["communicators"].size() + json["jobs"].size();
  EXPECT_EQ(json["left_out"], 200 + 200 + 4 - kept);
}

}  // namespace
}  // namespace nccl_pulse

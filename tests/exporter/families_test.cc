#include "exporter/exposition/families.h"

#include <string>
#include <vector>

#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/example_snapshots.h"
#include "tests/exporter/families_page.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;

// No communicator is both.
DiagnosisResult WholeDiagnosis() {
  DiagnosisResult diagnosis = ExampleDiagnosis();
  diagnosis[0].hang->is_usual = true;
  diagnosis[0].queued = Queued{1760000002250000000, "AllReduce", {3}, ""};
  return diagnosis;
}

ScrapeStats WholeStats() {
  ScrapeStats stats;
  stats.process = {1, 2, 3, 4, 5, 6};
  return stats;
}

TEST(Families, EveryMetricOfTheCatalogueIsFilled) {
  const auto families =
      BuildFamilies(LiveAndEnded(), {}, WholeStats(), {}, PageFormat::kText, WholeDiagnosis());
  ASSERT_EQ(families.size(), static_cast<std::size_t>(kMetrics));
  for (int i = 0; i < kMetrics; ++i) {
    const MetricEntry& entry = CatalogueEntry(static_cast<MetricId>(i));
    EXPECT_EQ(families[i].name, entry.name);
    EXPECT_EQ(families[i].help, entry.help);
    EXPECT_EQ(families[i].type, entry.type);
  }
}

TEST(Families, LabelsAreThoseOfTheCatalogue) {
  const auto families =
      BuildFamilies(LiveAndEnded(), {}, WholeStats(), {}, PageFormat::kText, WholeDiagnosis());
  for (int i = 0; i < kMetrics; ++i) {
    const MetricEntry& entry = CatalogueEntry(static_cast<MetricId>(i));
    std::vector<std::string> expected;
    for (std::string_view name : ScopeLabels(entry.scope)) expected.emplace_back(name);
    for (std::string_view name : entry.labels) expected.emplace_back(name);
    for (const auto& metric : families[i].metric) {
      std::vector<std::string> names;
      for (const auto& label : metric.label) names.push_back(label.name);
      // Hardly any call has a tag.
      if (!names.empty() && names.back() != "user_tag" && expected.back() == "user_tag") {
        names.emplace_back("user_tag");
      }
      EXPECT_EQ(names, expected) << entry.name;
    }
  }
}

TEST(Families, WhatIsUsualOrQueuedIsSaid) {
  ProcessSnapshot process = ExampleProcess();
  DiagnosisResult diagnosis = ExampleDiagnosis();
  const auto page = [&] {
    return TextFormat(
        BuildFamilies(SnapshotSet({process}), {}, ScrapeStats(), {}, PageFormat::kText, diagnosis));
  };
  const char* usual = "\nnccl_hang_expected{comm=\"00ab12cd34ef5678\"} 1\n";
  const char* queued = "\nnccl_work_queued{comm=\"00ab12cd34ef5678\",rank=\"3\"} 1\n";
  EXPECT_THAT(page(), testing::Not(testing::HasSubstr("nccl_hang_expected")));
  EXPECT_THAT(page(), testing::Not(testing::HasSubstr("nccl_work_queued")));
  diagnosis[0].hang->is_usual = true;
  EXPECT_THAT(page(), testing::HasSubstr(usual));
  diagnosis[0].hang.reset();
  diagnosis[0].queued = Queued{1760000002250000000, "AllReduce", {3}, ""};
  EXPECT_THAT(page(), testing::HasSubstr(queued));
  EXPECT_THAT(page(), testing::Not(testing::HasSubstr("nccl_hang_expected")));
  diagnosis[0].queued->ranks = {2};
  EXPECT_THAT(page(), testing::Not(testing::HasSubstr("nccl_work_queued")));
}

TEST(Families, HangsAndStragglers) {
  ProcessSnapshot process = ExampleProcess();
  process.static_labels = "job=a";
  DiagnosisResult diagnosis = ExampleDiagnosis();
  diagnosis[0].losses[0].static_labels = "job=a";
  CommunicatorDiagnosis many;
  many.comm_id = 0xff;
  many.hang.emplace();
  many.hang->verdict = HangVerdict::kNoProgress;
  many.hang->since_realtime_ns = 1760000002000000000;
  many.hang->waiting = {0, 1};
  diagnosis.push_back(many);
  many.comm_id = 0x100;
  many.hang->verdict = HangVerdict::kRankNotCalled;
  for (int rank = 0; rank < 100; ++rank) many.hang->suspects.push_back(rank);
  diagnosis.push_back(many);
  const std::string page = TextFormat(
      BuildFamilies(SnapshotSet({process}), {}, ScrapeStats(), {}, PageFormat::kText, diagnosis));
  EXPECT_THAT(page, testing::HasSubstr("\nnccl_straggler_seconds_total{comm=\"00ab12cd34ef5678\","
                                       "rank=\"3\",job=\"a\"} 1.5\n"));
  EXPECT_THAT(page, testing::HasSubstr(
                        "\nnccl_hang_start_timestamp_seconds{comm=\"00ab12cd34ef5678\",verdict="
                        "\"rank_not_called\",suspect_rank=\"3\",op=\"AllReduce\"} 1760000002.25"));
  EXPECT_THAT(page, testing::HasSubstr("\nnccl_hang_start_timestamp_seconds{comm="
                                       "\"00000000000000ff\",verdict=\"no_progress\"} 1760000002"));
  EXPECT_THAT(page, testing::HasSubstr("suspect_rank=\"15\""));
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("suspect_rank=\"16\"")));
  ExpectNoSeriesTwice(page);
  EXPECT_THAT(Page({process}), testing::Not(testing::HasSubstr("nccl_hang")));
}

TEST(Families, ATagIsALabelOfCallsAndDurations) {
  ProcessSnapshot process = ExampleProcess();
  CommunicatorSnapshot& comm = process.communicators[0];
  comm.calls.push_back({"AllReduce", 4, "ncclFloat32", false, 3, 72, "17"});
  LatencySnapshot tagged = comm.latencies[0];
  tagged.user_tag = "17";
  tagged.bus_bytes = 5;
  comm.latencies.push_back(tagged);
  const std::string page = Page({process});
  const std::string labels = std::string(kCommLabels) + R"(,op="AllReduce",size="le_1MiB",)";
  for (const char* line : {
           R"(datatype="ncclFloat32",captured="false"} 100)",
           R"(datatype="ncclFloat32",captured="false",user_tag="17"} 3)",
       }) {
    EXPECT_THAT(page, testing::HasSubstr("\nnccl_operations_total" + labels + line + "\n"));
  }
  EXPECT_THAT(page, testing::HasSubstr("\nnccl_operation_duration_seconds_count" + labels +
                                       R"(timing="kernel",user_tag="17"} 31)" + "\n"));
  EXPECT_THAT(page, testing::HasSubstr("\nnccl_timed_bus_bytes_total" + labels +
                                       R"(timing="kernel",user_tag="17"} 5)" + "\n"));
  // Not of the bytes, nor where there is none.
  EXPECT_THAT(page, testing::HasSubstr("\nnccl_operation_bytes_total" + std::string(kCommLabels) +
                                       R"(,op="AllReduce",size="le_1MiB"} 105906272)" + "\n"));
  EXPECT_THAT(page, testing::HasSubstr("\nnccl_timed_bus_bytes_total" + labels +
                                       R"(timing="kernel"} 7168)" + "\n"));
  ExpectNoSeriesTwice(page);
}

TEST(Families, Values) {
  const std::string page = Page({ExampleProcess()});
  const std::string comm = kCommLabels;
  for (
      const std::string& line : std::vector<std::string>{
          "nccl_communicator_info" + comm +
              R"(,comm_name="tp \"group\" \\ 0",nranks="8",nnodes="2",global_rank="11",)"
              R"(local_rank="3",job_id="99",index="1",pid="4711",Hostname="node-1",gpu="3",)"
              R"(UUID="GPU-8a56b4a1-93c7-11ee-b9d1-0242ac120002",pci_bus_id="00000000:18:00.0"} 1)",
          "nccl_operations_total" + comm +
              R"(,op="AllReduce",size="le_1MiB",datatype="ncclFloat32",captured="false"} 100)",
          "nccl_operations_total" + comm +
              R"(,op="AllReduce",size="le_1MiB",datatype="ncclFloat32",captured="true"} 1)",
          // Over both datatypes and the captured call: 104857600 + 1048576 + 24.
          "nccl_operation_bytes_total" + comm + R"(,op="AllReduce",size="le_1MiB"} 105906200)",
          "nccl_composite_operations_total" + comm +
              R"(,op="AlltoAll",size="le_64KiB",captured="false"} 40)",
          "nccl_algorithm_operations_total" + comm +
              R"(,op="AllReduce",algo="RING",proto="SIMPLE"} 110)",
          "nccl_launches_total" + comm + "} 111", "nccl_launches_completed_total" + comm + "} 108",
          "nccl_inflight_launches" + comm + "} 3",
          "nccl_oldest_inflight_launch_timestamp_seconds" + comm + "} 1760000002.25",
          "nccl_operation_duration_seconds_count" + comm +
              R"(,op="AllReduce",size="le_1MiB",timing="kernel"} 31)",
          "nccl_timed_bus_bytes_total" + comm +
              R"(,op="AllReduce",size="le_1MiB",timing="kernel"} 7168)",
          "nccl_operations_without_duration_total" + comm +
              R"(,op="AllReduce",reason="overlap"} 7)",
          "nccl_operations_without_completion_total" + comm + R"(,op="Send"} 2)",
          "nccl_last_launch_timestamp_seconds" + comm + "} 1760000002.5",
          "nccl_last_completion_timestamp_seconds" + comm + "} 1760000002.75",
          "nccl_network_bytes_total" + comm + R"(,direction="send"} 1000)",
          "nccl_network_bytes_total" + comm + R"(,direction="recv"} 2000)",
          "nccl_network_wait_seconds_total" + comm + R"(,direction="send",reason="gpu"} 1.5)",
          "nccl_network_wait_seconds_total" + comm + R"(,direction="send",reason="peer"} 2)",
          "nccl_network_wait_seconds_total" + comm + R"(,direction="send",reason="wire"} 3)",
          "nccl_network_wait_seconds_total" + comm + R"(,direction="recv",reason="wire"} 4)",
          "nccl_network_wait_seconds_total" + comm + R"(,direction="recv",reason="flush"} 0)",
          "nccl_network_wait_seconds_total" + comm + R"(,direction="recv",reason="gpu"} 6)",
          R"(nccl_pulse_network_observed_seconds_total{pid="4711",global_rank="11"} 2.5)",
          R"(nccl_pulse_commands_total{pid="4711",global_rank="11",result="done"} 4)",
          R"(nccl_pulse_commands_total{pid="4711",global_rank="11",result="refused"} 1)",
          R"(nccl_pulse_commands_total{pid="4711",global_rank="11",result="abandoned"} 2)",
          R"(nccl_pulse_setting_changed{pid="4711",global_rank="11",setting="HANG_SECONDS"} 1)",
          R"(nccl_pulse_callbacks_total{pid="4711",global_rank="11",callback="step"} 60)",
          "nccl_pulse_overflowed_operations_total" + comm + "} 5",
          R"(nccl_pulse_build_info{pid="4711",global_rank="11",version="0.1.0",)" +
              std::string(R"(nccl_api_version="5",)") +
              R"(timing="kernel",durations="kernel",completions="stream",event_mask="0xdb",memory="shared"} 1)",
          R"(nccl_pulse_callbacks_total{pid="4711",global_rank="11",callback="proxy"} 40)",
          R"(nccl_pulse_callback_duration_seconds_count{pid="4711",global_rank="11"} 4)",
          R"(nccl_pulse_callback_duration_seconds_sum{pid="4711",global_rank="11"} 1e-07)",
          R"(nccl_pulse_ignored_events_total{pid="4711",global_rank="11",reason="foreign_handle"} 6)",
          R"(nccl_pulse_series_used{pid="4711",global_rank="11"} 12)",
          R"(nccl_pulse_series_limit{pid="4711",global_rank="11"} 1024)",
          R"(nccl_pulse_communicators_used{pid="4711",global_rank="11"} 1)",
          R"(nccl_pulse_communicators_limit{pid="4711",global_rank="11"} 64)",
          R"(nccl_pulse_recycled_communicators_total{pid="4711",global_rank="11"} 3)",
          R"(nccl_pulse_recycled_operations_total{pid="4711",global_rank="11",op="AllReduce"} 70)",
          R"(nccl_pulse_recycled_operations_total{pid="4711",global_rank="11",op="other"} 2)",
          R"(nccl_pulse_recycled_operation_bytes_total{pid="4711",global_rank="11",op="AllReduce"} 7000)",
          R"(nccl_pulse_start_timestamp_seconds{pid="4711",global_rank="11"} 1760000000)",
          R"(nccl_pulse_last_poll_timestamp_seconds{pid="4711",global_rank="11"} 1760000003)",
          R"(nccl_pulse_sampling_ratio{pid="4711",global_rank="11"} 0.0078125)",
          "nccl_pulse_processes 1", "nccl_pulse_process_up{pid=\"4711\",global_rank=\"11\"} 1"}) {
    EXPECT_THAT("\n" + page, HasSubstr("\n" + line + "\n"));
  }
  ExpectNoSeriesTwice(page);
}

TEST(Families, DroppedFamiliesAreAbsentAndTheOthersUnchanged) {
  Exposition exposition;
  std::string unknown;
  EXPECT_FALSE(ParseDroppedFamilies(
      "nccl_operations_total, nccl_communicator_info,nccl_no,nccl_operation_duration_seconds,"
      "nccl_pulse_callback_duration_seconds_sum",
      &exposition, &unknown));
  EXPECT_EQ(unknown, "nccl_no, nccl_pulse_callback_duration_seconds_sum");
  for (const PageFormat format : {PageFormat::kText, PageFormat::kProtobuf}) {
    const auto all = BuildFamilies(LiveAndEnded(), {}, {}, {}, format);
    const auto some = BuildFamilies(LiveAndEnded(), {}, {}, exposition, format);
    EXPECT_EQ(some.size(), all.size() - 3);
    EXPECT_EQ(Find(some, "nccl_operations_total"), nullptr);
    EXPECT_EQ(Find(some, "nccl_operation_duration_seconds"), nullptr);
    for (const Family& family : some) {
      EXPECT_EQ(TextFormat({family}), TextFormat({*Find(all, family.name)}));
    }
  }
}

}  // namespace
}  // namespace nccl_pulse

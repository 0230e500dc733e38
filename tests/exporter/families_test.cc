#include "exporter/exposition/families.h"

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "exporter/exposition/catalogue.h"
#include "exporter/exposition/classic_buckets.h"
#include "exporter/exposition/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "metrics/agreed_call.h"
#include "metrics/size_class.h"
#include "prometheus/text_serializer.h"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {
namespace {

using prometheus::MetricFamily;
using testing::HasSubstr;
using testing::Not;

constexpr char kComm[] = "{comm=\"00ab12cd34ef5678\",rank=\"3\"";

std::string Page(std::vector<ProcessSnapshot> processes, const StaticLabels& labels = {}) {
  return TextFormat(BuildFamilies(SnapshotSet(std::move(processes)), labels, {}));
}

// Lines that start with `name`, then '{' or ' '.
std::vector<std::string> Lines(const std::string& page, const std::string& name) {
  std::vector<std::string> lines;
  std::istringstream in(page);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(name, 0) == 0 && line.size() > name.size() &&
        (line[name.size()] == '{' || line[name.size()] == ' ')) {
      lines.push_back(line);
    }
  }
  return lines;
}

// Prometheus refuses a page with the same series twice.
void ExpectNoSeriesTwice(const std::string& page) {
  std::set<std::string> seen;
  std::istringstream in(page);
  for (std::string line; std::getline(in, line);) {
    if (line[0] == '#') continue;
    EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
  }
}

// Graphs with stamps in them that were replayed.
void AddReplays(ProcessSnapshot* process) {
  process->graph_captures = {12, 9, 1, 2, 1};
  CommunicatorSnapshot& comm = process->communicators[0];
  comm.captured = true;
  comm.graph_replays = 1077;
  comm.graph_replays_in_flight = 1;
  comm.graph_moved_realtime_ns = 1760000002500000000;
  comm.replayed = {{"AllReduce", SizeClassOf(4096), 32310, 132341760}};
}

// Every metric, also what only an ended process has, or one whose calls were captured.
SnapshotSet LiveAndEnded() {
  ProcessSnapshot live = ExampleProcess();
  live.pid_namespace = 4026532331;
  live.event_mask_changes = 2;
  live.foreign_event_mask = 0x2;
  live.communicators[0].longest_waits = {{"AllReduce", 540000000000}};
  CommunicatorSnapshot unknown = ExampleCommunicator();
  unknown.rank = 5;
  unknown.launches_completed = unknown.launches;
  unknown.unreported_calls = 1;
  live.communicators.push_back(unknown);
  ProcessSnapshot ended = live;
  ended.pid = 4712;
  ended.end = ProcessEnd::kExit;
  ended.end_realtime_ns = 1760000004000000000;
  CommunicatorSnapshot& comm = ended.communicators[0];
  comm.rank = 4;
  comm.captured = true;
  comm.finalized = true;
  comm.latencies[0].kind = LatencyKind::kDurationNetwork;
  AddReplays(&live);
  SnapshotSet set({live, ended});
  set.rejected[static_cast<int>(Rejection::kNoRoom)] = 1;
  return set;
}

// No communicator is both.
DiagnosisResult WholeDiagnosis() {
  DiagnosisResult diagnosis = ExampleDiagnosis();
  diagnosis[0].hang->is_usual = true;
  diagnosis[0].queued = Queued{1760000002250000000, "AllReduce", {3}, ""};
  return diagnosis;
}

TEST(Families, EveryMetricOfTheCatalogueIsFilled) {
  const auto families =
      BuildFamilies(LiveAndEnded(), {}, {}, {}, PageFormat::kText, WholeDiagnosis());
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
      BuildFamilies(LiveAndEnded(), {}, {}, {}, PageFormat::kText, WholeDiagnosis());
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
  const char* usual = "\nnccl_hang_usual{comm=\"00ab12cd34ef5678\"} 1\n";
  const char* queued = "\nnccl_activity_queued{comm=\"00ab12cd34ef5678\",rank=\"3\"} 1\n";
  EXPECT_THAT(page(), testing::Not(testing::HasSubstr("nccl_hang_usual")));
  EXPECT_THAT(page(), testing::Not(testing::HasSubstr("nccl_activity_queued")));
  diagnosis[0].hang->is_usual = true;
  EXPECT_THAT(page(), testing::HasSubstr(usual));
  diagnosis[0].hang.reset();
  diagnosis[0].queued = Queued{1760000002250000000, "AllReduce", {3}, ""};
  EXPECT_THAT(page(), testing::HasSubstr(queued));
  EXPECT_THAT(page(), testing::Not(testing::HasSubstr("nccl_hang_usual")));
  diagnosis[0].queued->ranks = {2};
  EXPECT_THAT(page(), testing::Not(testing::HasSubstr("nccl_activity_queued")));
}

// Only where other ranks are elsewhere, and only what is over and stands still.
TEST(Families, AgreedCallsOfTheLastRound) {
  constexpr int64_t kEnd = 1760000002500000000;  // of the example's call
  const int64_t over = (AgreedRound(kEnd) + 1) * kAgreedRoundNs;
  constexpr int64_t kSecond = 1000000000;
  ProcessSnapshot process = ExampleProcess();
  const auto page_at = [&](int64_t now) {
    return TextFormat(
        BuildFamilies(SnapshotSet({process}), {}, ScrapeStats(), {}, PageFormat::kText, {}, now));
  };
  const std::string labels = "{comm=\"00ab12cd34ef5678\",rank=\"3\",timing=\"stream\"}";
  const auto id = testing::HasSubstr("\nnccl_agreed_call_id" + labels + " 320255973460668\n");
  const auto duration =
      testing::HasSubstr("\nnccl_agreed_call_duration_seconds" + labels + " 0.0015\n");
  const auto any = testing::HasSubstr("nccl_agreed_call");
  EXPECT_THAT(page_at(over - kSecond), testing::Not(any));
  EXPECT_THAT(page_at(over + kSecond), testing::Not(any)) << "another may come to be known";
  for (const int64_t after : {3 * kSecond, 31 * kSecond}) {
    EXPECT_THAT(page_at(over + after), id);
    EXPECT_THAT(page_at(over + after), duration);
  }
  EXPECT_THAT(page_at(over + 33 * kSecond), testing::Not(any));
  // All of its ranks are here.
  process.communicators[0].nranks = 1;
  EXPECT_THAT(page_at(over + 3 * kSecond), testing::Not(any));
  process.communicators[0].nranks = 8;
  process.end = ProcessEnd::kLost;
  EXPECT_THAT(page_at(over + 3 * kSecond), testing::Not(any));
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
  const std::string labels = std::string(kComm) + R"(,op="AllReduce",size="le_1MiB",)";
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
  EXPECT_THAT(page, testing::HasSubstr("\nnccl_operation_bytes_total" + std::string(kComm) +
                                       R"(,op="AllReduce",size="le_1MiB"} 105906272)" + "\n"));
  EXPECT_THAT(page, testing::HasSubstr("\nnccl_timed_bus_bytes_total" + labels +
                                       R"(timing="kernel"} 7168)" + "\n"));
  ExpectNoSeriesTwice(page);
}

TEST(Families, Values) {
  const std::string page = Page({ExampleProcess()});
  const std::string comm = kComm;
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
          "nccl_untimed_operations_total" + comm + R"(,op="AllReduce",reason="overlap"} 7)",
          "nccl_uncompleted_operations_total" + comm + R"(,op="Send"} 2)",
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
          R"(nccl_pulse_sampling_exponent{pid="4711",global_rank="11"} 7)",
          "nccl_pulse_processes 1", "nccl_pulse_process_up{pid=\"4711\",global_rank=\"11\"} 1"}) {
    EXPECT_THAT("\n" + page, HasSubstr("\n" + line + "\n"));
  }
  ExpectNoSeriesTwice(page);
}

TEST(Families, HistogramHasAllBucketsWithExactBoundsAndIsCumulative) {
  const std::string page = Page({ExampleProcess()});
  const auto lines = Lines(page, "nccl_operation_duration_seconds_bucket");
  const std::string head = "nccl_operation_duration_seconds_bucket" + std::string(kComm) +
                           R"(,op="AllReduce",size="le_1MiB",timing="kernel",le=")";
  // Up to 2^-18 s are 1 + 2 + 4; 8 and 16 past the last bound.
  const std::vector<std::string> bounds = {"3.814697265625e-06",
                                           "7.62939453125e-06",
                                           "1.52587890625e-05",
                                           "3.0517578125e-05",
                                           "6.103515625e-05",
                                           "0.0001220703125",
                                           "0.000244140625",
                                           "0.00048828125",
                                           "0.0009765625",
                                           "0.001953125",
                                           "0.00390625",
                                           "0.0078125",
                                           "0.015625",
                                           "0.03125",
                                           "0.125",
                                           "1",
                                           "16",
                                           "+Inf"};
  ASSERT_EQ(lines.size(), bounds.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const int count = i + 1 < bounds.size() ? 7 : 31;
    EXPECT_EQ(lines[i], head + bounds[i] + "\"} " + std::to_string(count));
  }
  const std::string labels =
      std::string(kComm) + R"(,op="AllReduce",size="le_1MiB",timing="kernel"})";
  EXPECT_THAT(Lines(page, "nccl_operation_duration_seconds_count"),
              testing::ElementsAre("nccl_operation_duration_seconds_count" + labels + " 31"));
  EXPECT_THAT(Lines(page, "nccl_operation_duration_seconds_sum"),
              testing::ElementsAre("nccl_operation_duration_seconds_sum" + labels + " 2.5"));
}

TEST(Families, EveryCellCountsInTheFirstBucketThatHoldsIt) {
  for (int cell = 0; cell < kHistogramCells; ++cell) {
    ProcessSnapshot process = ExampleProcess();
    LatencySnapshot latency = process.communicators[0].latencies[0];
    latency.histogram = {};
    latency.histogram.cells[cell] = 1;
    process.communicators[0].latencies = {latency};
    const auto families = BuildFamilies(SnapshotSet({process}), {}, {});
    for (const MetricFamily& family : families) {
      if (family.name != "nccl_operation_duration_seconds") continue;
      const auto& histogram = family.metric.at(0).histogram;
      EXPECT_EQ(histogram.sample_count, 1u);
      EXPECT_EQ(histogram.bucket.size(), kClassicExponents.size());
      for (const auto& bucket : histogram.bucket) {
        EXPECT_EQ(bucket.cumulative_count,
                  CellUpperBoundSeconds(cell) <= bucket.upper_bound ? 1u : 0u)
            << cell << " " << bucket.upper_bound;
      }
    }
  }
}

const Family* Find(const std::vector<Family>& families, std::string_view name) {
  for (const Family& family : families) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

TEST(Families, NativeHistogramsAreWhereTheFormatCarriesThemAndTheyAreWanted) {
  struct Case {
    const char* setting;
    PageFormat format;
    std::size_t classic, native;
  };
  for (const Case& c :
       {Case{"both", PageFormat::kText, 17, 0}, Case{"both", PageFormat::kOpenMetrics, 17, 0},
        Case{"both", PageFormat::kProtobuf, 17, 1}, Case{"classic", PageFormat::kProtobuf, 17, 0},
        Case{"native", PageFormat::kProtobuf, 0, 1}, Case{"native", PageFormat::kText, 0, 0},
        Case{"classic,nccl_operation_duration_seconds=native", PageFormat::kProtobuf, 0, 1}}) {
    Exposition exposition;
    ASSERT_TRUE(ParseHistograms(c.setting, &exposition));
    const auto families =
        BuildFamilies(SnapshotSet({ExampleProcess()}), {}, {}, exposition, c.format);
    const Family* duration = Find(families, "nccl_operation_duration_seconds");
    ASSERT_NE(duration, nullptr);
    ASSERT_EQ(duration->metric.size(), 1u);
    EXPECT_EQ(duration->metric[0].histogram.bucket.size(), c.classic) << c.setting;
    EXPECT_EQ(duration->native.size(), c.native) << c.setting;
    EXPECT_EQ(duration->metric[0].histogram.sample_count, 31u);
  }
}

TEST(Families, CellsOfEqualLabelsAreAddedUp) {
  const auto families = BuildFamilies(SnapshotSet({ExampleProcess(), ExampleProcess()}), {}, {}, {},
                                      PageFormat::kProtobuf);
  const Family* duration = Find(families, "nccl_operation_duration_seconds");
  ASSERT_EQ(duration->native.size(), 1u);
  EXPECT_EQ(duration->native[0].Count(), 62u);
  EXPECT_EQ(duration->native[0].cells[kOverflowCell], 32u);
  EXPECT_EQ(Find(families, "nccl_operation_completion_seconds")->native.size(), 2u);
}

TEST(Families, ATextPageShowsANativeHistogramWithItsSumAndCount) {
  Exposition exposition;
  ASSERT_TRUE(ParseHistograms("native", &exposition));
  const std::string page =
      TextFormat(BuildFamilies(SnapshotSet({ExampleProcess()}), {}, {}, exposition));
  EXPECT_THAT(Lines(page, "nccl_operation_duration_seconds_bucket"),
              testing::ElementsAre(HasSubstr("le=\"+Inf\"} 31")));
  EXPECT_EQ(Lines(page, "nccl_operation_duration_seconds_count").size(), 1u);
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

TEST(Families, DurationSaysItsTiming) {
  ProcessSnapshot process = ExampleProcess();
  LatencySnapshot stream = process.communicators[0].latencies[0];
  stream.kind = LatencyKind::kDurationStream;
  stream.op = "Grouped";
  process.communicators[0].latencies.push_back(stream);
  const std::string page = Page({process});
  const std::string head = std::string(kComm);
  const std::string kernel = head + R"(,op="AllReduce",size="le_1MiB",timing="kernel"} )";
  const std::string grouped = head + R"(,op="Grouped",size="le_1MiB",timing="stream"} )";
  EXPECT_THAT(
      Lines(page, "nccl_operation_duration_seconds_count"),
      testing::UnorderedElementsAre("nccl_operation_duration_seconds_count" + kernel + "31",
                                    "nccl_operation_duration_seconds_count" + grouped + "31"));
  EXPECT_THAT(Lines(page, "nccl_timed_bus_bytes_total"),
              testing::UnorderedElementsAre("nccl_timed_bus_bytes_total" + kernel + "7168",
                                            "nccl_timed_bus_bytes_total" + grouped + "7168"));
}

TEST(Families, CompletionSaysItsSource) {
  const auto counts = Lines(Page({ExampleProcess()}), "nccl_operation_completion_seconds_count");
  const std::string head = "nccl_operation_completion_seconds_count" + std::string(kComm);
  EXPECT_THAT(counts, testing::ElementsAre(
                          head + R"(,op="AllReduce",size="le_1MiB",source="proxy"} 31)",
                          head + R"(,op="AllReduce",size="overflow",source="kernel"} 31)"));
}

// What was never watched is absent, not zero.
TEST(Families, NetworkIsAbsentWhenNoStepWasWatched) {
  ProcessSnapshot process = ExampleProcess();
  process.network_observed_ns = 0;
  process.communicators[0].network_bytes = {};
  process.communicators[0].network_wait_ns = {};
  EXPECT_THAT(Page({process}), testing::Not(HasSubstr("_network_")));
}

// Beside the duration on the stream: an operation may have both.
TEST(Families, DurationsByNetworkStepsHaveNoClassicBucketsByDefault) {
  ProcessSnapshot process = ExampleProcess();
  process.communicators[0].latencies[0].kind = LatencyKind::kDurationNetwork;
  const std::string page = Page({process});
  const std::string labels =
      std::string(kComm) + R"(,op="AllReduce",size="le_1MiB",timing="network")";
  EXPECT_THAT(page, HasSubstr("nccl_operation_duration_seconds_count" + labels + "} 31\n"));
  EXPECT_THAT(page, HasSubstr("nccl_operation_duration_seconds_sum" + labels + "} 2.5\n"));
  EXPECT_THAT(Lines(page, "nccl_operation_duration_seconds_bucket"),
              testing::ElementsAre("nccl_operation_duration_seconds_bucket" + labels +
                                   R"(,le="+Inf"} 31)"));
  EXPECT_THAT(page, Not(HasSubstr("nccl_timed_bus_bytes_total")));

  const auto native = BuildFamilies(SnapshotSet({process}), {}, {}, {}, PageFormat::kProtobuf);
  EXPECT_EQ(Find(native, "nccl_operation_duration_seconds")->native.size(), 1u);
  for (const auto& [setting, has_buckets] :
       {std::pair{"both", true}, std::pair{"classic", true},
        std::pair{"native,network=both", false},
        std::pair{"native,network=native,nccl_operation_duration_seconds=both", false},
        std::pair{"native,network=both,nccl_operation_duration_seconds=both", true}}) {
    Exposition exposition;
    ASSERT_TRUE(ParseHistograms(setting, &exposition)) << setting;
    const auto families = BuildFamilies(SnapshotSet({process}), {}, {}, exposition);
    EXPECT_EQ(Find(families, "nccl_operation_duration_seconds")->metric[0].histogram.bucket.empty(),
              !has_buckets)
        << setting;
  }
}

// Flags and counters of rare events cost a series only where there is something to say.
TEST(Families, WhatHasNotHappenedIsAbsent) {
  ProcessSnapshot process = ExampleProcess();
  process.callbacks = {10, 0, 30, 0, 0, 0};
  process.ignored = {};
  process.recycled_communicators = 0;
  process.recycled_calls.clear();
  process.communicators[0].overflowed_operations = 0;
  std::string page = Page({process});
  EXPECT_EQ(Lines(page, "nccl_pulse_callbacks_total").size(), 2u);
  for (const char* family :
       {"nccl_communicator_finalized", "nccl_communicator_captured",
        "nccl_pulse_ignored_events_total", "nccl_pulse_segments_rejected_total",
        "nccl_pulse_overflowed_operations_total", "nccl_pulse_recycled"}) {
    EXPECT_THAT(page, Not(HasSubstr(family)));
  }
  process.communicators[0].finalized = true;
  EXPECT_THAT(Page({process}),
              HasSubstr("nccl_communicator_finalized" + std::string(kComm) + "} 1\n"));
}

TEST(Families, ReplaysOfGraphs) {
  ProcessSnapshot process = ExampleProcess();
  EXPECT_THAT(Page({process}), Not(HasSubstr("nccl_graph_")));
  EXPECT_THAT(Page({process}), Not(HasSubstr("nccl_pulse_graph_")));
  AddReplays(&process);
  const std::string page = Page({process});
  const std::string comm = kComm;
  EXPECT_THAT(page, HasSubstr("nccl_graph_replays_total" + comm + "} 1077\n"));
  EXPECT_THAT(page, HasSubstr("nccl_graph_inflight_replays" + comm + "} 1\n"));
  EXPECT_THAT(page,
              HasSubstr("nccl_graph_last_progress_timestamp_seconds" + comm + "} 1760000002.5\n"));
  EXPECT_THAT(page, HasSubstr("nccl_graph_operations_total" + comm +
                              R"(,op="AllReduce",size="le_4KiB"} 32310)"));
  EXPECT_THAT(page, HasSubstr("nccl_graph_operation_bytes_total" + comm +
                              R"(,op="AllReduce",size="le_4KiB"} 132341760)"));
  EXPECT_THAT(page, HasSubstr(R"(fate="no_room"} 1)"));
  process.communicators[0].latencies[0].kind = LatencyKind::kDurationGraph;
  EXPECT_THAT(Page({process}), HasSubstr("nccl_operation_duration_seconds_sum" + comm +
                                         R"(,op="AllReduce",size="le_1MiB",timing="graph"})"));
}

// Recreated under the same id and rank: counters go on from where they were.
TEST(Families, SameCommunicatorTwiceIsAddedUp) {
  ProcessSnapshot process = ExampleProcess();
  CommunicatorSnapshot old = process.communicators[0];
  old.finalized = true;
  old.init_realtime_ns -= 1000;
  old.index = 0;
  old.name = "old";
  old.captured = true;
  // Newest first in the snapshot: the times decide, not the order.
  process.communicators.push_back(old);
  const std::string page = Page({process});
  ExpectNoSeriesTwice(page);
  const std::string comm = kComm;
  EXPECT_THAT(page, HasSubstr("nccl_launches_total" + comm + "} 222\n"));
  EXPECT_THAT(page, HasSubstr("nccl_operation_bytes_total" + comm +
                              R"(,op="AllReduce",size="le_1MiB"} 211812400)"));
  EXPECT_THAT(page, HasSubstr("nccl_operation_duration_seconds_sum" + comm +
                              R"(,op="AllReduce",size="le_1MiB",timing="kernel"} 5)"));
  EXPECT_THAT(page, HasSubstr(R"(timing="kernel",le="16"} 14)"));
  EXPECT_THAT(page, HasSubstr(R"(timing="kernel",le="+Inf"} 62)"));
  // Gauges are the newest one's, which is neither finalized nor captured.
  EXPECT_THAT(page, Not(HasSubstr("nccl_communicator_finalized")));
  EXPECT_THAT(page, Not(HasSubstr("nccl_communicator_captured")));
  // Joins on comm and rank need the info metric to be unique.
  const auto info = Lines(page, "nccl_communicator_info");
  ASSERT_EQ(info.size(), 1u);
  EXPECT_THAT(info[0], Not(HasSubstr("comm_name=\"old\"")));
}

TEST(Families, ProcessesAreToldApartByPidAndPidNamespace) {
  ProcessSnapshot first = ExampleProcess();
  ProcessSnapshot second = ExampleProcess();
  second.pid = 4712;
  second.global_rank = "12";
  second.communicators[0].rank = 4;
  const std::string two = Page({first, second});
  ExpectNoSeriesTwice(two);
  EXPECT_EQ(Lines(two, "nccl_pulse_build_info").size(), 2u);
  EXPECT_EQ(Lines(two, "nccl_communicator_info").size(), 2u);

  // Two containers of a pod have PID namespaces of their own.
  ProcessSnapshot container = ExampleProcess();
  container.pid_namespace = 4026532331;
  const std::string apart = Page({first, container});
  ExpectNoSeriesTwice(apart);
  EXPECT_EQ(Lines(apart, "nccl_pulse_process_up").size(), 2u);
  EXPECT_THAT(apart, HasSubstr(R"(nccl_pulse_process_up{pid="4711",pid_namespace="4026532331",)"));
  EXPECT_THAT(apart, Not(HasSubstr(R"(callback="proxy"} 80)")));

  // Nothing tells these apart.
  ProcessSnapshot same_pid = ExampleProcess();
  same_pid.start_realtime_ns += 1000;
  same_pid.plugin_version = "0.2.0";
  const std::string shared = Page({same_pid, first});
  ExpectNoSeriesTwice(shared);
  EXPECT_THAT(shared, HasSubstr(R"(callback="proxy"} 80)"));
  EXPECT_THAT(Lines(shared, "nccl_pulse_build_info"),
              testing::ElementsAre(HasSubstr("version=\"0.2.0\"")));
}

TEST(Families, WhatIsNotKnownIsAbsent) {
  ProcessSnapshot process = ExampleProcess();
  process.global_rank = process.local_rank = process.job_id = "";
  process.timing = "off";
  process.last_poll_realtime_ns = 0;
  process.communicators[0].last_launch_realtime_ns = 0;
  process.communicators[0].last_completion_realtime_ns = 0;
  const std::string page = Page({process});
  EXPECT_THAT(page, Not(HasSubstr("global_rank")));
  EXPECT_THAT(page, Not(HasSubstr("job_id")));
  EXPECT_THAT(page, Not(HasSubstr("nccl_last_launch_timestamp_seconds")));
  EXPECT_THAT(page, Not(HasSubstr("nccl_last_completion_timestamp_seconds")));
  EXPECT_THAT(page, Not(HasSubstr("nccl_pulse_last_poll_timestamp_seconds")));
  EXPECT_THAT(page, Not(HasSubstr("nccl_pulse_kernel_timing_untrusted")));
}

// A launch that cannot be followed must not read as one that has completed.
TEST(Families, WithoutAHeartbeatWhatIsInFlightIsAbsent) {
  ProcessSnapshot process = ExampleProcess();
  process.communicators[0].has_heartbeat = false;
  process.sampling_exponent = -1;
  const std::string page = Page({process});
  EXPECT_THAT(page, HasSubstr("nccl_launches_total" + std::string(kComm) + "} 111\n"));
  EXPECT_THAT(Lines(page, "nccl_launches_completed_total"), testing::IsEmpty());
  EXPECT_THAT(Lines(page, "nccl_inflight_launches"), testing::IsEmpty());
  EXPECT_THAT(Lines(page, "nccl_oldest_inflight_launch_timestamp_seconds"), testing::IsEmpty());
  EXPECT_THAT(Lines(page, "nccl_pulse_sampling_exponent"), testing::IsEmpty());
}

TEST(Families, WithoutAHeartbeatOperationsMayBeKnownToBeInFlight) {
  ProcessSnapshot process = ExampleProcess();
  CommunicatorSnapshot& comm = process.communicators[0];
  const std::string name = "nccl_oldest_inflight_operation_timestamp_seconds";
  comm.has_heartbeat = false;
  comm.operations_source = CompletionSource::kNone;
  EXPECT_THAT(Lines(Page({process}), name), testing::IsEmpty());
  comm.operations_source = CompletionSource::kProxy;
  comm.oldest_operation_realtime_ns = 1760000002250000000;
  EXPECT_THAT(Lines(Page({process}), name),
              testing::ElementsAre(HasSubstr(R"(source="proxy"} 1760000002.25)")));
  comm.operations_source = CompletionSource::kKernel;
  comm.oldest_operation_realtime_ns = 0;
  EXPECT_THAT(Lines(Page({process}), name),
              testing::ElementsAre(HasSubstr(R"(source="kernel"} 0)")));
}

TEST(Families, AnIdleCommunicatorIsZeroUnlessItsGraphsMayRun) {
  ProcessSnapshot process = ExampleProcess();
  CommunicatorSnapshot& comm = process.communicators[0];
  const std::string labels = std::string(kComm) + "} ";
  comm.launches_completed = comm.launches;
  comm.oldest_inflight_realtime_ns = 0;
  std::string page = Page({process});
  EXPECT_THAT(page, HasSubstr("nccl_inflight_launches" + labels + "0\n"));
  EXPECT_THAT(page, HasSubstr("nccl_oldest_inflight_launch_timestamp_seconds" + labels + "0\n"));
  EXPECT_THAT(page, Not(HasSubstr("nccl_communicator_captured")));

  comm.captured = true;
  page = Page({process});
  EXPECT_THAT(page, HasSubstr("nccl_communicator_captured" + labels + "1\n"));
  EXPECT_THAT(page, HasSubstr("nccl_launches_completed_total" + labels + "111\n"));
  EXPECT_THAT(Lines(page, "nccl_inflight_launches"), testing::IsEmpty());
  EXPECT_THAT(Lines(page, "nccl_oldest_inflight_launch_timestamp_seconds"), testing::IsEmpty());

  // What is seen in flight is, whatever graphs do.
  comm.launches_completed = 110;
  comm.oldest_inflight_realtime_ns = 1760000002250000000;
  page = Page({process});
  EXPECT_THAT(page, HasSubstr("nccl_inflight_launches" + labels + "1\n"));
  EXPECT_THAT(page, HasSubstr("nccl_oldest_inflight_launch_timestamp_seconds" + labels +
                              "1760000002.25\n"));
}

// A gauge of activity is either there or says why it is not.
TEST(Families, WhatIsNotKnownIsAbsentAndSaysWhy) {
  const ProcessSnapshot process = [] {
    ProcessSnapshot process = ExampleProcess();
    CommunicatorSnapshot& comm = process.communicators[0];
    comm.launches_completed = comm.launches;
    comm.oldest_inflight_realtime_ns = 0;
    comm.operations_source = CompletionSource::kNone;
    comm.event_mask = 0xf0a;
    return process;
  }();
  const auto page_of = [](const ProcessSnapshot& process, int64_t after_last_poll_ns = 0) {
    return TextFormat(BuildFamilies(SnapshotSet({process}), {}, {}, {}, PageFormat::kText, {},
                                    process.last_poll_realtime_ns + after_last_poll_ns));
  };
  EXPECT_THAT(Lines(page_of(process), "nccl_activity_unknown"), testing::IsEmpty());
  EXPECT_EQ(Lines(page_of(process), "nccl_inflight_launches").size(), 1u);
  std::vector<std::pair<ProcessSnapshot, std::string>> cases;
  const auto add = [&](const char* reason, const auto& change) {
    cases.emplace_back(process, reason);
    change(&cases.back().first, &cases.back().first.communicators[0]);
  };
  add("launch_not_reported", [](auto*, auto* comm) { comm->unreported_calls = 1; });
  add("captured", [](auto*, auto* comm) { comm->captured = true; });
  add("no_completions", [](auto*, auto* comm) { comm->has_heartbeat = false; });
  add("poller_not_started",
      [](auto* process, auto*) { process->poller = PollerState::kNotStarted; });
  add("event_mask_changed", [](auto* process, auto*) {
    process->event_mask_changes = 1;
    process->foreign_event_mask = 0x2;
  });
  for (const auto& [changed, reason] : cases) {
    const std::string page = page_of(changed);
    EXPECT_THAT(Lines(page, "nccl_activity_unknown"),
                testing::ElementsAre(HasSubstr("reason=\"" + reason + "\"} 1")))
        << reason;
    EXPECT_THAT(Lines(page, "nccl_inflight_launches"), testing::IsEmpty()) << reason;
    EXPECT_THAT(Lines(page, "nccl_oldest_inflight_launch_timestamp_seconds"), testing::IsEmpty())
        << reason;
  }
  // Nobody looks any longer: work that was in flight is not known to stand still.
  ProcessSnapshot busy = ExampleProcess();
  EXPECT_EQ(Lines(page_of(busy), "nccl_inflight_launches").size(), 1u);
  const std::string stale = page_of(busy, 60000000000);
  EXPECT_THAT(Lines(stale, "nccl_activity_unknown"),
              testing::ElementsAre(HasSubstr("reason=\"poller_stands\"")));
  EXPECT_THAT(Lines(stale, "nccl_inflight_launches"), testing::IsEmpty());
  EXPECT_THAT(Lines(stale, "nccl_oldest_inflight_operation_timestamp_seconds"), testing::IsEmpty());
  // Of what ended nothing is claimed to be unknown.
  cases[0].first.communicators[0].finalized = true;
  EXPECT_THAT(Lines(page_of(cases[0].first), "nccl_activity_unknown"), testing::IsEmpty());
}

TEST(Families, OnlyLongWaitsHaveASeries) {
  ProcessSnapshot process = ExampleProcess();
  process.communicators[0].longest_waits = {{"AllReduce", 4999999999}, {"Broadcast", 540000000000}};
  EXPECT_THAT(Lines(Page({process}), "nccl_longest_wait_seconds"),
              testing::ElementsAre(HasSubstr(R"(op="Broadcast"} 540)")));
}

TEST(Families, AChangedEventMaskIsCountedAndShown) {
  ProcessSnapshot process = ExampleProcess();
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_event_mask_changes_total"), testing::IsEmpty());
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_foreign_event_mask_info"), testing::IsEmpty());
  process.event_mask_changes = 3;
  process.foreign_event_mask = 0xfff;
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_event_mask_changes_total"),
              testing::ElementsAre(HasSubstr("} 3")));
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_foreign_event_mask_info"),
              testing::ElementsAre(HasSubstr(R"(event_mask="0xfff"} 1)")));
}

TEST(Families, UntrustedTimingHasItsReason) {
  ProcessSnapshot process = ExampleProcess();
  process.communicators[0].kernel_trust = TrustState::kChecksFailed;
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_kernel_timing_untrusted"),
              testing::ElementsAre(HasSubstr(R"(reason="self_send"} 0)"),
                                   HasSubstr(R"(reason="checks_failed"} 1)")));
}

TEST(Families, StaticLabelsAreOnEverySeries) {
  const std::string page = Page({ExampleProcess()}, {{"cluster", "eu\"1"}, {"team", "ml"}});
  std::istringstream in(page);
  for (std::string line; std::getline(in, line);) {
    if (line[0] == '#') continue;
    EXPECT_THAT(line, HasSubstr(R"(cluster="eu\"1",team="ml")"));
  }
}

TEST(Families, StaticLabelsThatWouldBreakThePageAreLeftOut) {
  const std::string page = Page({ExampleProcess()}, {{"comm", "x"},
                                                     {"le", "x"},
                                                     {"op", "x"},
                                                     {"1st", "x"},
                                                     {"a-b", "x"},
                                                     {"__name__", "x"},
                                                     {"", "x"},
                                                     {"empty", ""},
                                                     {"good", "y"},
                                                     {"good", "x"}});
  EXPECT_THAT(page, Not(HasSubstr("=\"x\"")));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_processes{good=\"y\"} 1"));
}

TEST(Families, NoCommunicators) {
  ProcessSnapshot process = ExampleProcess();
  process.communicators.clear();
  const std::string page = Page({process});
  EXPECT_THAT(page, Not(HasSubstr("comm=")));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_build_info{"));
  EXPECT_EQ(Lines(Page({}), "nccl_pulse_processes").at(0), "nccl_pulse_processes 0");
}

TEST(Families, EachProcessHasItsOwnStaticLabels) {
  ProcessSnapshot first = ExampleProcess();
  first.static_labels = "team=a,cluster=mine,broken,pid=1,1st=x";
  ProcessSnapshot second = ExampleProcess();
  second.pid = 4712;
  second.communicators[0].rank = 4;
  SnapshotSet set({first, second});
  set.server_labels = "team=server";
  const std::string page = TextFormat(BuildFamilies(set, {{"cluster", "c"}}, {}));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_process_up{pid=\"4711\",global_rank=\"11\",cluster=\"c\","
                              "team=\"a\"} 1\n"));
  EXPECT_THAT(page,
              HasSubstr("nccl_pulse_process_up{pid=\"4712\",global_rank=\"11\",cluster=\"c\"} "
                        "1\n"));
  EXPECT_THAT(page, HasSubstr("rank=\"3\",cluster=\"c\",team=\"a\"} 111\n"));
  EXPECT_THAT(page, HasSubstr("rank=\"4\",cluster=\"c\"} 111\n"));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_processes{cluster=\"c\",team=\"server\"} 2\n"));
}

TEST(Families, AnEndedProcessSaysHowAndWhen) {
  ProcessSnapshot process = ExampleProcess();
  EXPECT_THAT(Page({process}), Not(HasSubstr("nccl_pulse_process_end_timestamp_seconds")));
  process.end = ProcessEnd::kLost;
  process.end_realtime_ns = 1760000004000000000;
  const std::string page = Page({process});
  EXPECT_THAT(page, HasSubstr("nccl_pulse_process_up{pid=\"4711\",global_rank=\"11\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_process_end_timestamp_seconds{pid=\"4711\",global_rank="
                              "\"11\",end=\"lost\"} 1760000004\n"));
}

TEST(Families, TheEndpointCountsItself) {
  SnapshotSet set;
  set.rejected[static_cast<int>(Rejection::kUnsealed)] = 2;
  const std::string page =
      TextFormat(BuildFamilies(set, {}, {/*pages=*/4, 0.5, /*segments_read=*/7}));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_segments_rejected_total{reason=\"unsealed\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_segments_read_total 7\n"));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_scrape_duration_seconds_count 4\n"));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_scrape_duration_seconds_sum 0.5\n"));
}

}  // namespace
}  // namespace nccl_pulse

// Several processes and communicators on one page, and the labels that users set.
#include <sstream>
#include <string>

#include "exporter/exposition/families.h"
#include "exporter/exposition/text_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/exporter/example_snapshots.h"
#include "tests/exporter/families_page.h"

namespace nccl_pulse {
namespace {

using testing::HasSubstr;
using testing::Not;

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
  const std::string comm = kCommLabels;
  EXPECT_THAT(page, HasSubstr("nccl_launches_total" + comm + "} 222\n"));
  EXPECT_THAT(page, HasSubstr("nccl_operation_bytes_total" + comm +
                              R"(,op="AllReduce",size="le_1MiB"} 211812400)"));
  EXPECT_THAT(page, HasSubstr("nccl_operation_duration_seconds_sum" + comm +
                              R"(,op="AllReduce",size="le_1MiB",timing="kernel"} 5)"));
  EXPECT_THAT(page, HasSubstr(R"(timing="kernel",le="16"} 14)"));
  EXPECT_THAT(page, HasSubstr(R"(timing="kernel",le="+Inf"} 62)"));
  // Gauges are the newest one's, which is neither finalized nor captured.
  EXPECT_THAT(page, Not(HasSubstr("nccl_communicator_finalized")));
  EXPECT_THAT(page, Not(HasSubstr("nccl_communicator_uses_cuda_graphs")));
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
  EXPECT_THAT(
      page, HasSubstr("nccl_pulse_process_up{pid=\"4712\",global_rank=\"11\",cluster=\"c\"} 1\n"));
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
  EXPECT_THAT(page, HasSubstr("nccl_pulse_processes_rejected_total{reason=\"unsealed\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_segments_read_total 7\n"));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_scrape_duration_seconds_count 4\n"));
  EXPECT_THAT(page, HasSubstr("nccl_pulse_scrape_duration_seconds_sum 0.5\n"));
}

}  // namespace
}  // namespace nccl_pulse

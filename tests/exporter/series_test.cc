// How many series a page is to Prometheus, and that there is an end to them: the figures of
// docs/exposition.md.
#include <cstdio>
#include <string>
#include <vector>

#include "exporter/families.h"
#include "exporter/text_format.h"
#include "gtest/gtest.h"
#include "metrics/segment_reader.h"
#include "metrics/size_class.h"
#include "tests/exporter/example_snapshots.h"
#include "tests/metrics/test_segment.h"

namespace nccl_pulse {
namespace {

// What the job's operations go through.
enum class Traffic {
  kNvlink,          // nothing crosses the network
  kNetwork,         // everything does
  kWatchedNetwork,  // and all of it was watched at some time: durations by network steps, too
};

LatencySnapshot Latency(LatencyKind kind, const char* op, int size_class) {
  LatencySnapshot latency = ExampleCommunicator().latencies[0];
  latency.kind = kind;
  latency.op = op;
  latency.size_class = size_class;
  return latency;
}

// A rank of a training job with the default settings: 8 communicators, two (op, size) pairs each.
SnapshotSet TrainingRank(Traffic traffic) {
  ProcessSnapshot process = ExampleProcess();
  process.timing = "auto";
  process.duration_source = "stream";
  if (traffic != Traffic::kWatchedNetwork) process.network_observed_ns = 0;
  process.communicators.clear();
  for (int i = 0; i < 8; ++i) {
    CommunicatorSnapshot comm = ExampleCommunicator();
    comm.comm_id += static_cast<uint64_t>(i);
    comm.index = static_cast<uint32_t>(i);
    comm.operations_source = CompletionSource::kNone;
    comm.calls.clear();
    comm.algorithms.clear();
    comm.untimed.clear();
    comm.uncompleted.clear();
    comm.sequences.clear();
    comm.latencies.clear();
    for (const char* op : {"AllGather", "ReduceScatter"}) {
      comm.calls.push_back({op, 6, "ncclBfloat16", false, 100, 1 << 30});
      comm.algorithms.push_back({op, "RING", "SIMPLE", 100});
      comm.untimed.push_back({op, UntimedReason::kNotSampled, 90});
      comm.sequences.push_back({op, 100});
      comm.latencies.push_back(Latency(LatencyKind::kDurationStream, op, 6));
      if (traffic == Traffic::kNvlink) continue;
      comm.latencies.push_back(Latency(LatencyKind::kCompletionProxy, op, 6));
      if (traffic == Traffic::kNetwork) continue;
      comm.latencies.push_back(Latency(LatencyKind::kDurationNetwork, op, 6));
    }
    if (traffic != Traffic::kWatchedNetwork) {
      comm.network_bytes = {};
      comm.network_wait_ns = {};
    }
    process.communicators.push_back(comm);
  }
  SnapshotSet set;
  set.processes.push_back(process);
  return set;
}

struct SeriesCount {
  int histograms = 0;  // series of histograms
  int all = 0;
};

// What Prometheus stores: of a native histogram one series, of a classic one each line.
SeriesCount Count(const std::vector<Family>& families, bool native) {
  SeriesCount count;
  for (const Family& family : families) {
    for (const auto& metric : family.metric) {
      int series = 1;
      if (family.type == prometheus::MetricType::Summary) series = 2;
      if (family.type == prometheus::MetricType::Histogram) {
        constexpr int kInfinityCountAndSum = 3;
        if (!native)
          series = static_cast<int>(metric.histogram.bucket.size()) + kInfinityCountAndSum;
        count.histograms += series;
      }
      count.all += series;
    }
  }
  return count;
}

SeriesCount Classic(const SnapshotSet& set, const Exposition& exposition = {}) {
  const auto families = BuildFamilies(set, {}, {}, exposition);
  const SeriesCount count = Count(families, false);
  // The same by counting lines.
  const std::string page = TextFormat(families);
  int lines = 0;
  for (std::size_t at = 0; at < page.size(); at = page.find('\n', at) + 1) lines += page[at] != '#';
  EXPECT_EQ(lines, count.all);
  return count;
}

SeriesCount Native(const SnapshotSet& set, const Exposition& exposition = {}) {
  return Count(BuildFamilies(set, {}, {}, exposition, PageFormat::kProtobuf), true);
}

TEST(Series, OfARankOfATrainingJob) {
  for (const Traffic traffic : {Traffic::kNvlink, Traffic::kNetwork, Traffic::kWatchedNetwork}) {
    const SeriesCount classic = Classic(TrainingRank(traffic));
    const SeriesCount native = Native(TrainingRank(traffic));
    std::printf("traffic %d: classic %d of %d, native %d of %d\n", static_cast<int>(traffic),
                classic.histograms, classic.all, native.histograms, native.all);
    EXPECT_LE(classic.histograms, 1000);
    EXPECT_LE(native.histograms, 200);
    if (traffic == Traffic::kWatchedNetwork) continue;
    EXPECT_LE(classic.all, 1000);
  }
}

// docs/exposition.md names them: what follows from other series, and what the exporter says of
// itself.
constexpr char kDispensable[] =
    "nccl_timed_operations_total,nccl_inflight_launches,nccl_communicator_captured,"
    "nccl_operation_sequence,nccl_last_launch_timestamp_seconds,"
    "nccl_last_completion_timestamp_seconds,nccl_pulse_ignored_events_total,"
    "nccl_pulse_callbacks_total,nccl_pulse_segments_rejected_total";

TEST(Series, WithoutWhatIsDispensable) {
  Exposition exposition;
  std::string unknown;
  ASSERT_TRUE(ParseDroppedFamilies(kDispensable, &exposition, &unknown)) << unknown;
  const SeriesCount native = Native(TrainingRank(Traffic::kNvlink), exposition);
  const SeriesCount classic = Classic(TrainingRank(Traffic::kNetwork), exposition);
  std::printf("classic %d, native %d\n", classic.all, native.all);
  EXPECT_LE(native.all, 200);
  EXPECT_LE(classic.all, 1000);
}

TEST(Series, TheFormulaOfTheDocumentHolds) {
  const SnapshotSet set = TrainingRank(Traffic::kWatchedNetwork);
  std::size_t histograms = 0;
  for (const CommunicatorSnapshot& comm : set.processes[0].communicators) {
    histograms += comm.latencies.size();
  }
  EXPECT_EQ(Classic(set).histograms, static_cast<int>(20 * histograms));
  EXPECT_EQ(Native(set).histograms, static_cast<int>(histograms));
  // What is no histogram does not depend on the format.
  EXPECT_EQ(Classic(set).all - Classic(set).histograms, Native(set).all - Native(set).histograms);
}

// 100 communicators, each with ten operations of ten sizes, all timed.
TEST(Series, TenThousandCombinationsStayWithinTheBudget) {
  constexpr uint64_t kLimit = 2048;  // the default
  constexpr int kCommunicators = 100;
  constexpr int kSizes = 10;
  const std::vector<const char*> ops = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                        "Reduce",    "Send",      "Recv",          "AlltoAll",
                                        "Gather",    "Scatter"};
  TestSegment test(kLimit, 4096);
  for (int i = 0; i < kCommunicators; ++i) {
    const uint32_t generation = test.AddCommunicator(i, i + 1, 0, "c");
    for (const char* op : ops) {
      const NameId name = test.Intern(op);
      for (uint32_t size = 0; size < kSizes; ++size) {
        LaneWriter lane = test.Writer(i, generation, LaneRole::kLaunch);
        lane.Count(SeriesKey::Pack(SeriesKind::kCalls, name, size, kNoName, 0), 1, 1000);
        lane.Observe(SeriesKey::Pack(SeriesKind::kLatency, name, size,
                                     static_cast<uint32_t>(LatencyKind::kDurationStream), 0),
                     10000, 1000, 1000);
      }
    }
  }
  std::vector<ProcessSnapshot> processes(1);
  std::string error;
  ASSERT_TRUE(ReadSegment(test.segment().base(), test.segment().bytes(), &processes[0], &error))
      << error;
  EXPECT_GE(processes[0].series_used, kLimit);
  // Each communicator has its overflow series besides: of calls and of durations.
  EXPECT_LE(processes[0].series_used, kLimit + 2 * kCommunicators);

  const auto families = BuildFamilies(SnapshotSet(processes), {}, {});
  double calls = 0;
  double timed = 0;
  double overflowed = 0;
  double in_overflow_series = 0;
  for (const Family& family : families) {
    for (const auto& metric : family.metric) {
      if (family.name == "nccl_operations_total") {
        calls += metric.counter.value;
        for (const auto& label : metric.label) {
          if (label.name == "size" && label.value == "overflow") {
            in_overflow_series += metric.counter.value;
          }
        }
      }
      if (family.name == "nccl_operation_duration_seconds") timed += metric.histogram.sample_count;
      if (family.name == "nccl_pulse_overflowed_operations_total") {
        overflowed += metric.counter.value;
      }
    }
  }
  // None is lost, and those that lost their own series are known.
  EXPECT_EQ(calls, 10000);
  EXPECT_EQ(timed, 10000);
  EXPECT_GT(in_overflow_series, 0);
  EXPECT_GE(overflowed, in_overflow_series);
  const SeriesCount classic = Classic(SnapshotSet(processes));
  const SeriesCount native = Native(SnapshotSet(processes));
  std::printf("10,000 combinations: %llu series used, %.0f overflowed, classic %d, native %d\n",
              static_cast<unsigned long long>(processes[0].series_used), overflowed, classic.all,
              native.all);
  // Half of the used ones are histograms.
  EXPECT_LE(classic.histograms, static_cast<int>(20 * (kLimit + 2 * kCommunicators)));
  EXPECT_LE(native.histograms, static_cast<int>(kLimit + 2 * kCommunicators));
}

}  // namespace
}  // namespace nccl_pulse

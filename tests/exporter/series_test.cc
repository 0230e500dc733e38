// How many series a page is to Prometheus, and that there is an end to them: the figures of
// docs/scale.md.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "exporter/exposition/families.h"
#include "exporter/exposition/text_format.h"
#include "gtest/gtest.h"
#include "metrics/segment_reader.h"
#include "metrics/size_class.h"
#include "metrics/testing/test_segment.h"
#include "tests/exporter/example_snapshots.h"

namespace nccl_pulse {
namespace {

// What the job's operations go through.
enum class Traffic {
  kNvlink,          // nothing crosses the network
  kNetwork,         // everything does
  kWatchedNetwork,  // and all of it was watched at some time: network seconds, bytes and waits, too
};
constexpr Traffic kTraffics[] = {Traffic::kNvlink, Traffic::kNetwork, Traffic::kWatchedNetwork};

constexpr int kCommunicators = 8;
constexpr int kOpsOfEach = 2;  // of one size each

LatencySnapshot Latency(LatencyKind kind, const char* op, int size_class) {
  LatencySnapshot latency = ExampleCommunicator().latencies[0];
  latency.kind = kind;
  latency.op = op;
  latency.size_class = size_class;
  return latency;
}

// A page and what is on it besides the measurements of processes.
struct Job {
  SnapshotSet set;
  DiagnosisResult diagnosis;
};

// A rank of a training job with the default settings: 8 communicators, two (op, size) pairs each.
// It serves for itself, so that the endpoint's own series count, too; and all of its communicators
// have other ranks on the node, which it is compared with.
Job TrainingRank(Traffic traffic) {
  const bool network = traffic != Traffic::kNvlink;
  const bool watched = traffic == Traffic::kWatchedNetwork;
  ProcessSnapshot process = ExampleProcess();
  process.timing = "auto";
  process.duration_source = "stream";
  process.callbacks = {10, 20, 30, network ? 40u : 0u, 0, watched ? 60u : 0u};
  process.ignored = {};
  process.recycled_communicators = 0;
  process.recycled_calls.clear();
  process.commands = {};
  process.changed_settings = 0;
  if (!watched) process.network_observed_ns = 0;
  process.communicators.clear();
  Job job;
  for (int i = 0; i < kCommunicators; ++i) {
    CommunicatorSnapshot comm = ExampleCommunicator();
    comm.comm_id += static_cast<uint64_t>(i);
    comm.index = static_cast<uint32_t>(i);
    comm.operations_source = CompletionSource::kNone;
    comm.overflowed_operations = 0;
    comm.calls.clear();
    comm.composites.clear();
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
      if (network) comm.latencies.push_back(Latency(LatencyKind::kCompletionProxy, op, 6));
      if (watched) comm.latencies.push_back(Latency(LatencyKind::kDurationNetwork, op, 6));
    }
    if (!watched) {
      comm.network_bytes = {};
      comm.network_wait_ns = {};
    }
    process.communicators.push_back(comm);
    CommunicatorDiagnosis diagnosis;
    diagnosis.comm_id = comm.comm_id;
    diagnosis.losses = {{comm.rank, 1.5, ""}};
    job.diagnosis.push_back(diagnosis);
  }
  job.set.processes.push_back(process);
  return job;
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

SeriesCount Classic(const Job& job, const Exposition& exposition = {}) {
  const auto families =
      BuildFamilies(job.set, {}, {}, exposition, PageFormat::kText, job.diagnosis);
  const SeriesCount count = Count(families, false);
  // The same by counting lines.
  const std::string page = TextFormat(families);
  int lines = 0;
  for (std::size_t at = 0; at < page.size(); at = page.find('\n', at) + 1) lines += page[at] != '#';
  EXPECT_EQ(lines, count.all);
  return count;
}

SeriesCount Native(const Job& job, const Exposition& exposition = {}) {
  return Count(BuildFamilies(job.set, {}, {}, exposition, PageFormat::kProtobuf, job.diagnosis),
               true);
}

Exposition Without(const std::string& families) {
  Exposition exposition;
  std::string unknown;
  EXPECT_TRUE(ParseDroppedFamilies(families, &exposition, &unknown)) << unknown;
  return exposition;
}

std::string Document() {
  std::ifstream file("docs/scale.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The whole page, with nothing set.
TEST(Series, OfARankOfATrainingJob) {
  const std::string document = Document();
  constexpr const char* kRows[] = {"one node, NVLink", "network traffic",
                                   "all of it watched at some time"};
  for (const Traffic traffic : kTraffics) {
    const SeriesCount classic = Classic(TrainingRank(traffic));
    const SeriesCount native = Native(TrainingRank(traffic));
    std::ostringstream row;
    row << "| " << kRows[static_cast<int>(traffic)] << " | " << classic.histograms << " | "
        << classic.all << " | " << native.histograms << " | " << native.all << " |\n";
    std::printf("%s", row.str().c_str());
    EXPECT_NE(document.find("\n" + row.str()), document.npos);
    EXPECT_LE(classic.all, 1000);
    // The document says why not there.
    constexpr int kMost[] = {200, 220, 300};
    EXPECT_LE(native.all, kMost[static_cast<int>(traffic)]);
  }
}

// The document's block between ``` that begins like this, without its beginning.
std::string Block(const std::string& document, const std::string& beginning) {
  const std::size_t begin = document.find("```\n" + beginning);
  if (begin == document.npos) return "";
  const std::size_t from = begin + 4 + beginning.size();
  return document.substr(from, document.find("\n```", from) - from);
}

// What the document says to leave out for a small page whatever the network does.
TEST(Series, OfAWatchedNetworkWithoutItsDetail) {
  const std::string families = Block(Document(), "NCCL_PULSE_DROP_FAMILIES=");
  ASSERT_NE(families, "");
  const Job job = TrainingRank(Traffic::kWatchedNetwork);
  const SeriesCount classic = Classic(job, Without(families));
  const SeriesCount native = Native(job, Without(families));
  std::printf("classic %d, native %d\n", classic.all, native.all);
  EXPECT_EQ(native.all, 197) << "the document says so";
  EXPECT_LE(classic.all, 1000);
}

TEST(Series, TheFormulaOfTheDocumentHolds) {
  EXPECT_EQ(Block(Document(), "series = "),
            "H x histograms + 8 x communicators + 2 x (communicator, op)\n"
            "       + 3 x (communicator, op, size) + 15 + kinds of callbacks");
  for (const Traffic traffic : kTraffics) {
    const Job job = TrainingRank(traffic);
    const bool watched = traffic == Traffic::kWatchedNetwork;
    constexpr int kOps = kCommunicators * kOpsOfEach;
    const int histograms = kOps * (traffic == Traffic::kNvlink ? 1 : 2);
    const int network_histograms = watched ? kOps : 0;
    const int kinds = traffic == Traffic::kNvlink ? 3 : watched ? 5 : 4;
    const int others = 8 * kCommunicators + 2 * kOps + 3 * kOps + 15 + kinds +
                       (watched ? 8 * kCommunicators + 1 : 0);
    EXPECT_EQ(Classic(job).histograms, 20 * histograms + 3 * network_histograms);
    EXPECT_EQ(Native(job).histograms, histograms + network_histograms);
    // What is no histogram does not depend on the format.
    EXPECT_EQ(Classic(job).all - Classic(job).histograms, others);
    EXPECT_EQ(Native(job).all - Native(job).histograms, others);
  }
}

// 100 communicators, each with ten operations of ten sizes, all timed.
TEST(Series, TenThousandCombinationsStayWithinTheBudget) {
  constexpr uint64_t kLimit = 2048;  // the default
  constexpr int kManyCommunicators = 100;
  constexpr int kSizes = 10;
  const std::vector<const char*> ops = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                        "Reduce",    "Send",      "Recv",          "AlltoAll",
                                        "Gather",    "Scatter"};
  TestSegment test(kLimit, 4096);
  for (int i = 0; i < kManyCommunicators; ++i) {
    const uint32_t generation = test.AddCommunicator(i, i + 1, 0, "c");
    for (const char* op : ops) {
      const NameId name = test.Intern(op);
      for (uint32_t size = 0; size < kSizes; ++size) {
        LaneWriter lane = test.Writer(i, generation, LaneRole::kLaunch);
        lane.Count(SeriesKey::Calls(name, size, kNoName, false), 1, 1000);
        lane.Observe(SeriesKey::Latency(name, size, LatencyKind::kDurationStream), 10000, 1000,
                     1000);
      }
    }
  }
  std::vector<ProcessSnapshot> processes(1);
  std::string error;
  ASSERT_TRUE(ReadSegment(test.segment().base(), test.segment().bytes(), &processes[0], &error))
      << error;
  // With the overflow series of each communicator that had to have one, of durations.
  EXPECT_LE(processes[0].series_used, kLimit);
  EXPECT_GT(processes[0].series_used, kLimit - SeriesForOverflow(kLimit));

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
  const Job job = {SnapshotSet(processes), {}};
  const SeriesCount classic = Classic(job);
  const SeriesCount native = Native(job);
  std::printf("10,000 combinations: %llu series used, %.0f overflowed, classic %d, native %d\n",
              static_cast<unsigned long long>(processes[0].series_used), overflowed, classic.all,
              native.all);
  // Half of the used ones are histograms.
  EXPECT_LE(classic.histograms, static_cast<int>(20 * kLimit));
  EXPECT_LE(native.histograms, static_cast<int>(kLimit));
}

}  // namespace
}  // namespace nccl_pulse

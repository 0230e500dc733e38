#include "metrics/segment_reader.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "metrics/header_writer.h"
#include "metrics/lane_writer.h"
#include "metrics/shared_bytes.h"
#include "metrics/testing/test_segment.h"

namespace nccl_pulse {
namespace {

ProcessSnapshot Read(Segment& segment) {
  ProcessSnapshot snapshot;
  std::string error;
  EXPECT_TRUE(ReadSegment(segment.base(), segment.bytes(), &snapshot, &error)) << error;
  return snapshot;
}

TEST(SegmentReader, ProcessIdentityAndCounters) {
  TestSegment test(777);
  HeaderWriter header(test.segment());
  const std::string job_id(200, 'j');
  HeaderWriter::Identity identity;
  identity.pid = 4711;
  identity.pid_namespace = 42;
  identity.nccl_api_version = 5;
  identity.event_mask = 0x123;
  identity.start_realtime_ns = 1700000000000000000;
  identity.plugin_version = "1.2.3";
  identity.timing = "kernel";
  identity.hostname = "node\n1";
  identity.global_rank = "12";
  identity.local_rank = "4";
  identity.job_id = job_id;
  identity.static_labels = "team=a";
  header.Identify(identity);
  header.NameSources("stream", "proxy");
  header.RenewTimes(1000, 50);
  header.CountCost(3, 90);
  for (int reason = 0; reason < kIgnoredReasons; ++reason) {
    for (int i = 0; i < 100 + reason; ++i) header.CountIgnored(static_cast<IgnoredReason>(reason));
  }
  header.AddRecycledCallbacks(CallbackKind::kOperation, 5);
  header.StoreNetworkObserved(77);
  header.StorePollerState(PollerState::kRunning);
  header.StoreSamplingExponent(3);
  header.StoreForeignMask(0x40, 2);
  for (int fate = 0; fate < kCaptureFates; ++fate) {
    header.StoreGraphCaptures(static_cast<CaptureFate>(fate), 10 + static_cast<uint64_t>(fate));
  }

  for (int result = 0; result < kCommandResults; ++result) {
    for (int i = 0; i <= result; ++i) header.CountCommand(static_cast<CommandResult>(result));
  }
  header.StoreChangedSettings(5);

  const ProcessSnapshot read = Read(test.segment());
  EXPECT_EQ(read.changed_settings, 5u);
  for (int result = 0; result < kCommandResults; ++result) {
    EXPECT_EQ(read.commands[result], 1u + static_cast<uint64_t>(result));
  }
  EXPECT_EQ(read.pid, 4711);
  EXPECT_EQ(read.nccl_api_version, 5);
  EXPECT_EQ(read.event_mask, 0x123u);
  EXPECT_EQ(read.start_realtime_ns, 1700000000000000000);
  EXPECT_EQ(read.plugin_version, "1.2.3");
  EXPECT_EQ(read.timing, "kernel");
  EXPECT_EQ(read.hostname, "node?1");
  EXPECT_EQ(read.global_rank, "12");
  EXPECT_EQ(read.local_rank, "4");
  EXPECT_EQ(read.job_id, std::string(127, 'j'));
  EXPECT_EQ(read.pid_namespace, 42u);
  EXPECT_EQ(read.static_labels, "team=a");
  EXPECT_EQ(read.duration_source, "stream");
  EXPECT_EQ(read.completion_source, "proxy");
  EXPECT_EQ(read.poller, PollerState::kRunning);
  EXPECT_EQ(read.sampling_exponent, 3);
  EXPECT_EQ(read.foreign_event_mask, 0x40u);
  EXPECT_EQ(read.event_mask_changes, 2u);
  for (int fate = 0; fate < kCaptureFates; ++fate) {
    EXPECT_EQ(read.graph_captures[fate], 10u + static_cast<uint64_t>(fate));
  }
  EXPECT_EQ(read.last_poll_realtime_ns, 1050);
  EXPECT_EQ(read.sampled_callbacks, 3u);
  EXPECT_EQ(read.sampled_callback_ns, 90u);
  for (int reason = 0; reason < kIgnoredReasons; ++reason) {
    EXPECT_EQ(read.ignored[reason], 100u + static_cast<uint64_t>(reason));
  }
  EXPECT_EQ(read.callbacks[2], 5u);
  EXPECT_EQ(read.network_observed_ns, 77u);
  EXPECT_TRUE(read.shared_memory);
  EXPECT_EQ(read.series_limit, 777u);
  EXPECT_EQ(read.communicators_used, 0u);
  EXPECT_EQ(read.communicator_limit, kMaxCommunicators);
}

TEST(SegmentReader, CommunicatorIdentityAndLanes) {
  TestSegment test;
  Segment& segment = test.segment();
  HeaderWriter(segment).RenewTimes(1000000, 0);
  test.AddCommunicator(0, 0xdeadbeef, 3, "world \xc3\xa9");
  test.AddCommunicator(1, 0xfeed, 0, "finished");
  test.Record(1).Distrust(TrustState::kSelfSend);
  test.Record(1).Finalize(1);
  test.AddCommunicator(2, 0xbad, 0, "free");
  test.Record(2).Finalize(2);
  ASSERT_TRUE(test.Record(2).Recycle());
  for (int lane = 0; lane < kLanes; ++lane) {
    Lane& cells = segment.record(0).lanes[lane];
    const auto n = static_cast<uint64_t>(lane) + 1;
    for (int kind = 0; kind < kCallbackKinds; ++kind) {
      cells.callbacks[kind].store(n * (static_cast<uint64_t>(kind) + 1));
    }
    cells.launches.store(10 * n);
    cells.last_launch_ns.store(100 * ((n + 1) % 4));
    cells.last_completion_ns.store(lane == 2 ? 7 : 0);
    cells.overflowed_operations.store(n);
    cells.network_bytes[1].store(3 * n);
    cells.network_wait_ns[5].store(5 * n);
  }

  const ProcessSnapshot read = Read(segment);
  ASSERT_EQ(read.communicators.size(), 2u);
  EXPECT_EQ(read.communicators_used, 2u);
  const CommunicatorSnapshot& live = read.communicators[0];
  EXPECT_EQ(live.comm_id, 0xdeadbeef);
  EXPECT_EQ(live.rank, 3);
  EXPECT_EQ(live.nranks, 8);
  EXPECT_EQ(live.nnodes, 2);
  EXPECT_EQ(live.index, 0u);
  EXPECT_EQ(live.name, "world \xc3\xa9");
  EXPECT_EQ(live.gpu, "3");
  EXPECT_EQ(live.uuid, "GPU-6a1b");
  EXPECT_EQ(live.pci_bus_id, "00000000:18:00.0");
  EXPECT_EQ(live.init_realtime_ns, 1000);
  EXPECT_FALSE(live.finalized);
  EXPECT_EQ(live.kernel_trust, TrustState::kTrusted);
  EXPECT_EQ(live.launches, 100u);
  EXPECT_EQ(live.overflowed_operations, 10u);
  EXPECT_EQ(live.network_bytes, (std::array<uint64_t, kNetworkDirections>{0, 30}));
  EXPECT_EQ(live.network_wait_ns, (std::array<uint64_t, kNetworkWaits>{0, 0, 0, 0, 0, 50}));
  EXPECT_EQ(live.last_launch_realtime_ns, 1000300) << "the latest of the lanes";
  EXPECT_EQ(live.last_completion_realtime_ns, 1000007);
  for (int kind = 0; kind < kCallbackKinds; ++kind) {
    EXPECT_EQ(read.callbacks[kind], 10u * (static_cast<uint64_t>(kind) + 1));
  }
  const CommunicatorSnapshot& finished = read.communicators[1];
  EXPECT_EQ(finished.name, "finished");
  EXPECT_TRUE(finished.finalized);
  EXPECT_EQ(finished.kernel_trust, TrustState::kSelfSend);
  EXPECT_EQ(finished.last_launch_realtime_ns, 0) << "none yet, not the epoch plus an offset";
}

// It is believed of the launch that it names, if that is the oldest in flight, and of no other.
TEST(SegmentReader, OldestLaunchInFlight) {
  TestSegment test;
  test.AddCommunicator(0, 1, 0, "c");
  RecordWriter record = test.Record(0);
  const auto read = [&] { return Read(test.segment()).communicators.at(0).oldest_launch; };
  record.ChangeCompletionSource(CompletionSource::kNone, CompletionSource::kStream);
  for (const OldestLaunch oldest :
       {OldestLaunch::kUnknown, OldestLaunch::kBegun, OldestLaunch::kNotBegun}) {
    record.StoreHeartbeat({7, 1, oldest});
    EXPECT_EQ(read(), oldest);
    EXPECT_EQ(OldestLaunchBits::Of(8, OldestLaunchBits::Pack(8, oldest)), oldest);
    EXPECT_EQ(OldestLaunchBits::Of(8, OldestLaunchBits::Pack(7, oldest)), OldestLaunch::kUnknown);
    EXPECT_EQ(OldestLaunchBits::Of(8, OldestLaunchBits::Pack(9, oldest)), OldestLaunch::kUnknown);
  }
  for (const uint64_t bits : {uint64_t{8 << 2 | 3}, uint64_t{3}, uint64_t{1}, UINT64_MAX}) {
    EXPECT_EQ(OldestLaunchBits::Of(8, bits), OldestLaunch::kUnknown) << bits;
  }
  record.StoreHeartbeat({7, 1, OldestLaunch::kBegun});
  record.ChangeCompletionSource(CompletionSource::kStream, CompletionSource::kProxy);
  EXPECT_EQ(read(), OldestLaunch::kUnknown);
}

TEST(SegmentReader, EveryKindOfSeries) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  const NameId bf16 = test.Intern("ncclBfloat16");
  const NameId ring = test.Intern("RING");
  const NameId ll128 = test.Intern("LL128");
  const NameId future = test.Intern("AllFuture");
  // Written in two lanes: what is read is their sum.
  for (LaneRole role : {LaneRole::kLaunch, LaneRole::kProgress}) {
    LaneWriter lane = test.Writer(0, generation, role);
    for (const bool captured : {false, true}) {
      lane.Count(SeriesKey::Calls(kAllReduceName, 4, bf16, captured), captured ? 4 : 3, 1 << 20);
    }
    for (const UntimedReason reason : {SeriesKey::kTimed, UntimedReason::kGrouped}) {
      const uint64_t key = SeriesKey::Algorithm(kAllGatherName, reason, ring, ll128);
      for (uint64_t i = 1; i < 7; ++i) lane.CountSequenced(key, i);
      lane.CountSequenced(key,
                          role == LaneRole::kLaunch && reason == SeriesKey::kTimed ? 501 : 400);
    }
    for (int reason = 1; reason < kUntimedReasons; ++reason) {
      lane.Count(SeriesKey::Untimed(future, static_cast<UntimedReason>(reason)),
                 static_cast<uint64_t>(reason), 0);
    }
    lane.Count(SeriesKey::Uncompleted(kAllReduceName), 11, 0);
    lane.Observe(LatencyKey(future, 0, LatencyKind::kDurationKernel), 1500, 100, 150);
    lane.Observe(LatencyKey(future, 10, LatencyKind::kCompletionProxy), 2500, 200, 300);
    lane.Observe(LatencyKey(future, 10, LatencyKind::kCompletionKernel), 2, 0, 0);
  }

  const ProcessSnapshot process = Read(test.segment());
  ASSERT_EQ(process.communicators.size(), 1u);
  const CommunicatorSnapshot& read = process.communicators[0];
  EXPECT_EQ(process.series_used, test.segment().header().series_used);

  std::map<bool, CallCountSnapshot> calls;
  for (const CallCountSnapshot& series : read.calls) calls[series.captured] = series;
  ASSERT_EQ(read.calls.size(), 2u);
  for (bool captured : {false, true}) {
    EXPECT_EQ(calls[captured].op, "AllReduce");
    EXPECT_EQ(calls[captured].size_class, 4);
    EXPECT_EQ(calls[captured].datatype, "ncclBfloat16");
    EXPECT_EQ(calls[captured].calls, captured ? 8u : 6u);
    EXPECT_EQ(calls[captured].bytes, 2u << 20);
  }
  ASSERT_EQ(read.algorithms.size(), 1u);
  EXPECT_EQ(read.algorithms[0].op, "AllGather");
  EXPECT_EQ(read.algorithms[0].algo, "RING");
  EXPECT_EQ(read.algorithms[0].proto, "LL128");
  EXPECT_EQ(read.algorithms[0].operations, 28u) << "with and without a reason";
  std::map<UntimedReason, uint64_t> untimed;
  for (const UntimedSnapshot& series : read.untimed) {
    if (series.op == "AllGather") {
      EXPECT_EQ(series.reason, UntimedReason::kGrouped);
      EXPECT_EQ(series.operations, 14u);
      continue;
    }
    EXPECT_EQ(series.op, "AllFuture");
    untimed[series.reason] = series.operations;
  }
  ASSERT_EQ(untimed.size(), static_cast<size_t>(kUntimedReasons - 1));
  for (const auto& [reason, operations] : untimed) {
    EXPECT_EQ(operations, 2u * static_cast<uint64_t>(reason));
  }
  ASSERT_EQ(read.uncompleted.size(), 1u);
  EXPECT_EQ(read.uncompleted[0].op, "AllReduce");
  EXPECT_EQ(read.uncompleted[0].operations, 22u);
  ASSERT_EQ(read.sequences.size(), 1u);
  EXPECT_EQ(read.sequences[0].op, "AllGather");
  EXPECT_EQ(read.sequences[0].sequence, 500u) << "a gauge is not added up";
  ASSERT_EQ(read.latencies.size(), 3u);
  for (const LatencySnapshot& latency : read.latencies) {
    EXPECT_EQ(latency.op, "AllFuture");
    EXPECT_EQ(latency.histogram.Count(), 2u);
    const uint64_t ns = latency.kind == LatencyKind::kDurationKernel    ? 1500
                        : latency.kind == LatencyKind::kCompletionProxy ? 2500
                                                                        : 2;
    EXPECT_EQ(latency.histogram.cells[CellIndex(ns)], 2u);
    EXPECT_EQ(latency.histogram.sum_ns, 2 * ns);
    EXPECT_EQ(latency.size_class, latency.kind == LatencyKind::kDurationKernel ? 0 : 10);
    EXPECT_EQ(latency.bytes, ns == 1500 ? 200u : ns == 2500 ? 400u : 0u);
    EXPECT_EQ(latency.bus_bytes, ns == 1500 ? 300u : ns == 2500 ? 600u : 0u);
  }
}

TEST(SegmentReader, SeriesWithoutNumbersAreAbsent) {
  TestSegment test;
  test.AddCommunicator(0, 1, 0, "c");
  CommunicatorRecord& record = test.segment().record(0);
  record.series[3].key.store(SeriesKey::Calls(kAllReduceName, 0, 0, false));
  record.series[4].key.store(LatencyKey(kAllReduceName, 0, LatencyKind::kDurationKernel));
  record.series[5].key.store(SeriesKey::Pack(static_cast<SeriesKind>(99), 3, 0, 0, 0));
  const ProcessSnapshot read = Read(test.segment());
  ASSERT_EQ(read.communicators.size(), 1u);
  EXPECT_TRUE(read.communicators[0].calls.empty());
  EXPECT_TRUE(read.communicators[0].latencies.empty());
}

TEST(SegmentReader, TimedCallsOldestFirst) {
  TestSegment test;
  test.AddCommunicator(0, 1, 0, "c");
  HeaderWriter(test.segment()).RenewTimes(5000, 0);
  EXPECT_TRUE(Read(test.segment()).communicators[0].timed_calls.empty());
  uint32_t written = 0;
  const auto write_to = [&](uint32_t end) {
    for (; written < end; ++written) {
      test.Record(0).AppendTimedCall({kAllGatherName, LatencyKind::kCompletionProxy, 6, written,
                                      uint64_t{written} * 10, uint64_t{written} * 100,
                                      written + 1});
    }
  };
  for (uint32_t end : {1u, 5u, 32u, 33u, 50u, 64u, 1000u}) {
    write_to(end);
    const std::vector<TimedCallSnapshot> calls = Read(test.segment()).communicators[0].timed_calls;
    const uint32_t expected = std::min<uint32_t>(end, kTimedCalls);
    ASSERT_EQ(calls.size(), expected);
    for (uint32_t i = 0; i < expected; ++i) {
      const uint32_t number = end - expected + i;
      EXPECT_EQ(calls[i].call_number, number);
      EXPECT_EQ(calls[i].op, "AllGather");
      EXPECT_EQ(calls[i].kind, LatencyKind::kCompletionProxy);
      EXPECT_EQ(calls[i].size_class, 6);
      EXPECT_EQ(calls[i].bytes, number * 10u);
      EXPECT_EQ(calls[i].duration_ns, number * 100u);
      EXPECT_EQ(calls[i].end_realtime_ns, 5000 + static_cast<int64_t>(number) + 1);
    }
  }
  // One that is not there. (One that is being written: //tests/model:timed_call_test.)
  test.segment().record(0).timed_calls[(1000 - 3) % kTimedCalls].Reset();
  const std::vector<TimedCallSnapshot> calls = Read(test.segment()).communicators[0].timed_calls;
  ASSERT_EQ(calls.size(), kTimedCalls - 1u);
  for (const TimedCallSnapshot& call : calls) EXPECT_NE(call.call_number, 997u);
}

TEST(SegmentReader, NamesThatAreNotThere) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    lane.Count(SeriesKey::Uncompleted(127), 1, 0);
  }
  EXPECT_EQ(Read(test.segment()).communicators[0].uncompleted[0].op, "unknown");
}

TEST(SegmentReader, SaysWhatIsWrong) {
  TestSegment test;
  Segment& segment = test.segment();
  SegmentHeader& header = segment.header();
  const auto error_of = [&](size_t bytes) {
    ProcessSnapshot snapshot;
    snapshot.pid = 1;
    std::string error;
    EXPECT_FALSE(ReadSegment(segment.base(), bytes, &snapshot, &error));
    EXPECT_EQ(snapshot.pid, 0) << "nothing of the old one is left";
    return error;
  };
  EXPECT_EQ(error_of(0), "segment of 0 bytes is too small for a header");
  EXPECT_EQ(error_of(8191), "segment of 8191 bytes is too small for a header");
  EXPECT_NE(error_of(8192).find("geometry"), std::string::npos);
  EXPECT_NE(error_of(segment.bytes() - 65536 - 4096).find("geometry"), std::string::npos);
  header.version = kSegmentVersion + 1;
  EXPECT_EQ(error_of(segment.bytes()), "segment version 10, this reader knows 9");
  header.version = kSegmentVersion;
  header.magic ^= 1;
  EXPECT_EQ(error_of(segment.bytes()), "not a segment: wrong magic number");
  header.magic ^= 1;
  const auto wrong = [&](auto& field, auto value) {
    const auto right = field;
    field = value;
    const std::string error = error_of(segment.bytes());
    EXPECT_NE(error.find("geometry"), std::string::npos) << error;
    field = right;
  };
  wrong(header.names_offset, 8192u);
  wrong(header.communicators_offset, 4096u);
  wrong(header.communicator_bytes, 64u);
  wrong(header.communicator_count, kMaxCommunicators + 1);
  wrong(header.page_bytes, 4096u);
  wrong(header.page_count, header.page_count + 100);
  wrong(header.page_count, UINT32_MAX);
  wrong(header.name_count, 0u);
  wrong(header.pages_offset, uint64_t{8192});
  wrong(header.pages_offset, UINT64_MAX - 2047);
  wrong(header.pages_offset, header.pages_offset + 8);
  Read(segment);  // right again
}

TEST(SegmentReader, APageBelongsToOneEntry) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "honest");
  {
    LaneWriter lane = test.Writer(0, generation, LaneRole::kLaunch);
    lane.Observe(LatencyKey(kAllReduceName, 0, LatencyKind::kDurationKernel), 5000, 1, 1);
  }
  CommunicatorRecord& honest = test.segment().record(0);
  uint16_t page = kNoPage;
  for (const SeriesEntry& series : honest.series) {
    if (series.key.load() != 0) page = series.page[0].load();
  }
  ASSERT_NE(page, kNoPage);
  for (uint32_t index = 1; index < 4; ++index) {
    test.AddCommunicator(index, index, 0, "greedy");
    for (uint32_t i = 0; i < kSeriesPerCommunicator; ++i) {
      SeriesEntry& series = test.segment().record(index).series[i];
      series.key.store(LatencyKey(static_cast<NameId>(i), i, LatencyKind::kDurationKernel));
      for (auto& slot : series.page) slot.store(page);
    }
  }
  const ProcessSnapshot read = Read(test.segment());
  ASSERT_EQ(read.communicators.size(), 4u);
  ASSERT_EQ(read.communicators[0].latencies.size(), 1u);
  EXPECT_EQ(read.communicators[0].latencies[0].histogram.Count(), 1u);
  for (int greedy = 1; greedy < 4; ++greedy) {
    EXPECT_TRUE(read.communicators[greedy].latencies.empty());
  }
}

// ---- beside writers -----------------------------------------------------------------------------

TEST(SegmentReader, NothingEverStepsBack) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "c");
  constexpr uint64_t kBytes = 1000;
  std::atomic<int> running{2};
  const auto write = [&](LaneRole role) {
    for (uint64_t i = 0; i < 200000; ++i) {
      LaneWriter lane = test.Writer(0, generation, role);
      if (!lane.ok()) continue;
      AddToCell(lane.lane().launches, 1);
      AddToCell(lane.lane().callbacks[1], 1);
      lane.Count(SeriesKey::Calls(kAllReduceName, static_cast<uint32_t>(i % 3), kNoName, false), 1,
                 kBytes);
      lane.Observe(
          LatencyKey(kAllReduceName, static_cast<uint32_t>(i % 3), LatencyKind::kCompletionProxy),
          1000 << (i % 16), kBytes, 2 * kBytes);
    }
    --running;
  };
  std::thread launching([&] { write(LaneRole::kLaunch); });
  std::thread progress([&] { write(LaneRole::kProgress); });

  uint64_t launches = 0, callbacks = 0;
  std::map<int, CallCountSnapshot> calls;
  std::map<int, LatencySnapshot> latencies;
  bool last_round = false;
  while (true) {
    // Once more after the last write: what is read then is the whole.
    last_round = running == 0;
    const ProcessSnapshot process = Read(test.segment());
    ASSERT_EQ(process.communicators.size(), 1u);
    const CommunicatorSnapshot& read = process.communicators[0];
    ASSERT_GE(read.launches, launches);
    launches = read.launches;
    ASSERT_GE(process.callbacks[1], callbacks);
    callbacks = process.callbacks[1];
    ASSERT_GE(read.calls.size(), calls.size()) << "a series never goes away";
    for (const CallCountSnapshot& series : read.calls) {
      CallCountSnapshot& previous = calls[series.size_class];
      ASSERT_GE(series.calls, previous.calls);
      ASSERT_GE(series.bytes, previous.bytes);
      ASSERT_GE(series.bytes, series.calls * kBytes) << "a counted call has its bytes";
      previous = series;
    }
    ASSERT_GE(read.latencies.size(), latencies.size());
    for (const LatencySnapshot& series : read.latencies) {
      LatencySnapshot& previous = latencies[series.size_class];
      uint64_t least_ns = 0;
      for (int cell = 0; cell < kHistogramCells; ++cell) {
        ASSERT_GE(series.histogram.cells[cell], previous.histogram.cells[cell]);
        if (cell > 0) {
          least_ns += series.histogram.cells[cell] *
                      static_cast<uint64_t>(CellUpperBoundSeconds(cell - 1) * 1e9);
        }
      }
      ASSERT_GE(series.histogram.sum_ns, previous.histogram.sum_ns);
      ASSERT_GE(series.histogram.sum_ns, least_ns) << "a counted latency is in the sum";
      ASSERT_GE(series.bytes, series.histogram.Count() * kBytes);
      ASSERT_GE(series.bus_bytes, series.histogram.Count() * 2 * kBytes);
      previous = series;
    }
    if (last_round) break;
  }
  launching.join();
  progress.join();
  uint64_t counted = 0, observed = 0;
  for (const auto& [size_class, series] : calls) {
    counted += series.calls;
    EXPECT_EQ(series.bytes, series.calls * kBytes);
  }
  for (const auto& [size_class, series] : latencies) observed += series.histogram.Count();
  EXPECT_EQ(counted, launches);
  EXPECT_EQ(observed, launches);
  EXPECT_EQ(callbacks, launches);
}

TEST(SegmentReader, ARecyclerThatDiedDoesNotKeepTheReader) {
  TestSegment test;
  test.AddCommunicator(0, 1, 0, "c");
  test.segment().header().recycle_epoch.Begin();
  EXPECT_EQ(Read(test.segment()).communicators.size(), 1u);
}

// Whatever is in it: no snapshot larger than asked for, not even for a moment.
TEST(SegmentReader, ASnapshotThatWouldBeTooLargeIsGivenUp) {
  TestSegment test;
  const uint32_t generation = test.AddCommunicator(0, 1, 0, "world");
  LaneWriter lane = test.Writer(0, generation, LaneRole::kProgress);
  for (uint32_t size = 0; size < 10; ++size) {
    lane.Observe(LatencyKey(kAllReduceName, size, LatencyKind::kDurationStream), 1000, 1, 1);
  }
  const void* base = test.segment().base();
  const size_t bytes = test.segment().bytes();
  ProcessSnapshot snapshot;
  std::string error;
  SnapshotLimit enough{64 << 10};
  ASSERT_TRUE(ReadSegment(base, bytes, &snapshot, &error, {}, &enough)) << error;
  EXPECT_FALSE(enough.exceeded);
  EXPECT_EQ(snapshot.communicators.front().latencies.size(), 10u);
  SnapshotLimit little{10 << 10};
  EXPECT_FALSE(ReadSegment(base, bytes, &snapshot, &error, {}, &little));
  EXPECT_TRUE(little.exceeded);
  EXPECT_EQ(error, "more than 10240 bytes of measurements");
  EXPECT_TRUE(snapshot.communicators.empty());
  // What is damaged is something else.
  SnapshotLimit unused{10 << 10};
  EXPECT_FALSE(ReadSegment("garbage", 7, &snapshot, &error, {}, &unused));
  EXPECT_FALSE(unused.exceeded);
}

}  // namespace
}  // namespace nccl_pulse

#include "metrics/segment_reader.h"

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "metrics/header_writer.h"
#include "metrics/testing/test_segment.h"
#include "tests/metrics/segment_reading.h"

namespace nccl_pulse {
namespace {

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
  identity.nccl_environment = "NCCL=2.28.9";
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
  EXPECT_EQ(read.nccl_environment, "NCCL=2.28.9");
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
  for (const OldestLaunch oldest : {OldestLaunch::kUnknown, OldestLaunch::kBegun,
                                    OldestLaunch::kNotBegun, OldestLaunch::kUntold}) {
    record.StoreHeartbeat({7, 1, oldest});
    EXPECT_EQ(read(), oldest);
    EXPECT_EQ(OldestLaunchBits::Of(8, OldestLaunchBits::Pack(8, oldest, false)), oldest);
    EXPECT_EQ(OldestLaunchBits::Of(8, OldestLaunchBits::Pack(7, oldest, false)),
              OldestLaunch::kUnknown);
    EXPECT_EQ(OldestLaunchBits::Of(8, OldestLaunchBits::Pack(9, oldest, false)),
              OldestLaunch::kUnknown);
  }
  for (const uint64_t bits : {uint64_t{7 << 2 | 3}, uint64_t{3}, uint64_t{1}, UINT64_MAX}) {
    EXPECT_EQ(OldestLaunchBits::Of(8, bits), OldestLaunch::kUnknown) << bits;
    EXPECT_FALSE(OldestLaunchBits::IsAtLaunch(8, bits)) << bits;
  }
  for (const bool is_at_oldest : {false, true}) {
    record.StoreHeartbeat({7, 1, OldestLaunch::kBegun, is_at_oldest});
    EXPECT_EQ(read(), OldestLaunch::kBegun);
    EXPECT_EQ(Read(test.segment()).communicators.at(0).is_at_oldest, is_at_oldest);
  }
  record.ChangeCompletionSource(CompletionSource::kStream, CompletionSource::kNone);
  EXPECT_EQ(read(), OldestLaunch::kUnknown) << "finalized";
  record.NoteDriverError(719, 1);
  EXPECT_EQ(read(), OldestLaunch::kBegun) << "as it was before the driver failed";
  record.ChangeCompletionSource(CompletionSource::kNone, CompletionSource::kProxy);
  EXPECT_EQ(read(), OldestLaunch::kUnknown);
}

}  // namespace
}  // namespace nccl_pulse

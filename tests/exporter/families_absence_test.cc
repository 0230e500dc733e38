// What has not happened or is not known is absent from the page, never zero.
#include <string>
#include <vector>

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

// What was never watched is absent, not zero.
struct FamiliesAbsence : testing::Test {
  ProcessSnapshot process = ExampleProcess();
};

TEST_F(FamiliesAbsence, NetworkIsAbsentWhenNoStepWasWatched) {
  process.network_observed_ns = 0;
  process.communicators[0].network_bytes = {};
  process.communicators[0].network_wait_ns = {};
  EXPECT_THAT(Page({process}), testing::Not(HasSubstr("_network_")));
}

// Flags and counters of rare events cost a series only where there is something to say.
TEST_F(FamiliesAbsence, WhatHasNotHappenedIsAbsent) {
  process.callbacks = {10, 0, 30, 0, 0, 0};
  process.ignored = {};
  process.recycled_communicators = 0;
  process.recycled_calls.clear();
  process.communicators[0].overflowed_operations = 0;
  std::string page = Page({process});
  EXPECT_EQ(Lines(page, "nccl_pulse_callbacks_total").size(), 2u);
  for (const char* family :
       {"nccl_communicator_finalized", "nccl_communicator_uses_cuda_graphs",
        "nccl_pulse_ignored_events_total", "nccl_pulse_processes_rejected_total",
        "nccl_pulse_overflowed_operations_total", "nccl_pulse_recycled"}) {
    EXPECT_THAT(page, Not(HasSubstr(family)));
  }
  process.communicators[0].finalized = true;
  EXPECT_THAT(Page({process}),
              HasSubstr("nccl_communicator_finalized" + std::string(kCommLabels) + "} 1\n"));
}

TEST_F(FamiliesAbsence, ReplaysOfGraphs) {
  EXPECT_THAT(Page({process}), Not(HasSubstr("nccl_graph_")));
  EXPECT_THAT(Page({process}), Not(HasSubstr("nccl_pulse_graph_")));
  AddReplays(&process);
  const std::string page = Page({process});
  const std::string comm = kCommLabels;
  EXPECT_THAT(page, HasSubstr("nccl_graph_replays_total" + comm + "} 1077\n"));
  EXPECT_THAT(page, HasSubstr("nccl_graph_inflight_replays" + comm + "} 1\n"));
  EXPECT_THAT(page, HasSubstr("nccl_graph_finished_operations_total" + comm +
                              R"(,op="AllReduce",size="le_1MiB"} 2154)"));
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

// By operation and size only where all captured calls are alike: the counter has one number.
TEST_F(FamiliesAbsence, ReplayedOperationsByKind) {
  AddReplays(&process);
  CommunicatorSnapshot& comm = process.communicators[0];
  const auto expect = [&](const std::string& labels) {
    EXPECT_THAT(Page({process}), HasSubstr("nccl_graph_finished_operations_total" +
                                           std::string(kCommLabels) + labels));
  };
  const int size_class = SizeClassOf(4096);
  comm.calls.clear();
  expect(R"(,op="several",size="several"} 2154)");
  comm.calls.push_back({"AllReduce", size_class, "ncclFloat32", true, 16, 65536});
  expect(R"(,op="AllReduce",size="le_4KiB"} 2154)");
  comm.calls.push_back({"AllReduce", size_class, "ncclBfloat16", true, 16, 65536});
  expect(R"(,op="AllReduce",size="le_4KiB"} 2154)");
  comm.calls.push_back({"AllReduce", SizeClassOf(1 << 20), "ncclFloat32", true, 1, 1 << 20});
  expect(R"(,op="AllReduce",size="several"} 2154)");
  comm.calls.push_back({"AllGather", size_class, "ncclFloat32", true, 1, 4096});
  expect(R"(,op="several",size="several"} 2154)");
  comm.calls.resize(comm.calls.size() - 3);
  comm.overflowed_calls = 1;
  expect(R"(,op="several",size="several"} 2154)");
}

TEST_F(FamiliesAbsence, WhatIsNotKnownIsAbsent) {
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
TEST_F(FamiliesAbsence, WithoutAHeartbeatWhatIsInFlightIsAbsent) {
  process.communicators[0].has_heartbeat = false;
  process.sampling_exponent = -1;
  const std::string page = Page({process});
  EXPECT_THAT(page, HasSubstr("nccl_launches_total" + std::string(kCommLabels) + "} 111\n"));
  EXPECT_THAT(Lines(page, "nccl_launches_completed_total"), testing::IsEmpty());
  EXPECT_THAT(Lines(page, "nccl_inflight_launches"), testing::IsEmpty());
  EXPECT_THAT(Lines(page, "nccl_oldest_inflight_launch_timestamp_seconds"), testing::IsEmpty());
  EXPECT_THAT(Lines(page, "nccl_pulse_sampling_ratio"), testing::IsEmpty());
}

TEST_F(FamiliesAbsence, WithoutAHeartbeatOperationsMayBeKnownToBeInFlight) {
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

TEST_F(FamiliesAbsence, AnIdleCommunicatorIsZeroUnlessItsGraphsMayRun) {
  CommunicatorSnapshot& comm = process.communicators[0];
  const std::string labels = std::string(kCommLabels) + "} ";
  comm.launches_completed = comm.launches;
  comm.oldest_inflight_realtime_ns = 0;
  std::string page = Page({process});
  EXPECT_THAT(page, HasSubstr("nccl_inflight_launches" + labels + "0\n"));
  EXPECT_THAT(page, HasSubstr("nccl_oldest_inflight_launch_timestamp_seconds" + labels + "0\n"));
  EXPECT_THAT(page, Not(HasSubstr("nccl_communicator_uses_cuda_graphs")));

  comm.captured = true;
  page = Page({process});
  EXPECT_THAT(page, HasSubstr("nccl_communicator_uses_cuda_graphs" + labels + "1\n"));
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
TEST_F(FamiliesAbsence, WhatIsNotKnownIsAbsentAndSaysWhy) {
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
  EXPECT_THAT(Lines(page_of(process), "nccl_state_unknown"), testing::IsEmpty());
  EXPECT_EQ(Lines(page_of(process), "nccl_inflight_launches").size(), 1u);
  std::vector<std::pair<ProcessSnapshot, std::string>> cases;
  const auto add = [&](const char* reason, const auto& change) {
    cases.emplace_back(process, reason);
    change(&cases.back().first, &cases.back().first.communicators[0]);
  };
  add("launch_not_reported", [](auto*, auto* comm) { comm->unreported_calls = 1; });
  add("captured", [](auto*, auto* comm) { comm->captured = true; });
  add("counter_stuck", [](auto*, auto* comm) {
    comm->captured = true;
    comm->work.state = WorkState::kStuck;
  });
  add("counter_lost", [](auto*, auto* comm) {
    comm->launches = comm->launches_completed + 1;
    comm->oldest_launch = OldestLaunch::kUntold;
  });
  add("calibrating", [](auto*, auto* comm) {
    comm->captured = true;
    comm->work.is_being_proven = true;
  });
  add("no_completions", [](auto*, auto* comm) { comm->has_heartbeat = false; });
  add("poller_not_started",
      [](auto* process, auto*) { process->poller = PollerState::kNotStarted; });
  add("poller_ended", [](auto* process, auto*) { process->poller = PollerState::kEnded; });
  add("driver_error", [](auto*, auto* comm) {
    comm->driver_error = 700;
    comm->has_heartbeat = false;
  });
  add("event_mask_changed", [](auto* process, auto*) {
    process->event_mask_changes = 1;
    process->foreign_event_mask = 0x2;
  });
  for (const auto& [changed, reason] : cases) {
    const std::string page = page_of(changed);
    EXPECT_THAT(Lines(page, "nccl_state_unknown"),
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
  EXPECT_THAT(Lines(stale, "nccl_state_unknown"),
              testing::ElementsAre(HasSubstr("reason=\"poller_stands\"")));
  EXPECT_THAT(Lines(stale, "nccl_inflight_launches"), testing::IsEmpty());
  EXPECT_THAT(Lines(stale, "nccl_oldest_inflight_operation_timestamp_seconds"), testing::IsEmpty());
  // Of what ended nothing is claimed to be unknown.
  cases[0].first.communicators[0].finalized = true;
  EXPECT_THAT(Lines(page_of(cases[0].first), "nccl_state_unknown"), testing::IsEmpty());
}

TEST_F(FamiliesAbsence, OnlyLongWaitsHaveASeries) {
  process.communicators[0].longest_waits = {{"AllReduce", 0, 4999999999, 0},
                                            {"Broadcast", 4, 540000000000, 0}};
  EXPECT_THAT(Lines(Page({process}), "nccl_longest_wait_seconds"),
              testing::ElementsAre(HasSubstr(R"(op="Broadcast",size="le_1MiB"} 540)")));
}

// What is wrong with a process or a GPU is a series, and what is not wrong is none.
TEST_F(FamiliesAbsence, StatesOfAProcessAndErrorsOfADriver) {
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_process_state"), testing::IsEmpty());
  EXPECT_THAT(Lines(Page({process}), "nccl_driver_error_timestamp_seconds"), testing::IsEmpty());
  process.run_state = RunState::kStopped;
  process.communicators[0].driver_error = 214;
  process.communicators[0].driver_error_realtime_ns = 1760000002250000000;
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_process_state"),
              testing::ElementsAre(HasSubstr(R"(state="stopped"} 1)")));
  EXPECT_THAT(
      Lines(Page({process}), "nccl_driver_error_timestamp_seconds"),
      testing::ElementsAre(HasSubstr(R"(error="CUDA_ERROR_ECC_UNCORRECTABLE"} 1760000002.25)")));
  process.communicators[0].driver_error = 12345;  // a hostile segment's
  EXPECT_THAT(Lines(Page({process}), "nccl_driver_error_timestamp_seconds"), testing::IsEmpty());
}

TEST_F(FamiliesAbsence, AChangedEventMaskIsCountedAndShown) {
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_event_mask_changes_total"), testing::IsEmpty());
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_foreign_event_mask_info"), testing::IsEmpty());
  process.event_mask_changes = 3;
  process.foreign_event_mask = 0xfff;
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_event_mask_changes_total"),
              testing::ElementsAre(HasSubstr("} 3")));
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_foreign_event_mask_info"),
              testing::ElementsAre(HasSubstr(R"(event_mask="0xfff"} 1)")));
}

TEST_F(FamiliesAbsence, UntrustedTimingHasItsReason) {
  process.communicators[0].kernel_trust = TrustState::kChecksFailed;
  EXPECT_THAT(Lines(Page({process}), "nccl_pulse_kernel_timing_untrusted"),
              testing::ElementsAre(HasSubstr(R"(reason="self_send"} 0)"),
                                   HasSubstr(R"(reason="checks_failed"} 1)")));
}

}  // namespace
}  // namespace nccl_pulse

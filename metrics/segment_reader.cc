#include "metrics/segment_reader.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "metrics/record_reader.h"
#include "metrics/segment_geometry.h"
#include "metrics/shared_bytes.h"

namespace nccl_pulse {

uint64_t ClaimedSegmentBytes(const void* base) {
  return ReadOnce(static_cast<const SegmentHeader*>(base)->total_bytes);
}

bool ReadSegment(const void* base, size_t bytes, ProcessSnapshot* snapshot, std::string* error,
                 const SegmentExtents& extents, SnapshotLimit* limit, const ReadWish& wish) {
  *snapshot = ProcessSnapshot{};
  SegmentGeometry geometry;
  if (!CheckGeometry(base, bytes, extents, &geometry, error)) return false;
  const auto& header = *static_cast<const SegmentHeader*>(base);
  const int64_t realtime_offset_ns = header.realtime_offset_ns.load();

  snapshot->pid = ReadOnce(header.pid);
  snapshot->pid_namespace = ReadOnce(header.pid_namespace);
  snapshot->plugin_version = CopyFromShared(header.plugin_version);
  snapshot->hostname = CopyFromShared(header.hostname);
  snapshot->global_rank = CopyFromShared(header.global_rank);
  snapshot->local_rank = CopyFromShared(header.local_rank);
  snapshot->job_id = CopyFromShared(header.job_id);
  snapshot->static_labels = CopyFromShared(header.static_labels);
  snapshot->nccl_environment = CopyFromShared(header.nccl_environment);
  snapshot->nccl_api_version = ReadOnce(header.nccl_api_version);
  snapshot->timing = CopyFromShared(header.timing);
  snapshot->event_mask = ReadOnce(header.event_mask);
  snapshot->duration_source = CopyFromShared(header.duration_source);
  snapshot->completion_source = CopyFromShared(header.completion_source);
  snapshot->sampling_exponent = header.sampling_exponent.load();
  snapshot->start_realtime_ns = ReadOnce(header.start_realtime_ns);
  const uint64_t last_poll_ns = header.last_poll_monotonic_ns.acquire();
  snapshot->last_poll_realtime_ns =
      last_poll_ns == 0
          ? 0
          : static_cast<int64_t>(last_poll_ns + static_cast<uint64_t>(realtime_offset_ns));
  snapshot->counters_read_ns = header.counters_read_monotonic_ns.load();  // after the poll's time
  const uint32_t poller = header.poller_state.load();
  if (poller <= static_cast<uint32_t>(PollerState::kEnded)) {
    snapshot->poller = static_cast<PollerState>(poller);
  }
  snapshot->foreign_event_mask = header.foreign_event_mask.load();
  snapshot->event_mask_changes = header.event_mask_changes.acquire();
  snapshot->shared_memory = ReadOnce(header.shared_memory) != 0;
  snapshot->sampled_callbacks = header.sampled_callbacks.acquire();
  snapshot->sampled_callback_ns = header.sampled_callback_ns.acquire();
  for (int reason = 0; reason < kIgnoredReasons; ++reason) {
    snapshot->ignored[reason] = header.ignored[reason].acquire();
  }
  snapshot->network_observed_ns = header.network_observed_ns.acquire();
  for (int fate = 0; fate < kCaptureFates; ++fate) {
    snapshot->graph_captures[fate] = header.graph_captures[fate].acquire();
  }
  for (int result = 0; result < kCommandResults; ++result) {
    snapshot->commands[result] = header.commands[result].acquire();
  }
  snapshot->changed_settings = header.changed_settings.load();
  snapshot->hang_after_ns = int64_t{header.hang_after_seconds.load()} * 1000000000;
  snapshot->unmeasured_communicators = header.unmeasured_communicators.load();
  snapshot->series_used = header.series_used.acquire();
  snapshot->series_limit = ReadOnce(header.series_limit);
  snapshot->communicator_limit = geometry.communicators;
  snapshot->last_calls_wanted = std::min(ReadOnce(header.last_calls), kMostLastCalls);

  RecordReader reader(geometry, realtime_offset_ns, limit != nullptr ? limit->bytes : UINT64_MAX,
                      wish);
  // True if "pulse-work" does not return from a driver call, while the background thread polls.
  const bool is_stuck =
      snapshot->counters_read_ns != 0 && last_poll_ns > snapshot->counters_read_ns + kWorkStuckNs;
  // A writer recycles a record in microseconds, so a few attempts are enough. The pauses are for a
  // preempted writer. A writer that died half way, or a hostile one, must not block this loop.
  constexpr int kMaxAttempts = 5;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    if (attempt > 0) {
      const timespec pause{0, 1000000};
      nanosleep(&pause, nullptr);
    }
    reader.Restart();
    const uint64_t epoch = header.recycle_epoch.Enter();
    snapshot->communicators.clear();
    reader.ReadRecycled(header, snapshot);
    for (uint32_t index = 0; index < geometry.records_present; ++index) {
      CommunicatorSnapshot communicator;
      CallbackCounts callbacks{};
      const bool is_there = reader.ReadCommunicator(index, &callbacks, &communicator);
      if (reader.is_too_large()) {
        *snapshot = ProcessSnapshot{};
        limit->exceeded = true;
        *error = "more than " + std::to_string(limit->bytes) + " bytes of measurements";
        return false;
      }
      if (!is_there) continue;
      for (int kind = 0; kind < kCallbackKinds; ++kind) {
        snapshot->callbacks[kind] += callbacks[kind];
      }
      if (is_stuck && communicator.work.state >= WorkState::kUnknown &&
          communicator.work.state <= WorkState::kProven) {
        communicator.work.state = WorkState::kStuck;
      }
      snapshot->communicators.push_back(std::move(communicator));
    }
    if (header.recycle_epoch.IsWhole(epoch)) break;
  }
  snapshot->communicators_used = snapshot->communicators.size();
  return true;
}

}  // namespace nccl_pulse

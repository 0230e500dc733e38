// HeaderWriter writes the segment's header: process identity, settings and counters. Other writers:
// Segment (geometry, records_present), RecordWriter (last_call_chunks_used), UserTags (user_tags).
// The plugin, tests, benches and simulated processes all use this writer.
//
// Thread: as each section or function says. Readers may read meanwhile. An object holds only a
// reference to the header; make one where it is needed.
//
// Cost: a few stores. Adding to a counter with several writers is a read-modify-write. Nothing
// waits or allocates.
#ifndef METRICS_HEADER_WRITER_H_
#define METRICS_HEADER_WRITER_H_

#include <cstdint>
#include <string_view>

#include "metrics/kinds.h"
#include "metrics/segment.h"

namespace nccl_pulse {

class HeaderWriter {
 public:
  explicit HeaderWriter(Segment& segment) : header_(segment.WritableHeader()) {}

  // ---- identity: called in init, before the segment is handed to a reader ----

  struct Identity {
    int32_t pid = 0;
    uint32_t pid_namespace = 0;  // its inode; 0: the initial PID namespace, or unknown
    int32_t nccl_api_version = 0;
    uint32_t event_mask = 0;
    int64_t start_realtime_ns = 0;
    std::string_view plugin_version, timing, hostname;
    std::string_view global_rank, local_rank, job_id;  // "": the launcher did not set it
    std::string_view static_labels;                    // set by the user, "name=value,name=value"
    std::string_view nccl_environment;                 // plugin/runtime/nccl_environment.h
  };
  void Identify(const Identity& identity);

  // ---- called in init, under its lock ----

  // Sets the sources of durations ("stream", "kernel", "none") and of completions ("stream",
  // "proxy", "kernel", "none"). Called again when a newer NCCL version is loaded.
  void NameSources(std::string_view durations, std::string_view completions);

  // Counts a communicator that is not measured because no record was free.
  void CountUnmeasured() {
    header_.unmeasured_communicators.store(header_.unmeasured_communicators.load() + 1);
  }

  // ---- called by the background thread, and once in init before that thread starts ----

  // Stores CLOCK_REALTIME minus CLOCK_MONOTONIC, and the monotonic time of this poll.
  void RenewTimes(int64_t realtime_offset_ns, uint64_t now_ns);
  void StorePollerState(PollerState state) {
    header_.poller_state.store(static_cast<uint32_t>(state));
  }
  // Stores n if one call in 2^n is timed by CUDA events on its stream; -1 if none is.
  void StoreSamplingExponent(int exponent) { header_.sampling_exponent.store(exponent); }
  // Stores the total time during which network steps were watched.
  void StoreNetworkObserved(uint64_t observed_ns) {
    header_.network_observed_ns.store(observed_ns);
  }
  // Another tool may change NCCL's event mask. `foreign`: the event bits common to all changed
  // masks (0: none was changed). `changes`: number of changes.
  void StoreForeignMask(uint32_t foreign, uint64_t changes);
  void CountCommand(CommandResult result) {
    header_.commands[static_cast<int>(result)].publish_sum(1);
  }
  // Stores when the thread that reads NCCL's work counters last polled. Called by that thread.
  void StoreCountersRead(uint64_t now_ns) { header_.counters_read_monotonic_ns.store(now_ns); }
  // Stores the user's threshold for a hang; 0: none is set.
  void StoreHangAfter(uint32_t seconds) { header_.hang_after_seconds.store(seconds); }
  // Bit n of `changed`: LiveSetting n differs from its value at the start.
  void StoreChangedSettings(uint32_t changed) { header_.changed_settings.store(changed); }
  void StoreGraphCaptures(CaptureFate fate, uint64_t count) {
    header_.graph_captures[static_cast<int>(fate)].store(count);
  }

  // ---- counters: called by any thread ----

  void CountIgnored(IgnoredReason reason) {
    header_.ignored[static_cast<int>(reason)].fetch_add(1);
  }
  // Adds a sample of the plugin's own cost: `callbacks` callbacks took `cost_ns` together.
  void CountCost(uint64_t callbacks, uint64_t cost_ns) {
    header_.sampled_callback_ns.fetch_add(cost_ns);
    header_.sampled_callbacks.fetch_add(callbacks);
  }

  // ---- the process' budget of series (histograms and counters): called by any thread ----

  uint64_t series_limit() const { return header_.series_limit; }
  // Takes one series from the budget. False, without effect, if `most` or more are taken.
  bool TakeSeries(uint64_t most);
  void GiveBackSeries(uint64_t series) { header_.series_used.fetch_sub(series); }

  // ---- sums over recycled communicators: called by RecordWriter within a recycle epoch ----

  RecycleEpoch& recycle_epoch() { return header_.recycle_epoch; }
  void CountRecycled() { header_.recycled_communicators.add(1); }
  void AddRecycledCallbacks(CallbackKind kind, uint64_t callbacks) {
    header_.recycled_callbacks[static_cast<int>(kind)].add(callbacks);
  }
  // `row`: the operation's OperationRowOf (name_table.h).
  void AddRecycledCalls(uint32_t row, uint64_t calls, uint64_t bytes);

 private:
  SegmentHeader& header_;
};

}  // namespace nccl_pulse

#endif  // METRICS_HEADER_WRITER_H_

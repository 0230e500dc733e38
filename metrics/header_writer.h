// Makes every write to the segment's header but for its geometry, which Segment writes when it
// makes the memory: who the process is, what it measures with, and its counters. The plugin, tests,
// benches and made-up processes all use this one writer.
//
// Thread: as each function says. Readers may read meanwhile. An object is one reference; make one
// where it is needed.
//
// Cost: a few stores; a counter of any thread is a read-modify-write. Nothing waits or allocates.
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

  // ---- identity; init, before the segment is handed to a reader ----

  struct Identity {
    int32_t pid = 0;
    uint32_t pid_namespace = 0;  // its inode; 0: the system's own, or unknown
    int32_t nccl_api_version = 0;
    uint32_t event_mask = 0;
    int64_t start_realtime_ns = 0;
    std::string_view plugin_version, timing, hostname;
    std::string_view global_rank, local_rank, job_id;  // "": the launcher did not say
    std::string_view static_labels;                    // the user's, "name=value,name=value"
    std::string_view nccl_environment;                 // plugin/runtime/nccl_environment.h
  };
  void Identify(const Identity& identity);

  // ---- init ----

  // What times operations ("stream", "kernel", "none"), and what tells that they have ended
  // ("stream", "proxy", "kernel", "none"). Again when an NCCL of a newer version comes.
  void NameSources(std::string_view durations, std::string_view completions);

  // ---- background thread; the first time init, before that thread starts ----

  void RenewTimes(int64_t realtime_offset_ns, uint64_t now_ns);
  void StorePollerState(PollerState state) {
    header_.poller_state.store(static_cast<uint32_t>(state));
  }
  // -1: no stream timing.
  void StoreSamplingExponent(int exponent) { header_.sampling_exponent.store(exponent); }
  void StoreNetworkObserved(uint64_t observed_ns) {
    header_.network_observed_ns.store(observed_ns);
  }
  // The events that all masks have which somebody else changed (0: there is none), and how often.
  void StoreForeignMask(uint32_t foreign, uint64_t changes);
  void CountCommand(CommandResult result) {
    header_.commands[static_cast<int>(result)].publish_sum(1);
  }
  // When the thread that reads NCCL's counters of finished work last went round; that thread.
  void StoreCountersRead(uint64_t now_ns) { header_.counters_read_monotonic_ns.store(now_ns); }
  void StoreChangedSettings(uint32_t changed) { header_.changed_settings.store(changed); }
  void StoreGraphCaptures(CaptureFate fate, uint64_t count) {
    header_.graph_captures[static_cast<int>(fate)].store(count);
  }

  // ---- counters; any thread ----

  void CountIgnored(IgnoredReason reason) {
    header_.ignored[static_cast<int>(reason)].fetch_add(1);
  }
  // A sample of the callbacks took so long.
  void CountCost(uint64_t callbacks, uint64_t cost_ns) {
    header_.sampled_callback_ns.fetch_add(cost_ns);
    header_.sampled_callbacks.fetch_add(callbacks);
  }

  // ---- the budget of series; any thread ----

  uint64_t series_limit() const { return header_.series_limit; }
  // One series more, if fewer than `most` are used.
  bool TakeSeries(uint64_t most);
  void GiveBackSeries(uint64_t series) { header_.series_used.fetch_sub(series); }

  // ---- sums of recycled communicators; RecordWriter, between Begin and End of the epoch ----

  RecycleEpoch& recycle_epoch() { return header_.recycle_epoch; }
  void CountRecycled() { header_.recycled_communicators.add(1); }
  void AddRecycledCallbacks(CallbackKind kind, uint64_t callbacks) {
    header_.recycled_callbacks[static_cast<int>(kind)].add(callbacks);
  }
  void AddRecycledCalls(uint32_t row, uint64_t calls, uint64_t bytes);

 private:
  SegmentHeader& header_;
};

}  // namespace nccl_pulse

#endif  // METRICS_HEADER_WRITER_H_

#include "metrics/lane_writer.h"

namespace nccl_pulse {
namespace {

// Every overflow series that can be: of calls and uncompleted operations one each, one for each
// kind of latency, and twice one for each reason: of collectives, with one for those that have
// none, and of others.
constexpr uint32_t kOverflowSeries =
    2 + (kLatencyKinds - 1) + kUntimedReasons + (kUntimedReasons - 1);
// Entries kept back for them. As many threads as there are lanes may all find the same last place
// free: all but one of them go past the limit.
constexpr uint32_t kReservedSeries = kOverflowSeries + kLanes - 1;

uint64_t OverflowKey(uint64_t key) {
  const SeriesKind kind = SeriesKey::Kind(key);
  // What kind of latency, or for which reason untimed, is kept; who and what is lost.
  const bool keeps_a = kind == SeriesKind::kLatency || kind == SeriesKind::kUntimed;
  return SeriesKey::Pack(kind, kOverflowName,
                         kind == SeriesKind::kAlgorithm
                             ? static_cast<uint32_t>(SeriesKey::SizeClass(key))
                             : static_cast<uint32_t>(kOverflowSizeClass),
                         keeps_a ? SeriesKey::A(key) : kOverflowName,
                         kind == SeriesKind::kAlgorithm ? kOverflowName : 0);
}

}  // namespace

Lane* LaneWriter::ClaimOther(int lane) {
  for (int i = 1; i < kLanes; ++i) {
    Lane& candidate = record_.lanes[(lane + i) % kLanes];
    if (Claim(candidate)) return &candidate;
  }
  return nullptr;
}

int LaneWriter::FindOrAddSeries(uint64_t key) {
  const bool is_overflow = key == OverflowKey(key);
  uint32_t at = Hash(key);
  for (int probe = 0; probe < kSeriesPerCommunicator; ++probe) {
    std::atomic<uint64_t>& entry = record_.series[at].key;
    uint64_t found = entry.load(std::memory_order_relaxed);  // see FindSeries
    if (found == key) return static_cast<int>(at);
    if (found == 0) {
      if (!is_overflow) {
        const uint64_t limit = segment_.header().series_limit;
        const bool full = record_.series_count.load(std::memory_order_relaxed) >=
                              kSeriesPerCommunicator - kReservedSeries ||
                          // Two threads may both pass the last free place: the limit is on memory,
                          // which is bounded by the pages; being one over is harmless.
                          segment_.header().series_used.load(std::memory_order_relaxed) >= limit;
        if (full) {
          CountOverflow();
          return FindSeries(OverflowKey(key));
        }
      }
      // Relaxed: the key is the whole content of the entry; pages are published on their own.
      if (entry.compare_exchange_strong(found, key, std::memory_order_relaxed)) {
        record_.series_count.fetch_add(1, std::memory_order_relaxed);
        segment_.header().series_used.fetch_add(1, std::memory_order_relaxed);
        return static_cast<int>(at);
      }
      if (found == key) return static_cast<int>(at);
    }
    at = (at + 1) % kSeriesPerCommunicator;
  }
  CountOverflow();
  return -1;
}

}  // namespace nccl_pulse

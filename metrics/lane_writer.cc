#include "metrics/lane_writer.h"

#include "metrics/header_writer.h"

namespace nccl_pulse {
namespace {

// Upper bound of a communicator's overflow series: one for uncompleted operations, one for replayed
// operations, one per kind of latency. In addition, for collectives one per untimed reason and one
// without a reason; for other operations one per reason. Calls need none, because they overflow
// into fixed cells of the lane.
constexpr uint32_t kOverflowSeries =
    2 + (kLatencyKinds - 1) + kUntimedReasons + (kUntimedReasons - 1);
// Entries reserved for overflow series. As many threads as lanes may find the same last entry free
// at once; all but one of them then exceed the limit.
constexpr uint32_t kReservedSeries = kOverflowSeries + kLanes - 1;

uint64_t OverflowKey(uint64_t key) {
  return SeriesKey::Overflow(key, kOverflowName, kOverflowSizeClass);
}

}  // namespace

Lane* LaneWriter::ClaimOther(int lane) {
  constexpr int kFirst = static_cast<int>(LaneRole::kLaunch) + 1;
  for (int i = 0; i < kLanes - kFirst; ++i) {
    Lane& candidate = record_.lanes[kFirst + (lane + i) % (kLanes - kFirst)];
    if (candidate.claim.TryClaim()) return &candidate;
  }
  return nullptr;
}

uint16_t LaneWriter::AddCounterChunk(Lane& lane) {
  const uint16_t chunk = segment_.chunks().Allocate();
  uint16_t present = kNoChunk;
  // A reader that sees the chunk sees its zeros. Two threads at once may add one to lane kLaunch.
  if (chunk == kNoChunk || lane.counter_chunk.publish_if(present, chunk)) return chunk;
  segment_.RecycleChunk(chunk);
  return present;
}

void LaneWriter::CountWithoutSeries(uint64_t key, uint64_t a, uint64_t b) {
  if (SeriesKey::Kind(key) != SeriesKind::kCalls) return;
  lane().overflowed_bytes.add(b);  // bytes before calls, as in Count
  lane().overflowed_calls.publish_sum(a);
}

// Takes one series from the process' budget. False if its limit or the communicator's forbids it.
bool LaneWriter::ReserveSeries(bool is_overflow) {
  // Up to one thread per lane may pass this check at the same time; see kReservedSeries.
  if (!is_overflow && record_.series_count.load() >= kSeriesPerCommunicator - kReservedSeries) {
    return false;
  }
  HeaderWriter header(segment_);
  const uint64_t limit = header.series_limit();
  return header.TakeSeries(is_overflow ? limit : limit - SeriesForOverflow(limit));
}

int LaneWriter::FindOrAddSeries(uint64_t key) {
  const int own = OwnSeries(key);
  if (own >= 0 || key == OverflowKey(key)) return own;  // overflow is counted already
  CountOverflow();
  const SeriesKind kind = SeriesKey::Kind(key);
  const bool has_none = kind == SeriesKind::kCalls || kind == SeriesKind::kComposite;
  return has_none ? -1 : FindSeries(OverflowKey(key));
}

int LaneWriter::OwnSeries(uint64_t key) {
  uint32_t at = Hash(key);
  bool has_reserved = false;
  for (int probe = 0; probe < kSeriesPerCommunicator; ++probe) {
    Relaxed<uint64_t>& entry = record_.series[at].key;
    uint64_t found = entry.load();  // see FindSeries
    if (found == 0) {
      has_reserved = has_reserved || ReserveSeries(key == OverflowKey(key));
      if (!has_reserved) return -1;
      // The entry holds only the key; chunks are published separately.
      if (entry.replace(found, key)) {
        record_.series_count.fetch_add(1);
        return static_cast<int>(at);
      }
    }
    if (found == key) {
      // Another thread has entered the key meanwhile.
      if (has_reserved) HeaderWriter(segment_).GiveBackSeries(1);
      return static_cast<int>(at);
    }
    at = (at + 1) % kSeriesPerCommunicator;
  }
  if (has_reserved) HeaderWriter(segment_).GiveBackSeries(1);
  return -1;
}

}  // namespace nccl_pulse

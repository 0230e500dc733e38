#include "metrics/lane_writer.h"

namespace nccl_pulse {
namespace {

// Every overflow series that can be: of uncompleted operations one, of replayed ones one, one for
// each kind of latency, and twice one for each reason: of collectives, with one for those that have
// none, and of others. Calls have the lane's own cells.
constexpr uint32_t kOverflowSeries =
    2 + (kLatencyKinds - 1) + kUntimedReasons + (kUntimedReasons - 1);
// Entries kept back for them. As many threads as there are lanes may all find the same last place
// free: all but one of them go past the limit.
constexpr uint32_t kReservedSeries = kOverflowSeries + kLanes - 1;

uint64_t OverflowKey(uint64_t key) {
  return SeriesKey::Overflow(key, kOverflowName, kOverflowSizeClass);
}

}  // namespace

Lane* LaneWriter::ClaimOther(int lane) {
  for (int i = 1; i < kLanes; ++i) {
    Lane& candidate = record_.lanes[(lane + i) % kLanes];
    if (candidate.claim.TryClaim()) return &candidate;
  }
  return nullptr;
}

void LaneWriter::CountWithoutSeries(uint64_t key, uint64_t a, uint64_t b) {
  if (SeriesKey::Kind(key) != SeriesKind::kCalls) return;
  lane().overflowed_bytes.add(b);  // first, as in Count
  AddToCell(lane().overflowed_calls, a);
}

// Takes one of the process' places, and says whether it and the communicator's limit allow it.
bool LaneWriter::TakePlace(bool is_overflow) {
  // As many threads as there are lanes may pass the last of these, see kReservedSeries.
  if (!is_overflow && record_.series_count.load() >= kSeriesPerCommunicator - kReservedSeries) {
    return false;
  }
  const uint64_t limit = segment_.header().series_limit;
  const uint64_t places = is_overflow ? limit : limit - PlacesForOverflow(limit);
  Cell& used = segment_.header().series_used;
  uint64_t before = used.load();
  do {
    if (before >= places) return false;
    // A budget, it orders nothing. The swap, so that it is never exceeded.
  } while (!used.replace(before, before + 1));
  return true;
}

int LaneWriter::FindOrAddSeries(uint64_t key) {
  const bool is_overflow = key == OverflowKey(key);
  const auto stand_in = [&]() -> int {
    if (is_overflow) return -1;  // counted as overflowed already
    CountOverflow();
    const SeriesKind kind = SeriesKey::Kind(key);
    const bool has_none = kind == SeriesKind::kCalls || kind == SeriesKind::kComposite;
    return has_none ? -1 : FindSeries(OverflowKey(key));
  };
  uint32_t at = Hash(key);
  bool has_place = false;
  for (int probe = 0; probe < kSeriesPerCommunicator; ++probe) {
    Relaxed<uint64_t>& entry = record_.series[at].key;
    uint64_t found = entry.load();  // see FindSeries
    if (found == 0) {
      has_place = has_place || TakePlace(is_overflow);
      if (!has_place) return stand_in();
      // The key is the whole content of the entry; pages are published on their own.
      if (entry.replace(found, key)) {
        record_.series_count.fetch_add(1);
        return static_cast<int>(at);
      }
    }
    if (found == key) {
      // Another thread entered it meanwhile.
      if (has_place) segment_.header().series_used.fetch_sub(1);
      return static_cast<int>(at);
    }
    at = (at + 1) % kSeriesPerCommunicator;
  }
  if (has_place) segment_.header().series_used.fetch_sub(1);
  return stand_in();
}

}  // namespace nccl_pulse

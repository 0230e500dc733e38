#include "plugin/tracker/unreported_operations.h"

#include <algorithm>
#include <optional>

#include "metrics/series_key.h"
#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/counting.h"

namespace nccl_pulse {
namespace {

// True for an operation that NCCL reports as Sends and Recvs.
bool IsMadeOfOthers(uint32_t row) {
  return row == OperationRowOf(kAlltoAllName) || row == OperationRowOf(kGatherName) ||
         row == OperationRowOf(kScatterName);
}

struct Counts {
  int64_t of[kOperationRows] = {};
};

class LaneSums {
 public:
  LaneSums(Segment& segment, const CommunicatorRecord& record) : record_(record) {
    for (int lane = 0; lane < kLanes; ++lane) {
      // Acquire: sees the chunk's zeroes.
      const uint16_t chunk = record.lanes[lane].counter_chunk.acquire();
      chunks_[lane] = chunk != kNoChunk ? &segment.counters(chunk) : nullptr;
      overflowed_ = overflowed_ || record.lanes[lane].overflowed_operations.load() != 0;
    }
  }

  // True if some operations were counted under another name, or not at all.
  bool overflowed() const { return overflowed_; }
  // Adds `factor` times the counts of the series for which `wanted(key)` is true.
  template <typename Wanted>
  void Add(int64_t factor, Wanted wanted, Counts* sums) const {
    for (int i = 0; i < kSeriesPerCommunicator; ++i) {
      const uint64_t key = record_.series[i].key.load();
      if (key == 0 || !wanted(key)) continue;
      int64_t sum = 0;
      for (const CounterChunk* chunk : chunks_) {
        // Acquire: an operation that is seen here has had its call counted.
        if (chunk != nullptr) sum += static_cast<int64_t>(chunk->series[i].a.acquire());
      }
      sums->of[OperationRowOf(SeriesKey::Op(key))] += factor * sum;
    }
  }

 private:
  const CommunicatorRecord& record_;
  const CounterChunk* chunks_[kLanes];
  bool overflowed_ = false;
};

bool Equal(const PendingCalls& one, const PendingCalls& other) {
  return one.calls == other.calls && one.launch_number == other.launch_number &&
         one.group == other.group;
}

// Returns the calls without a reported operation. Empty if a call or launch was made meanwhile, or
// if the number is not known.
std::optional<Counts> Unexplained(Instruments& instruments, const Communicator& communicator,
                                  const LaunchFollower& launches) {
  const PendingCalls pending = launches.pending();
  // While NCCL makes a launch, maybe for long (the driver's queue is full), or reports its
  // operations, the operations of the launched calls may still come.
  const bool is_inside = launches.is_launching() || communicator.awaited_ends.is_open();
  const uint32_t standing =
      is_inside ? std::max(pending.calls, launches.unreported().CallsOfGroup(pending))
                : pending.calls;
  Counts counts;
  for (uint32_t row = 0; row < kOperationRows; ++row) {
    counts.of[row] = -static_cast<int64_t>(launches.followed_calls(row));
    if (communicator.is_live()) counts.of[row] -= standing;
  }
  const LaneSums lanes(instruments.segment, *communicator.record);
  if (lanes.overflowed()) return std::nullopt;
  // Reads calls first: the operation of a call made meanwhile may be counted, so the difference can
  // only be too small.
  lanes.Add(
      1,
      [](uint64_t key) {
        return SeriesKey::Kind(key) == SeriesKind::kCalls && !SeriesKey::IsCaptured(key);
      },
      &counts);
  lanes.Add(
      -1,
      [](uint64_t key) {
        return SeriesKey::Kind(key) == SeriesKind::kAlgorithm ||
               (SeriesKey::Kind(key) == SeriesKind::kUntimed &&
                SeriesKey::UntimedReasonOf(key) ==
                    static_cast<uint32_t>(UntimedReason::kUnreported));
      },
      &counts);
  if (!Equal(pending, launches.pending())) return std::nullopt;
  return counts;
}

}  // namespace

void UnreportedOperations::Look(Instruments& instruments, const Communicator& communicator) {
  const CommunicatorParts* parts = communicator.parts.load();  // this object is part of them
  const bool left_a_call = !communicator.is_live() && parts->launches.pending().calls != 0;
  if (!parts->launches.may_hide() && !left_a_call) return;
  // Read before the numbers: the lane is claimed for this generation, so numbers of another
  // communicator in this place are never counted.
  const uint32_t record_generation = communicator.record_generation.acquire();
  if (record_generation_ != record_generation) {
    *this = {};
    record_generation_ = record_generation;
  }
  if (communicator.record->captured.load() != 0) return;
  const std::optional<Counts> counts = Unexplained(instruments, communicator, parts->launches);
  if (!counts) return;
  for (uint32_t row = 0; row < kRows; ++row) {
    const int64_t unexplained = IsMadeOfOthers(row) ? 0 : counts->of[row];
    const auto now = static_cast<uint16_t>(std::clamp<int64_t>(unexplained, 0, UINT16_MAX));
    least_[row] = looks_ == 0 ? now : std::min(least_[row], now);
  }
  if (++looks_ < kLooks) return;
  looks_ = 0;
  if (std::all_of(least_, least_ + kRows, [](uint16_t least) { return least == 0; })) return;
  LaneWriter lane(instruments.segment, *communicator.record, record_generation,
                  LaneRole::kBackground);
  if (!lane.ok()) return;
  for (uint32_t row = 0; row < kRows; ++row) {
    if (least_[row] == 0) continue;
    lane.Count(SeriesKey::Untimed(row + kFirstNcclName, UntimedReason::kUnreported), least_[row],
               0);
  }
}

}  // namespace nccl_pulse

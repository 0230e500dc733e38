// Tracker, the part that takes back what finalized communicators hold: their place, their series.
//
// They are kept for ten minutes, so that whoever scrapes sees their last numbers, but not at the
// expense of live ones: when fewer series are left than a further communicator may want, or no
// place, the one that was finalized longest ago gives way. What it had called goes on in the
// process' sums (RecordWriter::Recycle).
#include <algorithm>

#include "plugin/tracker/tracker.h"

namespace nccl_pulse {
namespace {

// A finalized communicator's numbers stay readable for this long, unless its place or its series
// are needed.
constexpr int64_t kKeepFinalizedNs = 600LL * 1000000000LL;

// Series that are to be free for communicators that are made, and kinds that are called, until the
// background thread looks again.
uint64_t RoomFor(uint64_t series_limit) {
  return std::min<uint64_t>(kSeriesPerCommunicator, series_limit / 4);
}

}  // namespace

bool Tracker::WantsRoom() const {
  SegmentHeader& header = segment_.header();
  const uint64_t limit = header.series_limit;
  // Relaxed: a budget; who comes a little later finds it in the next round.
  return finalized_.load(std::memory_order_relaxed) != 0 &&
         header.series_used.load(std::memory_order_relaxed) + RoomFor(limit) +
                 PlacesForOverflow(limit) >
             limit;
}

void Tracker::MakeRoom() {
  while (WantsRoom()) {
    Communicator* oldest = OldestFinalized();
    if (oldest == nullptr) return;
    Recycle(*oldest);  // one that can not be is passed over for a while
  }
}

// Whether the next communicator gets all that there is: its heartbeat needs the last one's timer.
bool Tracker::IsReadyForNext(const Communicator& communicator) const {
  // Acquire: as in StreamTimer::Attach.
  return communicator.launching == nullptr ||
         communicator.launching->timer.state.load(std::memory_order_acquire) ==
             CommunicatorTimer::kOff;
}

Communicator* Tracker::OldestFinalized() {
  Communicator* oldest = nullptr;
  int64_t oldest_ns = INT64_MAX;
  const uint64_t now_ns = clock_.NowNs();
  const uint32_t present = segment_.header().records_present.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < present; ++i) {
    // Relaxed: whoever holds the lock changes states, nobody else.
    const CommunicatorRecord& record = *slots_[i].record;
    if (record.state.load(std::memory_order_relaxed) !=
        static_cast<uint32_t>(CommunicatorState::kFinalized)) {
      continue;
    }
    const int64_t finalized_ns = record.finalized_monotonic_ns.load(std::memory_order_relaxed);
    if (finalized_ns >= oldest_ns || now_ns < slots_[i].recycle_after_ns) continue;
    oldest_ns = finalized_ns;
    oldest = &slots_[i];
  }
  return oldest;
}

// A record that is free, and ready for what comes; else one that was never used; else one that is
// not ready: a communicator without a heartbeat is better than none; else the oldest finalized.
int Tracker::FindRecordToUse() {
  RecycleExpired();
  int not_ready = -1;
  // Records from there on may lie where the kernel refused memory: not even reading is safe.
  const uint32_t present = segment_.header().records_present.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < present; ++i) {
    // Relaxed: as in OldestFinalized.
    if (slots_[i].record->state.load(std::memory_order_relaxed) !=
        static_cast<uint32_t>(CommunicatorState::kFree)) {
      continue;
    }
    if (IsReadyForNext(slots_[i])) return static_cast<int>(i);
    if (not_ready < 0) not_ready = static_cast<int>(i);
  }
  if (present < kMaxCommunicators && segment_.PopulateRecord(present)) {
    return static_cast<int>(present);
  }
  if (not_ready >= 0) return not_ready;
  while (Communicator* oldest = OldestFinalized()) {
    if (Recycle(*oldest)) return static_cast<int>(oldest->index);
  }
  return -1;
}

void Tracker::RecycleExpired() {
  const auto now_ns = static_cast<int64_t>(clock_.NowNs());
  while (Communicator* oldest = OldestFinalized()) {
    const int64_t finalized_ns =
        oldest->record->finalized_monotonic_ns.load(std::memory_order_relaxed);
    if (now_ns - finalized_ns <= kKeepFinalizedNs) return;
    Recycle(*oldest);  // one that can not be is passed over for a while
  }
}

bool Tracker::Recycle(Communicator& communicator) {
  // From then on no lane can be claimed for the old owner: its generation is not the record's.
  if (!WriterOf(communicator).Recycle()) {
    constexpr uint64_t kPauseNs = 1000000000;  // whoever holds a lane was taken off the processor
    communicator.recycle_after_ns = clock_.NowNs() + kPauseNs;
    return false;
  }
  finalized_.fetch_sub(1, std::memory_order_relaxed);  // a hint, see WantsRoom
  // An operation that began while its communicator ended was settled by nobody, and must not be by
  // the next one. Relaxed: whoever holds no lane claims no place.
  for (uint32_t i = 0; communicator.operations != nullptr && i < kOperationSlots; ++i) {
    communicator.operations[i].word.fetch_and(~SlotWord::kOpen, std::memory_order_relaxed);
  }
  return true;
}

}  // namespace nccl_pulse

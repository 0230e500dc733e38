// CommunicatorTable, the part that recycles the places and series of finalized communicators.
#include <algorithm>

#include "plugin/tracker/communicator_table.h"

namespace nccl_pulse {
namespace {

// A finalized communicator's numbers stay readable for this long, unless its place or its series
// are needed earlier.
constexpr int64_t kKeepFinalizedNs = 600LL * 1000000000LL;

// Returns the number of series that should be free for new communicators and kinds of calls until
// the background thread's next round.
uint64_t RoomFor(uint64_t series_limit) {
  return std::min<uint64_t>(kSeriesPerCommunicator, series_limit / 4);
}

}  // namespace

bool CommunicatorTable::WantsRoom() const {
  const SegmentHeader& header = instruments_.segment.header();
  const uint64_t limit = header.series_limit;
  // Relaxed: a budget. A communicator that is finalized just now is found in the next round.
  return finalized_.load() != 0 &&
         header.series_used.load() + RoomFor(limit) + SeriesForOverflow(limit) > limit;
}

void CommunicatorTable::MakeRoom() {
  while (WantsRoom()) {
    Communicator* oldest = OldestFinalized();
    if (oldest == nullptr) return;
    Recycle(*oldest);  // if it cannot be recycled, it is passed over for a while
  }
}

// Takes the rings of last calls from finalized communicators until a new one has room for its own.
void CommunicatorTable::MakeRoomForLastCalls() {
  while (!RecordWriter::HasRoomForLastCalls(instruments_.segment)) {
    Communicator* oldest = OldestFinalized(/*with_last_calls=*/true);
    if (oldest == nullptr) return;
    oldest->Writer(instruments_.segment).GiveUpLastCalls();
  }
}

// True if the next communicator of this place can have a heartbeat, that is, CUDA events behind its
// launches: the previous one's timer must have been given back.
bool CommunicatorTable::IsReadyForNext(const Communicator& communicator) {
  const CommunicatorParts* parts = communicator.parts.load();  // made under the lock
  return parts == nullptr || parts->launches.is_ready();
}

Communicator* CommunicatorTable::OldestFinalized(bool with_last_calls) {
  Communicator* oldest = nullptr;
  int64_t oldest_ns = INT64_MAX;
  const uint64_t now_ns = instruments_.clock.NowNs();
  const uint32_t present = instruments_.segment.header().records_present.load();
  for (uint32_t i = 0; i < present; ++i) {
    // Only the holder of the lock changes states.
    const CommunicatorRecord& record = *slots_[i].record;
    if (record.life.state() != CommunicatorState::kFinalized) continue;
    if (with_last_calls && record.last_call_chunks.chunk(0) == kNoChunk) continue;
    const int64_t finalized_ns = record.finalized_monotonic_ns.load();
    if (finalized_ns >= oldest_ns || now_ns < slots_[i].recycle_after_ns) continue;
    oldest_ns = finalized_ns;
    oldest = &slots_[i];
  }
  return oldest;
}

// Returns a record's index, in order of preference: a free record that is ready for a new
// communicator, a record that was never used, a free record that is not ready (a communicator
// without a heartbeat is better than none), the oldest finalized record.
int CommunicatorTable::FindRecordToUse() {
  RecycleExpired();
  int not_ready = -1;
  // Beyond these, the kernel may have refused the records' memory: not even reading it is safe.
  const uint32_t present = instruments_.segment.header().records_present.load();
  for (uint32_t i = 0; i < present; ++i) {
    if (slots_[i].record->life.state() != CommunicatorState::kFree) continue;
    if (IsReadyForNext(slots_[i])) return static_cast<int>(i);
    if (not_ready < 0) not_ready = static_cast<int>(i);
  }
  if (present < kMaxCommunicators && instruments_.segment.PopulateRecord(present)) {
    return static_cast<int>(present);
  }
  if (not_ready >= 0) return not_ready;
  while (Communicator* oldest = OldestFinalized()) {
    if (Recycle(*oldest)) return static_cast<int>(oldest->index);
  }
  return -1;
}

void CommunicatorTable::RecycleExpired() {
  const auto now_ns = static_cast<int64_t>(instruments_.clock.NowNs());
  while (Communicator* oldest = OldestFinalized()) {
    const int64_t finalized_ns = oldest->record->finalized_monotonic_ns.load();
    if (now_ns - finalized_ns <= kKeepFinalizedNs) return;
    Recycle(*oldest);  // if it cannot be recycled, it is passed over for a while
  }
}

bool CommunicatorTable::Recycle(Communicator& communicator) {
  // Its context is closed, so no visit begins any more. Once the record is recycled, it has another
  // generation, so no lane can be claimed for the old owner.
  const CommunicatorParts* const parts = communicator.parts.load();
  const bool is_left = parts == nullptr || (parts->calling.IsOver() && parts->launching.IsOver() &&
                                            parts->reporting.IsOver());
  if (!is_left || !communicator.Writer(instruments_.segment).Recycle()) {
    constexpr uint64_t kPauseNs =
        1000000000;  // a visitor, or a lane's holder, was taken off the CPU
    communicator.recycle_after_ns = instruments_.clock.NowNs() + kPauseNs;
    return false;
  }
  finalized_.fetch_sub(1);  // a hint, see WantsRoom
  if (parts != nullptr) communicator.parts.load()->ring.Abandon();
  return true;
}

}  // namespace nccl_pulse

#include "plugin/cuda/graph_stamps.h"

#include <sys/mman.h>

#include <algorithm>

namespace nccl_pulse {
namespace {

// CUDA says that a graph is gone when its last replay has ended. The last of its counts have
// arrived after this.
constexpr uint64_t kDestroyedNs = 100000000;

// A number with one writer. Relaxed: published by whoever needs it.
template <typename Number>
void Add(std::atomic<Number>& cell, Number amount) {
  cell.store(cell.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

void Count(std::atomic<uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

std::unique_ptr<GraphStamps> GraphStamps::Make(const CudaDriver& driver,
                                               const StampDriver& stamps) {
  // Populated now: a callback must not fault. Zeroes are the initial state.
  void* memory = mmap(nullptr, sizeof(Tables), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  return std::unique_ptr<GraphStamps>(
      new GraphStamps(driver, stamps, static_cast<Tables*>(memory)));
}

GraphStamps::~GraphStamps() = default;

bool GraphStamps::PrepareContext() {
  CudaContext context = nullptr;
  uint64_t id = 0;
  // Without an id (drivers before CUDA 12.0) a context that was reset would be taken for the same:
  // its code would be launched after it has gone.
  if (driver_.context_get_current(&context) != kCudaSuccess || context == nullptr ||
      driver_.context_get_id(context, &id) != kCudaSuccess || id == 0) {
    return false;
  }
  const uint32_t count = context_count_.load(std::memory_order_relaxed);  // this side's own
  for (uint32_t i = 0; i < count; ++i) {
    if (contexts_[i].Is(context, id)) return contexts_[i].is_ready();
  }
  if (count == kMostContexts) return false;
  // Loading code is nothing that another thread's capture in global mode allows.
  int mode = kCudaCaptureModeRelaxed;
  const bool relaxed = driver_.exchange_capture_mode(&mode) == kCudaSuccess;
  const bool ready = relaxed && contexts_[count].Prepare(stamps_, context, id);
  if (relaxed) driver_.exchange_capture_mode(&mode);
  context_count_.store(count + 1, std::memory_order_release);  // publishes the context
  return ready;
}

// ---- callbacks ----------------------------------------------------------------------------------

GraphStamps::Capture* GraphStamps::FindCapture(CudaStream stream, CudaGraph* graph) {
  int status = kCudaNotCapturing;
  uint64_t id = 0;
  if (stamps_.capture_info(stream, &status, &id, graph, nullptr, nullptr) != kCudaSuccess ||
      status != kCudaCaptureActive || id == 0 || id == Capture::kBusy) {
    return nullptr;
  }
  auto& set = tables_->captures[SetOf(id)];
  // Relaxed: an order in time that need not be exact.
  const uint64_t touch = touches_.fetch_add(1, std::memory_order_relaxed) + 1;
  for (Capture& capture : set) {
    // Acquire: sees the capture as it was opened.
    if (capture.id.load(std::memory_order_acquire) != id) continue;
    capture.touched.store(touch, std::memory_order_relaxed);
    return &capture;
  }
  // Whoever is in the way has just opened a capture of its own here: there is another place.
  for (uint32_t attempt = 0; attempt < 2 * kWays; ++attempt) {
    if (Capture* const capture = TryOpen(set, id, touch)) return capture;
  }
  return nullptr;
}

// Null: another thread was faster.
GraphStamps::Capture* GraphStamps::TryOpen(Capture (&set)[kWays], uint64_t id, uint64_t touch) {
  // The one that was used last longest ago gives way: it has ended, or more than a hundred others
  // were begun while it did nothing.
  Capture* oldest = nullptr;
  uint64_t oldest_id = Capture::kBusy;
  uint64_t oldest_touch = 0;
  for (Capture& capture : set) {
    // Acquire: before the touch. One that is opened meanwhile has another id by the swap, and is
    // not taken for the old one that its touch was read of.
    const uint64_t found = capture.id.load(std::memory_order_acquire);
    const uint64_t touched = capture.touched.load(std::memory_order_relaxed);
    if (found == Capture::kBusy || (oldest != nullptr && touched >= oldest_touch)) continue;
    oldest = &capture;
    oldest_id = found;
    oldest_touch = touched;
  }
  // Acquire: what its last owner wrote comes before the fields below.
  if (oldest == nullptr ||
      !oldest->id.compare_exchange_strong(oldest_id, Capture::kBusy, std::memory_order_acquire)) {
    return nullptr;
  }
  // Relaxed: published by the id.
  oldest->touched.store(touch, std::memory_order_relaxed);
  oldest->launches.store(0, std::memory_order_relaxed);
  oldest->record.store(0, std::memory_order_relaxed);
  oldest->has_stamp.store(false, std::memory_order_relaxed);
  oldest->is_truncated.store(false, std::memory_order_relaxed);
  oldest->awaits_end.store(false, std::memory_order_relaxed);
  for (CapturedCalls& calls : oldest->calls) calls.kind.store(0, std::memory_order_relaxed);
  oldest->id.store(id, std::memory_order_release);
  Count(seen_);
  return oldest;
}

bool GraphStamps::AddCall(CapturedCalls (&table)[kMostKinds], uint32_t kind, uint32_t owner,
                          uint64_t calls, uint64_t bytes) {
  for (CapturedCalls& entry : table) {
    // Relaxed throughout: this side's own, until the record is published or replayed.
    const uint32_t found = entry.kind.load(std::memory_order_relaxed);
    if (found == 0) {
      entry.owner.store(owner, std::memory_order_relaxed);
      entry.calls.store(calls, std::memory_order_relaxed);
      entry.bytes.store(bytes, std::memory_order_relaxed);
      entry.kind.store(kind, std::memory_order_release);  // publishes the entry
      return true;
    }
    if (found == kind && entry.owner.load(std::memory_order_relaxed) == owner) {
      Add(entry.calls, calls);
      Add(entry.bytes, bytes);
      return true;
    }
  }
  return false;
}

void GraphStamps::NoteCall(CudaStream stream, uint32_t kind, uint32_t owner, uint64_t bytes) {
  CudaGraph graph = nullptr;
  Capture* const capture = FindCapture(stream, &graph);
  if (capture == nullptr) return;
  const uint32_t record = capture->record.load(std::memory_order_relaxed);  // this side's own
  auto& table = record != 0 ? tables_->records[record - 1].calls : capture->calls;
  if (AddCall(table, kind, owner, 1, bytes)) return;
  const bool was_truncated = capture->is_truncated.exchange(true, std::memory_order_relaxed);
  if (record != 0 && !was_truncated) Count(incomplete_);
}

bool GraphStamps::NoteLaunch(CudaStream stream, const Launch& launch) {
  CudaGraph graph = nullptr;
  Capture* const capture = FindCapture(stream, &graph);
  if (capture == nullptr) return false;
  // Relaxed: this side's own.
  const uint32_t before = capture->launches.load(std::memory_order_relaxed);
  capture->launches.store(before + 1, std::memory_order_relaxed);
  const StampsDue due = StampsDueAt(before);
  const bool is_pair = due == StampsDue::kPair;
  capture->awaits_end.store(is_pair, std::memory_order_relaxed);
  const bool is_read = due != StampsDue::kNone && AddStamp(*capture, stream, graph, {});
  if (is_pair) capture->launch = is_read ? launch : Launch{};  // without a begin, no time
  return is_pair;
}

void GraphStamps::NoteLaunchEnd(CudaStream stream) {
  CudaGraph graph = nullptr;
  Capture* const capture = FindCapture(stream, &graph);
  if (capture == nullptr) return;
  // Relaxed: this side's own.
  if (!capture->awaits_end.exchange(false, std::memory_order_relaxed)) return;
  AddStamp(*capture, stream, graph, capture->launch);
}

StampContext* GraphStamps::CurrentContext() {
  CudaContext context = nullptr;
  uint64_t id = 0;
  if (driver_.context_get_current(&context) != kCudaSuccess || context == nullptr ||
      driver_.context_get_id(context, &id) != kCudaSuccess) {
    return nullptr;
  }
  const uint32_t count = context_count_.load(std::memory_order_acquire);  // sees them
  for (uint32_t i = 0; i < count; ++i) {
    if (contexts_[i].Is(context, id)) return contexts_[i].is_ready() ? &contexts_[i] : nullptr;
  }
  return nullptr;
}

bool GraphStamps::AddStamp(Capture& capture, CudaStream stream, CudaGraph graph,
                           const Launch& behind) {
  if (is_off_.load(std::memory_order_relaxed)) return false;  // a flag
  StampContext* const context = CurrentContext();
  if (context == nullptr) return false;
  // Relaxed: this side's own.
  const uint32_t known = capture.record.load(std::memory_order_relaxed);
  const bool is_first = !capture.has_stamp.exchange(true, std::memory_order_relaxed);
  Record* record = known != 0 ? &tables_->records[known - 1] : nullptr;
  if (is_first) record = TakeRecord(capture, graph, *context);
  uint32_t place = StampContext::kUnreadPlace;
  uint32_t number = 0;
  if (record != nullptr) {
    number = record->stamps.load(std::memory_order_relaxed);
    if (number < kMostStamps && record->context == context) place = context->TakePlace();
  }
  if (is_first) Count(place != StampContext::kUnreadPlace ? followed_ : no_room_);
  const int result = context->Launch(stamps_, stream, place);
  if (result != kCudaSuccess) {
    context->GiveBack(place);
    // Somebody has ended the capture meanwhile; else other captures would meet the same.
    if (result >= kCudaFirstCaptureError && result <= kCudaLastCaptureError) return false;
    is_off_.store(true, std::memory_order_relaxed);
    Count(refused_);
    return false;
  }
  if (place == StampContext::kUnreadPlace) return false;
  record->stamp[number] = {place, context->Read(place).count, behind, 0, 0};
  record->stamps.store(number + 1, std::memory_order_release);  // publishes the stamp
  return true;
}

// With the capture's calls so far. Null: there is none left, or the graph's end would not be known.
GraphStamps::Record* GraphStamps::TakeRecord(Capture& capture, CudaGraph graph,
                                             StampContext& context) {
  for (Record& record : tables_->records) {
    uint32_t expected = Record::kFree;
    // Acquire: sees the record as the background thread left it.
    if (record.state.load(std::memory_order_relaxed) != Record::kFree ||
        !record.state.compare_exchange_strong(expected, Record::kFilling,
                                              std::memory_order_acquire)) {
      continue;
    }
    record.is_destroyed.store(false, std::memory_order_relaxed);
    record.context = &context;
    record.stamps.store(0, std::memory_order_relaxed);
    record.moved_ns = 0;
    record.destroyed_ns = 0;
    for (uint32_t i = 0; i < kMostKinds; ++i) {
      const CapturedCalls& from = capture.calls[i];
      CapturedCalls& to = record.calls[i];
      to.owner.store(from.owner.load(std::memory_order_relaxed), std::memory_order_relaxed);
      to.calls.store(from.calls.load(std::memory_order_relaxed), std::memory_order_relaxed);
      to.bytes.store(from.bytes.load(std::memory_order_relaxed), std::memory_order_relaxed);
      to.counted = 0;
      to.kind.store(from.kind.load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    if (!RetainBy(graph, record)) return nullptr;
    if (capture.is_truncated.load(std::memory_order_relaxed)) Count(incomplete_);
    record.state.store(Record::kUsed, std::memory_order_release);  // publishes it
    capture.record.store(static_cast<uint32_t>(&record - tables_->records) + 1,
                         std::memory_order_relaxed);  // this side's own
    return &record;
  }
  return nullptr;
}

// Else the record is given back, or will be by the background thread.
bool GraphStamps::RetainBy(CudaGraph graph, Record& record) {
  CudaUserObject object = nullptr;
  const auto destroyed = [](void* argument) {
    // On a thread of CUDA's, where no call of CUDA may be made. Release: nothing of the record.
    static_cast<Record*>(argument)->is_destroyed.store(true, std::memory_order_release);
  };
  if (stamps_.user_object_create(&object, &record, destroyed, 1, kCudaNoDestructorSync) !=
      kCudaSuccess) {
    record.state.store(Record::kFree, std::memory_order_release);
    return false;
  }
  if (stamps_.graph_retain_user_object(graph, object, 1, kCudaMoveReference) == kCudaSuccess) {
    return true;
  }
  // The object's end, which CUDA says later, must not be taken for that of the record's next owner:
  // until then it is a record without calls.
  record.calls[0].kind.store(0, std::memory_order_relaxed);
  record.state.store(Record::kUsed, std::memory_order_release);
  stamps_.user_object_release(object, 1);
  return false;
}

// ---- background thread --------------------------------------------------------------------------

GraphStamps::Captures GraphStamps::captures() const {
  // Relaxed: each stands alone.
  return {seen_.load(std::memory_order_relaxed), followed_.load(std::memory_order_relaxed),
          no_room_.load(std::memory_order_relaxed), incomplete_.load(std::memory_order_relaxed),
          refused_.load(std::memory_order_relaxed)};
}

GraphStamps::Standing GraphStamps::Look(Record& record, uint64_t now_ns) {
  const uint32_t stamps = record.stamps.load(std::memory_order_acquire);  // sees them
  Standing standing{stamps, 0, 0, false};
  // The last one first: a replay that goes on meanwhile is in flight rather than ahead of itself.
  for (uint32_t i = stamps; i-- > 0;) {
    Record::Stamp& stamp = record.stamp[i];
    const uint64_t passages = record.context->Read(stamp.place).count - stamp.base;
    // Less than before: see stamp_code.h.
    if (passages > stamp.seen && static_cast<int64_t>(passages) > 0) {
      stamp.seen = passages;
      standing.moved = true;
    }
  }
  if (standing.moved) record.moved_ns = now_ns;
  if (stamps == 0) return standing;
  const uint64_t last = record.stamp[stamps - 1].seen;
  standing.replays = record.stamp[0].seen;
  standing.in_flight = standing.replays > last ? standing.replays - last : 0;
  return standing;
}

uint64_t GraphStamps::NewDuration(Record& record, uint32_t number) {
  Record::Stamp& end = record.stamp[number];
  const Record::Stamp& begin = record.stamp[number - 1];
  if (end.launch.kind == 0) return 0;
  const StampContext::Passages last = record.context->Read(end.place);
  const StampContext::Passages first = record.context->Read(begin.place);
  // Of the same passage, and that was the last one while both were read: else the next replay is
  // between the two, and has overwritten the begin.
  const uint64_t passages = last.count - end.base;
  if (last.gpu_ns == 0 || first.gpu_ns == 0 || first.count - begin.base != passages ||
      passages == end.timed || record.context->Read(end.place).count != last.count ||
      last.gpu_ns <= first.gpu_ns) {
    return 0;
  }
  end.timed = passages;
  return last.gpu_ns - first.gpu_ns;
}

bool GraphStamps::IsOver(Record& record, uint64_t now_ns) {
  // Acquire: as the state's.
  if (!record.is_destroyed.load(std::memory_order_acquire)) return false;
  if (record.destroyed_ns == 0) record.destroyed_ns = std::max<uint64_t>(now_ns, 1);
  return now_ns >= record.destroyed_ns + kDestroyedNs;
}

void GraphStamps::Free(Record& record) {
  const uint32_t stamps = record.stamps.load(std::memory_order_relaxed);  // seen by Look
  for (uint32_t i = 0; i < stamps; ++i) record.context->GiveBack(record.stamp[i].place);
  record.state.store(Record::kFree, std::memory_order_release);  // hands it to the next capture
}

}  // namespace nccl_pulse

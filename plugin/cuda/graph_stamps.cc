#include "plugin/cuda/graph_stamps.h"

#include <sys/mman.h>

#include <algorithm>

namespace nccl_pulse {
namespace {

// CUDA says that a graph is gone when its last replay has ended. After this time the last of its
// counts have arrived.
constexpr uint64_t kDestroyedNs = 100000000;

// A number with one writer. Relaxed: something else publishes it.
template <typename Number>
void Add(std::atomic<Number>& cell, Number amount) {
  cell.store(cell.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

void Count(std::atomic<uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

std::unique_ptr<GraphStamps> GraphStamps::Make(const CudaDriver& driver,
                                               const StampDriver& stamps) {
  // Populated now, because a callback must not fault. Zeroes are the initial state.
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
  // Without an id (drivers before CUDA 12.0) a context that was reset would be taken for the same
  // one, and its code would be launched after it is gone.
  if (driver_.context_get_current(&context) != kCudaSuccess || context == nullptr ||
      driver_.context_get_id(context, &id) != kCudaSuccess || id == 0) {
    return false;
  }
  const uint32_t count = context_count_.load(std::memory_order_relaxed);  // only we write it
  for (uint32_t i = 0; i < count; ++i) {
    if (contexts_[i].Is(context, id)) return contexts_[i].is_ready();
  }
  if (count == kMostContexts) return false;
  // Another thread's capture in global mode does not allow loading code.
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
  // Relaxed: the order in time need not be exact.
  const uint64_t touch = touches_.fetch_add(1, std::memory_order_relaxed) + 1;
  for (Capture& capture : set) {
    // Acquire: sees the capture as it was opened.
    if (capture.id.load(std::memory_order_acquire) != id) continue;
    capture.touched.store(touch, std::memory_order_relaxed);
    return &capture;
  }
  // Another thread has just opened its own capture in this place; there are other places.
  for (uint32_t attempt = 0; attempt < 2 * kWays; ++attempt) {
    if (Capture* const capture = TryOpen(set, id, touch)) return capture;
  }
  return nullptr;
}

// Null if another thread was faster.
GraphStamps::Capture* GraphStamps::TryOpen(Capture (&set)[kWays], uint64_t id, uint64_t touch) {
  // The least recently used capture gives way: it has ended, or more than a hundred others have
  // begun since it was used.
  Capture* oldest = nullptr;
  uint64_t oldest_id = Capture::kBusy;
  uint64_t oldest_touch = 0;
  for (Capture& capture : set) {
    // Acquire: the id is read before the touch. If another capture is opened here meanwhile, the
    // swap below finds another id and fails.
    const uint64_t found = capture.id.load(std::memory_order_acquire);
    const uint64_t touched = capture.touched.load(std::memory_order_relaxed);
    if (found == Capture::kBusy || (oldest != nullptr && touched >= oldest_touch)) continue;
    oldest = &capture;
    oldest_id = found;
    oldest_touch = touched;
  }
  // Acquire: what the last owner wrote comes before the fields below.
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
    // Relaxed throughout: only this thread uses it until the record is published or replayed.
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
  const uint32_t record = capture->record.load(std::memory_order_relaxed);  // only we write it
  auto& table = record != 0 ? tables_->records[record - 1].calls : capture->calls;
  if (AddCall(table, kind, owner, 1, bytes)) return;
  const bool was_truncated = capture->is_truncated.exchange(true, std::memory_order_relaxed);
  if (record != 0 && !was_truncated) Count(incomplete_);
}

bool GraphStamps::NoteLaunch(CudaStream stream, const Launch& launch) {
  CudaGraph graph = nullptr;
  Capture* const capture = FindCapture(stream, &graph);
  if (capture == nullptr) return false;
  // Relaxed: only this thread writes it.
  const uint32_t before = capture->launches.load(std::memory_order_relaxed);
  capture->launches.store(before + 1, std::memory_order_relaxed);
  const StampsDue due = StampsDueAt(before);
  const bool is_pair = due == StampsDue::kPair;
  capture->awaits_end.store(is_pair, std::memory_order_relaxed);
  const bool is_read = due != StampsDue::kNone && AddStamp(*capture, stream, graph, {});
  if (is_pair) capture->launch = is_read ? launch : Launch{};  // without a begin there is no time
  return is_pair;
}

void GraphStamps::NoteLaunchEnd(CudaStream stream) {
  CudaGraph graph = nullptr;
  Capture* const capture = FindCapture(stream, &graph);
  if (capture == nullptr) return;
  // Relaxed: only this thread writes it.
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
  const uint32_t count = context_count_.load(std::memory_order_acquire);  // sees the contexts
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
  // Relaxed: only this thread writes it.
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
    // Another thread has ended the capture meanwhile. Any other error would hit other captures,
    // too.
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

// Returns a record with the capture's calls so far. Null if none is left, or if CUDA would not tell
// when the graph ends.
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
    record.state.store(Record::kUsed, std::memory_order_release);  // publishes the record
    capture.record.store(static_cast<uint32_t>(&record - tables_->records) + 1,
                         std::memory_order_relaxed);  // only this thread writes it
    return &record;
  }
  return nullptr;
}

// False: the record is given back, or the background thread will do so.
bool GraphStamps::RetainBy(CudaGraph graph, Record& record) {
  CudaUserObject object = nullptr;
  const auto destroyed = [](void* argument) {
    // Runs on a thread of CUDA's, which may not call CUDA. Release: it touches nothing else of the
    // record.
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
  // CUDA reports the object's end later, and that must not be taken for the end of the record's
  // next owner. Until then this is a record without calls.
  record.calls[0].kind.store(0, std::memory_order_relaxed);
  record.state.store(Record::kUsed, std::memory_order_release);
  stamps_.user_object_release(object, 1);
  return false;
}

// ---- background thread --------------------------------------------------------------------------

GraphStamps::Captures GraphStamps::captures() const {
  // Relaxed: each number stands alone.
  return {seen_.load(std::memory_order_relaxed), followed_.load(std::memory_order_relaxed),
          no_room_.load(std::memory_order_relaxed), incomplete_.load(std::memory_order_relaxed),
          refused_.load(std::memory_order_relaxed)};
}

GraphStamps::Standing GraphStamps::Look(Record& record, uint64_t now_ns) {
  const uint32_t stamps = record.stamps.load(std::memory_order_acquire);  // sees the stamps
  Standing standing{stamps, 0, 0, false};
  // The last one first: a replay that goes on meanwhile then counts as in flight, and never has
  // more ends than begins.
  for (uint32_t i = stamps; i-- > 0;) {
    Record::Stamp& stamp = record.stamp[i];
    const uint64_t passages = record.context->Read(stamp.place).count - stamp.base;
    // A count may go back, see stamp_code.h.
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
  // Both must be of the same passage, which must still be the last one after both were read.
  // Otherwise the next replay is between the two and has overwritten the begin.
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
  // Acquire: as for the state.
  if (!record.is_destroyed.load(std::memory_order_acquire)) return false;
  if (record.destroyed_ns == 0) record.destroyed_ns = std::max<uint64_t>(now_ns, 1);
  return now_ns >= record.destroyed_ns + kDestroyedNs;
}

void GraphStamps::Free(Record& record) {
  const uint32_t stamps = record.stamps.load(std::memory_order_relaxed);  // Look has seen them
  for (uint32_t i = 0; i < stamps; ++i) record.context->GiveBack(record.stamp[i].place);
  record.state.store(Record::kFree, std::memory_order_release);  // hands it to the next capture
}

}  // namespace nccl_pulse

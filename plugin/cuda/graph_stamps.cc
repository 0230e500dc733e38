#include "plugin/cuda/graph_stamps.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace nccl_pulse {
namespace {

// Adds to a number with one writer. Relaxed: something else publishes it.
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

bool GraphStamps::PrepareContext() {
  CudaContext context = nullptr;
  uint64_t id = 0;
  // Without an ID (drivers before CUDA 12.0), a context that was reset would look like the old one,
  // and code that is gone would be launched.
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
  // Another thread has just opened its own capture in this slot; there are other slots.
  for (uint32_t attempt = 0; attempt < 2 * kWays; ++attempt) {
    if (Capture* const capture = TryOpen(set, id, touch)) return capture;
  }
  return nullptr;
}

// Opens a capture in `set`, in place of the least recently used one. Returns null if another thread
// took the slot first.
GraphStamps::Capture* GraphStamps::TryOpen(Capture (&set)[kWays], uint64_t id, uint64_t touch) {
  // The least recently used capture has ended, unless more than kWays open captures share a set.
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
  for (CaptureMember& member : oldest->members) {
    member.communicator.store(0, std::memory_order_relaxed);
  }
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
  FindMember(*capture, CapturedCalls::Communicator(kind), owner);
  if (AddCall(table, kind, owner, 1, bytes)) return;
  const bool was_truncated = capture->is_truncated.exchange(true, std::memory_order_relaxed);
  if (record == 0 || was_truncated) return;
  Count(incomplete_);
  if (tables_->records[record - 1].stamps.load(std::memory_order_relaxed) == 0) return;
  for (const CaptureMember& member : MembersOf(*capture)) CountFollowed(member, ~uint32_t{0});
}

bool GraphStamps::NoteLaunch(CudaStream stream, const Launch& launch, uint32_t communicator,
                             uint32_t calls) {
  CudaGraph graph = nullptr;
  Capture* const capture = FindCapture(stream, &graph);
  if (capture == nullptr) return false;
  // Relaxed: only this thread writes it.
  const uint32_t before = capture->launches.load(std::memory_order_relaxed);
  capture->launches.store(before + 1, std::memory_order_relaxed);
  const StampsDue due = StampsDueAt(before);
  const bool is_pair = due == StampsDue::kPair;
  capture->awaits_end.store(is_pair, std::memory_order_relaxed);
  const Where where = due == StampsDue::kHead ? Where::kHead : Where::kHere;
  const bool is_read = due != StampsDue::kNone && AddStamp(*capture, stream, graph, where, {});
  CaptureMember* const member = FindMember(*capture, communicator, launch.owner);
  if (member != nullptr) Add(member->launched, calls);
  if (is_pair) capture->launch = is_read ? launch : Launch{};  // no duration without a begin
  return is_pair;
}

void GraphStamps::NoteLaunchEnd(CudaStream stream) {
  CudaGraph graph = nullptr;
  Capture* const capture = FindCapture(stream, &graph);
  if (capture == nullptr) return;
  // Relaxed: only this thread writes it.
  if (!capture->awaits_end.exchange(false, std::memory_order_relaxed)) return;
  AddStamp(*capture, stream, graph, Where::kHere, capture->launch);
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

int GraphStamps::Insert(const StampContext& context, CudaStream stream, CudaGraph graph,
                        uint32_t slot, Where* where) {
  if (*where == Where::kHead) {
    int error = kCudaSuccess;
    const StampContext::Head head = context.AddAtHead(stamps_, graph, slot, &error);
    if (head != StampContext::Head::kNotAdded) return error;
    *where = Where::kHere;
  }
  return context.Launch(stamps_, stream, slot);
}

bool GraphStamps::AddStamp(Capture& capture, CudaStream stream, CudaGraph graph, Where where,
                           const Launch& behind) {
  if (is_off_.load(std::memory_order_relaxed)) return false;  // a flag
  StampContext* const context = CurrentContext();
  if (context == nullptr) return false;
  // Relaxed: only this thread writes it.
  const uint32_t known = capture.record.load(std::memory_order_relaxed);
  const bool is_first = !capture.has_stamp.exchange(true, std::memory_order_relaxed);
  Record* record = known != 0 ? &tables_->records[known - 1] : nullptr;
  if (is_first) record = TakeRecord(capture, graph, *context);
  uint32_t slot = StampContext::kUnreadSlot;
  uint32_t number = 0;
  if (record != nullptr) {
    number = record->stamps.load(std::memory_order_relaxed);
    if (number < kMostStamps && record->context == context) slot = context->TakeSlot();
  }
  if (is_first) Count(slot != StampContext::kUnreadSlot ? followed_ : no_room_);
  const bool was_for_head = where == Where::kHead;
  const int result = Insert(*context, stream, graph, slot, &where);
  if (result != kCudaSuccess) {
    // A node without its edges may be there, and write to the slot.
    if (!was_for_head) context->GiveBack(slot);
    // Another thread has ended the capture meanwhile. Any other error would also hit other
    // captures.
    if (result >= kCudaFirstCaptureError && result <= kCudaLastCaptureError) return false;
    is_off_.store(true, std::memory_order_relaxed);
    Count(refused_);
    return false;
  }
  if (slot == StampContext::kUnreadSlot) return false;
  record->stamp[number] = {slot, context->Read(slot).count, behind, 0, 0};
  if (number == 0) record->has_head = where == Where::kHead;
  for (CaptureMember& member : record->members) {
    if (member.communicator.load(std::memory_order_relaxed) == 0) break;
    const uint32_t launched = member.launched.load(std::memory_order_relaxed);
    member.before[number] = static_cast<uint16_t>(
        where == Where::kHead ? 0 : std::min(launched, CaptureMember::kMostBefore));
    if (number == 0 && !capture.is_truncated.load(std::memory_order_relaxed)) {
      CountFollowed(member, 1);
    }
  }
  record->stamps.store(number + 1, std::memory_order_release);  // publishes the stamp
  return true;
}

CaptureMember (&GraphStamps::MembersOf(Capture& capture))[kMostMembers] {
  const uint32_t record = capture.record.load(std::memory_order_relaxed);  // this side's own
  return record != 0 ? tables_->records[record - 1].members : capture.members;
}

CaptureMember* GraphStamps::FindMember(Capture& capture, uint32_t communicator, uint32_t owner) {
  for (CaptureMember& member : MembersOf(capture)) {
    if (member.Is(communicator, owner)) return &member;
    if (member.communicator.load(std::memory_order_relaxed) != 0) continue;
    CommunicatorCaptures& captures = CapturesOf(communicator, owner);
    Add(captures.seen, 1u);
    member.owner.store(owner, std::memory_order_relaxed);
    member.number.store(captures.seen.load(std::memory_order_relaxed), std::memory_order_relaxed);
    member.launched.store(0, std::memory_order_relaxed);
    // All earlier stamps precede this communicator's first call.
    std::fill(std::begin(member.before), std::end(member.before), uint16_t{0});
    member.communicator.store(communicator + 1, std::memory_order_release);
    const uint32_t record = capture.record.load(std::memory_order_relaxed);
    if (record != 0 && !capture.is_truncated.load(std::memory_order_relaxed) &&
        tables_->records[record - 1].stamps.load(std::memory_order_relaxed) != 0) {
      CountFollowed(member, 1);
    }
    return &member;
  }
  Add(CapturesOf(communicator, owner).seen, 1u);
  return nullptr;
}

CommunicatorCaptures& GraphStamps::CapturesOf(uint32_t communicator, uint32_t owner) {
  CommunicatorCaptures& captures = tables_->of_communicators[communicator];
  // NCCL makes the callbacks of a communicator one after the other.
  if (captures.owner.load(std::memory_order_relaxed) != owner) {
    captures.seen.store(0, std::memory_order_relaxed);
    captures.followed.store(0, std::memory_order_relaxed);
    captures.owner.store(owner, std::memory_order_release);
  }
  return captures;
}

void GraphStamps::CountFollowed(const CaptureMember& member, uint32_t change) {
  const uint32_t communicator = member.communicator.load(std::memory_order_relaxed);
  if (communicator == 0) return;
  CommunicatorCaptures& captures = tables_->of_communicators[communicator - 1];
  if (captures.owner.load(std::memory_order_relaxed) ==
      member.owner.load(std::memory_order_relaxed)) {
    captures.followed.fetch_add(change, std::memory_order_relaxed);
  }
}

// Takes a free record and fills it with the capture's calls so far. Returns null if no record is
// free, or if CUDA would not report the end of the graph.
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
    record.has_head = false;
    record.is_passed_due = false;
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
    for (uint32_t i = 0; i < kMostMembers; ++i) record.members[i].CopyFrom(capture.members[i]);
    if (!RetainBy(graph, record)) return nullptr;
    if (capture.is_truncated.load(std::memory_order_relaxed)) Count(incomplete_);
    record.state.store(Record::kUsed, std::memory_order_release);  // publishes the record
    capture.record.store(static_cast<uint32_t>(&record - tables_->records) + 1,
                         std::memory_order_relaxed);  // only this thread writes it
    return &record;
  }
  return nullptr;
}

// Ties `record` to the life of `graph`. If it returns false, the record has been given back, or the
// background thread will do so.
bool GraphStamps::RetainBy(CudaGraph graph, Record& record) {
  CudaUserObject object = nullptr;
  const auto destroyed = [](void* argument) {
    // Runs on a thread of CUDA, which must not call CUDA. Release: the thread does not use the
    // record afterwards.
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
  // CUDA will still report the object's end. So the record is not reused until then, and has no
  // calls: its next owner would otherwise be taken for destroyed.
  record.calls[0].kind.store(0, std::memory_order_relaxed);
  record.state.store(Record::kUsed, std::memory_order_release);
  stamps_.user_object_release(object, 1);
  return false;
}

}  // namespace nccl_pulse

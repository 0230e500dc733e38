// Writes a communicator's last calls into the ring that its record has (RecordWriter::Prepare).
//
// A ring is some pages of the segment with kLastCallsPerPage entries each. The entry comes with the
// call; when its launch has been made, and with which number, is added then, by the clock that the
// launch is counted with. A launch carries the calls of the group that was called last. Calls whose
// launch NCCL does not report, and those of CUDA graphs, stay without one.
//
// A program may break the rule that one thread writes at a time: calls before API v5 come from
// NCCL's host callback thread, too, and ncclCommAbort ends a communicator beside its callbacks. An
// entry's address is therefore made of its number and a page of a ring, and such a page is never
// anything else (Segment::TakeRingPage): the worst is an entry that is wrong, or another ring's.
//
// Thread: as LastCallEntry; Begin and Close under the runtime's lock. Cost of Note: about 3 ns, of
// NoteLaunch 1 ns for each call that it carries (bench/callbacks.cc); without a ring one branch.
#ifndef METRICS_LAST_CALLS_H_
#define METRICS_LAST_CALLS_H_

#include <algorithm>
#include <cstdint>

#include "metrics/segment.h"
#include "metrics/segment_layout.h"

namespace nccl_pulse {

class LastCalls {
 public:
  // A new communicator's, which has been prepared.
  void Begin(Segment& segment, CommunicatorRecord& record) {
    Close();
    page_.store(nullptr);
    group_.store(0);
    numbers_.store(0);
    pending_.store(0);
    uint32_t pages = 0;
    while (pages < kLastCallPages && record.last_call_pages.page(pages) != kNoPage) ++pages;
    if (pages == 0) return;
    mask_.store(pages * kLastCallsPerPage - 1);  // a power of two
    record_.store(&record);
    segment_.store(&segment);
  }
  // There is nobody to write for. A callback that is running finds all else as it was.
  void Close() { segment_.store(nullptr); }

  // `call` but for its numbers and kSameGroup. `group`: tells the calls of one group from those of
  // another, 0: not known.
  void Note(LastCallFields call, uint64_t group) {
    Segment* const segment = segment_.load();
    if (__builtin_expect(segment == nullptr, 0)) return;
    constexpr uint64_t kOneCall = 1;
    constexpr uint64_t kOneCollective = uint64_t{1} << 32 | kOneCall;
    const uint64_t numbers = numbers_.load();
    const auto before = static_cast<uint32_t>(numbers);
    const bool is_of_group = group != 0 && group_.load() == group;
    if (__builtin_expect(is_of_group, 0)) call.flags |= LastCallBits::kSameGroup;
    group_.store(group);
    call.numbers =
        numbers + ((call.flags & LastCallBits::kCollective) != 0 ? kOneCollective : kOneCall);
    numbers_.store(call.numbers);
    LastCallPage* page = page_.load();
    if (__builtin_expect(before % kLastCallsPerPage == 0, 0)) {
      page = PageOf(*segment, before);
      page_.store(page);
    }
    if (__builtin_expect(page == nullptr, 0)) return;
    page->entries[before % kLastCallsPerPage].Write(call);
    // Those of an earlier group are left without a launch.
    if (__builtin_expect((call.flags & LastCallBits::kCaptured) != 0, 0)) {
      pending_.store(0);
    } else if (!is_of_group || pending_.load() == 0) {
      pending_.store(before + 1);
    }
  }
  // The launch that carries the calls of the last group. `number`: of those of the communicator.
  void NoteLaunch(uint64_t monotonic_ns, uint64_t number) {
    const uint32_t first = pending_.load();
    Segment* const segment = segment_.load();
    if (first == 0 || segment == nullptr) return;
    pending_.store(0);
    const uint64_t launch = LastCallBits::Launch(monotonic_ns, number);
    const auto calls = static_cast<uint32_t>(numbers_.load());
    if (__builtin_expect(first != calls, 0)) return NoteGroupLaunch(*segment, first, calls, launch);
    LastCallPage* const page = page_.load();
    if (page != nullptr) page->entries[(calls - 1) % kLastCallsPerPage].SetLaunch(launch);
  }

 private:
  // Of the call with that number, less one; null: the ring has been given up.
  [[gnu::cold, gnu::noinline]] LastCallPage* PageOf(Segment& segment, uint32_t index) const {
    const CommunicatorRecord* const record = record_.load();
    if (record == nullptr) return nullptr;
    const uint32_t place = index & mask_.load();
    const uint16_t page = record->last_call_pages.page(place / kLastCallsPerPage);
    return page == kNoPage ? nullptr : &segment.last_calls(page);
  }
  [[gnu::cold, gnu::noinline]] void NoteGroupLaunch(Segment& segment, uint32_t first,
                                                    uint32_t calls, uint64_t launch) const {
    const uint32_t carried = std::min(calls - first + 1, mask_.load() + 1);
    for (uint32_t i = calls - carried; i != calls; ++i) {
      LastCallPage* const page = PageOf(segment, i);
      if (page != nullptr) page->entries[i % kLastCallsPerPage].SetLaunch(launch);
    }
  }

  Relaxed<Segment*> segment_;    // null: no ring, or its communicator is closed
  Relaxed<LastCallPage*> page_;  // of the newest call, null: none yet
  Relaxed<uint64_t> group_;      // of the newest call
  Relaxed<uint64_t> numbers_;    // of the newest call, LastCallFields
  Relaxed<uint32_t> pending_;    // number of the first that waits for its launch, 0: none
  Relaxed<uint32_t> mask_;       // entries of the ring, less one
  Relaxed<CommunicatorRecord*> record_;
};
static_assert(sizeof(LastCalls) == 48);

}  // namespace nccl_pulse

#endif  // METRICS_LAST_CALLS_H_

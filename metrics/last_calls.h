// Writes a communicator's last calls into the ring that its record has (RecordWriter::Prepare).
//
// A ring is some pages of the segment with kLastCallsPerPage entries each. The entry comes with the
// call; when its launch has been made, and with which number, is added then, by the clock that the
// launch is counted with. A launch carries the calls of the group that was called last. Calls whose
// launch NCCL does not report, and those of CUDA graphs, stay without one.
//
// Thread: as LastCallEntry; Reset and Begin under the runtime's lock. Cost of Note: about 3 ns, of
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
    Clear();
    uint32_t pages = 0;
    while (pages < kLastCallPages && record.last_call_pages.page(pages) != kNoPage) ++pages;
    if (pages == 0) return;
    mask_.store(pages * kLastCallsPerPage - 1);  // a power of two
    record_.store(&record);
    segment_.store(&segment);
  }
  // There is nobody to write for.
  void Clear() {
    segment_.store(nullptr);
    newest_.store(nullptr);
    group_.store(0);
    numbers_.store(0);
    pending_.store(0);
  }

  // `call` but for its numbers and kSameGroup. `group`: tells the calls of one group from those of
  // another, 0: not known.
  void Note(LastCallFields call, uint64_t group) {
    if (__builtin_expect(segment_.load() == nullptr, 0)) return;
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
    LastCallEntry* const entry =
        __builtin_expect(before % kLastCallsPerPage != 0, 1) ? newest_.load() + 1 : At(before);
    newest_.store(entry);
    entry->Write(call);
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
    if (first == 0) return;
    pending_.store(0);
    const uint64_t launch = LastCallBits::Launch(monotonic_ns, number);
    if (__builtin_expect(first == static_cast<uint32_t>(numbers_.load()), 1))
      return newest_.load()->SetLaunch(launch);
    NoteGroupLaunch(first, launch);
  }

 private:
  // Of the call with that number, less one.
  [[gnu::cold, gnu::noinline]] LastCallEntry* At(uint32_t index) {
    const uint32_t place = index & mask_.load();
    const uint16_t page = record_.load()->last_call_pages.page(place / kLastCallsPerPage);
    return &segment_.load()->last_calls(page).entries[place % kLastCallsPerPage];
  }
  [[gnu::cold, gnu::noinline]] void NoteGroupLaunch(uint32_t first, uint64_t launch) {
    const auto calls = static_cast<uint32_t>(numbers_.load());
    const uint32_t carried = std::min(calls - first + 1, mask_.load() + 1);
    for (uint32_t i = calls - carried; i != calls; ++i) At(i)->SetLaunch(launch);
  }

  Relaxed<Segment*> segment_;       // null: no ring
  Relaxed<LastCallEntry*> newest_;  // null: no call yet
  Relaxed<uint64_t> group_;         // of the newest call
  Relaxed<uint64_t> numbers_;       // of the newest call, LastCallFields
  Relaxed<uint32_t> pending_;       // number of the first that waits for its launch, 0: none
  Relaxed<uint32_t> mask_;          // entries of the ring, less one
  Relaxed<CommunicatorRecord*> record_;
};
static_assert(sizeof(LastCalls) == 48);

}  // namespace nccl_pulse

#endif  // METRICS_LAST_CALLS_H_

// Tells which group a thread is in.
//
// NCCL reports the begin of a group on the thread that makes its calls, once for all of its
// communicators. It is the application's own, or that of one call: ncclAlltoAll makes many calls of
// Send and Recv in one. The answer is kept in a table: a thread_local takes room that a library
// which is opened late may not get. A thread has one of kPlaces places, and keeps it. If other
// threads have all of them, one loses its place (it may have ended) and gets no answer until its
// next group.
//
// Thread: any. Cost: a multiplication, one cache line that no other thread touches; if another
// thread has the first of the places, up to three lines more.
#ifndef PLUGIN_TRACKER_THREAD_GROUPS_H_
#define PLUGIN_TRACKER_THREAD_GROUPS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

class ThreadGroups {
 public:
  // A thread is known by its thread pointer.
  static uintptr_t ThisThread() { return reinterpret_cast<uintptr_t>(__builtin_thread_pointer()); }

  // A group begins on a thread. `is_one_call`: that of one call of the application.
  void Begin(bool is_one_call, uintptr_t thread = ThisThread()) {
    if (!BeginAtFirst(is_one_call, thread)) BeginIn(TakePlace(thread), is_one_call, thread);
  }
  // The same for a thread that has the first of its places, as nearly each has. False: this one has
  // not, and nothing was done.
  bool BeginAtFirst(bool is_one_call, uintptr_t thread = ThisThread()) {
    Entry& entry = entries_[PlaceOf(thread)];
    if (__builtin_expect(!IsOf(entry.thread.load(), thread), 0)) return false;
    BeginIn(entry, is_one_call, thread);
    return true;
  }
  // Tells the calls of one group from those of another, 0: not known.
  uint64_t Current(uintptr_t thread = ThisThread()) const {
    for (uint64_t i = 0; i < kPlaces; ++i) {
      if (const uint64_t group = CurrentAt(PlaceOf(thread) ^ i, thread)) return group;
    }
    return 0;
  }
  // The same at the first of the thread's places alone.
  uint64_t CurrentAtFirst(uintptr_t thread = ThisThread()) const {
    return CurrentAt(PlaceOf(thread), thread);
  }
  // Of what Current told; false when it did not know.
  static bool IsOneCall(uint64_t group) { return (group & kOneCall << 16) != 0; }

 private:
  static constexpr uintptr_t kOneCall = 1;
  // Groups are counted above the bit that kOneCall becomes.
  static constexpr uint64_t kOneGroup = kOneCall << 17;

  // A cache line of its own: every third of the threads that glibc makes (8 MiB and a page apart)
  // has its place beside the first one's.
  struct alignas(64) Entry {
    // The thread, which is no odd number, and kOneCall: in one word, so that no thread is told of
    // another one's group.
    Relaxed<uintptr_t> thread;
    Relaxed<uint64_t> group;
  };
  static constexpr int kBits = 7;
  // A thread may have so many: the one that it asks for first, and those beside it.
  static constexpr uint64_t kPlaces = 4;
  static uint64_t PlaceOf(uintptr_t thread) {
    return thread * 0x9e3779b97f4a7c15ULL >> (64 - kBits);
  }
  static bool IsOf(uintptr_t word, uintptr_t thread) { return (word ^ thread) <= kOneCall; }
  static void BeginIn(Entry& entry, bool is_one_call, uintptr_t thread) {
    // The place is this thread's alone. Where several share it, none of them learns anything from it.
    entry.thread.store(thread | (is_one_call ? kOneCall : 0));
    entry.group.add(kOneGroup);
  }
  uint64_t CurrentAt(uint64_t place, uintptr_t thread) const {
    const Entry& entry = entries_[place];
    const uintptr_t word = entry.thread.load();
    return __builtin_expect(IsOf(word, thread), 1) ? word << 16 ^ entry.group.load() : 0;
  }
  Entry& EntryOf(uintptr_t thread, uint64_t i) { return entries_[PlaceOf(thread) ^ i]; }

  [[gnu::cold, gnu::noinline]] Entry& TakePlace(uintptr_t thread) {
    for (uint64_t i = 1; i < kPlaces; ++i) {
      if (IsOf(EntryOf(thread, i).thread.load(), thread)) return EntryOf(thread, i);
    }
    for (uint64_t i = 0; i < kPlaces; ++i) {
      uintptr_t nobody = 0;
      if (EntryOf(thread, i).thread.replace(nobody, thread)) return EntryOf(thread, i);
    }
    return EntryOf(thread, turns_.fetch_add(1) % kPlaces);
  }

  Entry entries_[1 << kBits]{};
  Relaxed<uint64_t> turns_{0};  // so that no two threads take one place from each other for ever
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_THREAD_GROUPS_H_

// ThreadGroups maps each thread to its current NCCL group (ncclGroupStart to ncclGroupEnd).
//
// NCCL reports the start of a group on the thread that makes its calls, once for all communicators.
// The group is the application's own, or belongs to one call: ncclAlltoAll makes many calls of Send
// and Recv in a group. The map is a table, because a library that is opened late may get no room
// for a thread_local. A thread can use kEntries entries and keeps the one that it took. If other
// threads have all of them, it takes an entry from another thread. That thread, which may have
// ended, has no group until its next group begins.
//
// Thread: any. Cost: a multiplication and one cache line that no other thread touches; up to three
// more lines if another thread has the first entry.
#ifndef PLUGIN_TRACKER_THREAD_GROUPS_H_
#define PLUGIN_TRACKER_THREAD_GROUPS_H_

#include <cstdint>

#include "metrics/atomic_cell.h"

namespace nccl_pulse {

class ThreadGroups {
 public:
  // A thread is known by its thread pointer.
  static uintptr_t ThisThread() { return reinterpret_cast<uintptr_t>(__builtin_thread_pointer()); }

  // Begins a group on `thread`. `is_one_call`: the group belongs to one call of the application.
  void Begin(bool is_one_call, uintptr_t thread = ThisThread()) {
    if (!BeginAtFirst(is_one_call, thread)) BeginIn(TakeEntry(thread), is_one_call, thread);
  }
  // Fast path for a thread that has its first entry, as nearly every thread has. Returns false,
  // without effect, otherwise.
  bool BeginAtFirst(bool is_one_call, uintptr_t thread = ThisThread()) {
    Entry& entry = entries_[IndexOf(thread)];
    if (__builtin_expect(!IsOf(entry.thread.load(), thread), 0)) return false;
    BeginIn(entry, is_one_call, thread);
    return true;
  }
  // Returns a number that identifies the thread's group; 0: not known.
  uint64_t Current(uintptr_t thread = ThisThread()) const {
    for (uint64_t i = 0; i < kEntries; ++i) {
      if (const uint64_t group = CurrentAt(IndexOf(thread) ^ i, thread)) return group;
    }
    return 0;
  }
  // Looks only at the thread's first entry.
  uint64_t CurrentAtFirst(uintptr_t thread = ThisThread()) const {
    return CurrentAt(IndexOf(thread), thread);
  }
  // True if `group`, from Current, belongs to one call. False for 0.
  static bool IsOneCall(uint64_t group) { return (group & kOneCall << 16) != 0; }

 private:
  static constexpr uintptr_t kOneCall = 1;
  // Added to an entry's group number at each start. Current() combines number and thread, and moves
  // kOneCall to bit 16, so groups are counted from bit 17 on.
  static constexpr uint64_t kOneGroup = kOneCall << 17;

  // Each entry has a cache line of its own: with glibc's stacks, 8 MiB and a page apart, every
  // third thread's entry is next to the first thread's.
  struct alignas(64) Entry {
    // The thread pointer, which is even, plus kOneCall. One word, so no thread reads the group of
    // another one.
    Relaxed<uintptr_t> thread;
    Relaxed<uint64_t> group;
  };
  static constexpr int kBits = 7;
  // Entries that a thread can use: its first one, and its neighbors.
  static constexpr uint64_t kEntries = 4;
  static uint64_t IndexOf(uintptr_t thread) {
    return thread * 0x9e3779b97f4a7c15ULL >> (64 - kBits);
  }
  static bool IsOf(uintptr_t word, uintptr_t thread) { return (word ^ thread) <= kOneCall; }
  static void BeginIn(Entry& entry, bool is_one_call, uintptr_t thread) {
    // Only this thread writes the entry. A thread that lost the entry reads that it has no group.
    entry.thread.store(thread | (is_one_call ? kOneCall : 0));
    entry.group.add(kOneGroup);
  }
  uint64_t CurrentAt(uint64_t place, uintptr_t thread) const {
    const Entry& entry = entries_[place];
    const uintptr_t word = entry.thread.load();
    return __builtin_expect(IsOf(word, thread), 1) ? word << 16 ^ entry.group.load() : 0;
  }
  Entry& EntryOf(uintptr_t thread, uint64_t i) { return entries_[IndexOf(thread) ^ i]; }

  [[gnu::cold, gnu::noinline]] Entry& TakeEntry(uintptr_t thread) {
    for (uint64_t i = 1; i < kEntries; ++i) {
      if (IsOf(EntryOf(thread, i).thread.load(), thread)) return EntryOf(thread, i);
    }
    for (uint64_t i = 0; i < kEntries; ++i) {
      uintptr_t nobody = 0;
      if (EntryOf(thread, i).thread.replace(nobody, thread)) return EntryOf(thread, i);
    }
    return EntryOf(thread, turns_.fetch_add(1) % kEntries);
  }

  Entry entries_[1 << kBits]{};
  Relaxed<uint64_t> turns_{0};  // alternates the entry that is taken from another thread
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_THREAD_GROUPS_H_

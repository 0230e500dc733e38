// WorkFollower follows NCCL's own counters of finished work (plugin/cuda/work_proof.h). Callbacks
// note the launches of each communicator. The reading thread, "pulse-work", finds the
// communicator's counter, polls it, and publishes how much work is proven to be finished.
//
// A TrackedWork belongs to one communicator. Callbacks write `launched`, and the reading thread
// reads it. The search for the counter has these phases. The first launch's callback finds
// candidates: blocks of GPU memory that may contain the counter. The reading thread takes them.
//
//   kIdle ── init ──▶ kWanted ── first launch ──▶ kFound ── candidates taken ──▶ kIdle
//
// Thread: Begin and Attach, which may allocate, under the runtime's lock; Note... functions from
// callbacks, which NCCL serializes per communicator; Poll and TakeRefuted on the reading thread.
// Cost: off: one load. On: two cache lines per operation that NCCL reports, and one search per
// communicator (work_search.h). A counter is read (work_reader.h) ten times a second while its
// communicator has captured calls, otherwise when new work has completed. All communicators
// together get at most one poll per kNsPerLook, in turn. Errors: a driver call that does not
// return stops only the reading thread, and new communicators are then not searched. A copy that
// does not end stops only the polls of its CUDA context. Readers of the segment see
// WorkState::kStuck in both cases.
#ifndef PLUGIN_TRACKER_WORK_FOLLOWER_H_
#define PLUGIN_TRACKER_WORK_FOLLOWER_H_

#include <atomic>
#include <cstdint>

#include "metrics/atomic_cell.h"
#include "plugin/cuda/finished_calls.h"
#include "plugin/cuda/stream_timer.h"
#include "plugin/cuda/work_proof.h"
#include "plugin/cuda/work_reader.h"
#include "plugin/cuda/work_search.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/communicator_table.h"
#include "plugin/tracker/events.h"
#include "plugin/tracker/instruments.h"

namespace nccl_pulse {

// The work and the counter of one communicator.
struct TrackedWork {
  enum Phase : uint32_t { kIdle = 0, kWanted = 1, kFound = 2 };

  // Written by callbacks, one at a time; the phase also by others.
  struct alignas(64) Launched {
    Ordered<uint32_t> phase;
    Relaxed<uint32_t> captured_calls;  // number since the last captured launch
    // The fields of LaunchedWork (work_proof.h). An operation stores `alone` and `grouped`, then
    // publishes `reported` if it is the first of its launch, then publishes `work`.
    Ordered<uint64_t> work;
    Relaxed<uint64_t> alone, grouped;
    Ordered<uint64_t> reported;
    Relaxed<bool> is_group_captured;  // some captured calls share a launch
    // Captured calls whose launch NCCL has not reported. NCCL may not count their kernels.
    Relaxed<uint32_t> unlaunched_captured;
    Relaxed<uint32_t> unlaunched_of_group;  // number of these in the last group
    Relaxed<uint64_t> captured_group;       // group of the last captured call
    // 1 + number of followed launches before the first captured call; 0: no call was captured.
    Relaxed<uint64_t> before_capture;
    Relaxed<uint64_t> shared;                         // the last launch of several operations
    Relaxed<uint32_t> least_channels, most_channels;  // of captured operations; 0: no operation
    Relaxed<uint8_t> refutal;                         // WorkRefutal
    // The fields of CalledWork (finished_calls.h): number of Broadcasts, for which NCCL may report
    // only the call. `broadcasts` is published last.
    Ordered<uint32_t> broadcasts;
    Ordered<uint32_t> captured_broadcasts;  // number of Broadcasts captured into CUDA graphs
    Relaxed<uint32_t> broadcast_run;        // Broadcasts before the current run of one size
    Relaxed<uint64_t> broadcast_bytes;      // that size
  };
  // Number of launches whose work is kept: as many as CUDA queues on one stream.
  static constexpr uint64_t kSums = 1024;
  // Result of the search.
  struct Found {
    uint32_t record_generation;  // of the communicator
    WorkOwner owner;
    uint64_t launched_ns;  // time of the communicator's first launch
    WorkCandidates candidates;
  };

  Launched launched;
  // sums[launch % kSums]: low bits of `work` after the operations of launch number `launch`.
  Relaxed<uint32_t> sums[kSums];
  // `context_at`, `owner` and `found` are published with the phase.
  const void* context_at;  // where NCCL stores the profiler's context; null: not known
  WorkOwner owner;
  Found found;
  // The result for other threads. The upper bits of `counted` and `finished` identify the
  // communicator by its record's generation.
  Ordered<uint64_t> counted;     // number of launches that are complete by the counter
  Relaxed<uint64_t> counted_ns;  // time of that count; 0: not known
  Ordered<uint64_t> finished;    // number of calls that are complete (FinishedCalls)
  // ---- reading thread only
  uint32_t record_generation;  // of the communicator that the fields below describe; 0: none
  bool is_mapped;              // `mapping` maps the candidate
  bool is_published;           // the record has the current state
  bool is_stuck;               // a copy does not end; as published
  bool is_untold;              // refuted, and TakeRefuted has not returned it yet
  Found taken;                 // taken from `found`
  uint32_t candidate;          // index of the mapped candidate
  WorkMapping mapping;
  WorkProof proof;
  WorkLook look;          // the current poll, while its copy is in progress; then the last one
  uint32_t calls_before;  // number of calls when the copy was begun
  FinishedCalls finished_calls;
  uint64_t looked_ns;            // time of the last poll that began a copy
  uint64_t unlaunched_since_ns;  // 0: all captured calls were launched
  uint64_t captured_ns;          // first poll that found captured calls; 0: none
  bool is_being_proven;          // IsBeingProven, as published
};

class WorkFollower {
 public:
  explicit WorkFollower(Instruments& instruments) : instruments_(instruments) {}
  WorkFollower(const WorkFollower&) = delete;
  WorkFollower& operator=(const WorkFollower&) = delete;

  // Starts to search for counters. Call before the first communicator. Returns false if the driver
  // is too old, or with timing off.
  bool Begin(const CudaDriver& driver);
  bool is_on() const { return work_ != nullptr; }
  // Stops searching, because there is no reading thread. Call before the first communicator.
  void GiveUp() { work_ = nullptr; }
  // Adds a communicator. `context_at`: where NCCL stores the profiler's context; null: not known.
  void Attach(const Communicator& communicator, const void* context_at, const WorkOwner& owner);

  // ---- callbacks ----

  // Notes a launch, captured or not. Call for a communicator's first launch and for each captured
  // one; for other launches it is optional.
  [[gnu::cold, gnu::noinline]] void NoteLaunch(const Communicator& communicator, bool captured);
  // Notes a call that was captured into a graph. `group`: ThreadGroups::Current.
  [[gnu::cold, gnu::noinline]] void NoteCapturedCall(const Communicator& communicator, NameId op,
                                                     uint64_t group);
  // Notes an operation whose kernel does not count (symmetric memory).
  static void NoteUncounted(CommunicatorParts& parts) {
    NoteRefuted(parts, WorkRefutal::kUncounted);
  }
  // Notes a counted launch that NCCL does not report. `launches`: as in NoteOperation.
  [[gnu::cold, gnu::noinline]] static void NoteUnreported(const CommunicatorParts& parts,
                                                          uint64_t launches);
  // Notes a Broadcast, for which NCCL may report only the call.
  [[gnu::cold, gnu::noinline]] static void NoteBroadcast(const CommunicatorParts& parts,
                                                         uint64_t bytes);
  // True if NCCL may report only the call of a Broadcast: from 2.29.2 on, with API v6.
  static bool MayHideBroadcasts(const Communicator& communicator);
  // Notes an operation that NCCL reports. `launches`: launches followed so far.
  static void NoteOperation(CommunicatorParts& parts, uint64_t launches,
                            const OperationEvent& event, bool captured);

  // ---- reading thread ----

  // Polls. Returns true while a counter is being proven, or a copy is in progress.
  bool Poll(CommunicatorTable& communicators, uint64_t now_ns);
  // ---- any thread ----

  // Returns which launches of the communicator are complete, by the counter.
  CountedLaunches Counted(const Communicator& communicator, uint32_t record_generation) const;
  // Returns how many of the last calls may be unfinished, by the counter; UINT32_MAX: not known.
  uint32_t UnfinishedCalls(const Communicator& communicator, uint32_t record_generation) const;

  // ---- reading thread ----

  // Returns a communicator whose counter was refuted, each one once; null if there is none.
  const Communicator* TakeRefuted(CommunicatorTable& communicators, WorkRefutal* refutal);

 private:
  static constexpr uint32_t kMostContexts = 16;  // CUDA contexts with a reader
  // Time per poll of one counter. A poll normally takes 50 us at most: 2 % of a core.
  static constexpr uint64_t kNsPerLook = 2500000;
  static constexpr uint32_t kMostLooks = 40;  // polls in one round over all communicators
  // If the reading thread, which makes a round each 100 ms, has made none for this long, no search
  // begins.
  static constexpr uint64_t kPolledNs = 1000000000;
  static constexpr uint32_t kMostUntaken = 8;  // searches whose candidates were not taken yet

  // Returns null if the communicator is not followed. Acquire, twice: sees the parts and the
  // TrackedWork as they were initialized.
  static TrackedWork* WorkOf(const Communicator& communicator) {
    return communicator.parts.acquire()->work.acquire();
  }
  void Find(const Communicator& communicator, TrackedWork& tracked);

  void PollOne(Communicator& communicator, TrackedWork& tracked, uint64_t now_ns);
  // Cleans up after a communicator that has ended, or whose TrackedWork has passed to another.
  // Returns false if that is not possible yet.
  bool Leave(Communicator& communicator, TrackedWork& tracked);
  void Follow(Communicator& communicator, TrackedWork& tracked, uint64_t now_ns);
  void TakeCandidates(TrackedWork& tracked);
  void LookAt(Communicator& communicator, TrackedWork& tracked, WorkReader& reader,
              uint64_t now_ns);
  // Maps the next candidate; without one the counter is refuted.
  void MapNext(TrackedWork& tracked);
  void Copied(Communicator& communicator, TrackedWork& tracked);
  // Returns the TrackedWork of another communicator whose counter is in the block at `at`, or null.
  TrackedWork* FindOther(const TrackedWork& tracked, CudaAddress at);
  void Unmap(TrackedWork& tracked);
  // Releases the candidates from `first` on, none of them mapped.
  void ReleaseFrom(TrackedWork& tracked, uint32_t first);
  void Refute(TrackedWork& tracked, WorkRefutal refutal);
  // Both return the reader of the candidates' context, or null. ReaderOf also returns null if the
  // reader has failed.
  WorkReader* FindReader(const WorkCandidates& candidates);
  WorkReader* ReaderOf(const WorkCandidates& candidates);
  // Creates a reader for the candidates' context, unless that was tried before.
  void OpenReader(const WorkCandidates& candidates);
  bool IsStuck(const TrackedWork& tracked, uint64_t now_ns);
  // True if calls were captured recently and the counter is neither proven nor refuted.
  bool IsBeingProven(const Communicator& communicator, TrackedWork& tracked, uint64_t now_ns);
  // True if the next polls will prove or refute the counter while launches continue.
  bool IsDeciding(const Communicator& communicator, const TrackedWork& tracked,
                  uint64_t now_ns) const;
  bool IsContextGone(const WorkCandidates& candidates);
  // True if some launches may be unreported; HasHidden: and reported launches may follow them.
  static bool MayHide(const Communicator& communicator);
  static bool HasHidden(const Communicator& communicator);
  // Returns a lower bound of the work of the launches that are complete by events. `look`: a poll
  // whose copy is complete.
  static uint64_t CompletedWork(const TrackedWork& tracked, const WorkLook& look);
  static LaunchedWork Read(const Communicator& communicator, const TrackedWork& tracked);
  // Notes that the communicator's counter does not count its launches. Later launches are followed
  // by CUDA events instead.
  [[gnu::cold, gnu::noinline]] static void NoteRefuted(CommunicatorParts& parts,
                                                       WorkRefutal refutal);
  [[gnu::cold, gnu::noinline]] static void NoteCapturedOperation(TrackedWork::Launched& launched,
                                                                 const OperationEvent& event);
  // True if NCCL will not report the launches of some captured calls.
  static bool HasUnlaunched(TrackedWork& tracked, uint64_t now_ns);
  // Publishes which launches are complete, by the last poll of the counter.
  void Count(const Communicator& communicator, TrackedWork& tracked, uint64_t now_ns);
  // Updates which calls have finished. Call after a copy.
  static void FinishCalls(const Communicator& communicator, TrackedWork& tracked);
  static uint64_t CompletedLaunches(const TrackedWork& tracked);
  void Publish(Communicator& communicator, TrackedWork& tracked);

  Instruments& instruments_;
  const CudaDriver* driver_ = nullptr;
  const WorkDriver* work_ = nullptr;  // null: off
  std::atomic<uint32_t> untaken_{0};  // searches whose candidates were not taken yet
  Relaxed<uint64_t> polled_ns_{0};    // last round of the reading thread, rounded to kNsPerLook
  // Reading thread.
  CommunicatorTable* communicators_ = nullptr;
  uint32_t looks_left_ = kMostLooks;
  uint32_t first_ = 0;  // first place of the next round
  WorkReader readers_[kMostContexts];
  uint32_t reader_count_ = 0;
  uint32_t untold_ = 0;                     // number of communicators with is_untold
  size_t known_word_ = WorkProof::kNoWord;  // the word that was proven last
};

// Inline, because it is called for each operation: a function call would add half of its cost.
inline void WorkFollower::NoteOperation(CommunicatorParts& parts, uint64_t launches,
                                        const OperationEvent& event, bool captured) {
  TrackedWork* const tracked = parts.work.acquire();  // sees it as it was initialized
  if (__builtin_expect(tracked == nullptr, 0)) return;
  TrackedWork::Launched& launched = tracked->launched;
  if (__builtin_expect(!event.is_collective, 0)) {
    return NoteRefuted(parts, WorkRefutal::kPointToPoint);
  }
  if (__builtin_expect(captured, 0)) return NoteCapturedOperation(launched, event);
  if (__builtin_expect(event.channels == 0 || event.channels > kWorkChannels, 0)) {
    return NoteRefuted(parts, WorkRefutal::kUncounted);
  }
  // A launch's operations are reported after it, so `launches` includes their launch.
  if (__builtin_expect(launches == launched.reported.load(), 0)) {
    if (launched.shared.load() == launches) {
      launched.grouped.add(1);
    } else {  // the launch's first operation was counted as alone
      launched.shared.store(launches);
      if (launched.alone.load() != 0) launched.alone.store(launched.alone.load() - 1);
      launched.grouped.add(2);
    }
  } else {
    launched.alone.add(1);
    launched.reported.publish(launches);  // its readers also see the sums of earlier launches
  }
  const uint64_t work = launched.work.load() + event.channels;
  tracked->sums[launches % TrackedWork::kSums].store(static_cast<uint32_t>(work));
  launched.work.publish(work);  // with its sum
}

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_WORK_FOLLOWER_H_

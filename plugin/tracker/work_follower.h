// Follows NCCL's own counters of finished work (plugin/cuda/work_proof.h): notes what is launched on
// each communicator, finds its counter, reads it, and publishes what that proves.
//
//   launched   a communicator's place; callbacks write, the background thread reads
//   phase      kIdle ─▶ kWanted (init) ─▶ kFound (first launch) ─▶ kIdle (reading thread, which has
//              taken the candidates)
//
// Thread: Begin and Attach, which may allocate, under the runtime's lock; the Note functions from callbacks, where NCCL
// serialises those of one communicator; Poll and TakeRefuted by the reading thread, "pulse-work".
// Cost: a load while off. On: two cache lines for each operation that NCCL reports, and once in a
// communicator's life the search (work_search.h). Reading: work_reader.h, ten times a second while a
// communicator has captured calls, and else when something new has completed; over all communicators
// at most one look each kNsPerLook, in turn.
// Errors: a driver call that does not return stops the reading thread and nothing else; readers of the
// segment see that (WorkState::kStuck). So does a copy that does not end. While the reading thread
// stands, no further communicator is searched.
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

// One communicator's: what is known of its work and of its counter.
struct WorkPlace {
  enum Phase : uint32_t { kIdle = 0, kWanted = 1, kFound = 2 };

  // What callbacks write, but for the phase one at a time.
  struct alignas(64) Launched {
    Ordered<uint32_t> phase;
    Relaxed<uint32_t> captured_calls;  // since the last captured launch
    Ordered<uint64_t> work;            // LaunchedWork; published last of what belongs together
    Relaxed<uint64_t> alone, grouped;
    Ordered<uint64_t> reported;  // published before `work`, and after the operations before
    Relaxed<bool> is_group_captured;
    // Captured calls whose launch NCCL has not reported: what they launch may not count. (The operations
    // of those with network traffic are reported by each replay.)
    Relaxed<uint32_t> unlaunched_captured;
    Relaxed<uint32_t> unlaunched_of_group;  // among them, of the last group
    Relaxed<uint64_t> captured_group;
    // Launches that were followed when the first call was captured, and 1; 0: none was.
    Relaxed<uint64_t> before_capture;
    Relaxed<uint32_t> least_channels, most_channels;  // of a captured operation; 0: there is none
    Relaxed<uint8_t> refutal;                         // WorkRefutal: that cannot be proven
    // CalledWork. Published last.
    Ordered<uint32_t> broadcasts;
    Relaxed<uint32_t> captured_broadcasts;  // among them
    Relaxed<uint32_t> broadcast_run;
    Relaxed<uint64_t> broadcast_bytes;
  };
  // CUDA queues that many launches of one stream.
  static constexpr uint64_t kSums = 1024;
  struct Found {
    uint32_t record_generation;  // of the communicator that it is about
    WorkOwner owner;
    uint64_t launched_ns;  // its first launch
    WorkCandidates candidates;
  };

  Launched launched;
  // The low bits of a launch's number find the low bits of `work` with all of its operations.
  Relaxed<uint32_t> sums[kSums];
  // Published with the phase.
  const void* context_at;
  WorkOwner owner;
  Found found;
  // CountedLaunches is made of this: the launches and, in the upper bits, whose they are (Counted).
  Ordered<uint64_t> counted;
  Relaxed<uint64_t> counted_ns;
  Ordered<uint64_t> finished;  // FinishedCalls, and whose they are
  // ---- reading thread
  uint32_t record_generation;  // that the rest is about, 0: nobody
  bool is_mapped;
  bool is_published;
  bool is_stuck;   // as published
  bool is_untold;  // it was refuted, and nobody has taken that
  Found taken;
  uint32_t candidate;  // the one that is mapped
  WorkMapping mapping;
  WorkProof proof;
  WorkLook look;  // while a copy is under way
  uint32_t calls_before;
  FinishedCalls finished_calls;
  uint64_t looked_ns;
  uint64_t unlaunched_since_ns;  // 0: all captured calls were launched
  uint64_t captured_ns;          // when a look first found captured calls; 0: none has
  bool is_being_proven;          // as published
};

class WorkFollower {
 public:
  explicit WorkFollower(Instruments& instruments) : instruments_(instruments) {}
  WorkFollower(const WorkFollower&) = delete;
  WorkFollower& operator=(const WorkFollower&) = delete;

  // From now on counters are looked for. Before the first communicator. False when the driver lacks
  // what that needs, or there is no memory.
  bool Begin(const CudaDriver& driver);
  bool is_on() const { return work_ != nullptr; }
  // There is no reading thread: nothing is searched. Before the first communicator.
  void GiveUp() { work_ = nullptr; }
  // A communicator was added. `context_at`: where NCCL has the profiler's context, null: not known.
  void Attach(const Communicator& communicator, const void* context_at, const WorkOwner& owner);

  // ---- callbacks ----

  // One is launched, into a graph or not. A communicator's first launch is told, and each captured
  // one; of the others some are.
  [[gnu::cold, gnu::noinline]] void NoteLaunch(const Communicator& communicator, bool captured);
  // A call of that function was captured into a graph. `group`: ThreadGroups::Current.
  [[gnu::cold, gnu::noinline]] void NoteCapturedCall(const Communicator& communicator,
                                                     bool is_collective, const char* func,
                                                     uint64_t group);
  // NCCL reports an operation whose kernel does not count: of symmetric memory.
  static void NoteUncounted(CommunicatorParts& parts) {
    NoteRefuted(parts, WorkRefutal::kUncounted);
  }
  // A launch was counted of which NCCL reports nothing. `launches`: as in NoteOperation.
  [[gnu::cold, gnu::noinline]] static void NoteUnreported(const CommunicatorParts& parts,
                                                          uint64_t launches);
  // A Broadcast was called, of which NCCL may report nothing else.
  [[gnu::cold, gnu::noinline]] static void NoteBroadcast(const CommunicatorParts& parts,
                                                         uint64_t bytes);
  // Says whether that is so: from 2.29.2 on, with API v6.
  static bool MayHideBroadcasts(const Communicator& communicator);
  // NCCL reports an operation, to the communicator that has these parts. `launches`: followed ones
  // so far.
  static void NoteOperation(CommunicatorParts& parts, uint64_t launches,
                            const OperationEvent& event, bool captured);

  // ---- reading thread ----

  // True while something is being decided, or a copy is under way.
  bool Poll(CommunicatorTable& communicators, uint64_t now_ns);
  // ---- any thread ----

  // Says which launches of the communicator with that record are complete.
  CountedLaunches Counted(const Communicator& communicator, uint32_t record_generation) const;
  // How many of its last calls may not have finished, by the counter; UINT32_MAX: not known.
  uint32_t UnfinishedCalls(const Communicator& communicator, uint32_t record_generation) const;

  // ---- reading thread ----

  // One whose counter contradicted what is known, once; null: none has since the last call.
  const Communicator* TakeRefuted(CommunicatorTable& communicators, WorkRefutal* refutal);

 private:
  static constexpr uint32_t kMostContexts = 16;
  // A look takes 50 us at most as a rule: 2 % of a core.
  static constexpr uint64_t kNsPerLook = 2500000;
  static constexpr uint32_t kMostLooks = 40;  // in one round
  // The reading thread makes a round each 100 ms.
  static constexpr uint64_t kPolledNs = 1000000000;
  static constexpr uint32_t kMostUntaken = 8;

  using Place = WorkPlace;

  // Returns null if it is not followed. Acquire, twice: sees the parts and the place made.
  static Place* PlaceOf(const Communicator& communicator) {
    return communicator.parts.acquire()->work.acquire();
  }
  void Find(const Communicator& communicator, Place& place);

  void PollPlace(Communicator& communicator, Place& place, uint64_t now_ns);
  // The place's communicator has ended, or another one has its place. False: not yet.
  bool Leave(Communicator& communicator, Place& place);
  void Follow(Communicator& communicator, Place& place, uint64_t now_ns);
  void TakeCandidates(Place& place);
  void LookAt(Communicator& communicator, Place& place, WorkReader& reader, uint64_t now_ns);
  // Maps the next candidate; without one the counter is refuted.
  void MapNext(Place& place);
  void Copied(Communicator& communicator, Place& place);
  // Another communicator is taken to have its block at that address. Null: none is.
  Place* FindOther(const Place& place, CudaAddress at);
  void Unmap(Place& place);
  // Gives back the candidates from that one on: none of them is mapped.
  void ReleaseFrom(Place& place, uint32_t first);
  void Refute(Place& place, WorkRefutal refutal);
  // Both find the reader of their context; ReaderOf only one that works. Null: there is none.
  WorkReader* FindReader(const WorkCandidates& candidates);
  WorkReader* ReaderOf(const WorkCandidates& candidates);
  // Makes their context a reader, unless that was tried.
  void OpenReader(const WorkCandidates& candidates);
  bool IsStuck(const Place& place, uint64_t now_ns);
  // Calls were captured not long ago, and nothing is decided yet.
  bool IsBeingProven(const Communicator& communicator, Place& place, uint64_t now_ns);
  // Something is decided by the next looks, as launches go on.
  bool IsDeciding(const Communicator& communicator, const Place& place, uint64_t now_ns) const;
  bool IsContextGone(const WorkCandidates& candidates);
  static bool MayHide(const Communicator& communicator);
  static bool HasHidden(const Communicator& communicator);
  // What `completed` launches have done, at least. `look`: its copy is made.
  static uint64_t CompletedWork(const Place& place, const WorkLook& look);
  static LaunchedWork Read(const Communicator& communicator, const Place& place);
  // The communicator's counter does not tell of its launches. From now on each has an event.
  [[gnu::cold, gnu::noinline]] static void NoteRefuted(CommunicatorParts& parts,
                                                       WorkRefutal refutal);
  [[gnu::cold, gnu::noinline]] static void NoteCapturedOperation(Place::Launched& launched,
                                                                 const OperationEvent& event);
  // The launches of some captured calls are not reported, and will not be.
  static bool HasUnlaunched(Place& place, uint64_t now_ns);
  // Says which launches are complete, as far as the last look at the counter shows.
  void Count(const Communicator& communicator, Place& place, uint64_t now_ns);
  // Looks which calls have finished. Behind a copy.
  static void FinishCalls(const Communicator& communicator, Place& place);
  static uint64_t CompletedLaunches(const Place& place);
  void Publish(Communicator& communicator, Place& place);

  Instruments& instruments_;
  const CudaDriver* driver_ = nullptr;
  const WorkDriver* work_ = nullptr;  // null: off
  std::atomic<uint32_t> untaken_{0};  // searches whose candidates the reading thread has not taken
  Relaxed<uint64_t> polled_ns_{0};    // reading thread: when it last made a round, to kNsPerLook
  // Reading thread.
  CommunicatorTable* communicators_ = nullptr;
  uint32_t looks_left_ = kMostLooks;
  uint32_t first_ = 0;  // place that the next round begins with
  WorkReader readers_[kMostContexts];
  uint32_t reader_count_ = 0;
  uint32_t untold_ = 0;                     // places that are
  size_t known_word_ = WorkProof::kNoWord;  // that was proven last
};

// Inline: called for each operation, it would cost half as much again.
inline void WorkFollower::NoteOperation(CommunicatorParts& parts, uint64_t launches,
                                        const OperationEvent& event, bool captured) {
  WorkPlace* const place = parts.work.acquire();  // sees it made
  if (__builtin_expect(place == nullptr, 0)) return;
  WorkPlace::Launched& launched = place->launched;
  if (__builtin_expect(!event.is_collective, 0)) {
    return NoteRefuted(parts, WorkRefutal::kPointToPoint);
  }
  if (__builtin_expect(captured, 0)) return NoteCapturedOperation(launched, event);
  if (__builtin_expect(event.channels == 0 || event.channels > kWorkChannels, 0)) {
    return NoteRefuted(parts, WorkRefutal::kUncounted);
  }
  // A launch's operations are reported after it.
  if (__builtin_expect(launches == launched.reported.load(), 0)) {
    // The first of them was taken to be alone.
    if (launched.alone.load() != 0) launched.alone.store(launched.alone.load() - 1);
    launched.grouped.add(2);
  } else {
    launched.alone.add(1);
    launched.reported.publish(launches);  // whoever sees it sees the sums of the launches before
  }
  const uint64_t work = launched.work.load() + event.channels;
  place->sums[launches % WorkPlace::kSums].store(static_cast<uint32_t>(work));
  launched.work.publish(work);  // with its sum
}

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_WORK_FOLLOWER_H_

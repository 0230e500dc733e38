// Stamps: kernels of one thread between the nodes of a captured CUDA graph. NCCL tells nobody of a
// replay; a stamp does. It counts how often it is passed, and notes the GPU's time.
//
//   capturing thread                     GPU, each replay         "pulse-poll"
//   ----------------                     ----------------         ------------
//   call:    counted for its capture,    stamp: count += 1,       reads the counts:
//            by kind                     stored in host memory    replays, calls executed, what
//   launch:  a stamp is due at its       together with the time   is in flight
//            position (stamp_plan.h)?                             reads the times: how long the
//            launch one in front, for                             launch between the two stamps
//            a pair another one behind                            of a pair took
//
// Times are a sample: whenever the background thread looks, it takes from each pair the last time
// that both stamps agree on.
//
// A capture is known by the id that the driver gives it. Until its first stamp it has a place among
// the open captures. The first stamp gives it a record, which lives as long as the graph. A user
// object of CUDA's says when that ends: the graph retains it, and with it do the graph's clones and
// executables. (NCCL keeps its own plans the same way, src/misc/strongstream.cc.) Executables of
// one capture share its stamps: counts are sums over them. An executable that is updated with a
// later capture has that one's stamps from then on.
//
// Placement never depends on what is free: a stamp without a record or place is launched all the
// same, and not read. Only kernel nodes enter a user's graph: others make conditional bodies and
// graphs for device launch fail (docs/cuda-graphs.md).
//
// Thread: PrepareContext under the runtime's lock; the Note... from callbacks, any thread, one at a
// time for each capture (two at once cost accuracy alone); Poll by the background thread. No lock,
// no allocation of ours, no wait. Errors: a launch that the driver refuses ends stamps for the
// process, and is counted (Captures).
#ifndef PLUGIN_CUDA_GRAPH_STAMPS_H_
#define PLUGIN_CUDA_GRAPH_STAMPS_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "plugin/cuda/captured_calls.h"
#include "plugin/cuda/stamp_context.h"
#include "plugin/cuda/stamp_plan.h"

namespace nccl_pulse {

class GraphStamps {
 public:
  static constexpr uint32_t kMostKinds = 32;  // of calls, in one capture
  static constexpr uint32_t kMostRecords = 512;
  static constexpr uint32_t kMostContexts = 16;
  // Communicators in one capture. Further ones have no position in its replays, and each of their
  // calls counts as a capture of its own that is not followed.
  static constexpr uint32_t kMostMembers = 6;
  static constexpr uint32_t kMostCommunicators = 1024;  // CapturedCalls has 10 bits

  // Open captures are kept in sets; which one a capture's id is in.
  static constexpr uint32_t kSets = 32;
  static constexpr uint32_t SetOf(uint64_t capture_id) {
    static_assert(kSets == 1 << (64 - 59));
    return static_cast<uint32_t>(capture_id * 0x9e3779b97f4a7c15ULL >> 59);
  }

  // Null: no memory.
  static std::unique_ptr<GraphStamps> Make(const CudaDriver& driver, const StampDriver& stamps);
  ~GraphStamps() = default;
  GraphStamps(const GraphStamps&) = delete;
  GraphStamps& operator=(const GraphStamps&) = delete;

  // Init: whether graphs that are captured in the calling thread's current context get stamps.
  bool PrepareContext();

  // ---- callbacks ----

  // A call that was captured on `stream`.
  void NoteCall(CudaStream stream, uint32_t kind, uint32_t owner, uint64_t bytes);
  // What a launch carries, where that is one call: its time is the call's. kind 0: it is not.
  struct Launch {
    uint32_t kind, owner;
    uint64_t bytes, bus_bytes;
  };
  // In front of a launch that is captured on `stream` and carries `calls` of this communicator.
  // True: NoteLaunchEnd is to follow behind it.
  bool NoteLaunch(CudaStream stream, const Launch& launch, uint32_t communicator, uint32_t calls);
  void NoteLaunchEnd(CudaStream stream);

  // ---- background thread ----

  // What happened to captures, for all of the process.
  struct Captures {
    uint64_t seen = 0;        // with calls or launches
    uint64_t followed = 0;    // with stamps that are read
    uint64_t no_room = 0;     // with stamps for which there was no record or place
    uint64_t incomplete = 0;  // followed, with more kinds of calls than are kept
    uint64_t refused = 0;     // stamps that the driver refused
  };
  Captures captures() const;

  // Where the GPU was seen to pass a stamp of a capture last: its number `passed` of `stamps`, from
  // 1. Calls are those of one communicator, in one replay.
  struct Passed {
    uint64_t gpu_ns = 0;  // 0: nothing new
    uint32_t graph = 0;   // CaptureMember::number
    uint32_t passed = 0, stamps = 0;
    uint64_t calls_before = 0;  // in front of that stamp
    uint64_t calls_until = 0;   // in front of the next one, or all
    uint64_t calls = 0;
    bool has_head = false;  // its first stamp stands at the head of the graph
  };
  // Replays of a capture since the last look, and what is in flight of it.
  struct Replayed {
    uint32_t communicator, owner;
    uint32_t op, size_class;
    bool is_first_of_communicator;  // of this capture: count the replays once
    uint64_t replays;               // since this kind was last counted
    uint64_t calls, bytes;          // of all these replays
    uint64_t in_flight;             // replays past the first stamp and not past the last
    uint64_t moved_ns;              // when a stamp was last seen to have been passed, 0: never
    // Where is_first_of_communicator.
    uint32_t captures, followed;  // CommunicatorCaptures
    Passed last;
  };
  // A launch that one replay made, timed.
  struct Timed {
    Launch launch;
    uint64_t duration_ns;
    uint64_t replay;  // its number, from 1
    uint32_t graph;   // CaptureMember::number; 0: not known
    uint32_t pair;    // of stamps, from 0
  };
  // `count(replayed)` for each kind of calls of each capture with stamps; false from it: not
  // counted now, it comes again. `timed(timed)` for pairs with a new time. True while counts move.
  template <typename Count, typename CountTimed>
  bool Poll(uint64_t now_ns, Count count, CountTimed timed) {
    bool moves = false;
    for (Record& record : tables_->records) {
      // Acquire: sees the record as the capturing thread made it.
      if (record.state.load(std::memory_order_acquire) != Record::kUsed) continue;
      const bool is_over = IsOver(record, now_ns);
      Standing standing = Look(record, now_ns);
      // Whatever its last counts say: no passage will come that puts them right.
      if (is_over) standing.in_flight = 0;
      moves |= standing.moved;
      if (standing.moved) {
        for (uint32_t k = 1; k < standing.stamps; ++k) {
          const uint64_t duration_ns = NewDuration(record, k);
          if (duration_ns != 0) timed(DescribeTimed(record, k, duration_ns));
        }
      }
      bool all_counted = true;
      uint32_t seen_communicators = 0;
      uint32_t communicators[kMostKinds];
      for (CapturedCalls& calls : record.calls) {
        // Acquire: sees its numbers.
        const uint32_t kind = calls.kind.load(std::memory_order_acquire);
        if (kind == 0) break;
        const uint32_t communicator = CapturedCalls::Communicator(kind);
        bool is_first = true;
        for (uint32_t k = 0; k < seen_communicators; ++k) {
          is_first &= communicators[k] != communicator;
        }
        if (is_first) communicators[seen_communicators++] = communicator;
        if (count(Describe(record, standing, calls, kind, is_first))) {
          calls.counted = standing.replays;
        } else {
          all_counted = false;
        }
      }
      if (all_counted && is_over) Free(record);
    }
    return moves;
  }

 private:
  // One that is being captured, or was.
  struct Capture {
    static constexpr uint64_t kBusy = ~uint64_t{0};
    std::atomic<uint64_t> id;       // 0: free
    std::atomic<uint64_t> touched;  // touches_, when it was used last
    std::atomic<uint32_t> launches;
    std::atomic<uint32_t> record;  // 1 + index, 0: none
    std::atomic<bool> has_stamp;
    std::atomic<bool> is_truncated;
    std::atomic<bool> awaits_end;  // of a launch that has a pair
    Launch launch;                 // that one
    // Until it has a record.
    CapturedCalls calls[kMostKinds];
    CaptureMember members[kMostMembers];
  };
  struct Record {
    // kFree -> kFilling (capturing thread) -> kUsed -> kFree (background thread)
    enum State : uint32_t { kFree = 0, kFilling = 1, kUsed = 2 };
    std::atomic<uint32_t> state;
    std::atomic<bool> is_destroyed;  // the graph, by CUDA's thread
    StampContext* context;
    std::atomic<uint32_t> stamps;
    struct Stamp {
      uint32_t place;
      uint64_t base;  // what the place had counted before
      Launch launch;  // that this one stands behind, and the one before it in front of
      // Background thread: passages, and of those the last whose time was taken.
      uint64_t seen, timed;
    } stamp[kMostStamps];
    CapturedCalls calls[kMostKinds];
    CaptureMember members[kMostMembers];
    bool has_head;  // published with the first stamp
    // Background thread.
    bool is_passed_due;  // a stamp was passed, and when is not told yet
    uint64_t moved_ns;
    uint64_t destroyed_ns;  // when that was seen
  };
  static constexpr uint32_t kWays = 4;
  struct Tables {
    Capture captures[kSets][kWays];
    Record records[kMostRecords];
    CommunicatorCaptures of_communicators[kMostCommunicators];
  };
  static_assert(sizeof(Tables) < 7 << 18, "docs/cuda-graphs.md says 1.7 MiB");
  struct Standing {
    uint32_t stamps;
    uint64_t replays;
    uint64_t in_flight;
    bool moved;
    uint32_t passed;  // by the replay that began last
    uint64_t gpu_ns;  // when it passed the last of them, 0: told before
  };

  GraphStamps(const CudaDriver& driver, const StampDriver& stamps, Tables* tables)
      : driver_(driver), stamps_(stamps), tables_(tables) {}

  // Null: `stream` is not in capture, or many threads begin captures at the same place.
  Capture* FindCapture(CudaStream stream, CudaGraph* graph);
  Capture* TryOpen(Capture (&set)[kWays], uint64_t id, uint64_t touch);
  StampContext* CurrentContext();
  enum class Where { kHead, kHere };
  // `behind`: what the stamp stands behind, kind 0: nothing. False: it will not be read.
  bool AddStamp(Capture& capture, CudaStream stream, CudaGraph graph, Where where,
                const Launch& behind);
  // The driver's error.
  int Insert(const StampContext& context, CudaStream stream, CudaGraph graph, uint32_t place,
             Where* where);
  Record* TakeRecord(Capture& capture, CudaGraph graph, StampContext& context);
  bool RetainBy(CudaGraph graph, Record& record);
  CaptureMember (&MembersOf(Capture& capture))[kMostMembers];
  // Null: there are too many.
  CaptureMember* FindMember(Capture& capture, uint32_t communicator, uint32_t owner);
  CommunicatorCaptures& CapturesOf(uint32_t communicator, uint32_t owner);
  // `change`: 1, or -1 for what is no longer followed.
  void CountFollowed(const CaptureMember& member, uint32_t change);
  static bool AddCall(CapturedCalls (&table)[kMostKinds], uint32_t kind, uint32_t owner,
                      uint64_t calls, uint64_t bytes);
  static Standing Look(Record& record, uint64_t now_ns);
  Replayed Describe(Record& record, const Standing& standing, const CapturedCalls& calls,
                    uint32_t kind, bool is_first) const;
  // Between stamp `number` and the one in front of it, 0: nothing new, or not known.
  static uint64_t NewDuration(Record& record, uint32_t number);
  static Timed DescribeTimed(const Record& record, uint32_t number, uint64_t duration_ns);
  static bool IsOver(Record& record, uint64_t now_ns);
  static void Free(Record& record);

  const CudaDriver& driver_;
  const StampDriver& stamps_;
  Tables* const tables_;  // never unmapped: CUDA's thread may write to it at any time
  StampContext contexts_[kMostContexts];
  std::atomic<uint32_t> context_count_{0};
  std::atomic<bool> is_off_{false};
  std::atomic<uint64_t> touches_{0};
  // Relaxed adds: a capture is rare, and a count orders nothing.
  std::atomic<uint64_t> seen_{0}, followed_{0}, no_room_{0}, incomplete_{0}, refused_{0};
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_GRAPH_STAMPS_H_

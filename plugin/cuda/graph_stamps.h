// GraphStamps follows replays of CUDA graphs, which NCCL does not report.
//
// While NCCL's work is captured into a graph, stamps are added between the graph's nodes. A stamp
// is a kernel of one thread that counts how often the GPU passes it, and stores the GPU's time.
// Most stamps come in pairs, around one launch of NCCL.
//
//   capturing thread                     GPU, each replay         "pulse-poll"
//   ----------------                     ----------------         ------------
//   call:    counted for its capture,    stamp: count += 1,       reads the counts: replays,
//            by kind                     stored in host memory    calls executed, replays in
//   launch:  a stamp is due at its       together with the time   flight
//            position (stamp_plan.h)?                             reads the times: duration of
//            add it before the launch,                            the launch between the two
//            and for a pair another                               stamps of a pair
//            stamp behind the launch
//
// Times are a sample: each poll takes the last duration of each pair, if both stamps belong to the
// same replay.
//
// A capture is identified by the driver's capture ID. Its calls are counted in the table of open
// captures until its first stamp, and then in a record, which lives as long as the graph. The
// graph, its clones and its executables retain a CUDA user object, whose destructor ends the
// record. (NCCL keeps its plans alive in the same way, src/misc/strongstream.cc.) Executables of
// one capture share its stamps, so counts are sums over them. Updating an executable with a later
// capture switches it to the later capture's stamps.
//
// The position of stamps never depends on free records or slots: a stamp without them is launched
// but not read. Only kernel nodes are added to a user's graph, because other nodes are not allowed
// in conditional bodies and in graphs for device launch (docs/cuda-graphs.md).
//
// Thread: PrepareContext under the runtime's lock. Note... functions from callbacks on any thread,
// one at a time per capture; concurrent calls only cost accuracy. Poll on the background thread. No
// locks, allocations or waits. Errors: if the driver refuses a launch, the process gets no further
// stamps, and the refusal is counted (Captures).
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
  static constexpr uint32_t kMostKinds = 32;  // kinds of calls (captured_calls.h) in one capture
  static constexpr uint32_t kMostRecords = 512;
  static constexpr uint32_t kMostContexts = 16;
  // Communicators followed in one capture. For further communicators, the position in a replay is
  // not known, and each call and launch counts as a separate capture without stamps.
  static constexpr uint32_t kMostMembers = 6;
  static constexpr uint32_t kMostCommunicators = 1024;  // CapturedCalls has 10 bits

  // The table of open captures is set-associative, like a cache. SetOf returns a capture's set.
  static constexpr uint32_t kSets = 32;
  static constexpr uint32_t SetOf(uint64_t capture_id) {
    static_assert(kSets == 1 << (64 - 59));
    return static_cast<uint32_t>(capture_id * 0x9e3779b97f4a7c15ULL >> 59);
  }

  // Returns null if there is no memory.
  static std::unique_ptr<GraphStamps> Make(const CudaDriver& driver, const StampDriver& stamps);
  ~GraphStamps() = default;
  GraphStamps(const GraphStamps&) = delete;
  GraphStamps& operator=(const GraphStamps&) = delete;

  // Call in init. True if graphs captured in the calling thread's current context get stamps.
  bool PrepareContext();

  // ---- callbacks ----

  // Notes a call that was captured on `stream`. `kind`, `owner`: as in CapturedCalls.
  void NoteCall(CudaStream stream, uint32_t kind, uint32_t owner, uint64_t bytes);
  // A captured launch. If it has a single call, the launch's duration is the call's.
  struct Launch {
    uint32_t kind, owner;  // of the single call, as in CapturedCalls; kind 0: no single call
    uint64_t bytes, bus_bytes;
  };
  // Call before a launch with `calls` calls of this communicator is captured on `stream`.
  // `communicator`: its index. If the function returns true, call NoteLaunchEnd after the launch.
  bool NoteLaunch(CudaStream stream, const Launch& launch, uint32_t communicator, uint32_t calls);
  void NoteLaunchEnd(CudaStream stream);

  // ---- background thread ----

  // Counts of the process' captures.
  struct Captures {
    uint64_t seen = 0;        // captures with calls or launches
    uint64_t followed = 0;    // captures with stamps that are read
    uint64_t no_room = 0;     // captures with stamps that are not read: no record or slot was free
    uint64_t incomplete = 0;  // followed captures with more than kMostKinds kinds of calls
    uint64_t refused = 0;     // stamps that the driver refused to launch
  };
  Captures captures() const;

  // The last stamp of a graph that the GPU is known to have passed. The counts are of one
  // communicator's calls in one replay.
  struct Passed {
    uint64_t gpu_ns = 0;              // time of passing; 0: nothing new
    uint32_t graph = 0;               // CaptureMember::number
    uint32_t passed = 0, stamps = 0;  // number of the stamp, from 1; number of stamps in the graph
    uint64_t calls_before = 0;        // calls before this stamp
    uint64_t calls_until = 0;         // calls before the next stamp; passed the last one: all calls
    uint64_t calls = 0;               // all calls
    bool has_head = false;            // the first stamp precedes all other nodes of the graph
  };
  // Calls of one kind that replays of a capture made since the last poll.
  struct Replayed {
    uint32_t communicator, owner;  // as in CapturedCalls
    uint32_t op, size_class;
    bool is_first_of_communicator;  // first kind that this poll reports for the communicator
    uint64_t replays;               // since this kind was last counted
    uint64_t calls, bytes;          // in all these replays
    uint64_t in_flight;             // replays that have passed the first stamp but not the last
    uint64_t moved_ns;              // last poll that saw a newly passed stamp; 0: never

    // Set only if is_first_of_communicator.
    uint32_t captures, followed;  // CommunicatorCaptures
    Passed last;
  };
  // The duration of a launch in one replay.
  struct Timed {
    Launch launch;
    uint64_t duration_ns;
    uint64_t replay;  // number of the replay, from 1
    uint32_t graph;   // CaptureMember::number; 0: not known
    uint32_t pair;    // number of the pair of stamps in the graph, from 0
  };
  // Reads all stamps. Calls `count(Replayed)` for each kind of calls in each graph with stamps; if
  // `count` returns false, the next poll reports the same replays again. Calls `timed(Timed)` for
  // each pair with a new duration. Returns true if a stamp was passed since the last poll.
  template <typename Count, typename CountTimed>
  bool Poll(uint64_t now_ns, Count count, CountTimed timed) {
    bool moves = false;
    for (Record& record : tables_->records) {
      // Acquire: sees the record as the capturing thread made it.
      if (record.state.load(std::memory_order_acquire) != Record::kUsed) continue;
      const bool is_over = IsOver(record, now_ns);
      Progress progress = Look(record, now_ns);
      // The graph is gone, so no further passage can complete a replay.
      if (is_over) progress.in_flight = 0;
      moves |= progress.moved;
      if (progress.moved) {
        for (uint32_t k = 1; k < progress.stamps; ++k) {
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
        if (count(Describe(record, progress, calls, kind, is_first))) {
          calls.counted = progress.replays;
        } else {
          all_counted = false;
        }
      }
      if (all_counted && is_over) Free(record);
    }
    return moves;
  }

 private:
  // An open capture, or an ended one whose slot is not reused yet.
  struct Capture {
    static constexpr uint64_t kBusy = ~uint64_t{0};
    std::atomic<uint64_t> id;        // 0: free
    std::atomic<uint64_t> touched;   // value of touches_ at the last use
    std::atomic<uint32_t> launches;  // number of launches so far
    std::atomic<uint32_t> record;    // 1 + index of its record; 0: none
    std::atomic<bool> has_stamp;
    std::atomic<bool> is_truncated;  // more than kMostKinds kinds of calls
    std::atomic<bool> awaits_end;    // NoteLaunchEnd is due for `launch`
    Launch launch;                   // launch with a pair of stamps

    // Used until the capture has a record.
    CapturedCalls calls[kMostKinds];
    CaptureMember members[kMostMembers];
  };
  struct Record {
    // kFree -> kFilling (capturing thread) -> kUsed -> kFree (background thread)
    enum State : uint32_t { kFree = 0, kFilling = 1, kUsed = 2 };
    std::atomic<uint32_t> state;
    std::atomic<bool> is_destroyed;  // the graph is gone; written by CUDA's thread
    StampContext* context;
    std::atomic<uint32_t> stamps;
    struct Stamp {
      uint32_t slot;
      uint64_t base;  // count of the slot before this stamp used it
      Launch launch;  // launch between the previous stamp and this one

      // Background thread: number of passages seen, and number of the passage timed last.
      uint64_t seen, timed;
    } stamp[kMostStamps];
    CapturedCalls calls[kMostKinds];
    CaptureMember members[kMostMembers];
    bool has_head;  // published with the first stamp

    // Background thread.
    bool is_passed_due;     // a stamp was passed, and `Passed` has not been reported yet
    uint64_t moved_ns;      // last poll that saw a newly passed stamp; 0: never
    uint64_t destroyed_ns;  // first poll that saw is_destroyed
  };
  static constexpr uint32_t kWays = 4;
  struct Tables {
    Capture captures[kSets][kWays];
    Record records[kMostRecords];
    CommunicatorCaptures of_communicators[kMostCommunicators];
  };
  static_assert(sizeof(Tables) < 7 << 18, "docs/cuda-graphs.md says 1.7 MiB");
  struct Progress {
    uint32_t stamps;
    uint64_t replays;
    uint64_t in_flight;
    bool moved;
    uint32_t passed;  // stamps passed by the newest replay
    uint64_t gpu_ns;  // when it passed the last of these; 0: reported before
  };

  GraphStamps(const CudaDriver& driver, const StampDriver& stamps, Tables* tables)
      : driver_(driver), stamps_(stamps), tables_(tables) {}

  // Returns the open capture of `stream`, and its graph. Null if `stream` is not in capture, or if
  // too many captures share a set.
  Capture* FindCapture(CudaStream stream, CudaGraph* graph);
  Capture* TryOpen(Capture (&set)[kWays], uint64_t id, uint64_t touch);
  StampContext* CurrentContext();
  enum class Where { kHead, kHere };
  // Adds a stamp. `behind`: the launch behind which it is added; kind 0: none. Returns false if the
  // stamp will not be read.
  bool AddStamp(Capture& capture, CudaStream stream, CudaGraph graph, Where where,
                const Launch& behind);
  // Returns the driver's error.
  int Insert(const StampContext& context, CudaStream stream, CudaGraph graph, uint32_t slot,
             Where* where);
  Record* TakeRecord(Capture& capture, CudaGraph graph, StampContext& context);
  bool RetainBy(CudaGraph graph, Record& record);
  CaptureMember (&MembersOf(Capture& capture))[kMostMembers];
  // Returns null if the capture has too many communicators.
  CaptureMember* FindMember(Capture& capture, uint32_t communicator, uint32_t owner);
  CommunicatorCaptures& CapturesOf(uint32_t communicator, uint32_t owner);
  // Adds `change` to the followed captures: 1 for a newly followed capture, -1 for a capture that
  // is no longer followed.
  void CountFollowed(const CaptureMember& member, uint32_t change);
  static bool AddCall(CapturedCalls (&table)[kMostKinds], uint32_t kind, uint32_t owner,
                      uint64_t calls, uint64_t bytes);
  static Progress Look(Record& record, uint64_t now_ns);
  Replayed Describe(Record& record, const Progress& progress, const CapturedCalls& calls,
                    uint32_t kind, bool is_first) const;
  // Returns the time between the previous stamp and stamp `number`; 0: not new, or not known.
  static uint64_t NewDuration(Record& record, uint32_t number);
  static Timed DescribeTimed(const Record& record, uint32_t number, uint64_t duration_ns);
  static bool IsOver(Record& record, uint64_t now_ns);
  static void Free(Record& record);

  const CudaDriver& driver_;
  const StampDriver& stamps_;
  Tables* const tables_;  // never unmapped: CUDA's thread may write here at any time
  StampContext contexts_[kMostContexts];
  std::atomic<uint32_t> context_count_{0};
  std::atomic<bool> is_off_{false};
  std::atomic<uint64_t> touches_{0};
  // Relaxed adds: counts order nothing.
  std::atomic<uint64_t> seen_{0}, followed_{0}, no_room_{0}, incomplete_{0}, refused_{0};
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_GRAPH_STAMPS_H_

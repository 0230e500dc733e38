// RecordWriter writes the parts of a communicator's record that are in no lane (lane_writer.h):
// states, identity, progress of the GPU, and the ring of timed calls. The plugin, tests, benches
// and simulated ranks all use this writer.
//
//   RecordWriter writer(segment, record);
//   const uint32_t generation = writer.Prepare(identity);
//   writer.Publish(source);     // kFree -> kLive: visible to readers
//   writer.Finalize(now_ns);    // -> kFinalized: its numbers stay readable
//   writer.Recycle();           // -> kFree, as if never used
//
// Thread: the functions under "states" by one thread at a time (the runtime's lock). Readers may
// read meanwhile. Callbacks and the background thread may still hold an older generation
// (record_life.h). Headings name the callers of the others. An object holds only two references;
// make one where it is needed.
//
// Cost: Recycle waits up to about 30 ms for busy lanes, and Prepare may populate memory.
#ifndef METRICS_RECORD_WRITER_H_
#define METRICS_RECORD_WRITER_H_

#include <cstdint>
#include <ctime>
#include <string_view>

#include "metrics/graph_position.h"
#include "metrics/lane_writer.h"
#include "metrics/name_table.h"
#include "metrics/segment.h"
#include "metrics/timed_call.h"

namespace nccl_pulse {

class RecordWriter {
 public:
  // A callback holds a lane for a fraction of a microsecond, unless its thread is preempted.
  // Recycle and finalize try this often to claim a lane, with this pause.
  static constexpr int kLaneAttempts = 50;
  static constexpr timespec kLanePause{0, 100000};

  RecordWriter(Segment& segment, CommunicatorRecord& record) : segment_(segment), record_(record) {}

  // ---- states ----

  // The fields are those of CommunicatorSnapshot (snapshot.h).
  struct Identity {
    uint64_t comm_id = 0;  // 0: not known yet, see Learn
    std::string_view name;
    int32_t rank = 0, nranks = 0, nnodes = 0;
    uint32_t index = 0;
    std::string_view gpu, uuid, pci_bus_id;
    int64_t init_realtime_ns = 0;
    int32_t nccl_api_version = 0;
    uint32_t event_mask = 0;
  };
  // Gives a free record, whose memory is populated, its next generation and owner. Returns the
  // generation, with which lanes can be claimed from now on.
  uint32_t Prepare(const Identity& identity);
  // Makes the record visible to readers. `source`: detects which of its work is complete.
  void Publish(CompletionSource source);
  // True if there are chunks for another communicator's ring of last calls, or rings are off.
  static bool HasRoomForLastCalls(Segment& segment) {
    const SegmentHeader& header = segment.header();
    return header.last_call_chunks_used.load() + header.last_calls / kLastCallsPerChunk <=
           kMostLastCallChunks;
  }
  void Finalize(uint64_t now_ns);

  // Frees the chunks of a finalized communicator's last calls for another communicator; the rest of
  // the record stays. Readers then read again, as after Recycle.
  void GiveUpLastCalls();

  // Frees a finalized record and its chunks. Its calls and callbacks move to the process' sums
  // (SegmentHeader::recycled_*). Readers drop a copy that they are making. False if a lane stayed
  // busy: its holder would write into the next communicator. The record is then unchanged; try
  // again later.
  bool Recycle();

  // ---- late identity: called by callbacks ----

  // Sets the identity that API v1 to v3 give only with the first operation. Any thread, once.
  void Learn(uint64_t comm_id, const char* name, int32_t rank);
  // Stores why GPU timestamps are no longer trusted; the first reason is kept. Any thread.
  void Distrust(TrustState why);

  // ---- the ring of timed calls ----

  // Adds a call. Caller holds a lane of the record, which makes a recycler wait. Also keeps the
  // call if it is the agreed call of its second (agreed_call.h).
  void AppendTimedCall(const TimedCallFields& call);

  // ---- calls and followed launches: the calling or launching thread, without a lane ----

  // Stores the last call.
  void NoteCall(NameId op, uint32_t size_class) { NoteCall(op | uint64_t{size_class} << 8); }
  void NoteCall(uint64_t op_and_size_class) {
    record_.followed.last_call.store(LastCall::Pack(op_and_size_class));
  }
  // Call before recording the launch's events, so that the count of completed launches never
  // exceeds the count of launches (heartbeat.h). `with_callback`: NCCL reported the launch.
  void CountFollowedLaunch(uint64_t now_ns, bool with_callback) {
    if (__builtin_expect(with_callback, 1)) {
      record_.followed.callbacks_of(CallbackKind::kLaunch).add(1);
    }
    record_.followed.launches.publish_sum(1);  // a reader of the sum also sees the callback
    NoteLastLaunch(now_ns);
  }
  void NoteLastLaunch(uint64_t now_ns) { record_.followed.last_launch_ns.store(now_ns); }
  uint64_t followed_launches() const { return record_.followed.launches.load(); }
  // Returns the number of launches with a callback.
  uint64_t reported_launches() const {
    return record_.followed.callbacks_of(CallbackKind::kLaunch).load();
  }
  bool has_captured() const { return record_.captured.load() != 0; }
  uint64_t last_launch_ns() const { return record_.followed.last_launch_ns.load(); }
  // Notes that a call was captured into a CUDA graph.
  void NoteCaptured() { record_.captured.store(1); }

  // ---- progress of the GPU: called by a background thread, holding a lane of the record ----

  void StoreHeartbeat(const Heartbeat& heartbeat);
  // Stores the number of calls since the last launch that NCCL reported (0: none), and the
  // monotonic time at which they were first seen. `in_group`: NCCL is known not to have ended the
  // last call's group.
  void StoreUnreportedCalls(uint64_t calls, uint64_t since_ns, bool in_group);
  // Notes that work made no progress for `waited_ns` until now, and then resumed (long_wait.h).
  // `last_call`: the last call before the pause, packed by LastCall.
  void NoteWait(uint64_t last_call, uint64_t waited_ns, uint64_t now_ns);
  // Notes a driver error from which the context does not recover. The first one is kept.
  void NoteDriverError(uint32_t error, uint64_t now_ns);
  // Replays of CUDA graphs with calls of the communicator.
  struct Graphs {
    uint64_t new_replays = 0;  // begun since the previous StoreGraphs
    uint64_t in_flight = 0;    // replays that have not passed their last stamp (graph_position.h)
    uint64_t moved_ns = 0;     // when a replay was last seen to move, monotonic; 0: never
    GraphPosition position{};
  };
  void StoreGraphs(const Graphs& graphs);
  // NCCL's own work counter; the fields are those of WorkSnapshot (snapshot.h).
  struct Work {
    WorkState state{};
    WorkRefutal refutal{};
    bool are_operations_known = false;
    bool is_being_proven = false;
    uint64_t operations = 0;
    uint64_t moved_ns = 0;  // monotonic
    uint64_t longest_pause_ns = 0;
  };
  void StoreWork(const Work& work);
  // Stores the enqueue time of the oldest operation in flight (0: none), for communicators whose
  // launches have no CUDA events behind them.
  void StoreOldestOperation(uint64_t enqueue_ns);
  // Changes the source from `from` to `to`, without a lane. False, without effect, if it is no
  // longer `from`: init and the background thread both change it.
  bool ChangeCompletionSource(CompletionSource from, CompletionSource to);
  CompletionSource completion_source() const {
    return static_cast<CompletionSource>(record_.completion_source.load());
  }

 private:
  void GiveRingBack();
  void KeepIfAgreed(uint64_t number, const TimedCallFields& call);
  int ClaimLanes();
  void KeepSums();
  void AddToSums(uint32_t op, uint64_t calls, uint64_t bytes);
  void TakeLastCallChunks();
  void GiveBackChunks();
  void GiveBackSeries();

  Segment& segment_;
  CommunicatorRecord& record_;
};

}  // namespace nccl_pulse

#endif  // METRICS_RECORD_WRITER_H_

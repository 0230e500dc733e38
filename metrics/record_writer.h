// Makes every write to a communicator's record that does not go through a lane (lane_writer.h): its
// states, its identity, the heartbeat, and the ring of timed calls. The plugin, tests, benches and
// made-up ranks all use this one writer.
//
//   RecordWriter writer(segment, record);
//   const uint32_t generation = writer.Prepare(identity);
//   writer.Publish(source);     // kFree -> kLive: readers see it
//   writer.Finalize(now_ns);    // -> kFinalized: its numbers stay readable
//   writer.Recycle();           // -> kFree, as if it had never been used
//
// Thread: the four above by one thread at a time (the runtime's lock). Readers may read meanwhile,
// and callbacks and the background thread may still hold an older generation. The other functions
// say who may call them. An object is two references; make one where it is needed.
//
// Cost: Recycle waits for lanes that are busy, some 30 ms at most; nothing else waits or allocates.
#ifndef METRICS_RECORD_WRITER_H_
#define METRICS_RECORD_WRITER_H_

#include <cstdint>
#include <ctime>
#include <string_view>

#include "metrics/graph_place.h"
#include "metrics/lane_writer.h"
#include "metrics/name_table.h"
#include "metrics/segment.h"
#include "metrics/timed_call.h"

namespace nccl_pulse {

class RecordWriter {
 public:
  // A callback holds a lane for a fraction of a microsecond, unless its thread was taken off the
  // CPU. Init and finalize wait for one this often, this long each time.
  static constexpr int kLaneAttempts = 50;
  static constexpr timespec kLanePause{0, 100000};

  RecordWriter(Segment& segment, CommunicatorRecord& record) : segment_(segment), record_(record) {}

  // ---- states ----

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
  // Gives a free record, whose memory is there, its next generation and owner. The generation is
  // the answer: lanes can be claimed with it from now on.
  uint32_t Prepare(const Identity& identity);
  void Publish(CompletionSource source);
  // Whether a communicator that is prepared next gets a ring of last calls, or none is wanted.
  static bool HasRoomForLastCalls(Segment& segment) {
    const SegmentHeader& header = segment.header();
    return header.last_call_pages_used.load() + header.last_calls / kLastCallsPerPage <=
           kMostLastCallPages;
  }
  void Finalize(uint64_t now_ns);

  // The pages of its last calls go to another communicator: of a finalized one, which keeps the
  // rest. In an epoch of its own, as Recycle.
  void GiveUpLastCalls();

  // Takes a finalized record back: its pages are free again, its calls and callbacks go on in the
  // process' sums (recycled_*), and readers that were in the middle of it drop it. False when a
  // lane stayed busy: its holder would write into the next communicator. The record then stays as
  // it is, to be tried again later.
  bool Recycle();

  // ---- identity that comes late; callbacks ----

  // API v1 to v3 name a communicator with its first operation. Any thread, once.
  void Learn(uint64_t comm_id, const char* name, int32_t rank);
  // Why its GPU timestamps are no longer believed; the first reason holds. Any thread.
  void Distrust(TrustState why);

  // ---- the ring of timed calls ----

  // Holder of a lane of the record: a recycler then waits. Also keeps the call as the agreed one of
  // its second, if it is one (agreed_call.h).
  void AppendTimedCall(const TimedCallFields& call);

  // ---- calls and followed launches; the launching thread, without a lane ----

  void NoteCall(NameId op, uint32_t size_class) { NoteCall(op | uint64_t{size_class} << 8); }
  void NoteCall(uint64_t op_and_size_class) {
    record_.followed.last_call.store(LastCall::Pack(op_and_size_class));
  }
  // Before the events that follow it, which publish it (heartbeat.h): never have more completed
  // than were launched. `with_callback`: NCCL made one for it.
  void CountFollowedLaunch(uint64_t now_ns, bool with_callback) {
    if (__builtin_expect(with_callback, 1)) {
      record_.followed.callbacks_of(CallbackKind::kLaunch).add(1);
    }
    record_.followed.launches.add(1);
    NoteLastLaunch(now_ns);
  }
  void NoteLastLaunch(uint64_t now_ns) { record_.followed.last_launch_ns.store(now_ns); }
  uint64_t followed_launches() const { return record_.followed.launches.load(); }
  // Those with a callback.
  uint64_t reported_launches() const {
    return record_.followed.callbacks_of(CallbackKind::kLaunch).load();
  }
  bool has_captured() const { return record_.captured.load() != 0; }
  uint64_t last_launch_ns() const { return record_.followed.last_launch_ns.load(); }
  // A call was captured into a CUDA graph.
  void NoteCaptured() { record_.captured.store(1); }

  // ---- heartbeat; the background thread, with a lane of the record in its hands ----

  void StoreHeartbeat(const Heartbeat& heartbeat);
  // Calls since the last launch that NCCL reported, and since when they stand; 0: none. `in_group`: NCCL
  // is known not to have ended the last one's group.
  void StoreUnreportedCalls(uint64_t calls, uint64_t since_ns, bool in_group);
  // Work stood still this long, until now, and then goes on. `last_call`: LastCall, meanwhile.
  void NoteWait(uint64_t last_call, uint64_t waited_ns, uint64_t now_ns);
  // The driver answers with an error from which the context does not recover. The first one stays.
  void NoteDriverError(uint32_t error, uint64_t now_ns);
  struct Graphs {
    uint64_t new_replays = 0;
    uint64_t in_flight = 0;
    uint64_t moved_ns = 0;  // monotonic
    GraphPlace place{};
  };
  void StoreGraphs(const Graphs& graphs);
  struct Work {
    WorkState state{};
    WorkRefutal refutal{};
    bool are_operations_known = false;
    uint64_t operations = 0;
    uint64_t moved_ns = 0;  // monotonic
    uint64_t longest_pause_ns = 0;
  };
  void StoreWork(const Work& work);
  // Where no events follow the launches.
  void StoreOldestOperation(uint64_t enqueue_ns);
  // False when it is not `from` any more: init and the background thread both change it.
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
  void TakeLastCallPages();
  void GiveBackPages();
  void GiveBackSeries();

  Segment& segment_;
  CommunicatorRecord& record_;
};

}  // namespace nccl_pulse

#endif  // METRICS_RECORD_WRITER_H_

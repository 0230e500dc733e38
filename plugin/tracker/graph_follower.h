// GraphFollower counts the calls that replays of CUDA graphs execute. It notes the calls captured
// into a graph, adds stamps to the graph, and polls the stamps. A stamp is a tiny kernel that
// counts how often the GPU passes it, and stores the time (plugin/cuda/graph_stamps.h).
//
// Thread: Begin and PrepareContext under the runtime's lock; the Note, Start and Stop functions
// from callbacks, which NCCL serializes per communicator; Poll by the background thread. Cost: none
// while off and for uncaptured calls. For captured calls see graph_stamps.h.
#ifndef PLUGIN_TRACKER_GRAPH_FOLLOWER_H_
#define PLUGIN_TRACKER_GRAPH_FOLLOWER_H_

#include <cstdint>
#include <memory>

#include "metrics/atomic_cell.h"
#include "metrics/name_table.h"
#include "plugin/cuda/graph_stamps.h"
#include "plugin/tracker/captured_launch.h"
#include "plugin/tracker/communicator.h"
#include "plugin/tracker/communicator_table.h"
#include "plugin/tracker/events.h"
#include "plugin/tracker/instruments.h"

namespace nccl_pulse {

class GraphFollower {
 public:
  explicit GraphFollower(Instruments& instruments) : instruments_(instruments) {}
  GraphFollower(const GraphFollower&) = delete;
  GraphFollower& operator=(const GraphFollower&) = delete;

  // Starts to follow graphs. Call before the first communicator. Returns false if the driver lacks
  // a function, or without memory.
  bool Begin(const CudaDriver& driver);
  bool is_on() const { return graphs_ != nullptr; }
  // Call in a communicator's init. Returns true if graphs captured in its context are followed.
  bool PrepareContext() { return is_on() && graphs_->PrepareContext(); }

  // ---- callbacks; while it is on ----

  struct Call {
    CudaStream stream;
    NameId op;
    uint32_t size_class;
    uint64_t bytes;
  };
  [[gnu::cold, gnu::noinline]] void NoteCall(Communicator& communicator, const Call& call);
  // Notes a launch that is captured into a graph. Returns its ticket if StopLaunch must be called
  // at its stop, else 0.
  [[gnu::cold, gnu::noinline]] uint64_t StartLaunch(Communicator& communicator,
                                                    const LaunchEvent& event, uint64_t context);
  void StopLaunch(Communicator& communicator, uint64_t ticket);

  // ---- background thread ----

  // Counts the replays since the last poll. Returns true if a stamp was passed since then.
  bool Poll(CommunicatorTable& communicators, uint64_t now_ns);

 private:
  bool CountReplays(CommunicatorTable& communicators, const GraphStamps::Replayed& replayed);
  static void NotePosition(const GraphStamps::Replayed& replayed, GraphReplays* graphs);
  void CountTimedReplay(CommunicatorTable& communicators, const GraphStamps::Timed& timed,
                        uint64_t now_ns);

  // State of one place of the communicator table.
  struct Slot {
    CapturedLaunch captured;
    GraphReplays replays;
  };

  Instruments& instruments_;
  std::unique_ptr<GraphStamps> graphs_;  // null: off
  std::unique_ptr<Slot[]> slots_;        // kMaxCommunicators: 120 KiB, while it is on
  uint64_t looks_ = 0;                   // number of polls so far; background thread
};

}  // namespace nccl_pulse

#endif  // PLUGIN_TRACKER_GRAPH_FOLLOWER_H_

// Tracker, the part of CUDA graphs: what their replays executed, by the stamps in them
// (graph_stamps.h).
#include <algorithm>

#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

bool Tracker::FollowGraphs(const CudaDriver& driver) {
  const StampDriver* stamps = StampDriver::Load();
  if (stamps == nullptr || stream_timer_ == nullptr) return false;
  graphs_ = GraphStamps::Make(driver, *stamps);
  return graphs_ != nullptr;
}

bool Tracker::PollGraphs(uint64_t now_ns) {
  ++graph_looks_;
  const bool moves = graphs_->Poll(
      now_ns, [this](const GraphStamps::Replayed& replayed) { return CountReplays(replayed); });
  const GraphStamps::Captures captures = graphs_->captures();
  SegmentHeader& header = segment_.header();
  const auto store = [&header](CaptureFate fate, uint64_t count) {
    header.graph_captures[static_cast<int>(fate)].store(count,
                                                        std::memory_order_relaxed);  // alone
  };
  store(CaptureFate::kSeen, captures.seen);
  store(CaptureFate::kFollowed, captures.followed);
  store(CaptureFate::kNoRoom, captures.no_room);
  store(CaptureFate::kIncomplete, captures.incomplete);
  store(CaptureFate::kRefused, captures.refused);
  return moves;
}

// False: its lanes are busy, it is counted at the next look. What belongs to a communicator that is
// no longer shown is nobody's.
bool Tracker::CountReplays(const GraphStamps::Replayed& replayed) {
  Communicator& communicator = slots_[replayed.communicator];
  CommunicatorRecord& record = *communicator.record;
  // Relaxed: the lane looks again.
  if (record.generation.load(std::memory_order_relaxed) != replayed.owner) return true;
  GraphReplays& graphs = communicator.graphs;
  if (graphs.look != graph_looks_ || graphs.record_generation != replayed.owner) {
    const uint64_t moved_ns =
        graphs.record_generation == replayed.owner ? graphs.moved_ns : uint64_t{0};
    graphs = {replayed.owner, graph_looks_, 0, moved_ns};
  }
  graphs.moved_ns = std::max(graphs.moved_ns, replayed.moved_ns);
  if (replayed.is_first_of_communicator) graphs.in_flight += replayed.in_flight;
  LaneWriter lane(segment_, record, replayed.owner, LaneRole::kBackground);
  if (!lane.ok()) {
    return record.generation.load(std::memory_order_relaxed) != replayed.owner;
  }
  WriterOf(communicator)
      .StoreGraphs({replayed.is_first_of_communicator ? replayed.replays : 0, graphs.in_flight,
                    graphs.moved_ns});
  if (replayed.replays != 0) {
    lane.Count(SeriesKey::Pack(SeriesKind::kReplayed, replayed.op, replayed.size_class, 0, 0),
               replayed.calls, replayed.bytes);
  }
  return true;
}

}  // namespace nccl_pulse

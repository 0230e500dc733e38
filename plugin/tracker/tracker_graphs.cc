// Tracker, the part of CUDA graphs: what their replays executed, by the stamps in them
// (graph_stamps.h).
#include <algorithm>

#include "plugin/tracker/bus_bytes.h"
#include "plugin/tracker/tracker.h"

namespace nccl_pulse {

bool Tracker::FollowGraphs(const CudaDriver& driver) {
  const StampDriver* stamps = StampDriver::Load();
  if (stamps == nullptr || stream_timer_ == nullptr) return false;
  graphs_ = GraphStamps::Make(driver, *stamps);
  return graphs_ != nullptr;
}

void Tracker::NoteCallOfGraph(Communicator& communicator, const CapturedCall& call) {
  const uint32_t kind = CapturedCalls::PackKind(communicator.index, call.op, call.size_class);
  graphs_->NoteCall(call.stream, kind,
                    communicator.record_generation.load(std::memory_order_relaxed), call.bytes);
  // Relaxed: see PendingLaunch.
  CapturedLaunch& captured = communicator.launching->captured;
  captured.kind.store(kind, std::memory_order_relaxed);
  captured.bytes.store(call.bytes, std::memory_order_relaxed);
  captured.bus_bytes.store(
      BusBytes(call.op, call.bytes, communicator.nranks.load(std::memory_order_relaxed)),
      std::memory_order_relaxed);
  captured.calls.store(captured.calls.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
}

uint64_t Tracker::StartCapturedLaunch(Communicator& communicator, const LaunchEvent& event,
                                      uint64_t context) {
  // Relaxed: see PendingLaunch.
  CapturedLaunch& captured = communicator.launching->captured;
  // Of one call its time is the call's. Several of a group, or a call before it whose launch is not
  // reported: nobody's.
  const bool is_of_one = captured.calls.exchange(0, std::memory_order_relaxed) == 1;
  const bool ends = graphs_->NoteLaunch(
      event.stream, {is_of_one ? captured.kind.load(std::memory_order_relaxed) : 0,
                     communicator.record_generation.load(std::memory_order_relaxed),
                     captured.bytes.load(std::memory_order_relaxed),
                     captured.bus_bytes.load(std::memory_order_relaxed)});
  captured.stream.store(ends ? event.stream : nullptr, std::memory_order_relaxed);
  if (!ends) return 0;
  return Ticket::Pack(process_tag_, TicketKind::kCapturedLaunch, 0, Ticket::Generation(context), 0,
                      communicator.index);
}

void Tracker::StopCapturedLaunch(uint64_t ticket) {
  Communicator& communicator = slots_[Ticket::Communicator(ticket)];
  // Acquire: sees the communicator.
  const uint64_t context = communicator.context.load(std::memory_order_acquire);
  if (context == 0 || Ticket::Generation(context) != Ticket::Generation(ticket)) {
    return Ignore(IgnoredReason::kStaleHandle);
  }
  // A stream may be gone once its launch has ended: it is used once. Relaxed: see PendingLaunch.
  CudaStream stream =
      communicator.launching->captured.stream.exchange(nullptr, std::memory_order_relaxed);
  if (stream == nullptr) return Ignore(IgnoredReason::kRepeatedStop);
  if (graphs_ != nullptr) graphs_->NoteLaunchEnd(stream);
}

bool Tracker::PollGraphs(uint64_t now_ns) {
  ++graph_looks_;
  const bool moves = graphs_->Poll(
      now_ns, [this](const GraphStamps::Replayed& replayed) { return CountReplays(replayed); },
      [this](const GraphStamps::Launch& launch, uint64_t duration_ns) {
        CountTimedReplay(launch, duration_ns);
      });
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

// A sample: one that finds no lane is left out.
void Tracker::CountTimedReplay(const GraphStamps::Launch& launch, uint64_t duration_ns) {
  Communicator& communicator = slots_[CapturedCalls::Communicator(launch.kind)];
  LaneWriter lane(segment_, *communicator.record, launch.owner, LaneRole::kBackground);
  if (!lane.ok()) return;
  lane.Observe(SeriesKey::Pack(SeriesKind::kLatency, CapturedCalls::Op(launch.kind),
                               CapturedCalls::SizeClass(launch.kind),
                               static_cast<uint32_t>(LatencyKind::kDurationGraph), 0),
               duration_ns, launch.bytes, launch.bus_bytes);
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

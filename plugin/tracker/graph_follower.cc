#include "plugin/tracker/graph_follower.h"

#include <algorithm>
#include <new>

#include "metrics/header_writer.h"
#include "plugin/tracker/counting.h"
#include "plugin/tracker/ticket.h"

namespace nccl_pulse {

bool GraphFollower::Begin(const CudaDriver& driver) {
  const StampDriver* stamps = StampDriver::Load();
  if (stamps == nullptr || instruments_.stream_timer == nullptr) return false;
  // Written now, because a callback must not fault.
  slots_.reset(new (std::nothrow) Slot[kMaxCommunicators]{});
  if (slots_ != nullptr) graphs_ = GraphStamps::Make(driver, *stamps);
  return is_on();
}

void GraphFollower::NoteCall(Communicator& communicator, const Call& call) {
  const uint32_t kind = CapturedCalls::PackKind(communicator.index, call.op, call.size_class);
  const uint32_t owner = communicator.record_generation.load();
  graphs_->NoteCall(call.stream, kind, owner, call.bytes);
  CapturedLaunch& captured = slots_[communicator.index].captured;
  captured.Claim(owner);
  captured.kind.store(kind);
  captured.bytes.store(call.bytes);
  captured.bus_bytes.store(BusBytesOf(communicator, static_cast<uint8_t>(call.op), call.bytes));
  captured.calls.add(1);
}

uint64_t GraphFollower::StartLaunch(Communicator& communicator, const LaunchEvent& event,
                                    uint64_t context) {
  const uint32_t owner = communicator.record_generation.load();
  CapturedLaunch& captured = slots_[communicator.index].captured;
  captured.Claim(owner);
  // The duration of a launch with one call is the call's. If the launch carries several calls, or
  // follows an unreported launch, no call gets it.
  const uint32_t calls = captured.calls.exchange(0);
  const bool ends = graphs_->NoteLaunch(event.stream,
                                        {calls == 1 ? captured.kind.load() : 0, owner,
                                         captured.bytes.load(), captured.bus_bytes.load()},
                                        communicator.index, calls);
  captured.stream.store(ends ? event.stream : nullptr);
  if (!ends) return 0;
  return Ticket::Pack(instruments_.process_tag, TicketKind::kCapturedLaunch, 0,
                      Ticket::Generation(context), 0, communicator.index);
}

void GraphFollower::StopLaunch(Communicator& communicator, uint64_t ticket) {
  const uint64_t context = communicator.context.acquire();  // sees the communicator
  if (!is_on() || context == 0 || Ticket::Generation(context) != Ticket::Generation(ticket)) {
    return instruments_.Ignore(IgnoredReason::kStaleHandle);
  }
  // A stream may be destroyed once its launch has ended, so it is used only once.
  CudaStream stream = slots_[communicator.index].captured.stream.exchange(nullptr);
  if (stream == nullptr) return instruments_.Ignore(IgnoredReason::kRepeatedStop);
  graphs_->NoteLaunchEnd(stream);
}

bool GraphFollower::Poll(CommunicatorTable& communicators, uint64_t now_ns) {
  ++looks_;
  const bool moves = graphs_->Poll(
      now_ns,
      [&](const GraphStamps::Replayed& replayed) { return CountReplays(communicators, replayed); },
      [&](const GraphStamps::Timed& timed) { CountTimedReplay(communicators, timed, now_ns); });
  const GraphStamps::Captures captures = graphs_->captures();
  HeaderWriter header(instruments_.segment);
  header.StoreGraphCaptures(CaptureFate::kSeen, captures.seen);
  header.StoreGraphCaptures(CaptureFate::kFollowed, captures.followed);
  header.StoreGraphCaptures(CaptureFate::kNoRoom, captures.no_room);
  header.StoreGraphCaptures(CaptureFate::kIncomplete, captures.incomplete);
  header.StoreGraphCaptures(CaptureFate::kRefused, captures.refused);
  return moves;
}

// Counts the duration of a launch in a replay. Skips this sample if no lane is free.
void GraphFollower::CountTimedReplay(CommunicatorTable& communicators,
                                     const GraphStamps::Timed& timed, uint64_t now_ns) {
  const GraphStamps::Launch& launch = timed.launch;
  Communicator& communicator = communicators.place(CapturedCalls::Communicator(launch.kind));
  LaneWriter lane(instruments_.segment, *communicator.record, launch.owner, LaneRole::kBackground);
  if (!lane.ok()) return;
  lane.Observe(
      SeriesKey::Latency(CapturedCalls::Op(launch.kind), CapturedCalls::SizeClass(launch.kind),
                         LatencyKind::kDurationGraph),
      timed.duration_ns, launch.bytes, launch.bus_bytes);
  // Ranks are compared by this entry. Only the first pair of each graph gets one, because all calls
  // share the ring.
  if (timed.pair != 0 || timed.graph == 0) return;
  communicator.Writer(instruments_.segment)
      .AppendTimedCall({CapturedCalls::Op(launch.kind), LatencyKind::kDurationGraph,
                        CapturedCalls::SizeClass(launch.kind), static_cast<uint32_t>(timed.replay),
                        launch.bytes, timed.duration_ns, now_ns, timed.graph});
}

// Notes the position of the GPU in the communicator's graphs. If several graphs have moved, the
// position with the newest stamp is kept.
void GraphFollower::NotePosition(const GraphStamps::Replayed& replayed, GraphReplays* graphs) {
  graphs->position.captures = replayed.captures;
  graphs->position.followed = replayed.followed;
  const GraphStamps::Passed& last = replayed.last;
  if (last.gpu_ns == 0 || last.gpu_ns < graphs->position_gpu_ns) return;
  const auto calls = [](uint64_t count) {
    return static_cast<uint32_t>(std::min<uint64_t>(count, GraphPosition::kMostCalls));
  };
  graphs->position_gpu_ns = last.gpu_ns;
  graphs->position.graph = last.graph;
  graphs->position.passed = last.passed;
  graphs->position.stamps = last.stamps;
  graphs->position.calls_before = calls(last.calls_before);
  graphs->position.calls_until = calls(last.calls_until);
  graphs->position.calls = calls(last.calls);
  graphs->position.has_head = last.has_head;
}

// Counts the replays of one graph. Returns false if the communicator's lanes are busy: the caller
// tries again at its next poll. Replays of a communicator that is no longer shown are dropped.
bool GraphFollower::CountReplays(CommunicatorTable& communicators,
                                 const GraphStamps::Replayed& replayed) {
  Communicator& communicator = communicators.place(replayed.communicator);
  CommunicatorRecord& record = *communicator.record;
  // Claiming the lane checks this again.
  if (!record.life.IsOf(replayed.owner)) return true;
  GraphReplays& graphs = slots_[communicator.index].replays;
  if (graphs.record_generation != replayed.owner) {
    graphs = {};
    graphs.record_generation = replayed.owner;
  }
  if (graphs.look != looks_) {
    graphs.look = looks_;
    graphs.in_flight = 0;
  }
  graphs.moved_ns = std::max(graphs.moved_ns, replayed.moved_ns);
  if (replayed.is_first_of_communicator) {
    graphs.in_flight += replayed.in_flight;
    NotePosition(replayed, &graphs);
  }
  LaneWriter lane(instruments_.segment, record, replayed.owner, LaneRole::kBackground);
  if (!lane.ok()) return !record.life.IsOf(replayed.owner);
  communicator.Writer(instruments_.segment)
      .StoreGraphs({replayed.is_first_of_communicator ? replayed.replays : 0, graphs.in_flight,
                    graphs.moved_ns, graphs.position});
  if (replayed.replays != 0) {
    lane.Count(SeriesKey::Replayed(replayed.op, replayed.size_class), replayed.calls,
               replayed.bytes);
  }
  return true;
}

}  // namespace nccl_pulse

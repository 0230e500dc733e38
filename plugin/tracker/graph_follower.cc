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
  places_.reset(new (std::nothrow) Place[kMaxCommunicators]{});
  if (places_ != nullptr) graphs_ = GraphStamps::Make(driver, *stamps);
  return is_on();
}

void GraphFollower::NoteCall(Communicator& communicator, const Call& call) {
  const uint32_t kind = CapturedCalls::PackKind(communicator.index, call.op, call.size_class);
  const uint32_t owner = communicator.record_generation.load();
  graphs_->NoteCall(call.stream, kind, owner, call.bytes);
  CapturedLaunch& captured = places_[communicator.index].captured;
  captured.Claim(owner);
  captured.kind.store(kind);
  captured.bytes.store(call.bytes);
  captured.bus_bytes.store(BusBytesOf(communicator, static_cast<uint8_t>(call.op), call.bytes));
  captured.calls.add(1);
}

uint64_t GraphFollower::StartLaunch(Communicator& communicator, const LaunchEvent& event,
                                    uint64_t context) {
  const uint32_t owner = communicator.record_generation.load();
  CapturedLaunch& captured = places_[communicator.index].captured;
  captured.Claim(owner);
  // The time of a launch with one call is that call's. The time of a group of several, or of a
  // launch that follows an unreported one, is nobody's.
  const bool is_of_one = captured.calls.exchange(0) == 1;
  const bool ends =
      graphs_->NoteLaunch(event.stream, {is_of_one ? captured.kind.load() : 0, owner,
                                         captured.bytes.load(), captured.bus_bytes.load()});
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
  CudaStream stream = places_[communicator.index].captured.stream.exchange(nullptr);
  if (stream == nullptr) return instruments_.Ignore(IgnoredReason::kRepeatedStop);
  graphs_->NoteLaunchEnd(stream);
}

bool GraphFollower::Poll(CommunicatorTable& communicators, uint64_t now_ns) {
  ++looks_;
  const bool moves = graphs_->Poll(
      now_ns,
      [&](const GraphStamps::Replayed& replayed) { return CountReplays(communicators, replayed); },
      [&](const GraphStamps::Launch& launch, uint64_t duration_ns) {
        CountTimedReplay(communicators, launch, duration_ns);
      });
  const GraphStamps::Captures captures = graphs_->captures();
  HeaderWriter header(instruments_.segment);
  header.StoreGraphCaptures(CaptureFate::kSeen, captures.seen);
  header.StoreGraphCaptures(CaptureFate::kFollowed, captures.followed);
  header.StoreGraphCaptures(CaptureFate::kNoRoom, captures.no_room);
  header.StoreGraphCaptures(CaptureFate::kIncomplete, captures.incomplete);
  header.StoreGraphCaptures(CaptureFate::kRefused, captures.refused);
  return moves;
}

// A sample: if no lane is free, it is left out.
void GraphFollower::CountTimedReplay(CommunicatorTable& communicators,
                                     const GraphStamps::Launch& launch, uint64_t duration_ns) {
  Communicator& communicator = communicators.place(CapturedCalls::Communicator(launch.kind));
  LaneWriter lane(instruments_.segment, *communicator.record, launch.owner, LaneRole::kBackground);
  if (!lane.ok()) return;
  lane.Observe(
      SeriesKey::Latency(CapturedCalls::Op(launch.kind), CapturedCalls::SizeClass(launch.kind),
                         LatencyKind::kDurationGraph),
      duration_ns, launch.bytes, launch.bus_bytes);
}

// False if its lanes are busy: then it is counted at the next look. What belongs to a communicator
// that is no longer shown is dropped.
bool GraphFollower::CountReplays(CommunicatorTable& communicators,
                                 const GraphStamps::Replayed& replayed) {
  Communicator& communicator = communicators.place(replayed.communicator);
  CommunicatorRecord& record = *communicator.record;
  // Claiming the lane checks this again.
  if (!record.life.IsOf(replayed.owner)) return true;
  GraphReplays& graphs = places_[communicator.index].replays;
  if (graphs.look != looks_ || graphs.record_generation != replayed.owner) {
    const uint64_t moved_ns =
        graphs.record_generation == replayed.owner ? graphs.moved_ns : uint64_t{0};
    graphs = {replayed.owner, looks_, 0, moved_ns};
  }
  graphs.moved_ns = std::max(graphs.moved_ns, replayed.moved_ns);
  if (replayed.is_first_of_communicator) graphs.in_flight += replayed.in_flight;
  LaneWriter lane(instruments_.segment, record, replayed.owner, LaneRole::kBackground);
  if (!lane.ok()) return !record.life.IsOf(replayed.owner);
  communicator.Writer(instruments_.segment)
      .StoreGraphs({replayed.is_first_of_communicator ? replayed.replays : 0, graphs.in_flight,
                    graphs.moved_ns});
  if (replayed.replays != 0) {
    lane.Count(SeriesKey::Replayed(replayed.op, replayed.size_class), replayed.calls,
               replayed.bytes);
  }
  return true;
}

}  // namespace nccl_pulse

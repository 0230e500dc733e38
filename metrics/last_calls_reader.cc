// The part of RecordReader that reads the ring of last calls, and the calls by peer.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metrics/call_order.h"
#include "metrics/name_table.h"
#include "metrics/peers.h"
#include "metrics/record_reader.h"

namespace nccl_pulse {
namespace {

static_assert(kMostLastCalls <= CallOrderSnapshot::kMostCalls);

constexpr uint64_t kTextBytes = 48;
constexpr uint64_t kKindBytes = sizeof(CallOrderSnapshot::Kind) + 2 * kTextBytes;
constexpr uint64_t kLastCallBytes = sizeof(LastCallSnapshot) + 2 * kTextBytes;
constexpr uint64_t kPeerCallsBytes =
    sizeof(PeerCallsSnapshot) + kTextBytes + PeerCalls::kKept * sizeof(uint64_t);

// Returns the full number with these low bits, at most `newest`. It may be slightly later, because
// `newest` was read earlier.
uint64_t Widen(uint64_t newest, uint64_t low, int bits) {
  const uint64_t range = uint64_t{1} << bits;
  const uint64_t behind = (newest - low) & (range - 1);
  const bool is_later = behind >= range / 2;
  if (is_later) return newest + (range - behind);
  return newest >= behind ? newest - behind : 0;
}

// True if a rank can leave the operation before the others arrive.
bool IsLeftEarly(const std::string& op) {
  return op == "Broadcast" || op == "Reduce" || op == "Gather" || op == "Scatter";
}

bool HasRoot(NameId op) {
  return op == kBroadcastName || op == kReduceName || op == kGatherName || op == kScatterName;
}

}  // namespace

bool RecordReader::WantsLastCalls(const CommunicatorSnapshot& communicator) const {
  switch (wish_.last_calls) {
    case ReadWish::LastCalls::kNone:
      return false;
    case ReadWish::LastCalls::kOfOne:
      return communicator.comm_id == wish_.comm_id;
    case ReadWish::LastCalls::kOfUnfinished:
      return !communicator.finalized;
  }
  return false;
}

// True if the rank has made no progress since wish_.order_of_stalled_since_ns, even if it has no
// work in flight: the root of a Broadcast leaves while the other ranks still wait.
bool RecordReader::WantsCallOrder(const CommunicatorSnapshot& communicator) const {
  const bool has_left = communicator.has_heartbeat && communicator.launches != 0 &&
                        communicator.launches_completed == communicator.launches &&
                        IsLeftEarly(communicator.last_call_op);
  if (has_left && !communicator.finalized) {
    return std::max(communicator.last_launch_realtime_ns,
                    communicator.last_completion_realtime_ns) <= wish_.order_of_stalled_since_ns;
  }
  const int64_t in_flight_ns = communicator.has_heartbeat
                                   ? communicator.oldest_inflight_realtime_ns
                                   : communicator.oldest_operation_realtime_ns;
  return !communicator.finalized && in_flight_ns != 0 &&
         std::max(in_flight_ns, communicator.last_completion_realtime_ns) <=
             wish_.order_of_stalled_since_ns;
}

void RecordReader::ReadLastCalls(const CommunicatorRecord& record, CommunicatorSnapshot* out) {
  uint16_t chunks[kLastCallChunks];
  const uint32_t count = record.last_call_chunks.Read(chunks);  // published with the state
  out->last_calls_kept = count * kLastCallsPerChunk;
  const bool wants_calls = WantsLastCalls(*out);
  const bool wants_order = WantsCallOrder(*out);
  if (count == 0 || (!wants_calls && !wants_order)) return;
  std::vector<LastCallSnapshot> calls;
  for (uint32_t i = 0; i < count; ++i) {
    const auto* chunk = ClaimChunk<LastCallChunk>(chunks[i]);
    if (chunk == nullptr) continue;
    for (const LastCallEntry& entry : chunk->entries) {
      LastCallEntry::Copy copy;
      const uint64_t sequence = entry.Read(&copy);
      if (sequence == 0) continue;
      if (!Take(kLastCallBytes)) return;
      const uint32_t flags = LastCallBits::Flags(copy.what);
      LastCallSnapshot call;
      call.number = LastCallBits::Number(sequence);
      if ((flags & LastCallBits::kCollective) != 0) {
        call.collective_number = LastCallBits::Collectives(sequence);
      }
      call.op = Name(LastCallBits::Op(copy.what));
      call.datatype = Name(LastCallBits::Datatype(copy.what));
      call.bytes = LastCallBits::BytesOf(copy.bytes);
      call.captured = (flags & LastCallBits::kCaptured) != 0;
      call.is_of_group = (flags & LastCallBits::kSameGroup) != 0;
      call.stream_tag = LastCallBits::StreamTag(copy.bytes);
      if ((flags & LastCallBits::kKindNumbered) != 0) {
        call.kind_number = LastCallBits::KindNumber(copy.what);
      }
      const auto op = static_cast<NameId>(LastCallBits::Op(copy.what));
      const int32_t root_or_peer = LastCallBits::RootOrPeerOf(copy.what);
      if (HasRoot(op)) call.root = root_or_peer;
      if (op == kSendName || op == kReceiveName) call.peer = root_or_peer;
      call.launch_realtime_ns = Realtime(LastCallBits::LaunchNs(copy.launch));
      if (copy.launch != 0) {
        call.launch = Widen(out->launches, LastCallBits::LaunchNumber(copy.launch), 16);
      }
      calls.push_back(std::move(call));
    }
  }
  if (!record.last_call_chunks.HasStill(chunks[0])) {
    out->last_calls_kept = 0;
    return;
  }
  // Numbers wrap after 2^32 calls; within a ring they are close to each other.
  const uint32_t any = calls.empty() ? 0 : static_cast<uint32_t>(calls.front().number);
  std::sort(calls.begin(), calls.end(),
            [any](const LastCallSnapshot& a, const LastCallSnapshot& b) {
              return static_cast<int32_t>(static_cast<uint32_t>(a.number) - any) <
                     static_cast<int32_t>(static_cast<uint32_t>(b.number) - any);
            });
  if (wants_order) {
    std::optional<uint64_t> completed;
    const bool are_told = out->has_heartbeat && out->oldest_launch != OldestLaunch::kUntold;
    if (are_told) completed = out->launches_completed;
    out->call_order = CallOrderOf(calls, completed);
    const CallOrderSnapshot& order = out->call_order;
    if (!Take(order.calls.size() + order.kinds.size() * kKindBytes)) return;
    if (out->has_heartbeat) {
      out->peers = PeersOf(calls, *out);
    }
    const PeersSnapshot& peers = out->peers;
    if (!Take((peers.sends_to.size() + peers.receives_from.size()) * sizeof(uint64_t))) return;
  }
  if (!wants_calls) {
    bytes_ -= calls.size() * kLastCallBytes;  // not kept
    return;
  }
  out->last_calls = std::make_shared<const std::vector<LastCallSnapshot>>(std::move(calls));
}

void RecordReader::ReadPeerCalls(const CommunicatorRecord& record, CommunicatorSnapshot* out) {
  static_assert(PeerCallTable::kPeers == PeerCallsSnapshot::kMostPeers);
  const bool is_quiet = std::max(out->last_launch_realtime_ns, out->last_completion_realtime_ns) <=
                        wish_.order_of_stalled_since_ns;
  if (out->finalized || (!is_quiet && !WantsCallOrder(*out))) return;
  for (const PeerCalls& each : record.peer_calls.peers) {
    const uint64_t calls = each.calls.acquire();  // sees the peer, and the sums up to this call
    if (calls == 0 || !Take(kPeerCallsBytes)) return;
    const uint64_t whom = each.whom.load();
    PeerCallsSnapshot& read = out->peer_calls.emplace_back();
    read.peer = PeerCalls::Peer(whom);
    read.receives = PeerCalls::Receives(whom);
    read.calls = calls;
    for (uint64_t number = calls; number != 0 && calls - number < PeerCalls::kKept; --number) {
      const uint64_t sum = each.sums[(number - 1) % PeerCalls::kKept].load();
      if (!PeerCalls::IsOf(sum, number)) break;  // overwritten meanwhile
      const std::string& datatype = Name(PeerCalls::Datatype(sum));
      if (number == calls) read.datatype = datatype;
      if (read.datatype != datatype) read.datatype.clear();
      read.totals.push_back(PeerCalls::TotalBytes(sum));
    }
    std::reverse(read.totals.begin(), read.totals.end());
  }
}

}  // namespace nccl_pulse

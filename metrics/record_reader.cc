#include "metrics/record_reader.h"

#include <algorithm>
#include <map>
#include <utility>

#include "metrics/name_table.h"
#include "metrics/shared_bytes.h"
#include "metrics/size_class.h"
#include "metrics/user_tags.h"

namespace nccl_pulse {
namespace {

// Approximate size of an entry in a snapshot, with its texts: a name has up to 27 bytes.
constexpr uint64_t kTextBytes = 48;
constexpr uint64_t kCounterBytes = sizeof(CallCountSnapshot) + 2 * kTextBytes;
constexpr uint64_t kLatencyBytes = sizeof(LatencySnapshot) + kTextBytes;
constexpr uint64_t kTimedCallBytes = sizeof(TimedCallSnapshot) + kTextBytes;
constexpr uint64_t kCommunicatorBytes = sizeof(CommunicatorSnapshot) + 4 * kTextBytes;

bool IsLatencyKind(uint32_t kind) {
  return kind >= static_cast<uint32_t>(LatencyKind::kDurationKernel) &&
         kind < static_cast<uint32_t>(kLatencyKinds);
}

// Adds a count to the entry of the same operation, algorithm and protocol: several series may share
// one entry. There are few entries, so linear search is as good as a map.
void AddAlgorithm(AlgorithmCountSnapshot count, CommunicatorSnapshot* out) {
  for (AlgorithmCountSnapshot& known : out->algorithms) {
    if (known.op == count.op && known.algo == count.algo && known.proto == count.proto) {
      known.operations += count.operations;
      return;
    }
  }
  out->algorithms.push_back(std::move(count));
}

void AddUntimed(const std::string& op, uint32_t reason, uint64_t operations,
                CommunicatorSnapshot* out) {
  if (reason < 1 || reason >= static_cast<uint32_t>(kUntimedReasons)) return;
  for (UntimedSnapshot& known : out->untimed) {
    if (known.op == op && known.reason == static_cast<UntimedReason>(reason)) {
      known.operations += operations;
      return;
    }
  }
  out->untimed.push_back({op, static_cast<UntimedReason>(reason), operations});
}

void AddSequence(SequenceSnapshot sequence, CommunicatorSnapshot* out) {
  for (SequenceSnapshot& known : out->sequences) {
    if (known.op == sequence.op) {
      known.sequence = std::max(known.sequence, sequence.sequence);
      return;
    }
  }
  out->sequences.push_back(std::move(sequence));
}

}  // namespace

RecordReader::RecordReader(const SegmentGeometry& geometry, int64_t realtime_offset_ns,
                           uint64_t most_bytes, const ReadWish& wish)
    : geometry_(geometry),
      realtime_offset_ns_(realtime_offset_ns),
      most_bytes_(most_bytes),
      wish_(wish),
      claimed_chunks_(geometry.chunks) {
  const auto* entries = reinterpret_cast<const NameEntry*>(geometry.base + kHeaderBytes);
  for (int id = 0; id < kMaxNames; ++id) {
    NameText name;
    names_[id] = entries[id].Read(&name) ? CopyFromShared(name.text) : "unknown";
  }
}

void RecordReader::Restart() {
  claimed_chunks_.assign(geometry_.chunks, false);
  bytes_ = 0;
}

const std::string& RecordReader::RowName(uint32_t row) const {
  return row == kOperationRows - 1 ? Name(kOtherName) : Name(kFirstNcclName + row);
}

bool RecordReader::ReadUserTag(uint64_t key, std::string* out) const {
  const uint32_t id = SeriesKey::UserTag(key);
  if (id == 0) return true;
  if (id > kMaxUserTags) {
    *out = "other";
    return true;
  }
  const auto& header = *reinterpret_cast<const SegmentHeader*>(geometry_.base);
  const uint64_t tag = header.user_tags[id - 1].load();
  // The tag was stored before the key, but the key orders nothing. The next reading sees the tag.
  if (tag == 0) return false;
  *out = std::to_string(tag);
  return true;
}

bool RecordReader::Take(uint64_t bytes) {
  bytes_ += bytes;
  return !is_too_large();
}

template <typename T>
const T* RecordReader::ClaimChunk(uint16_t chunk) {
  const void* cells = geometry_.Chunk(chunk);
  if (cells == nullptr || claimed_chunks_[chunk]) return nullptr;
  claimed_chunks_[chunk] = true;
  return static_cast<const T*>(cells);
}
template const LastCallChunk* RecordReader::ClaimChunk(uint16_t chunk);  // last_calls_reader.cc

int64_t RecordReader::Realtime(uint64_t monotonic_ns) const {
  // Unsigned, so that values of a hostile segment cannot overflow.
  return monotonic_ns == 0
             ? 0
             : static_cast<int64_t>(monotonic_ns + static_cast<uint64_t>(realtime_offset_ns_));
}

void RecordReader::ReadRecycled(const SegmentHeader& header, ProcessSnapshot* out) const {
  for (int kind = 0; kind < kCallbackKinds; ++kind) {
    out->callbacks[kind] = header.recycled_callbacks[kind].acquire();
  }
  out->recycled_communicators = header.recycled_communicators.acquire();
  out->recycled_calls.clear();
  for (uint32_t row = 0; row < kOperationRows; ++row) {
    const uint64_t calls = header.recycled_calls[row].acquire();
    const uint64_t bytes = header.recycled_bytes[row].acquire();
    if (calls != 0) out->recycled_calls.push_back({RowName(row), calls, bytes});
  }
}

bool RecordReader::ReadCommunicator(uint32_t index, CallbackCounts* callbacks,
                                    CommunicatorSnapshot* out) {
  const CommunicatorRecord* record = geometry_.Record(index);
  if (record == nullptr) return false;
  const RecordLife::View view = record->life.Enter();
  if (view.state != CommunicatorState::kLive && view.state != CommunicatorState::kFinalized) {
    return false;
  }
  if (!Take(kCommunicatorBytes)) return false;
  out->finalized = view.state == CommunicatorState::kFinalized;
  ReadIdentity(*record, out);
  // Before the launches in the lanes: completed launches must never exceed launches.
  ReadHeartbeat(*record, out);
  ReadLanes(*record, callbacks, out);
  out->captured = record->captured.load() != 0;
  ReadVisibility(*record, out);
  ReadSeries(*record, out);
  ReadTimedCalls(*record, out);
  ReadLastCalls(*record, out);
  ReadPeerCalls(*record, out);
  return record->life.IsSame(view);
}

void RecordReader::ReadIdentity(const CommunicatorRecord& record, CommunicatorSnapshot* out) {
  out->comm_id = record.comm_id.load();
  out->rank = record.rank.load();
  out->name = CopyFromShared(record.name);
  out->nranks = record.nranks.load();
  out->nnodes = record.nnodes.load();
  out->index = record.index.load();
  out->gpu = CopyFromShared(record.gpu);
  out->uuid = CopyFromShared(record.uuid);
  out->pci_bus_id = CopyFromShared(record.pci_bus_id);
  out->init_realtime_ns = record.init_realtime_ns.load();
  const uint32_t trust = record.kernel_trust.load();
  out->kernel_trust = trust <= static_cast<uint32_t>(TrustState::kChecksFailed)
                          ? static_cast<TrustState>(trust)
                          : TrustState::kChecksFailed;
}

void RecordReader::ReadHeartbeat(const CommunicatorRecord& record,
                                 CommunicatorSnapshot* out) const {
  const uint32_t source = record.completion_source.load();
  const Heartbeat heartbeat = record.heartbeat.Read();
  const int64_t oldest_ns = Realtime(heartbeat.oldest_inflight_ns);
  out->has_heartbeat = source == static_cast<uint32_t>(CompletionSource::kStream);
  out->launches_completed = heartbeat.launches_completed;
  const bool had_heartbeat = source == 0 && record.driver_error.acquire() != 0;
  if (out->has_heartbeat || had_heartbeat) {
    out->oldest_inflight_realtime_ns = oldest_ns;
    out->oldest_launch = heartbeat.oldest_launch;
    out->is_at_oldest = heartbeat.is_at_oldest;
  } else if (source != 0 && source <= static_cast<uint32_t>(CompletionSource::kKernel)) {
    out->operations_source = static_cast<CompletionSource>(source);
    out->oldest_operation_realtime_ns = oldest_ns;
  }
}

void RecordReader::ReadLanes(const CommunicatorRecord& record, CallbackCounts* callbacks,
                             CommunicatorSnapshot* out) const {
  out->launches += record.followed.launches.load();
  for (const CallbackKind kind : kFollowedCallbacks) {
    (*callbacks)[static_cast<int>(kind)] += record.followed.callbacks_of(kind).load();
  }
  uint64_t last_launch_ns = record.followed.last_launch_ns.load();
  uint64_t last_completion_ns = 0;
  uint64_t network_moved_ns = 0;
  uint64_t overflowed_bytes = 0;
  for (const Lane& lane : record.lanes) {
    for (int kind = 0; kind < kCallbackKinds; ++kind) {
      (*callbacks)[kind] += lane.callbacks[kind].acquire();
    }
    out->launches += lane.launches.acquire();
    out->overflowed_operations += lane.overflowed_operations.acquire();
    out->overflowed_calls += lane.overflowed_calls.acquire();
    overflowed_bytes += lane.overflowed_bytes.load();  // after the calls: see Count
    for (int i = 0; i < kNetworkDirections; ++i) {
      out->network_bytes[i] += lane.network_bytes[i].acquire();
    }
    for (int i = 0; i < kNetworkWaits; ++i) {
      out->network_wait_ns[i] += lane.network_wait_ns[i].acquire();
    }
    last_launch_ns = std::max(last_launch_ns, lane.last_launch_ns.acquire());
    last_completion_ns = std::max(last_completion_ns, lane.last_completion_ns.acquire());
    network_moved_ns = std::max(network_moved_ns, lane.network_moved_ns.load());
  }
  if (out->overflowed_calls != 0) {
    out->calls.push_back({Name(kOverflowName), kOverflowSizeClass, Name(kOverflowName), false,
                          out->overflowed_calls, overflowed_bytes, ""});
  }
  out->last_launch_realtime_ns = Realtime(last_launch_ns);
  out->last_completion_realtime_ns = Realtime(last_completion_ns);
  out->network_moved_realtime_ns = Realtime(network_moved_ns);
  const uint64_t last_call = record.followed.last_call.load();
  if (LastCall::IsKnown(last_call)) {
    out->last_call_op = Name(LastCall::Op(last_call));
    out->last_call_size_class = static_cast<int>(LastCall::SizeClass(last_call));
  }
}

void RecordReader::ReadVisibility(const CommunicatorRecord& record,
                                  CommunicatorSnapshot* out) const {
  out->nccl_api_version = record.nccl_api_version.load();
  out->event_mask = record.event_mask.load();
  const uint64_t unreported = record.unreported_calls.acquire();
  out->unreported_calls = unreported & ~UnreportedCallsBits::kInGroup;
  out->are_unreported_in_group = (unreported & UnreportedCallsBits::kInGroup) != 0;
  out->unreported_since_realtime_ns = Realtime(record.unreported_since_ns.load());
  out->graph_replays = record.graph_replays.acquire();
  out->graph_replays_in_flight = record.graph_replays_in_flight.acquire();
  const uint64_t captures = record.graph_captures.acquire();
  out->graph_position = GraphPosition::Of(captures, record.graph_calls.acquire());
  out->graph_moved_realtime_ns = Realtime(record.graph_moved_ns.load());
  const uint64_t work = record.work_status.acquire();
  if (WorkStatus::State(work) < kWorkStates && WorkStatus::Refutal(work) < kWorkRefutals) {
    out->work.state = static_cast<WorkState>(WorkStatus::State(work));
    out->work.refutal = static_cast<WorkRefutal>(WorkStatus::Refutal(work));
    out->work.are_operations_known = WorkStatus::AreOperationsKnown(work);
    out->work.is_being_proven = WorkStatus::IsBeingProven(work);
  }
  out->work.operations = record.work_operations.acquire();
  out->work.moved_realtime_ns = Realtime(record.work_moved_ns.load());
  out->work.longest_pause_ns = record.work_longest_pause_ns.load();
  for (const LongWait& wait : record.long_waits) {
    const uint64_t what = wait.what.load();
    if (what == 0) continue;
    const uint64_t call = LongWait::Call(what);
    LongestWaitSnapshot& read = out->longest_waits.emplace_back();
    if (LastCall::IsKnown(call)) {
      read.op = Name(LastCall::Op(call));
      read.size_class = static_cast<int>(LastCall::SizeClass(call));
    }
    read.longest_ns = LongWait::LongestNs(what);
    read.counts_until_realtime_ns = Realtime(LongWait::UntilNs(wait.when.load()));
  }
  out->driver_error = static_cast<uint32_t>(record.driver_error.acquire());
  out->driver_error_realtime_ns = Realtime(record.driver_error_ns.load());
}

void RecordReader::ReadSeries(const CommunicatorRecord& record, CommunicatorSnapshot* out) {
  CounterChunks counters;
  for (int lane = 0; lane < kLanes; ++lane) {
    // Acquire: sees the chunk's zeros.
    counters[lane] = ClaimChunk<CounterChunk>(record.lanes[lane].counter_chunk.acquire());
  }
  for (int i = 0; i < kSeriesPerCommunicator; ++i) {
    const SeriesEntry& entry = record.series[i];
    const uint64_t key = entry.key.load();
    if (key == 0) continue;
    const bool is_latency = SeriesKey::Kind(key) == SeriesKind::kLatency;
    if (!Take(is_latency ? kLatencyBytes : kCounterBytes)) return;
    if (is_latency) {
      ReadLatency(entry, key, out);
    } else {
      ReadCounters(counters, key, i, out);
    }
  }
}

void RecordReader::ReadLatency(const SeriesEntry& entry, uint64_t key, CommunicatorSnapshot* out) {
  const uint32_t kind = SeriesKey::LatencyKindOf(key);
  if (!IsLatencyKind(kind)) return;
  LatencySnapshot latency;
  latency.kind = static_cast<LatencyKind>(kind);
  latency.op = Name(SeriesKey::Op(key));
  latency.size_class = SeriesKey::SizeClass(key);
  bool any = false;
  for (const auto& slot : entry.chunk) {
    const auto* chunk = ClaimChunk<HistogramChunk>(slot.acquire());  // sees the chunk's zeros
    if (chunk == nullptr) continue;
    any = true;
    for (int cell = 0; cell < kHistogramCells; ++cell) {
      latency.histogram.cells[cell] += chunk->cells[cell].acquire();
    }
    // After the buckets, see RecordInChunk.
    latency.histogram.sum_ns += chunk->sum_ns.load();
    latency.bytes += chunk->bytes.load();
    latency.bus_bytes += chunk->bus_bytes.load();
  }
  if (any && ReadUserTag(key, &latency.user_tag)) out->latencies.push_back(std::move(latency));
}

void RecordReader::ReadCounters(const CounterChunks& chunks, uint64_t key, int series,
                                CommunicatorSnapshot* out) const {
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t largest_b = 0;
  for (const CounterChunk* chunk : chunks) {
    if (chunk == nullptr) continue;
    a += chunk->series[series].a.acquire();
    const uint64_t lane_b = chunk->series[series].b.load();  // after a, see LaneWriter::Count
    b += lane_b;
    largest_b = std::max(largest_b, lane_b);
  }
  if (a == 0) return;  // entered by a callback that has not counted yet
  const std::string& op = Name(SeriesKey::Op(key));
  switch (SeriesKey::Kind(key)) {
    case SeriesKind::kCalls: {
      std::string user_tag;
      if (!ReadUserTag(key, &user_tag)) break;
      out->calls.push_back({op, SeriesKey::SizeClass(key), Name(SeriesKey::Datatype(key)),
                            SeriesKey::IsCaptured(key), a, b, std::move(user_tag)});
      break;
    }
    case SeriesKind::kAlgorithm:
      AddAlgorithm({op, Name(SeriesKey::AlgorithmOf(key)), Name(SeriesKey::Protocol(key)), a}, out);
      AddUntimed(op, SeriesKey::UntimedReasonOf(key), a, out);
      // A mixture of several operations' sequence numbers would mislead.
      if (SeriesKey::Op(key) != kOverflowName && largest_b > 0) {
        AddSequence({op, largest_b - 1}, out);
      }
      break;
    case SeriesKind::kUntimed:
      AddUntimed(op, SeriesKey::UntimedReasonOf(key), a, out);
      break;
    case SeriesKind::kUncompleted:
      out->uncompleted.push_back({op, a});
      break;
    case SeriesKind::kComposite:
      out->composites.push_back({op, SeriesKey::SizeClass(key), SeriesKey::IsCaptured(key), a});
      break;
    case SeriesKind::kReplayed:
      out->replayed.push_back({op, SeriesKey::SizeClass(key), a, b});
      break;
    default:
      break;  // a kind of a later version
  }
}

bool RecordReader::ReadTimedCall(const TimedCall& call,
                                 std::map<uint64_t, TimedCallSnapshot>* by_sequence) {
  TimedCall::Copy copy;
  const uint64_t sequence = call.Read(&copy);
  if (sequence == 0) return true;
  if (!Take(kTimedCallBytes)) return false;
  const uint32_t kind = TimedCallKey::Kind(copy.key);
  if (!IsLatencyKind(kind)) return true;
  TimedCallSnapshot& read = (*by_sequence)[sequence];
  read.op = Name(TimedCallKey::Op(copy.key));
  read.kind = static_cast<LatencyKind>(kind);
  read.size_class = static_cast<int>(TimedCallKey::SizeClass(copy.key));
  read.call_number = TimedCallKey::CallNumber(copy.key);
  read.graph = TimedCallKey::Graph(copy.key);
  read.bytes = copy.bytes;
  read.duration_ns = copy.duration_ns;
  read.end_realtime_ns = Realtime(copy.end_monotonic_ns);
  return true;
}

void RecordReader::ReadTimedCalls(const CommunicatorRecord& record, CommunicatorSnapshot* out) {
  std::map<uint64_t, TimedCallSnapshot> last;
  for (const TimedCall& call : record.timed_calls) {
    if (!ReadTimedCall(call, &last)) return;
  }
  if (last.empty()) return;
  const uint64_t oldest = last.begin()->first;
  const int64_t newest_ns = last.rbegin()->second.end_realtime_ns;
  for (auto& [sequence, call] : last) out->timed_calls.push_back(std::move(call));

  std::map<uint64_t, TimedCallSnapshot> picked;
  for (const TimedCall& call : record.calls_of_moments) {
    if (!ReadTimedCall(call, &picked)) return;
  }
  for (auto& [sequence, call] : picked) {
    if (sequence >= oldest) break;
    // A second without calls still has the call of 32 s before.
    const uint64_t before_ns =
        static_cast<uint64_t>(newest_ns) - static_cast<uint64_t>(call.end_realtime_ns);
    if (before_ns < uint64_t{kMoments} * kMomentNs) out->picked_calls.push_back(std::move(call));
  }
}

}  // namespace nccl_pulse

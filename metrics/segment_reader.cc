#include "metrics/segment_reader.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <utility>
#include <vector>

#include "metrics/name_table.h"
#include "metrics/segment_layout.h"
#include "metrics/shared_bytes.h"
#include "metrics/size_class.h"

namespace nccl_pulse {
namespace {

// Reads a plain field that another process may be changing, exactly once.
template <typename T>
T ReadOnce(const T& field) {
  T value;
  __atomic_load(&field, &value, __ATOMIC_RELAXED);
  return value;
}

uint64_t ReadCell(const Cell& cell) {
  return cell.load(std::memory_order_acquire);  // pairs with AddToCell: sums are read after buckets
}

struct Geometry {
  const uint8_t* base;
  uint32_t communicators;    // as many as the segment has places for
  uint32_t records_present;  // as many as may be touched
  uint32_t pages;
  uint64_t pages_offset;
  SegmentExtents extents;
};

bool HasMemory(const SegmentExtents& extents, uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;  // both far below the largest number
  return end <= extents.first_end || (offset >= extents.second_begin && end <= extents.second_end);
}

// The layout has one possible geometry per version but for the number of pages, so anything else is
// wrong.
bool CheckGeometry(const uint8_t* base, size_t bytes, const SegmentExtents& extents,
                   Geometry* geometry, std::string* error) {
  if (bytes < kHeaderBytes + kNamesBytes || extents.first_end < kHeaderBytes + kNamesBytes) {
    *error = "segment of " + std::to_string(bytes) + " bytes is too small for a header";
    return false;
  }
  const auto& header = *reinterpret_cast<const SegmentHeader*>(base);
  if (__atomic_load_n(&header.magic, __ATOMIC_ACQUIRE) != kSegmentMagic) {
    *error = "no segment: wrong magic number";
    return false;
  }
  const uint32_t version = ReadOnce(header.version);
  if (version != kSegmentVersion) {
    *error = "segment version " + std::to_string(version) + ", this reader knows " +
             std::to_string(kSegmentVersion);
    return false;
  }
  const uint64_t communicators = ReadOnce(header.communicator_count);
  const uint64_t pages = ReadOnce(header.page_count);
  const uint64_t pages_offset = ReadOnce(header.pages_offset);
  const uint64_t records_end = kHeaderBytes + kNamesBytes + communicators * kRecordStride;
  if (ReadOnce(header.communicators_offset) != kHeaderBytes + kNamesBytes ||
      ReadOnce(header.names_offset) != kHeaderBytes ||
      ReadOnce(header.communicator_bytes) != kRecordStride ||
      ReadOnce(header.page_bytes) != kPageBytes || ReadOnce(header.name_count) != kMaxNames ||
      communicators > kMaxCommunicators || pages > kMaxSegmentPages ||
      pages_offset % kPageBytes != 0 || pages_offset < records_end || pages_offset > bytes ||
      pages * kPageBytes > bytes - pages_offset) {
    *error = "segment geometry does not fit its version or its " + std::to_string(bytes) + " bytes";
    return false;
  }
  // Acquire: pairs with PopulateRecord.
  const uint64_t present = header.records_present.load(std::memory_order_acquire);
  *geometry = {base,
               static_cast<uint32_t>(communicators),
               static_cast<uint32_t>(std::min(present, communicators)),
               static_cast<uint32_t>(pages),
               pages_offset,
               extents};
  return true;
}

using CallbackCounts = std::array<uint64_t, kCallbackKinds>;

// What one entry takes in a snapshot, with the texts that are its own: a name has up to 27 bytes.
constexpr uint64_t kTextBytes = 48;
constexpr uint64_t kCounterBytes = sizeof(CallCountSnapshot) + 2 * kTextBytes;
constexpr uint64_t kLatencyBytes = sizeof(LatencySnapshot) + kTextBytes;
constexpr uint64_t kTimedCallBytes = sizeof(TimedCallSnapshot) + kTextBytes;
constexpr uint64_t kCommunicatorBytes = sizeof(CommunicatorSnapshot) + 4 * kTextBytes;

class Reader {
 public:
  Reader(const Geometry& geometry, int64_t realtime_offset_ns, uint64_t most_bytes)
      : geometry_(geometry),
        realtime_offset_ns_(realtime_offset_ns),
        most_bytes_(most_bytes),
        claimed_pages_(geometry.pages) {
    const auto* entries = reinterpret_cast<const NameEntry*>(geometry.base + kHeaderBytes);
    for (int id = 0; id < kMaxNames; ++id) {
      constexpr uint32_t kValid = 2;
      if (entries[id].state.load(std::memory_order_acquire) ==
          kValid) {  // pairs with Intern's publish
        names_[id] = CopyFromShared(entries[id].text);
      } else {
        names_[id] = "unknown";
      }
    }
  }

  // Before all communicators are read (again).
  void Restart() {
    claimed_pages_.assign(geometry_.pages, false);
    bytes_ = 0;
  }

  // What was read so far is more than the snapshot may have.
  bool is_too_large() const { return bytes_ > most_bytes_; }

  // The sums over communicators that are no longer here.
  void ReadRecycled(const SegmentHeader& header, ProcessSnapshot* out) const {
    for (int kind = 0; kind < kCallbackKinds; ++kind) {
      out->callbacks[kind] = ReadCell(header.recycled_callbacks[kind]);
    }
    out->recycled_communicators = ReadCell(header.recycled_communicators);
    out->recycled_calls.clear();
    for (uint32_t row = 0; row < kOperationRows; ++row) {
      const uint64_t calls = ReadCell(header.recycled_calls[row]);
      const uint64_t bytes = ReadCell(header.recycled_bytes[row]);
      if (calls != 0) out->recycled_calls.push_back({RowName(row), calls, bytes});
    }
  }

  // False: the record is free, or changed hands while it was read.
  bool ReadCommunicator(uint32_t index, CallbackCounts* callbacks, CommunicatorSnapshot* out) {
    const uint64_t offset = kHeaderBytes + kNamesBytes + index * kRecordStride;
    if (!HasMemory(geometry_.extents, offset, kRecordStride)) return false;
    const auto& record = *reinterpret_cast<const CommunicatorRecord*>(geometry_.base + offset);
    const uint32_t generation = record.generation.load(std::memory_order_acquire);
    const auto state = static_cast<CommunicatorState>(record.state.load(std::memory_order_acquire));
    if (state != CommunicatorState::kLive && state != CommunicatorState::kFinalized) return false;
    if (!Take(kCommunicatorBytes)) return false;

    out->comm_id = record.comm_id.load(std::memory_order_relaxed);  // identity: validated below
    out->rank = record.rank.load(std::memory_order_relaxed);
    out->name = CopyFromShared(record.name);
    out->nranks = ReadOnce(record.nranks);
    out->nnodes = ReadOnce(record.nnodes);
    out->index = ReadOnce(record.index);
    out->gpu = CopyFromShared(record.gpu);
    out->uuid = CopyFromShared(record.uuid);
    out->pci_bus_id = CopyFromShared(record.pci_bus_id);
    out->finalized = state == CommunicatorState::kFinalized;
    out->init_realtime_ns = ReadOnce(record.init_realtime_ns);
    const uint32_t trust = record.kernel_trust.load(std::memory_order_relaxed);
    out->kernel_trust = trust <= static_cast<uint32_t>(TrustState::kChecksFailed)
                            ? static_cast<TrustState>(trust)
                            : TrustState::kChecksFailed;
    const uint32_t source = record.completion_source.load(std::memory_order_relaxed);
    out->has_heartbeat = source == static_cast<uint32_t>(CompletionSource::kStream);
    // Before the launches, in the lanes: never have more completed than were launched.
    out->launches_completed = ReadCell(record.launches_completed);
    const int64_t oldest_ns = Realtime(ReadCell(record.oldest_inflight_ns));
    if (out->has_heartbeat) {
      out->oldest_inflight_realtime_ns = oldest_ns;
      out->oldest_launch =
          OldestLaunchBits::Of(out->launches_completed + 1, ReadCell(record.oldest_launch));
    } else if (source != 0 && source <= static_cast<uint32_t>(CompletionSource::kKernel)) {
      out->operations_source = static_cast<CompletionSource>(source);
      out->oldest_operation_realtime_ns = oldest_ns;
    }
    ReadLanes(record, callbacks, out);
    out->captured = record.captured.load(std::memory_order_relaxed) != 0;
    ReadVisibility(record, out);
    ReadSeries(record, out);
    ReadTimedCalls(record, out);

    // Nothing above may be read after this: the fence orders the loads before the second look.
    std::atomic_thread_fence(std::memory_order_acquire);
    return record.generation.load(std::memory_order_relaxed) == generation;
  }

 private:
  const std::string& Name(uint32_t id) const { return names_[id % kMaxNames]; }
  // Of the operation that has this row, see OperationRowOf.
  const std::string& RowName(uint32_t row) const {
    return row == kOperationRows - 1 ? Name(kOtherName) : Name(kFirstNcclName + row);
  }

  // Before the snapshot grows by so much. False when it may not.
  bool Take(uint64_t bytes) {
    bytes_ += bytes;
    return !is_too_large();
  }

  // A page belongs to one lane of one series. What claims it a second time is left out, so that a
  // segment whose entries all name the same page can not make its reader's memory a multiple of its
  // own.
  template <typename T>
  const T* ClaimPage(uint16_t page) {
    if (page == kNoPage || page >= geometry_.pages || claimed_pages_[page]) return nullptr;
    const uint64_t offset = geometry_.pages_offset + uint64_t{page} * kPageBytes;
    if (!HasMemory(geometry_.extents, offset, kPageBytes)) return nullptr;
    claimed_pages_[page] = true;
    return reinterpret_cast<const T*>(geometry_.base + offset);
  }

  int64_t Realtime(uint64_t monotonic_ns) const {
    // Unsigned: what a hostile segment holds may not overflow.
    return monotonic_ns == 0
               ? 0
               : static_cast<int64_t>(monotonic_ns + static_cast<uint64_t>(realtime_offset_ns_));
  }

  void ReadLanes(const CommunicatorRecord& record, CallbackCounts* callbacks,
                 CommunicatorSnapshot* out) const {
    out->launches += ReadCell(record.followed.launches);
    (*callbacks)[static_cast<int>(CallbackKind::kLaunch)] += ReadCell(record.followed.callbacks);
    uint64_t last_launch_ns = ReadCell(record.followed.last_launch_ns);
    uint64_t last_completion_ns = 0;
    uint64_t overflowed_bytes = 0;
    for (const Lane& lane : record.lanes) {
      for (int kind = 0; kind < kCallbackKinds; ++kind) {
        (*callbacks)[kind] += ReadCell(lane.callbacks[kind]);
      }
      out->launches += ReadCell(lane.launches);
      out->overflowed_operations += ReadCell(lane.overflowed_operations);
      out->overflowed_calls += ReadCell(lane.overflowed_calls);
      overflowed_bytes += ReadCell(lane.overflowed_bytes);  // after the calls: see Count
      for (int i = 0; i < kNetworkDirections; ++i) {
        out->network_bytes[i] += ReadCell(lane.network_bytes[i]);
      }
      for (int i = 0; i < kNetworkWaits; ++i) {
        out->network_wait_ns[i] += ReadCell(lane.network_wait_ns[i]);
      }
      last_launch_ns = std::max(last_launch_ns, ReadCell(lane.last_launch_ns));
      last_completion_ns = std::max(last_completion_ns, ReadCell(lane.last_completion_ns));
    }
    if (out->overflowed_calls != 0) {
      out->calls.push_back({Name(kOverflowName), kOverflowSizeClass, Name(kOverflowName), false,
                            out->overflowed_calls, overflowed_bytes});
    }
    out->last_launch_realtime_ns = Realtime(last_launch_ns);
    out->last_completion_realtime_ns = Realtime(last_completion_ns);
    const uint64_t last_call = ReadCell(record.followed.last_call);
    if ((last_call & 0xff) != 0) {
      out->last_call_op = Name((last_call & 0xff) - 1);
      out->last_call_size_class = static_cast<int>(last_call >> 8 & 0xff);
    }
  }

  void ReadVisibility(const CommunicatorRecord& record, CommunicatorSnapshot* out) const {
    out->nccl_api_version = ReadOnce(record.nccl_api_version);
    out->event_mask = ReadOnce(record.event_mask);
    out->unreported_calls = ReadCell(record.unreported_calls);
    out->unreported_since_realtime_ns = Realtime(ReadCell(record.unreported_since_ns));
    out->graph_replays = ReadCell(record.graph_replays);
    out->graph_replays_in_flight = ReadCell(record.graph_replays_in_flight);
    out->graph_moved_realtime_ns = Realtime(ReadCell(record.graph_moved_ns));
    for (uint32_t row = 0; row < kWaitRows; ++row) {
      const uint64_t longest_ns = ReadCell(record.longest_wait_ns[row]);
      if (longest_ns == 0) continue;
      out->longest_waits.push_back({RowName(row), longest_ns});
    }
  }

  using CounterPages = std::array<const CounterPage*, kLanes>;

  void ReadSeries(const CommunicatorRecord& record, CommunicatorSnapshot* out) {
    CounterPages counters;
    for (int lane = 0; lane < kLanes; ++lane) {
      // Acquire: sees the page's zeroes.
      const uint16_t page = record.lanes[lane].counter_page.load(std::memory_order_acquire);
      counters[lane] = ClaimPage<CounterPage>(page);
    }
    for (int i = 0; i < kSeriesPerCommunicator; ++i) {
      const SeriesEntry& entry = record.series[i];
      const uint64_t key = entry.key.load(std::memory_order_acquire);
      if (key == 0) continue;
      const SeriesKind kind = SeriesKey::Kind(key);
      if (!Take(kind == SeriesKind::kLatency ? kLatencyBytes : kCounterBytes)) return;
      if (kind == SeriesKind::kLatency) {
        ReadLatency(entry, key, out);
      } else {
        ReadCounters(counters, kind, key, i, out);
      }
    }
  }

  void ReadLatency(const SeriesEntry& entry, uint64_t key, CommunicatorSnapshot* out) {
    const uint32_t kind = SeriesKey::A(key);
    if (kind < static_cast<uint32_t>(LatencyKind::kDurationKernel) ||
        kind >= static_cast<uint32_t>(kLatencyKinds)) {
      return;
    }
    LatencySnapshot latency;
    latency.kind = static_cast<LatencyKind>(kind);
    latency.op = Name(SeriesKey::Op(key));
    latency.size_class = SeriesKey::SizeClass(key);
    bool any = false;
    for (const auto& slot : entry.page) {
      // Acquire: sees the page's zeroes.
      const auto* page = ClaimPage<HistogramPage>(slot.load(std::memory_order_acquire));
      if (page == nullptr) continue;
      any = true;
      for (int cell = 0; cell < kHistogramCells; ++cell) {
        latency.histogram.cells[cell] += ReadCell(page->cells[cell]);
      }
      // After the buckets, see RecordInPage.
      latency.histogram.sum_ns += ReadCell(page->sum_ns);
      latency.bytes += ReadCell(page->bytes);
      latency.bus_bytes += ReadCell(page->bus_bytes);
    }
    if (any) out->latencies.push_back(std::move(latency));
  }

  void ReadCounters(const CounterPages& pages, SeriesKind kind, uint64_t key, int series,
                    CommunicatorSnapshot* out) const {
    uint64_t a = 0;
    uint64_t b = 0;
    uint64_t largest_b = 0;
    for (const CounterPage* page : pages) {
      if (page == nullptr) continue;
      a += ReadCell(page->series[series].a);
      const uint64_t lane_b = ReadCell(page->series[series].b);  // after a, see LaneWriter::Count
      b += lane_b;
      largest_b = std::max(largest_b, lane_b);
    }
    if (a == 0) return;  // entered by a callback that has not counted yet
    const std::string& op = Name(SeriesKey::Op(key));
    switch (kind) {
      case SeriesKind::kCalls:
        out->calls.push_back(
            {op, SeriesKey::SizeClass(key), Name(SeriesKey::A(key)), SeriesKey::B(key) != 0, a, b});
        break;
      case SeriesKind::kAlgorithm:
        AddAlgorithm({op, Name(SeriesKey::A(key)), Name(SeriesKey::B(key)), a}, out);
        AddUntimed(op, static_cast<uint32_t>(SeriesKey::SizeClass(key)), a, out);
        // The last sequence number of several operations mixed would mislead.
        if (SeriesKey::Op(key) != kOverflowName && largest_b > 0) {
          AddSequence({op, largest_b - 1}, out);
        }
        break;
      case SeriesKind::kUntimed:
        AddUntimed(op, SeriesKey::A(key), a, out);
        break;
      case SeriesKind::kUncompleted:
        out->uncompleted.push_back({op, a});
        break;
      case SeriesKind::kReplayed:
        out->replayed.push_back({op, SeriesKey::SizeClass(key), a, b});
        break;
      default:
        break;  // a kind of a later version: not for this reader
    }
  }

  // Several series may speak of the same: a few entries, so a search is as good as a map.
  static void AddAlgorithm(AlgorithmCountSnapshot count, CommunicatorSnapshot* out) {
    for (AlgorithmCountSnapshot& known : out->algorithms) {
      if (known.op == count.op && known.algo == count.algo && known.proto == count.proto) {
        known.operations += count.operations;
        return;
      }
    }
    out->algorithms.push_back(std::move(count));
  }

  static void AddUntimed(const std::string& op, uint32_t reason, uint64_t operations,
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

  static void AddSequence(SequenceSnapshot sequence, CommunicatorSnapshot* out) {
    for (SequenceSnapshot& known : out->sequences) {
      if (known.op == sequence.op) {
        known.sequence = std::max(known.sequence, sequence.sequence);
        return;
      }
    }
    out->sequences.push_back(std::move(sequence));
  }

  void ReadTimedCalls(const CommunicatorRecord& record, CommunicatorSnapshot* out) {
    std::map<uint64_t, TimedCallSnapshot> by_sequence;
    for (const TimedCall& call : record.timed_calls) {
      const uint64_t sequence = call.sequence.load(std::memory_order_acquire);
      if (sequence == 0) continue;
      if (!Take(kTimedCallBytes)) return;
      const uint64_t key = call.key.load(std::memory_order_relaxed);
      TimedCallSnapshot copy;
      copy.bytes = call.bytes.load(std::memory_order_relaxed);
      copy.duration_ns = call.duration_ns.load(std::memory_order_relaxed);
      copy.end_realtime_ns = Realtime(call.end_monotonic_ns.load(std::memory_order_relaxed));
      std::atomic_thread_fence(std::memory_order_acquire);  // the copy comes before the second look
      if (call.sequence.load(std::memory_order_relaxed) != sequence) continue;
      const uint32_t kind = key >> 8 & 0xff;
      if (kind < static_cast<uint32_t>(LatencyKind::kDurationKernel) ||
          kind >= static_cast<uint32_t>(kLatencyKinds)) {
        continue;
      }
      copy.op = Name(key & 0xff);
      copy.kind = static_cast<LatencyKind>(kind);
      copy.size_class = static_cast<int>(key >> 16 & 0xff);
      copy.call_number = key >> 32;
      by_sequence[sequence] = std::move(copy);
    }
    for (auto& [sequence, call] : by_sequence) out->timed_calls.push_back(std::move(call));
  }

  Geometry geometry_;
  int64_t realtime_offset_ns_;
  uint64_t most_bytes_;
  uint64_t bytes_ = 0;
  std::vector<bool> claimed_pages_;
  std::array<std::string, kMaxNames> names_;
};

}  // namespace

uint64_t ClaimedSegmentBytes(const void* base) {
  return ReadOnce(static_cast<const SegmentHeader*>(base)->total_bytes);
}

bool ReadSegment(const void* base, size_t bytes, ProcessSnapshot* snapshot, std::string* error,
                 const SegmentExtents& extents, SnapshotLimit* limit) {
  *snapshot = ProcessSnapshot{};
  Geometry geometry;
  if (!CheckGeometry(static_cast<const uint8_t*>(base), bytes, extents, &geometry, error))
    return false;
  const auto& header = *static_cast<const SegmentHeader*>(base);
  const int64_t realtime_offset_ns = header.realtime_offset_ns.load(std::memory_order_relaxed);

  snapshot->pid = ReadOnce(header.pid);
  snapshot->pid_namespace = ReadOnce(header.pid_namespace);
  snapshot->plugin_version = CopyFromShared(header.plugin_version);
  snapshot->hostname = CopyFromShared(header.hostname);
  snapshot->global_rank = CopyFromShared(header.global_rank);
  snapshot->local_rank = CopyFromShared(header.local_rank);
  snapshot->job_id = CopyFromShared(header.job_id);
  snapshot->static_labels = CopyFromShared(header.static_labels);
  snapshot->nccl_api_version = ReadOnce(header.nccl_api_version);
  snapshot->timing = CopyFromShared(header.timing);
  snapshot->event_mask = ReadOnce(header.event_mask);
  snapshot->duration_source = CopyFromShared(header.duration_source);
  snapshot->completion_source = CopyFromShared(header.completion_source);
  snapshot->sampling_exponent = header.sampling_exponent.load(std::memory_order_relaxed);
  snapshot->start_realtime_ns = ReadOnce(header.start_realtime_ns);
  const uint64_t last_poll_ns = ReadCell(header.last_poll_monotonic_ns);
  snapshot->last_poll_realtime_ns =
      last_poll_ns == 0
          ? 0
          : static_cast<int64_t>(last_poll_ns + static_cast<uint64_t>(realtime_offset_ns));
  const uint32_t poller = header.poller_state.load(std::memory_order_relaxed);
  if (poller <= static_cast<uint32_t>(PollerState::kNotStarted)) {
    snapshot->poller = static_cast<PollerState>(poller);
  }
  snapshot->foreign_event_mask = header.foreign_event_mask.load(std::memory_order_relaxed);
  snapshot->event_mask_changes = ReadCell(header.event_mask_changes);
  snapshot->shared_memory = ReadOnce(header.shared_memory) != 0;
  snapshot->sampled_callbacks = ReadCell(header.sampled_callbacks);
  snapshot->sampled_callback_ns = ReadCell(header.sampled_callback_ns);
  for (int reason = 0; reason < kIgnoredReasons; ++reason) {
    snapshot->ignored[reason] = ReadCell(header.ignored[reason]);
  }
  snapshot->network_observed_ns = ReadCell(header.network_observed_ns);
  for (int fate = 0; fate < kCaptureFates; ++fate) {
    snapshot->graph_captures[fate] = ReadCell(header.graph_captures[fate]);
  }
  snapshot->series_used = ReadCell(header.series_used);
  snapshot->series_limit = ReadOnce(header.series_limit);
  snapshot->communicator_limit = geometry.communicators;

  Reader reader(geometry, realtime_offset_ns, limit != nullptr ? limit->bytes : UINT64_MAX);
  // A writer recycles a record in microseconds, so a few looks suffice, with pauses in case its
  // thread was taken off the CPU. A writer that died in the middle, or a hostile one, must not keep
  // us.
  constexpr int kMaxAttempts = 5;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    if (attempt > 0) {
      const timespec pause{0, 1000000};
      nanosleep(&pause, nullptr);
    }
    reader.Restart();
    const uint64_t epoch = ReadCell(header.recycle_epoch);
    snapshot->communicators.clear();
    reader.ReadRecycled(header, snapshot);
    for (uint32_t index = 0; index < geometry.records_present; ++index) {
      CommunicatorSnapshot communicator;
      CallbackCounts callbacks{};
      const bool is_there = reader.ReadCommunicator(index, &callbacks, &communicator);
      if (reader.is_too_large()) {
        *snapshot = ProcessSnapshot{};
        limit->exceeded = true;
        *error = "more than " + std::to_string(limit->bytes) + " bytes of measurements";
        return false;
      }
      if (!is_there) continue;
      for (int kind = 0; kind < kCallbackKinds; ++kind)
        snapshot->callbacks[kind] += callbacks[kind];
      snapshot->communicators.push_back(std::move(communicator));
    }
    std::atomic_thread_fence(
        std::memory_order_acquire);  // all of it was read before the second look
    if (epoch % 2 == 0 && header.recycle_epoch.load(std::memory_order_relaxed) == epoch) break;
  }
  snapshot->communicators_used = snapshot->communicators.size();
  return true;
}

}  // namespace nccl_pulse

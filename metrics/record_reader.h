// RecordReader reads a segment's communicators into a snapshot, trusting nothing. ReadSegment
// (segment_reader.h) uses it after checking the header, and restarts it if a record is recycled.
//
// Thread: any, one object per reading. Cost: a copy of the used parts. Errors: an unreadable
// communicator is left out.
#ifndef METRICS_RECORD_READER_H_
#define METRICS_RECORD_READER_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "metrics/segment_geometry.h"
#include "metrics/segment_layout.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

using CallbackCounts = std::array<uint64_t, kCallbackKinds>;

class RecordReader {
 public:
  // `most_bytes`: approximate limit of the snapshot's memory.
  RecordReader(const SegmentGeometry& geometry, int64_t realtime_offset_ns, uint64_t most_bytes,
               const ReadWish& wish = {});

  // Call before reading all communicators (again).
  void Restart();
  // True if the communicators read so far exceed the snapshot's limit.
  bool is_too_large() const { return bytes_ > most_bytes_; }

  // Reads the sums over recycled communicators.
  void ReadRecycled(const SegmentHeader& header, ProcessSnapshot* out) const;
  // Reads a communicator into `out`, and adds its callbacks to `callbacks`. False if the record is
  // free, cannot be read, or was recycled during the read.
  bool ReadCommunicator(uint32_t index, CallbackCounts* callbacks, CommunicatorSnapshot* out);

 private:
  using CounterChunks = std::array<const CounterChunk*, kLanes>;

  const std::string& Name(uint32_t id) const { return names_[id % kMaxNames]; }
  // Returns the operation of a row, see OperationRowOf.
  const std::string& RowName(uint32_t row) const;
  // Reads the user's tag of a series of calls or latencies. False if the tag is not visible yet.
  bool ReadUserTag(uint64_t key, std::string* out) const;
  // Call before the snapshot grows by `bytes`. False if that exceeds the limit.
  bool Take(uint64_t bytes);
  // Returns a chunk; null if it cannot be read, or was returned before. So a hostile
  // segment whose entries all name the same chunk cannot multiply its reader's memory.
  template <typename T>
  const T* ClaimChunk(uint16_t chunk);
  int64_t Realtime(uint64_t monotonic_ns) const;

  static void ReadIdentity(const CommunicatorRecord& record, CommunicatorSnapshot* out);
  void ReadHeartbeat(const CommunicatorRecord& record, CommunicatorSnapshot* out) const;
  void ReadLanes(const CommunicatorRecord& record, CallbackCounts* callbacks,
                 CommunicatorSnapshot* out) const;
  void ReadVisibility(const CommunicatorRecord& record, CommunicatorSnapshot* out) const;
  void ReadSeries(const CommunicatorRecord& record, CommunicatorSnapshot* out);
  void ReadLatency(const SeriesEntry& entry, uint64_t key, CommunicatorSnapshot* out);
  void ReadCounters(const CounterChunks& chunks, uint64_t key, int series,
                    CommunicatorSnapshot* out) const;
  // False if the snapshot is full.
  bool ReadTimedCall(const TimedCall& call, std::map<uint64_t, TimedCallSnapshot>* by_sequence);
  void ReadTimedCalls(const CommunicatorRecord& record, CommunicatorSnapshot* out);
  bool WantsLastCalls(const CommunicatorSnapshot& communicator) const;
  bool WantsCallOrder(const CommunicatorSnapshot& communicator) const;
  void ReadLastCalls(const CommunicatorRecord& record, CommunicatorSnapshot* out);
  void ReadPeerCalls(const CommunicatorRecord& record, CommunicatorSnapshot* out);

  SegmentGeometry geometry_;
  int64_t realtime_offset_ns_;
  uint64_t most_bytes_;
  ReadWish wish_;
  uint64_t bytes_ = 0;
  std::vector<bool> claimed_chunks_;
  std::array<std::string, kMaxNames> names_;
};

}  // namespace nccl_pulse

#endif  // METRICS_RECORD_READER_H_

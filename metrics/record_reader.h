// Reads the communicators of one segment into a snapshot, trusting nothing. It is a part of
// segment_reader.h, which checks the header first, and starts over when a record is recycled.
//
// Thread: any, one object for one reading. Cost: a copy of what is used. Errors: a communicator
// that cannot be read is left out.
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
  // Of a snapshot that may have `most_bytes`, about.
  RecordReader(const SegmentGeometry& geometry, int64_t realtime_offset_ns, uint64_t most_bytes,
               const ReadWish& wish = {});

  // Before all communicators are read (again).
  void Restart();
  // What was read so far is more than the snapshot may have.
  bool is_too_large() const { return bytes_ > most_bytes_; }

  // The sums over communicators that are no longer here.
  void ReadRecycled(const SegmentHeader& header, ProcessSnapshot* out) const;
  // False: the record is free, or changed hands while it was read.
  bool ReadCommunicator(uint32_t index, CallbackCounts* callbacks, CommunicatorSnapshot* out);

 private:
  using CounterPages = std::array<const CounterPage*, kLanes>;

  const std::string& Name(uint32_t id) const { return names_[id % kMaxNames]; }
  // Of the operation that has this row, see OperationRowOf.
  const std::string& RowName(uint32_t row) const;
  // Of a series of calls or latencies. False: its tag cannot be seen yet.
  bool ReadUserTag(uint64_t key, std::string* out) const;
  // Before the snapshot grows by so much. False when it may not.
  bool Take(uint64_t bytes);
  // A page belongs to one lane of one series. What claims it a second time is left out, so that a
  // segment whose entries all name the same page cannot make its reader's memory a multiple of its
  // own.
  template <typename T>
  const T* ClaimPage(uint16_t page);
  int64_t Realtime(uint64_t monotonic_ns) const;

  static void ReadIdentity(const CommunicatorRecord& record, CommunicatorSnapshot* out);
  void ReadHeartbeat(const CommunicatorRecord& record, CommunicatorSnapshot* out) const;
  void ReadLanes(const CommunicatorRecord& record, CallbackCounts* callbacks,
                 CommunicatorSnapshot* out) const;
  void ReadVisibility(const CommunicatorRecord& record, CommunicatorSnapshot* out) const;
  void ReadSeries(const CommunicatorRecord& record, CommunicatorSnapshot* out);
  void ReadLatency(const SeriesEntry& entry, uint64_t key, CommunicatorSnapshot* out);
  void ReadCounters(const CounterPages& pages, uint64_t key, int series,
                    CommunicatorSnapshot* out) const;
  // False: the snapshot is full.
  bool ReadTimedCall(const TimedCall& call, std::map<uint64_t, TimedCallSnapshot>* by_sequence);
  void ReadTimedCalls(const CommunicatorRecord& record, CommunicatorSnapshot* out);
  bool WantsLastCalls(const CommunicatorSnapshot& communicator) const;
  bool WantsCallOrder(const CommunicatorSnapshot& communicator) const;
  void ReadLastCalls(const CommunicatorRecord& record, CommunicatorSnapshot* out);

  SegmentGeometry geometry_;
  int64_t realtime_offset_ns_;
  uint64_t most_bytes_;
  ReadWish wish_;
  uint64_t bytes_ = 0;
  std::vector<bool> claimed_pages_;
  std::array<std::string, kMaxNames> names_;
};

}  // namespace nccl_pulse

#endif  // METRICS_RECORD_READER_H_

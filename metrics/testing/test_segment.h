// TestSegment is a segment for tests, filled through the plugin's own writers (RecordWriter,
// LaneWriter).
#ifndef METRICS_TESTING_TEST_SEGMENT_H_
#define METRICS_TESTING_TEST_SEGMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "metrics/lane_writer.h"
#include "metrics/record_writer.h"
#include "metrics/segment.h"
#include "metrics/segment_layout.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

inline uint64_t LatencyKey(NameId op, uint32_t size_class, LatencyKind kind) {
  return SeriesKey::Latency(op, size_class, kind);
}

class TestSegment {
 public:
  // Makes room for `series_limit` series, populates `chunks` chunks, and gives each communicator a
  // ring of `last_calls` entries.
  explicit TestSegment(uint64_t series_limit = 2048, uint32_t chunks = 256,
                       uint32_t last_calls = 0);

  Segment& segment() { return *segment_; }
  NameId Intern(const char* name) { return segment_->names().Intern(name); }

  // Publishes record `index` as a live communicator, recycling its previous owner. Returns the
  // generation.
  uint32_t AddCommunicator(uint32_t index, uint64_t comm_id, int rank, std::string_view name);
  uint32_t AddCommunicator(uint32_t index, const RecordWriter::Identity& identity,
                           CompletionSource source);

  LaneWriter Writer(uint32_t index, uint32_t generation, LaneRole role) {
    return LaneWriter(*segment_, segment_->record(index), generation, role);
  }

  RecordWriter Record(uint32_t index) { return RecordWriter(*segment_, segment_->record(index)); }

 private:
  std::unique_ptr<Segment> segment_;
};

}  // namespace nccl_pulse

#endif  // METRICS_TESTING_TEST_SEGMENT_H_

// A segment for tests: made and filled through the same calls as the plugin's, with what the
// plugin's tracker does around them (a communicator's record, the ring of timed calls) in its
// plainest form.
#ifndef TESTS_METRICS_TEST_SEGMENT_H_
#define TESTS_METRICS_TEST_SEGMENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "metrics/lane_writer.h"
#include "metrics/segment.h"
#include "metrics/segment_layout.h"
#include "metrics/snapshot.h"

namespace nccl_pulse {

inline uint64_t LatencyKey(NameId op, uint32_t size_class, LatencyKind kind) {
  return SeriesKey::Pack(SeriesKind::kLatency, op, size_class, static_cast<uint32_t>(kind), 0);
}

class TestSegment {
 public:
  // With room for `series_limit` series and `pages` pages ready.
  explicit TestSegment(uint64_t series_limit = 2048, uint32_t pages = 256);

  Segment& segment() { return *segment_; }
  NameId Intern(const char* name) { return segment_->names().Intern(name); }

  // Publishes record `index` as a live communicator; its generation is the answer.
  uint32_t AddCommunicator(uint32_t index, uint64_t comm_id, int rank, std::string_view name);

  LaneWriter Writer(uint32_t index, uint32_t generation, LaneRole role) {
    return LaneWriter(*segment_, segment_->record(index), generation, role);
  }

  // Appends to the ring of timed calls.
  void AddTimedCall(uint32_t index, uint8_t op, LatencyKind kind, uint8_t size_class,
                    uint32_t call_number, uint64_t bytes, uint64_t duration_ns, uint64_t end_ns);

 private:
  std::unique_ptr<Segment> segment_;
};

}  // namespace nccl_pulse

#endif  // TESTS_METRICS_TEST_SEGMENT_H_

// SegmentGeometry says where the parts of a segment lie, after ReadSegment (segment_reader.h) has
// checked its header.
//
// Thread: any. Cost: some loads. Errors: a readable sentence.
#ifndef METRICS_SEGMENT_GEOMETRY_H_
#define METRICS_SEGMENT_GEOMETRY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "metrics/segment_layout.h"
#include "metrics/segment_reader.h"

namespace nccl_pulse {

// Reads a non-atomic field exactly once; another process may be changing it.
template <typename T>
T ReadOnce(const T& field) {
  T value;
  __atomic_load(&field, &value, __ATOMIC_RELAXED);
  return value;
}

struct SegmentGeometry {
  const uint8_t* base;
  uint32_t communicators;    // capacity of the segment
  uint32_t records_present;  // records whose memory is populated; only these may be read
  uint32_t chunks;
  uint64_t chunks_offset;
  SegmentExtents extents;

  // Returns a record; null if it has no memory behind it (SegmentExtents).
  const CommunicatorRecord* Record(uint32_t index) const;
  // Returns a chunk; null if it does not exist, or has no memory behind it.
  const void* Chunk(uint16_t chunk) const;
};

// Fills `geometry` from the segment's header. False if it differs from this version's geometry. The
// numbers of records and chunks may be below this version's limits.
bool CheckGeometry(const void* base, size_t bytes, const SegmentExtents& extents,
                   SegmentGeometry* geometry, std::string* error);

}  // namespace nccl_pulse

#endif  // METRICS_SEGMENT_GEOMETRY_H_

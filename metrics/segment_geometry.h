// SegmentGeometry says where the parts of a checked segment lie. Part of segment_reader.h.
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

// Reads a plain field exactly once; another process may be changing it.
template <typename T>
T ReadOnce(const T& field) {
  T value;
  __atomic_load(&field, &value, __ATOMIC_RELAXED);
  return value;
}

struct SegmentGeometry {
  const uint8_t* base;
  uint32_t communicators;    // capacity of the segment
  uint32_t records_present;  // records that may be touched
  uint32_t chunks;
  uint64_t chunks_offset;
  SegmentExtents extents;

  // Null if no memory is behind it.
  const CommunicatorRecord* Record(uint32_t index) const;
  // Null also if there is no such chunk.
  const void* Chunk(uint16_t chunk) const;
};

// Returns false if the geometry differs from this version's, except in the number of chunks.
bool CheckGeometry(const void* base, size_t bytes, const SegmentExtents& extents,
                   SegmentGeometry* geometry, std::string* error);

}  // namespace nccl_pulse

#endif  // METRICS_SEGMENT_GEOMETRY_H_

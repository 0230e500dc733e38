// Where the parts of a segment lie, once its header has been checked. A part of segment_reader.h.
//
// Thread: any. Cost: some loads. Errors: a sentence for a person.
#ifndef METRICS_SEGMENT_GEOMETRY_H_
#define METRICS_SEGMENT_GEOMETRY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "metrics/segment_layout.h"
#include "metrics/segment_reader.h"

namespace nccl_pulse {

// Reads a plain field that another process may be changing, exactly once.
template <typename T>
T ReadOnce(const T& field) {
  T value;
  __atomic_load(&field, &value, __ATOMIC_RELAXED);
  return value;
}

struct SegmentGeometry {
  const uint8_t* base;
  uint32_t communicators;    // as many as the segment has places for
  uint32_t records_present;  // as many as may be touched
  uint32_t pages;
  uint64_t pages_offset;
  SegmentExtents extents;

  // Null: there is no memory behind it.
  const CommunicatorRecord* Record(uint32_t index) const;
  // Also null: no such page.
  const void* Page(uint16_t page) const;
};

// The layout has one possible geometry per version but for the number of pages, so anything else is
// wrong: false.
bool CheckGeometry(const void* base, size_t bytes, const SegmentExtents& extents,
                   SegmentGeometry* geometry, std::string* error);

}  // namespace nccl_pulse

#endif  // METRICS_SEGMENT_GEOMETRY_H_

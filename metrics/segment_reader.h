// Reads a segment into plain values, trusting nothing in it.
//
// The bytes may be written at the same moment, be torn, cut off, or made by a hostile process.
// Everything is checked before it is used: magic, version, geometry, every index and count. Each
// number is read once, so it cannot change between check and use. An error costs that segment
// (false) or that communicator (left out), never more. A communicator that is recycled while it is
// read is left out: it is gone.
//
// Thread: any, no state. Cost: a copy of what is used, about 2 KiB a histogram (bench/metrics.cc).
// Errors: `error` says what was wrong, for a person.
#ifndef METRICS_SEGMENT_READER_H_
#define METRICS_SEGMENT_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// Which bytes of a segment have memory behind them: reading a hole of a memfd would make the kernel
// allocate it, at the reader's expense. Writers populate records and pages from the front, so there
// are two ranges; what lies in neither is left out.
struct SegmentExtents {
  uint64_t first_end = UINT64_MAX;  // the first range begins at 0
  uint64_t second_begin = UINT64_MAX, second_end = UINT64_MAX;
};

// How much memory a snapshot may take, about.
struct SnapshotLimit {
  uint64_t bytes = UINT64_MAX;
  bool exceeded = false;  // set by the reader
};

// `base` must be readable for `bytes` (a mapping of the whole memfd; its size from fstat, its seals
// checked by whoever mapped it). False also when the snapshot would exceed the limit: it is then
// empty, and never was larger.
bool ReadSegment(const void* base, size_t bytes, ProcessSnapshot* snapshot, std::string* error,
                 const SegmentExtents& extents = {}, SnapshotLimit* limit = nullptr);

// The whole size that the segment's header claims; whoever maps a handed-over segment compares it
// with the memory's. `base` must be readable for kHeaderBytes.
uint64_t ClaimedSegmentBytes(const void* base);

}  // namespace nccl_pulse

#endif  // METRICS_SEGMENT_READER_H_

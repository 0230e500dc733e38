// ReadSegment reads a segment into plain values, trusting nothing in it.
//
// The bytes may be changing, torn, truncated, or written by a hostile process. Magic, version,
// geometry, every index and count are checked before use. Each number is read once, so it cannot
// change between check and use. An error costs that segment (false) or that communicator (left
// out), never more. If a communicator is recycled meanwhile, all are read again, a few times.
//
// Thread: any, no state. Cost: a copy of the used parts, about 2 KiB per histogram
// (bench/scrape.cc). Errors: `error` is a readable sentence.
#ifndef METRICS_SEGMENT_READER_H_
#define METRICS_SEGMENT_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// Ranges of a segment that have memory behind them: reading a hole of a memfd would make the kernel
// allocate it, charged to the reader. Writers populate records and chunks from the front, so there
// are two ranges. Everything outside is left out.
struct SegmentExtents {
  uint64_t first_end = UINT64_MAX;  // the first range begins at 0
  uint64_t second_begin = UINT64_MAX, second_end = UINT64_MAX;
};

// Approximate memory limit of a snapshot.
struct SnapshotLimit {
  uint64_t bytes = UINT64_MAX;
  bool exceeded = false;  // set by the reader
};

// `base` must be readable for `bytes` (a mapping of the whole memfd; size from fstat, seals checked
// by the caller). False also if the snapshot would exceed the limit. It is then empty, and never
// was larger than the limit. `wish`: optional parts to read, such as last calls.
bool ReadSegment(const void* base, size_t bytes, ProcessSnapshot* snapshot, std::string* error,
                 const SegmentExtents& extents = {}, SnapshotLimit* limit = nullptr,
                 const ReadWish& wish = {});

// Returns the total size claimed by the segment's header; the process that maps a segment compares
// it with the memory's size. `base` must be readable for kHeaderBytes.
uint64_t ClaimedSegmentBytes(const void* base);

}  // namespace nccl_pulse

#endif  // METRICS_SEGMENT_READER_H_

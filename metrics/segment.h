// Segment owns a process' segment (drawn in segment_layout.h): creates it, populates more of it on
// demand, and gives access to its parts. Readers use segment_reader.h instead.
//
// Thread: the Populate functions from init, finalize and the background thread, which take turns (a
// lock that no callback takes); RecycleChunk, accessors and chunks() any.
#ifndef METRICS_SEGMENT_H_
#define METRICS_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "metrics/chunk_pool.h"
#include "metrics/name_table.h"
#include "metrics/segment_layout.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

class Segment {
 public:
  struct Options {
    uint64_t series_limit = 2048;  // hard limit on series of the whole process
    uint32_t last_calls = 0;       // entries of each communicator's ring of last calls; 0: no rings
    bool allow_shared = true;      // false: use private memory at once (tests of the fallback)
  };

  // Returns null only if the kernel gives no memory. Sets `warning` then, and if the segment is
  // private memory because memfd or its seals were refused. The process' own endpoint then works,
  // but no other process can read it.
  static std::unique_ptr<Segment> Create(const Options& options, std::string* warning);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  // For the owners of parts of the header: HeaderWriter, RecordWriter (the chunks of last calls),
  // UserTags, and tests that simulate another writer.
  SegmentHeader& WritableHeader() { return *reinterpret_cast<SegmentHeader*>(base_); }
  NameTable names() { return NameTable(reinterpret_cast<NameEntry*>(base_ + kHeaderBytes)); }
  CommunicatorRecord& record(uint32_t index) {
    return *reinterpret_cast<CommunicatorRecord*>(base_ + kRecordsOffset + index * kRecordStride);
  }
  HistogramChunk& histogram(uint16_t chunk) {
    return *reinterpret_cast<HistogramChunk*>(ChunkAt(chunk));
  }
  CounterChunk& counters(uint16_t chunk) {
    return *reinterpret_cast<CounterChunk*>(ChunkAt(chunk));
  }
  LastCallChunk& last_calls(uint16_t chunk) {
    return *reinterpret_cast<LastCallChunk*>(ChunkAt(chunk));
  }
  ChunkPool& chunks() { return *pool_; }

  // Populates the memory of the record and of all records before it. False (less is measured) if
  // the kernel refuses. Records from header().records_present on must not even be read: a read can
  // make the kernel allocate, and a failed allocation is SIGBUS.
  bool PopulateRecord(uint32_t index);

  // Refills the reserve of free chunks to `reserve`, populating at most `step` now. False if the
  // kernel refuses (a container's memory limit, for example); existing chunks stay usable.
  bool PopulateChunks(uint32_t reserve, uint32_t step);

  // Zeroes a chunk and frees it. The caller has made sure that no thread still writes it.
  void RecycleChunk(uint16_t chunk);
  // TakeRingChunk returns a chunk for a ring of last calls; kNoChunk if there is none. The reserve
  // stays as large as it was. The chunk stays a ring chunk for good, because a thread may still
  // write into the ring that gave it back. Call both functions under the runtime's lock.
  uint16_t TakeRingChunk();
  void GiveRingChunkBack(uint16_t chunk);

  const void* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  // Returns the descriptor to hand to another process; empty for private memory.
  const SharedDescriptor& memory() const { return memory_; }
  size_t populated_bytes() const { return populated_bytes_.load(); }

  // In a forked child: drops the mapping and the descriptor, leaving the contents alone.
  void AbandonAfterFork();

 private:
  static constexpr uint64_t kRecordsOffset = kHeaderBytes + kNamesBytes;

  Segment(uint8_t* base, size_t bytes, uint32_t chunk_count);
  uint8_t* ChunkAt(uint16_t chunk) {
    return base_ + chunks_offset_ + uint64_t{chunk} * kChunkBytes;
  }
  bool Populate(uint64_t offset, uint64_t bytes);

  uint8_t* base_;
  size_t bytes_;
  SharedDescriptor memory_;
  uint64_t chunks_offset_;
  std::mutex populate_mutex_;
  uint32_t next_unpopulated_chunk_ = 1;  // under populate_mutex_; chunk 0 is kNoChunk
  Relaxed<size_t> populated_bytes_{0};
  std::unique_ptr<ChunkPool::Link[]> links_;
  std::unique_ptr<ChunkPool> pool_;
  // Ring chunks that no ring has now. Under the runtime's lock.
  uint16_t ring_chunks_[kMostLastCallChunks];
  uint32_t free_ring_chunks_ = 0;
};

}  // namespace nccl_pulse

#endif  // METRICS_SEGMENT_H_

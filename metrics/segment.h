// Owns a process' segment (segment_layout.h draws it): makes it, populates more of it when that is
// needed, and gives access to its parts. Readers use segment_reader.h instead.
//
// Thread: the Populate functions from init, finalize and the background thread, which take turns (a
// lock that no callback takes); RecyclePage the same, without a lock; accessors and pages() any.
#ifndef METRICS_SEGMENT_H_
#define METRICS_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "metrics/name_table.h"
#include "metrics/page_pool.h"
#include "metrics/segment_layout.h"
#include "metrics/shared_descriptor.h"

namespace nccl_pulse {

class Segment {
 public:
  struct Options {
    uint64_t series_limit = 2048;  // hard limit on series of the whole process
    uint32_t last_calls = 0;       // SegmentHeader::last_calls
    bool allow_shared = true;      // false: private memory at once (tests of the fallback)
  };

  // Null only when the kernel gives no address space at all. `warning` is set when the segment is
  // private memory because memfd or its seals were refused: this process' own endpoint works, no
  // other process can read it.
  static std::unique_ptr<Segment> Create(const Options& options, std::string* warning);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  // Those that own a part of it use it: HeaderWriter, RecordWriter (the pages of last calls),
  // UserTags, and tests that play another writer.
  SegmentHeader& WritableHeader() { return *reinterpret_cast<SegmentHeader*>(base_); }
  NameTable names() { return NameTable(reinterpret_cast<NameEntry*>(base_ + kHeaderBytes)); }
  CommunicatorRecord& record(uint32_t index) {
    return *reinterpret_cast<CommunicatorRecord*>(base_ + kRecordsOffset + index * kRecordStride);
  }
  HistogramPage& histogram(uint16_t page) {
    return *reinterpret_cast<HistogramPage*>(PageAt(page));
  }
  CounterPage& counters(uint16_t page) { return *reinterpret_cast<CounterPage*>(PageAt(page)); }
  LastCallPage& last_calls(uint16_t page) { return *reinterpret_cast<LastCallPage*>(PageAt(page)); }
  PagePool& pages() { return *pool_; }

  // Makes the record's memory present, and that of all before it. False (less is measured) when the
  // kernel refuses. From header().records_present on, a record must not even be read: a read can
  // make the kernel allocate too, and when that fails it is SIGBUS.
  bool PopulateRecord(uint32_t index);

  // Brings the reserve of free pages up to `reserve`, populating at most `step` now. False when the
  // kernel refuses (memory limit of the container, say): what there is stays usable.
  bool PopulatePages(uint32_t reserve, uint32_t step);

  // Zeroes a page and puts it back. The caller made sure that nobody writes it any more.
  void RecyclePage(uint16_t page);
  // A page for a ring of last calls, kNoPage: there is none now. It is not of the reserve, and
  // stays one of a ring's for good: somebody may still write into the ring that gave it back. Both
  // under the runtime's lock.
  uint16_t TakeRingPage();
  void GiveRingPageBack(uint16_t page);

  const void* base() const { return base_; }
  size_t bytes() const { return bytes_; }
  // What another process can be given; empty for private memory.
  const SharedDescriptor& memory() const { return memory_; }
  size_t populated_bytes() const { return populated_bytes_.load(); }

  // In a forked child: drops the mapping and the descriptor without touching the contents.
  void AbandonAfterFork();

 private:
  static constexpr uint64_t kRecordsOffset = kHeaderBytes + kNamesBytes;

  Segment(uint8_t* base, size_t bytes, uint32_t page_count);
  uint8_t* PageAt(uint16_t page) { return base_ + pages_offset_ + uint64_t{page} * kPageBytes; }
  bool Populate(uint64_t offset, uint64_t bytes);

  uint8_t* base_;
  size_t bytes_;
  SharedDescriptor memory_;
  uint64_t pages_offset_;
  std::mutex populate_mutex_;
  uint32_t next_unpopulated_page_ = 1;  // under populate_mutex_; page 0 is kNoPage
  Relaxed<size_t> populated_bytes_{0};
  std::unique_ptr<PagePool::Link[]> links_;
  std::unique_ptr<PagePool> pool_;
  // Pages of rings that no ring has. The runtime's lock.
  uint16_t ring_pages_[kMostLastCallPages];
  uint32_t free_ring_pages_ = 0;
};

}  // namespace nccl_pulse

#endif  // METRICS_SEGMENT_H_

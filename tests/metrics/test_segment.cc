#include "tests/metrics/test_segment.h"

#include <cstdio>
#include <cstdlib>

#include "metrics/shared_bytes.h"

namespace nccl_pulse {

TestSegment::TestSegment(uint64_t series_limit, uint32_t pages) {
  Segment::Options options;
  options.series_limit = series_limit;
  std::string warning;
  segment_ = Segment::Create(options, &warning);
  if (segment_ == nullptr || !segment_->PopulatePages(pages, pages)) {
    fprintf(stderr, "no segment for the test: %s\n", warning.c_str());
    abort();
  }
}

uint32_t TestSegment::AddCommunicator(uint32_t index, uint64_t comm_id, int rank,
                                      std::string_view name) {
  if (!segment_->PopulateRecord(index)) abort();
  CommunicatorRecord& record = segment_->record(index);
  const uint32_t generation = record.generation.fetch_add(1, std::memory_order_acq_rel) + 1;
  record.comm_id.store(comm_id, std::memory_order_relaxed);
  record.rank.store(rank, std::memory_order_relaxed);
  __atomic_store_n(&record.nranks, 8, __ATOMIC_RELAXED);
  __atomic_store_n(&record.nnodes, 2, __ATOMIC_RELAXED);
  __atomic_store_n(&record.index, index, __ATOMIC_RELAXED);
  __atomic_store_n(&record.init_realtime_ns, 1000 + index, __ATOMIC_RELAXED);
  CopyToShared(record.name, name);
  CopyToShared(record.gpu, "3");
  CopyToShared(record.uuid, "GPU-6a1b");
  CopyToShared(record.pci_bus_id, "00000000:18:00.0");
  record.state.store(static_cast<uint32_t>(CommunicatorState::kLive), std::memory_order_release);
  return generation;
}

void TestSegment::AddTimedCall(uint32_t index, uint8_t op, LatencyKind kind, uint8_t size_class,
                               uint32_t call_number, uint64_t bytes, uint64_t duration_ns,
                               uint64_t end_ns) {
  CommunicatorRecord& record = segment_->record(index);
  const uint64_t number = record.next_timed_call.fetch_add(1, std::memory_order_relaxed);
  TimedCall& call = record.timed_calls[number % kTimedCalls];
  call.sequence.store(0, std::memory_order_relaxed);
  call.key.store(uint64_t{op} | static_cast<uint64_t>(kind) << 8 | uint64_t{size_class} << 16 |
                     uint64_t{call_number} << 32,
                 std::memory_order_release);
  call.bytes.store(bytes, std::memory_order_release);
  call.duration_ns.store(duration_ns, std::memory_order_release);
  call.end_monotonic_ns.store(end_ns, std::memory_order_release);
  call.sequence.store(number + 1, std::memory_order_release);
}

}  // namespace nccl_pulse

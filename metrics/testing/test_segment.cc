#include "metrics/testing/test_segment.h"

#include <cstdio>
#include <cstdlib>

namespace nccl_pulse {

TestSegment::TestSegment(uint64_t series_limit, uint32_t chunks, uint32_t last_calls) {
  Segment::Options options;
  options.last_calls = last_calls;
  options.series_limit = series_limit;
  std::string warning;
  segment_ = Segment::Create(options, &warning);
  if (segment_ == nullptr || !segment_->PopulateChunks(chunks, chunks)) {
    fprintf(stderr, "no segment for the test: %s\n", warning.c_str());
    abort();
  }
}

uint32_t TestSegment::AddCommunicator(uint32_t index, uint64_t comm_id, int rank,
                                      std::string_view name) {
  RecordWriter::Identity identity;
  identity.comm_id = comm_id;
  identity.name = name;
  identity.rank = rank;
  identity.nranks = 8;
  identity.nnodes = 2;
  identity.index = index;
  identity.gpu = "3";
  identity.uuid = "GPU-6a1b";
  identity.pci_bus_id = "00000000:18:00.0";
  identity.init_realtime_ns = 1000 + index;
  return AddCommunicator(index, identity, CompletionSource::kNone);
}

uint32_t TestSegment::AddCommunicator(uint32_t index, const RecordWriter::Identity& identity,
                                      CompletionSource source) {
  if (!segment_->PopulateRecord(index)) abort();
  RecordWriter record = Record(index);
  const CommunicatorState state = segment_->record(index).life.state();
  if (state == CommunicatorState::kLive) record.Finalize(1);
  // Retries: a writer of the test may have been preempted while it held a lane.
  while (state != CommunicatorState::kFree && !record.Recycle()) {
  }
  const uint32_t generation = record.Prepare(identity);
  record.Publish(source);
  return generation;
}

}  // namespace nccl_pulse

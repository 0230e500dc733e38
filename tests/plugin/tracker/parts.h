// What a part of the tracker needs around it in a test: a clock that stands where the test says, a
// GPU that does what the test says, a segment.
#ifndef TESTS_PLUGIN_TRACKER_PARTS_H_
#define TESTS_PLUGIN_TRACKER_PARTS_H_

#include <cstdint>
#include <memory>

#include "metrics/testing/test_segment.h"
#include "plugin/cuda/cuda_driver.h"
#include "plugin/tracker/clock.h"
#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/communicator_table.h"
#include "plugin/tracker/instruments.h"
#include "plugin/tracker/operation_ring.h"

namespace nccl_pulse {

// A place for an operation; what stood there goes to `settle(place, state)`.
template <typename Settle>
uint64_t ClaimPlace(OperationRing& ring, uint64_t first_ticket, bool by_kernel,
                    const NewOperation& operation, Settle settle) {
  return ring.Claim(ring.TakeNumber(), first_ticket, by_kernel, operation,
                    [&](uint32_t place, uint64_t* claimed) {
                      return ring.ClaimUsed(place, by_kernel, claimed,
                                            [&](const OperationState& old) { settle(place, old); });
                    });
}
inline uint64_t ClaimPlace(OperationRing& ring, uint64_t first_ticket, bool by_kernel,
                           const NewOperation& operation) {
  return ClaimPlace(ring, first_ticket, by_kernel, operation,
                    [](uint32_t, const OperationState&) {});
}

// Made of plain functions; one at a time.
struct FakeGpu {
  FakeGpu();
  ~FakeGpu();
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  CudaDriver driver{};
  bool is_capturing = false;
  bool is_behind = false;  // no event is complete
  int record_result = kCudaSuccess;
  float elapsed_ms = 0;
  int records = 0;
};

// One process with one communicator of eight ranks, by default with a GPU.
class Process {
 public:
  explicit Process(TimingMode timing = TimingMode::kAuto, bool has_gpu = true);

  uint64_t AddCommunicator(uint64_t comm_id = 1);
  Communicator& communicator() { return *table.Find(context); }
  CommunicatorParts& parts() { return *communicator().parts.load(); }
  CommunicatorRecord& record() { return *communicator().record; }
  uint64_t Ignored(IgnoredReason reason);
  // From now on each call but the first two of its kind is sampled, as far as the budget allows.
  void SampleAll() { instruments.sampler.Adapt(0, 1); }

  TestSegment segment;
  Clock clock;
  FakeGpu gpu;
  Instruments instruments;
  CommunicatorTable table;
  uint64_t context = 0;
};

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_TRACKER_PARTS_H_

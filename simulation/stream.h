// Stream is a stream of the simulated GPU, as the simulated driver (driver.cc) sees it. A
// cudaStream_t of that driver points to one of these.
//
// Thread: the timeline any; the rest only the thread that uses the stream.
#ifndef SIMULATION_STREAM_H_
#define SIMULATION_STREAM_H_

#include <cstdint>
#include <memory>

namespace nccl_pulse::simulation {

// The kernels of a stream: number enqueued, and their end times.
class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual uint64_t enqueued() const = 0;
  // Returns when the first `kernels` end, on the monotonic clock, possibly in the future. 0: not
  // known yet.
  virtual uint64_t EndNs(uint64_t kernels) const = 0;
  // True if those times are computed: an event then completes at the end of the work before it,
  // even if a busy host recorded it later. Otherwise it does not complete before it was recorded.
  virtual bool is_computed() const = 0;
};

struct Stream {
  bool is_capturing = false;
  bool is_invalidated = false;         // a forbidden call invalidated the capture
  std::shared_ptr<Timeline> timeline;  // events outlive their stream
};

// Sets the index of the driver's only device. Its UUID and PCI bus ID derive from it. Exported by
// the driver's library.
extern "C" void pulseSimulatedDevice(int number);  // NOLINT(readability-identifier-naming)

}  // namespace nccl_pulse::simulation

#endif  // SIMULATION_STREAM_H_

// A stream of the simulated GPU, as the simulated driver (driver.cc) sees it. A cudaStream_t of
// that driver points to one of these.
//
// Thread: the timeline any; the rest is the thread's that uses the stream.
#ifndef SIMULATION_STREAM_H_
#define SIMULATION_STREAM_H_

#include <cstdint>
#include <memory>

namespace nccl_pulse::simulation {

// The kernels of a stream: how many were enqueued, and when they end.
class Timeline {
 public:
  virtual ~Timeline() = default;
  virtual uint64_t enqueued() const = 0;
  // When the first `kernels` end, on the monotonic clock; it may be in the future. 0: not known
  // yet.
  virtual uint64_t EndNs(uint64_t kernels) const = 0;
  // Whether those times are computed: then an event is complete at the end of what stands before
  // it, though the host, on a busy machine, recorded it later. Else not before it was recorded.
  virtual bool is_computed() const = 0;
};

struct Stream {
  bool is_capturing = false;
  bool is_invalidated = false;         // the capture, by something that must not happen in one
  std::shared_ptr<Timeline> timeline;  // events outlive their stream
};

// What a driver says of its only device: cuDeviceGetUuid and the PCI bus id are made of it.
// Exported by the driver's library.
extern "C" void pulseSimulatedDevice(int number);  // NOLINT(readability-identifier-naming)

}  // namespace nccl_pulse::simulation

#endif  // SIMULATION_STREAM_H_

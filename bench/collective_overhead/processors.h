// Processors places a rank's thread on CPUs near its GPU, if the system knows them.
//
// Thread: each rank its own, for the calling thread.
#ifndef BENCH_COLLECTIVE_OVERHEAD_PROCESSORS_H_
#define BENCH_COLLECTIVE_OVERHEAD_PROCESSORS_H_

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace nccl_pulse::overhead {

class Processors {
 public:
  // `bus_id`: of the GPU, in the driver's format.
  void Find(const std::string& bus_id);
  // Pins the calling thread to one of the found CPUs, chosen by `number` and the rank. Ranks get
  // different CPUs.
  void Pin(uint32_t number, int rank, int nranks) const;
  // Allows all CPUs that the thread was allowed at first.
  void Unpin() const;

 private:
  cpu_set_t allowed_;
  std::vector<int> near_;
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_PROCESSORS_H_

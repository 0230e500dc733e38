// The processors that a rank's thread may use, near its GPU if the system says which are.
//
// Thread: each rank its own, about the calling thread.
#ifndef BENCH_COLLECTIVE_OVERHEAD_PROCESSORS_H_
#define BENCH_COLLECTIVE_OVERHEAD_PROCESSORS_H_

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

namespace nccl_pulse::overhead {

class Processors {
 public:
  // `bus_id`: of the GPU, as the driver writes it.
  void Find(const std::string& bus_id);
  // The calling thread to one of them, `number` and the rank say which; ranks get different ones.
  void Pin(uint32_t number, int rank, int nranks) const;
  // To all that it was allowed.
  void Unpin() const;

 private:
  cpu_set_t allowed_;
  std::vector<int> near_;
};

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_PROCESSORS_H_

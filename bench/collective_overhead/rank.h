// ServeRanks runs ranks: each serves requests until it receives kQuit or its socket is closed.
#ifndef BENCH_COLLECTIVE_OVERHEAD_RANK_H_
#define BENCH_COLLECTIVE_OVERHEAD_RANK_H_

#include <string>
#include <vector>

namespace nccl_pulse::overhead {

struct RankSeat {
  int rank;
  int device;
  int socket;
};

// Main function of a process of the benchmark: one thread per seat. Returns the exit status.
int ServeRanks(const std::vector<RankSeat>& seats, int nranks, const std::string& nccl_path);

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_RANK_H_

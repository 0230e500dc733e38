// What collectives and messages do with the data, through an Exchange.
//
// Thread: one at a time, and all ranks must take part.
#ifndef TESTS_GPU_FAKE_DATA_H_
#define TESTS_GPU_FAKE_DATA_H_

#include <vector>

#include "simulation/callbacks.h"
#include "tests/gpu/fake/exchange.h"

namespace nccl_pulse::fake {

struct Ranks {
  Exchange* exchange;
  int rank, nranks;
};

// The calls of one launch. Does not return when ranks call different collectives, or sizes.
void RunData(const Ranks& comm, const std::vector<simulation::Call>& calls);

}  // namespace nccl_pulse::fake

#endif  // TESTS_GPU_FAKE_DATA_H_

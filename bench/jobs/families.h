// Families of simulated jobs. All jobs of a family have the same fault, at random ranks and times
// of random layouts. A family defines the fault and the verdict that its jobs must get (Truth).
//
// Thread: any; constant data.
#ifndef BENCH_JOBS_FAMILIES_H_
#define BENCH_JOBS_FAMILIES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/jobs/random_layouts.h"
#include "bench/jobs/scenario.h"

namespace nccl_pulse {

struct Family {
  const char* name;
  uint64_t number;  // part of the seed, so existing jobs stay the same when families are added
  // Minimum number of right verdicts among seeds 0 to 7. Raise it with each improvement.
  int least_right;
  void (*make)(Scenario* scenario, Generator* random);
};

const std::vector<Family>& Families();
// Returns null if no family has that name.
const Family* FindFamily(const std::string& name);
Scenario MakeFamily(const Family& family, uint64_t seed);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_FAMILIES_H_

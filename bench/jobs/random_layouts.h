// Random layouts of simulated jobs.
//
// Thread: any; the generator holds the state.
#ifndef BENCH_JOBS_RANDOM_LAYOUTS_H_
#define BENCH_JOBS_RANDOM_LAYOUTS_H_

#include <cstdint>
#include <random>

#include "bench/jobs/job_layout.h"

namespace nccl_pulse {

using Generator = std::mt19937_64;

// Returns a number from `least` to `most`.
int64_t Between(Generator* random, int64_t least, int64_t most);

// Returns a random layout of one of seven kinds, with 4 to 216 ranks.
JobLayout MakeLayout(Generator* random);
// Returns a layout with many calls in a step, one or two for each layer.
JobLayout MakeDeepLayout(Generator* random);
// Returns a layout that posts calls ahead of the work that needs them (JobLayout::posts_ahead).
JobLayout MakeLayoutThatPostsAhead(Generator* random);
// Returns a pipeline of four stages whose Sends wait for their Recvs.
JobLayout MakePipeline(Generator* random);
// Returns a layout with several experts.
JobLayout MakeExperts(Generator* random);
// Returns a layout with several tensor-parallel groups in each node.
JobLayout MakeNodeLayout(Generator* random);

}  // namespace nccl_pulse

#endif  // BENCH_JOBS_RANDOM_LAYOUTS_H_

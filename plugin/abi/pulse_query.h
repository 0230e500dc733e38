/* What a tuner can ask NCCL Pulse, from inside the job: how long calls of one kind took. C, no C++.
 *
 * The library exports ncclPulseQuery_v1. NCCL loads libraries locally, so look it up:
 *
 *   void* pulse = dlopen("libnccl-profiler-pulse.so", RTLD_NOW | RTLD_NOLOAD);
 *   ncclPulseQuery_v1_t* query = pulse ? dlsym(pulse, "ncclPulseQuery_v1") : NULL;
 *
 * Thread: any, also NCCL's. Wait-free: no lock, system call or allocation. Cost: bench:callbacks, row Query.
 * The first question about a kind of call reserves a place for it; from then on the answer is renewed every
 * second by a background thread. A process has 256 places, which are never given back.
 */
#ifndef PLUGIN_ABI_PULSE_QUERY_H_
#define PLUGIN_ABI_PULSE_QUERY_H_

/* NOLINTBEGIN(modernize-deprecated-headers,modernize-use-using,readability-identifier-naming): C */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  ncclPulseOk = 0,
  ncclPulseNotYet = 1, /* nothing is known yet, or it is being renewed: ask again later */
  ncclPulseNoRoom = 2, /* more kinds of calls were asked for than there are places */
  ncclPulseBadArgument = 3
};

/* Durations on the GPU of the calls that were timed (a sample), since the communicator was made. They contain
 * the waiting for other ranks. Times in nanoseconds; points in time in Unix time. */
typedef struct {
  uint64_t calls; /* that were timed */
  uint64_t mean_ns, p50_ns, p99_ns;
  int64_t updated_ns; /* when this answer was made */
  /* The newest timed call that had ended before the second of the clock before updated_ns began. Ranks time the
   * same calls, so ranks that ask in the same second get the same call, unless their clocks or their timing
   * budgets differ: compare the number before you compare durations. 0 ns: there is none. */
  uint64_t agreed_call; /* n-th call of its kind on the communicator, from 0 */
  uint64_t agreed_ns;
  int64_t agreed_end_ns;
} ncclPulseDurations_v1_t;

/* comm: as NCCL passes it to init of a profiler or tuner (commId). op: "AllReduce", "AllGather", "ReduceScatter",
 * "Broadcast" or "Reduce". bytes: as NCCL Pulse counts them (count times element size; of AllGather and
 * ReduceScatter per rank); calls of the same size class share an answer. */
typedef int ncclPulseQuery_v1_t(uint64_t comm, const char* op, uint64_t bytes,
                                ncclPulseDurations_v1_t* durations);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(modernize-deprecated-headers,modernize-use-using,readability-identifier-naming) */

#endif /* PLUGIN_ABI_PULSE_QUERY_H_ */

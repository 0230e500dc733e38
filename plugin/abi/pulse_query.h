/* ncclPulseQuery_v1 tells a tuner plugin, from inside the job, how long calls of one kind (communicator,
 * operation and size class) took. This header is C.
 *
 * The library exports ncclPulseQuery_v1. NCCL loads plugins with RTLD_LOCAL, so look the function up:
 *
 *   void* pulse = dlopen("libnccl-profiler-pulse.so", RTLD_NOW | RTLD_NOLOAD);
 *   ncclPulseQuery_v1_t* query = pulse ? dlsym(pulse, "ncclPulseQuery_v1") : NULL;
 *
 * Thread: any, also NCCL's. Wait-free: no lock, system call or allocation. Cost: measured by //bench:callbacks,
 * row Query. The first query for a kind of call reserves a slot; from then on a background thread renews the
 * answer every second. A process has 256 slots, which are never freed.
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
  ncclPulseNotYet = 1, /* no answer yet, or it is being renewed: ask again later */
  ncclPulseNoRoom = 2, /* no slot is free for this kind of call */
  ncclPulseBadArgument = 3
};

/* Durations on the GPU of all timed calls of one kind (a sample of its calls) since the communicator was made.
 * A duration includes waiting for other ranks. Times are in nanoseconds; points in time are Unix time. */
typedef struct {
  uint64_t calls; /* number of timed calls */
  uint64_t mean_ns, p50_ns, p99_ns;
  int64_t updated_ns; /* when this answer was made */
  /* One call that can be compared between ranks: the newest timed call that ended at least a whole
   * second before the second of updated_ns began (updated at 12:00:05.3: before 12:00:04). Ranks time the same calls, so answers
   * updated in the same second have the same call, unless the ranks' clocks or timing budgets differ: compare
   * agreed_call before you compare durations. */
  uint64_t agreed_call; /* number of the call among the communicator's calls of this kind, from 0 */
  uint64_t agreed_ns;   /* its duration; 0: there is no such call */
  int64_t agreed_end_ns;
} ncclPulseDurations_v1_t;

/* comm: the communicator's ID (commId), as NCCL passes it to init of a profiler or tuner. op: "AllReduce",
 * "AllGather", "ReduceScatter", "Broadcast" or "Reduce". bytes: count times element size (for AllGather and
 * ReduceScatter, of one rank); calls of the same size class share an answer. Returns one of the codes above. */
typedef int ncclPulseQuery_v1_t(uint64_t comm, const char* op, uint64_t bytes,
                                ncclPulseDurations_v1_t* durations);

#ifdef __cplusplus
}
#endif
/* NOLINTEND(modernize-deprecated-headers,modernize-use-using,readability-identifier-naming) */

#endif /* PLUGIN_ABI_PULSE_QUERY_H_ */

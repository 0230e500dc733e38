// Which NCCL the stand-in is: FAKE_NCCL_VERSION, spelled as ncclGetVersion does; 22809 by default.
//
// Thread: any. The environment is not written to after start-up.
#ifndef TESTS_GPU_FAKE_RELEASE_H_
#define TESTS_GPU_FAKE_RELEASE_H_

#include <cstdlib>

namespace nccl_pulse::fake {

inline const char* Variable(const char* name) { return std::getenv(name); }

// 22809 is 2.28.9.
int Release();

// The newest profiler API that this release knows; 5 at least.
int ProfilerApi();

// Whether a Broadcast makes events below its API call. From 2.29.2 on it does not: collTaskAppend
// queues it as a ncclTaskBcast, which has no event mask, and ncclPrepareTasks makes an ordinary
// task of it without one (enqueue.cc, read in 2.30.7 and 2.31.2). NCCL_ALLGATHERV_ENABLE=0 prevents
// that.
bool ReportsBroadcast();

// Whether FAKE_NCCL_FAULT asks for this fault.
bool Fault(const char* name);

// NCCL's logger: to NCCL_DEBUG_FILE, or standard error.
__attribute__((format(printf, 5, 6))) void Log(int level, unsigned long flags, const char* file,
                                               int line, const char* format, ...);

}  // namespace nccl_pulse::fake

#endif  // TESTS_GPU_FAKE_RELEASE_H_

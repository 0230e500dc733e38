// What the thread of a communicator's init says about where its operations will be launched.
//
// A non-blocking communicator launches on threads that NCCL makes. Its init runs on such a thread,
// too: ncclGroupEndInternal (src/group.cc, 2.28.3 to 2.31.2) hands it to a new one. The one way
// round that is ncclCommInitRank, which runs on the calling thread (ncclAsyncLaunch outside of a
// group, before 2.31) and makes a non-blocking communicator only where NCCL_COMM_BLOCKING says so. So one that
// is made on the process' main thread, which NCCL never made, is blocking if that is not set.
//
// Thread: init. Cost: two system calls. Errors: in doubt the answer is no.
#ifndef PLUGIN_RUNTIME_CALLING_THREAD_H_
#define PLUGIN_RUNTIME_CALLING_THREAD_H_

namespace nccl_pulse {

// Whether the communicator whose init this is is known to launch on the threads that call.
bool IsBlockingCommunicator();

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_CALLING_THREAD_H_

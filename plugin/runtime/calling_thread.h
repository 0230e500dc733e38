// What the thread of a communicator's init says about where its operations will be launched.
//
// A non-blocking communicator launches on threads that NCCL makes. Its init runs on such a thread,
// too: ncclGroupEndInternal (src/group.cc, 2.28.3 to 2.31.2) hands it to a new one. So one whose
// init runs on the process' main thread, which NCCL never made, is blocking. There are two ways
// round that:
//
//   ncclCommInitRank   runs on the calling thread (ncclAsyncLaunch outside of a group, before
//                      2.31), and makes a non-blocking one only where NCCL_COMM_BLOCKING says so
//   ncclCommSplit      the parent's kind decides about the thread (ncclCommInitChildComm passes it
//                      to ncclAsyncLaunch). CommunicatorTable::Add rules that out
//
// Thread: init. Cost: two system calls. Errors: in doubt the answer is no.
#ifndef PLUGIN_RUNTIME_CALLING_THREAD_H_
#define PLUGIN_RUNTIME_CALLING_THREAD_H_

namespace nccl_pulse {

// Whether the communicator whose init this is, if it is no other's child, is known to launch on the
// threads that call.
bool IsBlockingInit();

}  // namespace nccl_pulse

#endif  // PLUGIN_RUNTIME_CALLING_THREAD_H_

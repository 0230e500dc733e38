// Ends of a process at the worst moment: while its threads are inside callbacks.
#ifndef TESTS_NODE_WAYS_TO_END_H_
#define TESTS_NODE_WAYS_TO_END_H_

#include <string>

namespace nccl_pulse {

// Two threads make callbacks without a pause, each on a communicator of its own, a third one makes
// and ends communicators. When all are at it, the process goes by `how`: exit, _exit, quick_exit,
// segv, abort, exec; "stay" returns, and the threads go on. From exit() on NCCL's logger is not
// called any more, as in a job whose runtime is gone.
void BeBusyThen(const std::string& how);

// This program again, in the same process.
[[noreturn]] void Exec();

}  // namespace nccl_pulse

#endif  // TESTS_NODE_WAYS_TO_END_H_

// Group holds the processes of one configuration, for the coordinator.
//
// The groups of all configurations stay alive together, GPU contexts and communicators included.
// One group works; the others block in read. So a switch takes milliseconds instead of a start's
// seconds, and two configurations that are compared run right after each other.
//
// Thread: the coordinator's only one. Errors: a sentence; kill a group that failed.
#ifndef BENCH_COLLECTIVE_OVERHEAD_GROUP_H_
#define BENCH_COLLECTIVE_OVERHEAD_GROUP_H_

#include <sys/types.h>

#include <vector>

#include "bench/collective_overhead/options.h"
#include "bench/collective_overhead/protocol.h"

namespace nccl_pulse::overhead {

class Group {
 public:
  // `options` must outlive the group, with its devices filled in.
  Group(const Options& options, const Configuration& configuration, Launch launch)
      : options_(options), configuration_(configuration), launch_(launch) {}
  ~Group() { Kill(); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  // Steps of the start, so that several groups can start concurrently: Spawn, then
  // SendUniqueIdAndConnect, which doesn't wait for the connections; Receive does.
  Error Spawn();
  Error Send(const Request& request);          // to all ranks
  Error Receive(std::vector<Reply>* replies);  // from all ranks; waits up to hang_seconds
  Error SendUniqueIdAndConnect();              // rank 0 makes the id; all get it

  // Combines Send and Receive.
  Error Call(const Request& request, std::vector<Reply>* replies);

  void AskToQuit();
  // Waits up to `seconds` for the processes to end and kills the rest.
  void AwaitQuit(double seconds);
  void Kill();

  const Configuration& configuration() const { return configuration_; }

 private:
  Error SendTo(std::size_t rank, const Request& request);
  Error ReceiveFrom(std::size_t rank, Reply* reply);
  Error ReceiveOf(std::vector<std::size_t> ranks, std::vector<Reply>* replies);
  void Reap(double seconds);

  const Options& options_;
  const Configuration configuration_;
  const Launch launch_;
  std::vector<int> sockets_;  // by rank
  std::vector<pid_t> processes_;
};

// Makes SIGINT and SIGTERM end the program, keeping the results so far.
void StopOnSignals();
bool StopRequested();

// Returns seconds on the monotonic clock.
double NowSeconds();

}  // namespace nccl_pulse::overhead

#endif  // BENCH_COLLECTIVE_OVERHEAD_GROUP_H_

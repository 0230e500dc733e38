// ReplayProcess is one process of a replay, for its parent.
//
// Thread: the parent's only one.
#ifndef BENCH_REPLAY_REPLAY_PROCESS_H_
#define BENCH_REPLAY_REPLAY_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/replay/processes.h"
#include "bench/replay/shared_run.h"

namespace nccl_pulse {

class ReplayProcess {
 public:
  explicit ReplayProcess(std::string file);
  ~ReplayProcess();
  ReplayProcess(const ReplayProcess&) = delete;
  ReplayProcess& operator=(const ReplayProcess&) = delete;

  // Forks it. False, with errno set, on failure.
  bool Start(const ProcessesOptions& options);
  // Returns the complete lines received, in the format of child_messages.h.
  std::vector<std::string> ReadLines();
  // Stores the child's reason for its failure.
  void SetError(const std::string& error) { error_ = error; }
  // True once, with the status of waitpid, after it has ended.
  bool Reap(int* status);
  void Signal(int signal) const;

  const std::string& name() const { return name_; }  // file name without folder and suffix
  int messages() const { return messages_; }         // for poll(2); -1: no more messages
  bool is_running() const { return is_running_; }
  SharedRun& shared() const { return *shared_; }

  // Returns the message for a failure, and the exit status of the whole replay. "" if it ended as
  // requested.
  std::string DescribeEnd(int status, bool was_stopped, int* exit) const;

 private:
  std::string file_;
  std::string name_;
  pid_t pid_ = -1;
  int messages_ = -1;  // read end of the pipe
  std::string partial_line_;
  std::string error_;
  SharedRun* shared_ = nullptr;
  bool is_running_ = false;
};

// How long processes may take to finalize after a stop before they are killed.
inline constexpr int kStopPatienceS = 10;

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_REPLAY_PROCESS_H_

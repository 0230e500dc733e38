// One process of a replay as the parent sees it.
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

  // Forks it. False, with errno, when the system refuses.
  bool Start(const ProcessesOptions& options);
  // Whole lines that have come from it, in the form of child_messages.h.
  std::vector<std::string> ReadLines();
  // Why it failed, as it said.
  void SetError(const std::string& error) { error_ = error; }
  // True once, with the status of waitpid, when it has ended.
  bool Reap(int* status);
  void Signal(int signal) const;

  const std::string& name() const { return name_; }  // the file's without folder and suffix
  int messages() const { return messages_; }         // for poll(2); -1: there will be none
  bool is_running() const { return is_running_; }
  SharedRun& shared() const { return *shared_; }

  // What to say of an end that is a failure, and the exit status of the whole replay. "" when it is
  // none: it was told to stop, and did.
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

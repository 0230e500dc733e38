// ReplayConsole prints a replay's output: on standard output the plugins' addresses and a line per
// finished stage, on standard error progress and problems. On a terminal progress is one updated
// line, else a line every five seconds.
//
// Thread: the parent's only one.
#ifndef BENCH_REPLAY_REPLAY_CONSOLE_H_
#define BENCH_REPLAY_REPLAY_CONSOLE_H_

#include <cstdint>
#include <set>
#include <string>

namespace nccl_pulse {

class ReplayConsole {
 public:
  ReplayConsole();

  // Shows a line of a plugin's log. Announces an address in it once.
  void ShowLog(const std::string& process, const std::string& text);
  // Shows each problem once.
  void ShowProblem(const std::string& message);
  // `passed` of `run` callbacks in each of `repeat` repetitions (0: until stopped).
  void ShowProgress(int processes, uint64_t passed, uint64_t run, uint64_t repeat);
  void ShowReplayed(int processes, uint64_t passed, uint64_t made, bool holds);
  void ClearLine();

 private:
  const bool terminal_;
  bool line_open_ = false;
  int64_t last_progress_ns_ = 0;
  std::set<std::string> announced_;
  std::set<std::string> reported_;
};

}  // namespace nccl_pulse

#endif  // BENCH_REPLAY_REPLAY_CONSOLE_H_

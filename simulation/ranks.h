// The processes of the simulated job (job.h): starts them, hears what the plugin in them logs, and
// ends them.
//
// Thread: one; start them before the program has another thread. Cost: four processes. Should this
// process die, they end, too.
#ifndef SIMULATION_RANKS_H_
#define SIMULATION_RANKS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "simulation/job.h"

namespace nccl_pulse::simulation {

class Ranks {
 public:
  // What a rank's plugin logged.
  struct Message {
    int rank;
    bool is_warning;
    std::string text;
  };

  Ranks() = default;
  ~Ranks();  // ends them
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // The logger of `options` is set here. False: `error` says why not; those that were started end.
  bool Start(JobOptions options, std::string* error);
  SharedJob& job() { return *job_; }
  // Waits `patience_ms` at most for messages.
  std::vector<Message> Read(int patience_ms);
  // Whether a rank ended that was not told to; `how` says which and how.
  bool HasLost(std::string* how);
  // Asks all to end, waits for that, and kills those that do not within ten seconds: then false.
  bool Stop();
  pid_t pid(int rank) const { return processes_[static_cast<size_t>(rank)].pid; }

 private:
  struct Process {
    pid_t pid = -1;  // -1: it was waited for
    int messages = -1;
    std::string partial_line;
  };
  bool StartOne(const JobOptions& options, int rank, std::string* error);

  SharedJob* job_ = nullptr;
  std::vector<Process> processes_;
};

}  // namespace nccl_pulse::simulation

#endif  // SIMULATION_RANKS_H_

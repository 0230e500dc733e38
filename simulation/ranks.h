// Ranks starts and ends the processes of the simulated job (job.h), and reads their plugins' log.
//
// Thread: one; start them before the program has another thread. Cost: four processes, which end
// with this one even if it crashes.
#ifndef SIMULATION_RANKS_H_
#define SIMULATION_RANKS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "simulation/job.h"

namespace nccl_pulse::simulation {

class Ranks {
 public:
  // A line of a rank's plugin log.
  struct Message {
    int rank;
    bool is_warning;
    std::string text;
  };

  Ranks() = default;
  ~Ranks();  // ends them
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  // Sets the logger of `options`. False, with the reason in `error`, on failure; processes already
  // started end.
  bool Start(JobOptions options, std::string* error);
  SharedJob& job() { return *job_; }
  // Waits up to `patience_ms` for messages.
  std::vector<Message> Read(int patience_ms);
  // True if a rank ended without being asked to; `how` says which and how.
  bool HasLost(std::string* how);
  // Asks all to end and waits. Kills those still running after ten seconds, and returns false then.
  bool Stop();
  pid_t pid(int rank) const { return processes_[static_cast<size_t>(rank)].pid; }

 private:
  struct Process {
    pid_t pid = -1;  // -1: already reaped
    int messages = -1;
    std::string partial_line;
  };
  bool StartOne(const JobOptions& options, int rank, std::string* error);

  SharedJob* job_ = nullptr;
  std::vector<Process> processes_;
};

}  // namespace nccl_pulse::simulation

#endif  // SIMULATION_RANKS_H_

// Has the processes of a job on this host, in its containers too as far as this PID namespace sees
// them, time more of their launches, and watch all network steps, for a while: `pulse set` of
// TIMED_LAUNCHES_PER_SECOND and NETWORK_WINDOW, with a time after which each process goes back by
// itself, whatever becomes of this program.
//
// Thread: main thread; Begin blocks for the patience at most, End for twice that. Cost to the job:
// said by PrintCost. Errors: sentences, for a person; who cannot be reached is named.
#ifndef EXPORTER_CLI_CLOSER_LOOK_H_
#define EXPORTER_CLI_CLOSER_LOOK_H_

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/timeline/job_process.h"

namespace nccl_pulse {

class CloserLook {
 public:
  // `every`: one launch in so many is timed; 1: all.
  CloserLook(int every, std::chrono::milliseconds patience) : every_(every), patience_(patience) {}

  static void PrintCost(std::FILE* said);
  // Before the window, of all `processes` that are on this host.
  void Begin(const std::vector<JobProcess>& processes, const std::vector<Address>& endpoints,
             std::chrono::milliseconds window, std::FILE* said);
  // After it: they need not wait for their time to be over.
  void End();
  // Which processes did not do it, or not all of it, and why.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  int every_;
  std::chrono::milliseconds patience_;
  // Of each of the two settings, who has it now; as seen here.
  std::array<std::vector<pid_t>, 2> done_;
  std::vector<std::string> notes_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_CLOSER_LOOK_H_

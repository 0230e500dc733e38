// Runs a program when a job hangs: `pulse watch --on-hang=PROGRAM`, and `pulse agent`.
//
// The program starts once per hang. Hangs are identified by job and users, so processes of another
// user that claim the job's ID are another hang. A hang that began before the program was last
// started for the job is the same hang, even if an endpoint was silent meanwhile or the verdict
// names another rank. Two starts for a job are at least Options::pause apart: for a hang that
// begins within the pause, the program starts when the pause ends, unless the hang ends first.
// Programs run one at a time, on a thread of their own, each with a time limit. Nothing is stored:
// after a restart, a hang that still lasts starts the program again, and so does a second watcher.
//
// The program's standard input is a JSON object: job_id, workload, users (user IDs of all processes
// that share communicators with the hanging ones, null if not known), since (Unix time), lasted
// (seconds), endpoints (URLs), and diagnosis, which is what `pulse diagnose --json` prints.
//
// All decisions use the watcher's steady clock: a wall clock may step.
//
// Thread: See from one thread, which never waits; Stop and the destructor from any. Memory: a time
// for each of kMostJobs jobs, and the JSON of kMostWaiting hangs. Errors go to the log.
#ifndef EXPORTER_WATCH_HANG_PROGRAM_H_
#define EXPORTER_WATCH_HANG_PROGRAM_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "exporter/base/log.h"
#include "exporter/watch/findings.h"

namespace nccl_pulse {

class HangProgram {
 public:
  static constexpr std::size_t kMostJobs = 4096, kMostWaiting = 64;

  struct Options {
    std::string path;
    std::chrono::milliseconds after{0};         // how long a hang lasts before the program starts
    std::chrono::milliseconds patience{60000};  // time limit of the program
    std::chrono::milliseconds pause{600000};    // between two starts for one job, at least
    LogFunction log;
  };

  // Returns null if the system refuses a thread.
  static std::unique_ptr<HangProgram> Start(Options options);
  // Stops without waiting.
  ~HangProgram();
  HangProgram(const HangProgram&) = delete;
  HangProgram& operator=(const HangProgram&) = delete;

  // Call with the watcher's state after each round.
  void See(const WatchState& state);

  // Returns false if a program did not end within `patience`. The program and its thread then
  // continue.
  bool Stop(std::chrono::milliseconds patience);

 private:
  struct Shared;
  explicit HangProgram(std::shared_ptr<Shared> shared);
  static void Run(Shared& shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_HANG_PROGRAM_H_

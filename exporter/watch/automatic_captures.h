// AutomaticCaptures takes a capture (exporter/capture) when a watcher (watcher.h) first reports a
// hang or a straggler, for `pulse agent --capture-dir`.
//
// Each hang of a job and each slow rank gets one capture; findings of the same round share a
// capture. A hang that began before the job's last capture is the same hang. Captures are at least
// Options::pause apart, except that a hang does not wait for the pause after a straggler's capture,
// because its evidence would be lost. A capture that cannot be written is tried again after the
// pause, kMostTries times in all. A repeated problem is logged once.
//
// Thread: See from one thread, which never waits for a capture; Stop and the destructor from any.
// Captures are taken on a separate thread. Errors go to the log.
#ifndef EXPORTER_WATCH_AUTOMATIC_CAPTURES_H_
#define EXPORTER_WATCH_AUTOMATIC_CAPTURES_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exporter/base/log.h"
#include "exporter/capture/capture.h"
#include "exporter/capture/capture_folder.h"
#include "exporter/watch/findings.h"

namespace nccl_pulse {

// Uncaptured finds the hangs and slow ranks of a watcher's state that have no capture yet.
//
// Thread: one at a time. Memory: a time for each of kMost jobs and kMost ranks.
class Uncaptured {
 public:
  using Times = std::map<std::string, WatchState::Time>;
  // A straggler that was not reported for this long counts as new.
  static constexpr std::chrono::minutes kStragglerIsOver{30};
  static constexpr std::size_t kMost = 4096;

  // A hang or a slow rank.
  struct Trouble {
    std::string key;  // the job, or the slow rank's location
    bool is_hang = false;
    WatchState::Time seen{};  // the end of the last round that reported it
    std::string reason;       // "hang of communicator 00ab ..."
  };

  // Call with the state after each round.
  void See(const WatchState& state);
  // Returns the troubles of the newest state that have no capture, hangs first.
  const std::vector<Trouble>& fresh() const { return fresh_; }
  // Call when these troubles have a capture, or no capture will be taken of them.
  void Done(const std::vector<Trouble>& troubles);

 private:
  Times hangs_;       // by job: the time of its last capture
  Times stragglers_;  // by location: when a straggler with a capture was last reported
  std::vector<Trouble> fresh_;
};

class AutomaticCaptures {
 public:
  static constexpr int kMostTries = 3;

  struct Options {
    CaptureFolder folder;
    CaptureLimits limits;
    Address endpoint;  // the agent's own
    CaptureOptions capture;
    std::chrono::milliseconds pause{60000};  // between two captures, at least
    LogFunction log;
  };

  // Returns null if the system refuses a thread. Warns at once if the folder is not writable.
  static std::unique_ptr<AutomaticCaptures> Start(Options options);
  // Stops without waiting.
  ~AutomaticCaptures();
  AutomaticCaptures(const AutomaticCaptures&) = delete;
  AutomaticCaptures& operator=(const AutomaticCaptures&) = delete;

  // Call with the state after each round.
  void See(const WatchState& state);

  // Returns false if the thread did not end within `patience`. It then continues its capture until
  // the process ends.
  bool Stop(std::chrono::milliseconds patience);

 private:
  struct Shared;
  explicit AutomaticCaptures(std::shared_ptr<Shared> shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_AUTOMATIC_CAPTURES_H_

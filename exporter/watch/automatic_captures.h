// AutomaticCaptures takes a capture when a watcher first reports a hang or a straggler: `pulse
// agent --capture-dir`.
//
// Each hang of a job and each slow rank gets one capture; findings of the same poll share a
// capture. A hang that began before the job's last capture is the same hang. Captures are a pause
// apart. Only a hang after a straggler's capture does not wait for the pause, because its evidence
// would be lost. A capture that cannot be written is retried after the pause, kMostTries times. A
// repeated problem is logged once.
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

#include "exporter/base/log_level.h"
#include "exporter/capture/capture.h"
#include "exporter/capture/capture_folder.h"
#include "exporter/watch/findings.h"

namespace nccl_pulse {

// Uncaptured finds the hangs and slow ranks of a watcher's state that have no capture yet.
//
// Thread: one at a time. Memory: kMost jobs and kMost ranks.
class Uncaptured {
 public:
  using Times = std::map<std::string, WatchState::Time>;
  // A straggler that was not reported for this long counts as new.
  static constexpr std::chrono::minutes kStragglerIsOver{30};
  static constexpr std::size_t kMost = 4096;

  struct Trouble {
    std::string key;
    bool is_hang = false;
    WatchState::Time seen{};  // the end of the round that first reported it
    std::string reason;       // "hang of communicator 00ab ..."
  };

  void See(const WatchState& state);
  // Returns the troubles of the last state without a capture, hangs first.
  const std::vector<Trouble>& fresh() const { return fresh_; }
  // Call when these troubles have a capture, or no capture will be taken of them.
  void Done(const std::vector<Trouble>& troubles);

 private:
  Times hangs_;       // time of each job's last capture
  Times stragglers_;  // by location: when a captured straggler was last reported
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

  void See(const WatchState& state);

  // Returns false if the thread did not end in time. It then continues its capture until the
  // process ends.
  bool Stop(std::chrono::milliseconds patience);

 private:
  struct Shared;
  explicit AutomaticCaptures(std::shared_ptr<Shared> shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_AUTOMATIC_CAPTURES_H_

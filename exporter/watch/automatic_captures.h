// Takes a capture when a watcher first reports a hang or a straggler: `pulse agent --capture-dir`.
//
// One capture for each hang of a job and each slow rank; those of one moment share a capture. A
// hang that began before the job's last capture is the same hang. Between two captures there is a
// pause, except that a hang does not wait for the pause behind a straggler: what led to it would be
// gone. A capture that could not be written is tried again after the pause, kMostTries times. A
// problem is logged once, until another one comes.
//
// Thread: See from one thread, which never waits for a capture; Stop and the destructor from any;
// captures are taken on a thread of its own. Errors go to the log.
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

// Remembers which hangs and slow ranks of a watcher's state have been captured.
//
// Thread: one at a time. Memory: kMost jobs and kMost ranks.
class Uncaptured {
 public:
  using Times = std::map<std::string, WatchState::Time>;
  // Stragglers come and go: one that was not reported for so long is new when it comes back.
  static constexpr std::chrono::minutes kStragglerIsOver{30};
  static constexpr std::size_t kMost = 4096;

  struct Trouble {
    std::string key;
    bool is_hang = false;
    WatchState::Time seen{};  // the end of the round that first reported it
    std::string reason;       // "hang of communicator 00ab ..."
  };

  void See(const WatchState& state);
  // Troubles of the last state that have no capture yet, hangs first.
  const std::vector<Trouble>& fresh() const { return fresh_; }
  // These have a capture, or are given up.
  void Done(const std::vector<Trouble>& troubles);

 private:
  Times hangs_;       // by job: its last capture
  Times stragglers_;  // that have a capture, by place: last reported
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

  // Null when the system gives no thread. Warns at once of a folder that cannot be written to.
  static std::unique_ptr<AutomaticCaptures> Start(Options options);
  // Does what Stop does, without patience.
  ~AutomaticCaptures();
  AutomaticCaptures(const AutomaticCaptures&) = delete;
  AutomaticCaptures& operator=(const AutomaticCaptures&) = delete;

  void See(const WatchState& state);

  // False if the thread did not end in time: it is in the middle of a capture, and goes on as long
  // as the process does.
  bool Stop(std::chrono::milliseconds patience);

 private:
  struct Shared;
  explicit AutomaticCaptures(std::shared_ptr<Shared> shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_AUTOMATIC_CAPTURES_H_

// Takes captures by itself when a hang or a straggler is first suspected: for an agent.
//
// A thread of its own asks the agent's endpoint as any client does, so serving never waits for it:
// not for a slow disk, not for a program that hangs. What it may cost the endpoint is within the
// endpoint's own budget for clients.
//
// One capture for each suspicion; suspicions that come together share one. Between two captures
// there is a pause. A capture that could not be written is tried again after the pause, kMostTries
// times. What is wrong is logged once, until it is something else.
//
// Thread: Start and Stop from one thread; the rest on its own. Errors go to the log.
#ifndef EXPORTER_FLEET_CAPTURE_WATCH_H_
#define EXPORTER_FLEET_CAPTURE_WATCH_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "exporter/base/log_level.h"
#include "exporter/fleet/capture.h"
#include "exporter/fleet/capture_folder.h"

namespace nccl_pulse {

struct CaptureWatchOptions {
  CaptureFolder folder;
  Address endpoint;        // the agent's own
  CaptureOptions capture;  // but for look.hang_after
  CaptureLimits limits;
  // As the endpoint's own at this moment: it may be set while it runs.
  std::function<std::chrono::milliseconds()> hang_after_now;
  std::chrono::milliseconds pause{60000};  // between two captures, at least
};

class CaptureWatch {
 public:
  static constexpr int kMostTries = 3;

  // Null when the system gives no thread. Warns at once of a folder that cannot be written to.
  static std::unique_ptr<CaptureWatch> Start(CaptureWatchOptions options, LogFunction log);
  // Does what Stop does.
  ~CaptureWatch();
  CaptureWatch(const CaptureWatch&) = delete;
  CaptureWatch& operator=(const CaptureWatch&) = delete;

  // Ends the thread. False when it did not end in time: it is in the middle of a capture, and goes
  // on as long as the process does.
  bool Stop(std::chrono::milliseconds patience);

 private:
  struct State;
  explicit CaptureWatch(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_CAPTURE_WATCH_H_

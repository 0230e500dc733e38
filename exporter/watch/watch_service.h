// The watcher over HTTP, on the loop of exporter/http:
//
//   GET /                                all jobs, those in trouble first
//   GET /metrics                         the same for Prometheus
//   GET /?job_id=ID, /?comm=ID           a look at one job, as text, for a browser as a page
//   GET /api/v1/diagnosis?...            the same as JSON; without a job, of everything
//   POST /alertmanager                   what Alertmanager's webhook sends: a look at the job that its
//                                        alerts name by the label job_id, else comm, else at all
//   GET /healthz
//
// One thread watches and looks; the loop never waits for it. Who asks for a look is answered when
// it has been made, and who asks for the same within kFresh gets the same answer, so that a crowd
// costs what one costs. Where kMostQuestions wait already, and where a look has not been made
// within kPatience, the answer is 503.
//
// Thread: Start and Stop the caller's.
#ifndef EXPORTER_WATCH_WATCH_SERVICE_H_
#define EXPORTER_WATCH_WATCH_SERVICE_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "exporter/base/log_level.h"
#include "exporter/http/guard.h"
#include "exporter/watch/watcher.h"

namespace nccl_pulse {

class WatchService {
 public:
  static constexpr std::size_t kMostQuestions = 32;
  static constexpr std::chrono::seconds kFresh{3}, kPatience{25};

  struct Options {
    std::string listen_address;  // as ParseListenAddress takes it
    Watcher::Options watcher;
    std::string external_url;                  // as WatchMetrics takes it
    std::chrono::milliseconds interval{2000};  // between the beginnings of two rounds
    std::shared_ptr<Guard> guard;              // null: plain HTTP for everybody
    LogFunction log;
  };

  // Null, with the reason in `error`.
  static std::unique_ptr<WatchService> Start(Options options, std::string* error);
  // Waits for a round that is under way.
  ~WatchService();

  // Stops serving and polling. False if a round did not end in time: it waits for endpoints or a name
  // server, and this object must not be destroyed before it has ended.
  bool Stop(std::chrono::milliseconds patience);

  const std::string& address() const;

 private:
  class Impl;
  explicit WatchService(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_WATCH_SERVICE_H_

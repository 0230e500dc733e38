// WatchService serves a watcher over HTTP, on the loop of exporter/http:
//
//   GET /                                all jobs, jobs in trouble first
//   GET /metrics                         metrics of all jobs, for Prometheus
//   GET /?job_id=ID, /?comm=ID           polls one job: a report as text, or as a page for browsers
//   GET /api/v1/diagnosis?...            the report as JSON; without a job, of all jobs
//   POST /alertmanager                   Alertmanager's webhook: polls the job in its alerts' label
//                                        job_id, else comm; without both, all jobs
//   GET /healthz
//
// One thread polls endpoints, in rounds (watcher.h) and for reports; the HTTP loop never waits for
// it. A request for a report is answered when its poll is complete. Requests for the same report
// within kFresh share one poll. The answer is 503 if kMostWaitingReports reports are waited for,
// or if the poll is not complete within kPatience.
//
// Thread: Start and Stop on the caller's.
#ifndef EXPORTER_WATCH_WATCH_SERVICE_H_
#define EXPORTER_WATCH_WATCH_SERVICE_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "exporter/base/log.h"
#include "exporter/http/guard.h"
#include "exporter/watch/watcher.h"

namespace nccl_pulse {

class WatchService {
 public:
  static constexpr std::size_t kMostWaitingReports = 32;
  static constexpr std::chrono::seconds kFresh{3}, kPatience{25};

  struct Options {
    std::string listen_address;  // see ParseListenAddress
    Watcher::Options watcher;
    std::string external_url;                  // see WatchMetrics
    std::chrono::milliseconds interval{2000};  // from the start of a round to the next one
    std::shared_ptr<Guard> guard;              // null: plain HTTP for everybody
    LogFunction log;
  };

  // Returns null, with the reason in `error`, on failure.
  static std::unique_ptr<WatchService> Start(Options options, std::string* error);
  // Waits for a round in progress.
  ~WatchService();

  // Stops serving and polling. Returns false if a round, waiting for endpoints or a name server, did
  // not end within `patience`. The destructor would wait for it: skip it if the program exits.
  bool Stop(std::chrono::milliseconds patience);

  const std::string& address() const;

 private:
  class Impl;
  explicit WatchService(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_WATCH_SERVICE_H_

// Answers what `pulse diagnose` would say, over HTTP: for Alertmanager's webhook and for a link on a
// dashboard.
//
//   GET /, /?job_id=ID, /?comm=ID    the verdict as text, for a browser as a page
//   GET /api/v1/diagnosis?...        the same as JSON
//   POST /alertmanager               what Alertmanager's webhook sends: the verdict of the job that
//                                    its alerts name by the label job_id, else comm, else of all;
//                                    it is the answer, and is written to the log
//   GET /last                        the last verdicts that were asked for, newest first
//   GET /healthz
//
// It keeps the last kKept verdicts in memory and nothing else. One job is looked at at a time; who
// asks for the same one within kFresh gets the same answer, so that a crowd costs what one costs. Who
// has waited kLookPatience for others' looks gets 503.
//
// Limits: kClients connections at a time, each with 5 s for its request and 10 s for taking the
// answer; a head of 8 KiB, a body of 1 MiB. Beyond: 431, 413. When there are as many, the one is
// closed that has waited longest without a whole request; without such a one, the new one gets 503.
// With as many of these again, new ones are closed. There is neither TLS nor a password: listen where
// only those can reach it who may know of the job.
//
// Thread: Serve blocks the caller's for good, and has one more for each connection.
#ifndef EXPORTER_FLEET_VERDICT_SERVER_H_
#define EXPORTER_FLEET_VERDICT_SERVER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "exporter/fleet/snapshot_union.h"

namespace nccl_pulse {

struct JobAnswer {
  bool ok = false;       // false: `text` says why nothing could be asked
  std::string sentence;  // one line
  std::string text, json;
};

class VerdictServer {
 public:
  static constexpr int kClients = 16;
  static constexpr std::size_t kKept = 32;
  static constexpr std::chrono::seconds kFresh{3};
  static constexpr std::chrono::seconds kLookPatience{10};

  // Looks at a job; blocks for some seconds. Never called by two threads at a time.
  using Look = std::function<JobAnswer(const JobFilter& filter)>;
  // Gets one line for each verdict that was asked for.
  using Log = std::function<void(const std::string& line)>;

  VerdictServer(Look look, Log log);
  ~VerdictServer();
  VerdictServer(const VerdictServer&) = delete;
  VerdictServer& operator=(const VerdictServer&) = delete;

  // `listener`: a listening TCP socket. Returns errno when it fails.
  int Serve(int listener);

 private:
  class State;
  // Also the connections' threads', which may outlive this object.
  const std::shared_ptr<State> state_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_VERDICT_SERVER_H_

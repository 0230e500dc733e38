// CallPoller records the last calls of a running job's ranks for a while, by polling its endpoints.
//
// An endpoint gets one request at a time, each for the last calls of one communicator. A live
// communicator is requested about every kLookEvery: an endpoint makes no newer page in between, and
// the last 32 timed calls cover about 0.3 s. It spends little CPU time on these pages
// (exporter/http/page_cache.h). So communicators that end meanwhile are requested once, at the end,
// as far as time permits; communicators that had ended before are skipped, unless none is live. If
// an endpoint refuses a request for lack of CPU time, that communicator is requested next; calls
// that are overwritten meanwhile are a gap. A failed endpoint is retried every second.
//
// Thread: the caller's; Poll blocks until its time is over or `options.client.stop` is set. Memory:
// the recording, and an answer to /api/v1/communicators per endpoint.
#ifndef EXPORTER_TIMELINE_CALL_POLLER_H_
#define EXPORTER_TIMELINE_CALL_POLLER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"
#include "exporter/fleet/job_look.h"
#include "exporter/timeline/observation.h"
#include "exporter/timeline/recording.h"

namespace nccl_pulse {

// How long an endpoint caches a page.
inline constexpr std::chrono::milliseconds kLookEvery{250};
// After the window, busy endpoints are asked again for live communicators whose calls were never
// read, for this many times `options.client.patience` in total.
inline constexpr int kLateLooks = 10;

class CallPoller {
 public:
  // `endpoints` and `options` must outlive this object.
  CallPoller(const std::vector<Address>& endpoints, const JobLookOptions& options);

  // Measures the endpoints' clocks, and reads their communicators and processes.
  void Begin();
  // After Begin: numbers of answering endpoints, communicators, and their ranks.
  std::size_t heard() const;
  std::size_t communicators() const;
  std::size_t ranks() const { return ranks_; }
  // Returns the live processes, without duplicates.
  std::vector<JobProcess> processes() const;

  // Polls for `window`, then reads each communicator once more, and gets the verdict on the job. If
  // calls of live communicators are still missing after the window, calls `tell` with the number of
  // these communicators before it reads on.
  void Poll(std::chrono::milliseconds window, const std::function<void(std::size_t unread)>& tell);
  Observation Take() { return std::move(seen_); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Communicator {
    std::string id;
    bool is_live = true;
    bool is_seen = false;    // its calls were read
    bool had_ended = false;  // before Begin
    Time due{};              // earliest next request
  };
  struct Endpoint {
    std::vector<Communicator> communicators;
    Time due{};                  // earliest next request, after a failure
    std::string failure;         // "": it answers
    bool has_too_many = false;   // communicators: only some are polled
    std::size_t page_bytes = 0;  // memory of its answer to /api/v1/communicators
  };
  // A request for a communicator's last calls.
  struct Question {
    std::size_t endpoint;
    std::string comm;
  };

  // Widens the clocks' bounds by a second measurement, so that they hold for the whole time.
  void MeasureClocksAgain();
  void AskCommunicators();
  void NoteCommunicators(std::size_t endpoint, const nlohmann::json& page);
  void LookAtDue(Time now);
  std::size_t LiveUnseen() const;
  void LookAtAll();
  void Look(const std::vector<Question>& questions, const FleetClientOptions& client);
  void Note(std::string note);
  void NoteFailure(std::size_t endpoint, const std::string& reason);

  const std::vector<Address>& addresses_;
  const JobLookOptions& options_;
  std::vector<Endpoint> endpoints_;
  std::size_t ranks_ = 0;
  std::size_t page_bytes_ = 0;  // of all endpoints
  std::size_t refused_ = 0;     // requests refused for lack of processor time
  Observation seen_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_CALL_POLLER_H_

// Watches a running job for a while: polls its endpoints for their ranks' last calls.
//
// One communicator of an endpoint is asked for at a time, each live one about every kLookEvery: an
// endpoint makes no newer page in between, and the calls that were timed stay for about as long. An
// endpoint gives these pages little processor time (exporter/http/page_cache.h). So ended
// communicators are asked for once, in the end, as far as there is time for them. A refused live one
// stays first in line, and calls that were pushed out meanwhile are a gap. An endpoint that fails is
// asked again every second.
//
// Thread: the caller's; blocks, until `options.client.stop` is set. Memory: of the recording, and a
// page of each endpoint.
#ifndef EXPORTER_TIMELINE_WATCH_H_
#define EXPORTER_TIMELINE_WATCH_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"
#include "exporter/fleet/job_look.h"
#include "exporter/timeline/job_process.h"
#include "exporter/timeline/observation.h"

namespace nccl_pulse {

// As long as an endpoint keeps a page.
inline constexpr std::chrono::milliseconds kLookEvery{250};

class JobWatch {
 public:
  // `endpoints` and `options` must outlive this object.
  JobWatch(const std::vector<Address>& endpoints, const JobLookOptions& options);

  // Looks at the clocks, and at who is there.
  void Begin();
  // After Begin: endpoints that answer, communicators, and ranks of them.
  std::size_t heard() const;
  std::size_t communicators() const;
  std::size_t ranks() const { return ranks_; }
  // Those that live, each once.
  std::vector<JobProcess> processes() const;

  // Polls until the time is over, then reads the live communicators that were not read yet, and
  // takes the verdict on the job. `tell` gets their number if there are any.
  void Watch(std::chrono::milliseconds window, const std::function<void(std::size_t unread)>& tell);
  Observation Take() { return std::move(seen_); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Communicator {
    std::string id;
    bool is_live = true;
    bool is_seen = false;  // was looked at
    Time due{};
  };
  struct Endpoint {
    std::vector<Communicator> communicators;
    Time due{};           // not before: it failed
    std::string failure;  // "": it answers
    bool has_too_many = false;
    std::size_t page_bytes = 0;  // of its page of communicators
  };
  struct Question {
    std::size_t endpoint;
    std::string comm;
  };

  // Once more: its bounds are widened by what they are now, so that they hold for the whole time.
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
  std::size_t refused_ = 0;     // for lack of processor time
  Observation seen_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_WATCH_H_

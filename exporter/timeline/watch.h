// Watches a running job for a while: asks its endpoints for their ranks' last calls, again and again.
//
// One communicator of an endpoint at a time, each that lives about every kLookEvery: an endpoint makes
// no newer page in between, and the calls that were timed stay for about as long. It gives these pages
// little processor time (exporter/http/page_cache.h), so a communicator that has ended is asked for
// once, when no other is due. What was refused stays first in line, and calls that were pushed out
// meanwhile are a gap. An endpoint that fails is asked again every second.
//
// Thread: the caller's; blocks. Memory: of the recording, and a page of each endpoint.
#ifndef EXPORTER_TIMELINE_WATCH_H_
#define EXPORTER_TIMELINE_WATCH_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "exporter/fleet/address.h"
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

  // Looks until the time is over, and longer while a live communicator was never looked at, or until
  // `stop` is set. Then it looks once more, and takes the verdict on the job.
  void Watch(std::chrono::milliseconds window, const std::atomic<bool>& stop);
  Observation Take() { return std::move(seen_); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Communicator {
    std::string id;
    bool is_live = true;
    bool is_seen = false;  // was looked at,
    bool is_done = false;  // since it has ended
    Time due{};
  };
  struct Endpoint {
    std::vector<Communicator> communicators;
    Time due{};            // not before: it failed
    std::string failure;   // "": it answers
    bool refuses = false;  // it had no processor time for the last one
    bool has_too_many = false;
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
  bool HasUnseen() const;
  void LookAtAll();
  void Look(const std::vector<Question>& questions, std::chrono::milliseconds patience);
  void Note(std::string note);
  void NoteFailure(std::size_t endpoint, const std::string& reason);

  const std::vector<Address>& addresses_;
  const JobLookOptions& options_;
  std::vector<Endpoint> endpoints_;
  std::size_t ranks_ = 0;
  std::size_t refused_ = 0;  // for lack of processor time
  Observation seen_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_WATCH_H_

// EndpointSummary is an endpoint's parsed /api/v1/summary
// (exporter/exposition/json/summary_json.h).
//
// Thread: any, no state. The text is untrusted.
#ifndef EXPORTER_WATCH_ENDPOINT_SUMMARY_H_
#define EXPORTER_WATCH_ENDPOINT_SUMMARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nccl_pulse {

struct EndpointSummary {
  struct Job {
    std::string job_id, workload;
    int64_t processes = 0;
  };
  // A communicator that makes no progress.
  struct Stall {
    double seconds = 0;       // time without progress when the summary was made
    double hang_after_s = 0;  // the endpoint's threshold of a hang, for this job
    bool is_usual = false;    // a wait about as long ended before
  };

  std::string health;  // HealthStatusName (exporter/diagnosis/health.h)
  std::vector<Stall> stalls;
  bool has_late_rank = false;  // a rank makes others wait
  std::vector<Job> jobs;
  // Stalled communicators, and those with ranks at other endpoints: the last 8 digits of their ids.
  std::vector<std::string> communicators;
  std::vector<std::string> ended;  // of these, communicators without a live rank at this endpoint
  bool is_cut = false;             // some entries did not fit
};

// Returns nothing if the text is no summary.
std::optional<EndpointSummary> ParseSummary(std::string_view text);

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_ENDPOINT_SUMMARY_H_

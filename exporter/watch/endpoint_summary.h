// EndpointSummary is the parsed summary of an endpoint (exporter/exposition/json/summary_json.h).
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
  struct Standing {
    double seconds = 0;       // without progress, when the summary was made
    double hang_after_s = 0;  // threshold of its job at this endpoint
    bool is_usual = false;
  };

  std::string health;
  std::vector<Standing> stands;
  bool is_somebody_late = false;
  std::vector<Job> jobs;
  std::vector<std::string> communicators;  // communicators that also have ranks at other endpoints
};

// Returns nothing if the text is no summary.
std::optional<EndpointSummary> ParseSummary(std::string_view text);

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_ENDPOINT_SUMMARY_H_

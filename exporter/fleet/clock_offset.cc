#include "exporter/fleet/clock_offset.h"

#include <algorithm>
#include <utility>

#include "exporter/base/json_field.h"
#include "exporter/base/json_text.h"
#include "exporter/base/time.h"
#include "nlohmann/json.hpp"

namespace nccl_pulse {
namespace {

constexpr int kQuestions = 3;
// The answer has whole microseconds.
constexpr int64_t kResolutionNs = 1000;

// Returns the time in an answer; 0 if it has none.
int64_t TimeIn(const FleetAnswer& answer) {
  if (!answer.error.empty() || answer.status != 200) return 0;
  return TimeAt(ParseJson(answer.body), "time");
}

}  // namespace

std::vector<std::optional<ClockOffset>> MeasureClocks(const std::vector<Address>& endpoints,
                                                      const FleetClientOptions& client) {
  std::vector<std::optional<ClockOffset>> offsets(endpoints.size());
  std::vector<std::size_t> asked(endpoints.size());
  for (std::size_t i = 0; i < asked.size(); ++i) asked[i] = i;
  for (int turn = 0; turn < kQuestions && !asked.empty(); ++turn) {
    std::vector<FleetRequest> requests;
    for (const std::size_t each : asked) requests.push_back({endpoints[each], "/api/v1/time"});
    std::vector<std::size_t> again;
    const int64_t before_ns = RealtimeNs();
    AskAll(requests, client, [&](std::size_t index, const FleetAnswer& answer) {
      const int64_t after_ns = RealtimeNs();
      const int64_t time_ns = TimeIn(answer);
      if (time_ns == 0) return;
      const std::size_t endpoint = asked[index];
      again.push_back(endpoint);
      const ClockOffset now = {time_ns - after_ns - kResolutionNs,
                               time_ns - before_ns + kResolutionNs};
      std::optional<ClockOffset>& offset = offsets[endpoint];
      if (!offset) {
        offset = now;
      } else {
        offset = ClockOffset{std::max(offset->low_ns, now.low_ns),
                             std::min(offset->high_ns, now.high_ns)};
      }
    });
    asked = std::move(again);
  }
  for (std::optional<ClockOffset>& each : offsets) {
    if (each && each->low_ns > each->high_ns) each.reset();
  }
  return offsets;
}

}  // namespace nccl_pulse

// This says how far the clocks of the endpoints' hosts are from the one here. Each is asked for its
// time a few times (/api/v1/time): it read its clock between our question and its answer, so the clock's
// offset lies within bounds that are as far apart as the round trip is long. The narrowest are
// taken together.
//
// Thread: the caller's; blocks, within the client's patience for each question.
#ifndef EXPORTER_FLEET_CLOCK_OFFSET_H_
#define EXPORTER_FLEET_CLOCK_OFFSET_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"

namespace nccl_pulse {

// A clock is ahead of the one here by at least, and at most, so much.
struct ClockOffset {
  int64_t low_ns = 0, high_ns = 0;
};

// Returns one for each endpoint; nothing: it does not answer that, or its clock was set meanwhile.
std::vector<std::optional<ClockOffset>> MeasureClocks(const std::vector<Address>& endpoints,
                                                      const FleetClientOptions& client);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_CLOCK_OFFSET_H_

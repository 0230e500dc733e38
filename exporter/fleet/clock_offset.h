// MeasureClocks bounds the offsets between the endpoints' clocks and this host's.
//
// Each endpoint is asked for its time a few times (/api/v1/time). The endpoint reads its clock
// between request and answer, so each round trip bounds the offset to within its own duration. The
// result is the intersection of these bounds.
//
// Thread: the caller's; blocks for at most the client's patience per request.
#ifndef EXPORTER_FLEET_CLOCK_OFFSET_H_
#define EXPORTER_FLEET_CLOCK_OFFSET_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "exporter/fleet/address.h"
#include "exporter/fleet/http_client.h"

namespace nccl_pulse {

// Bounds of the time by which an endpoint's clock is ahead of this host's.
struct ClockOffset {
  int64_t low_ns = 0, high_ns = 0;
};

// Returns the offset of each endpoint; none if it does not answer, or if its clock was set
// meanwhile.
std::vector<std::optional<ClockOffset>> MeasureClocks(const std::vector<Address>& endpoints,
                                                      const FleetClientOptions& client);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_CLOCK_OFFSET_H_

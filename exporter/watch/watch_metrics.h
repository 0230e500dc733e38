// WatchMetrics formats a watcher's state as metrics, in Prometheus' text format. docs/prometheus.md
// lists them.
//
// No label identifies the watcher, so that two watchers of the same jobs cause only one alert.
//
// Thread: any, no state.
#ifndef EXPORTER_WATCH_WATCH_METRICS_H_
#define EXPORTER_WATCH_WATCH_METRICS_H_

#include <string>

#include "exporter/watch/findings.h"

namespace nccl_pulse {

// `external_url`: this watcher's URL for people, for links to its reports; "": not known.
std::string WatchMetrics(const WatchState& state, const std::string& external_url = "");

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_WATCH_METRICS_H_

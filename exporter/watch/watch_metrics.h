// What a watcher knows as metrics, in Prometheus' text format. docs/prometheus.md lists them.
//
// No label tells one watcher from another, so that two of them give one alert.
//
// Thread: any, no state.
#ifndef EXPORTER_WATCH_WATCH_METRICS_H_
#define EXPORTER_WATCH_WATCH_METRICS_H_

#include <string>

#include "exporter/watch/findings.h"

namespace nccl_pulse {

// `external_url`: where people reach this watcher, for links to its reports; "": not known.
std::string WatchMetrics(const WatchState& state, const std::string& external_url = "");

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_WATCH_METRICS_H_

// Renders a watcher's state as an HTML page and as metrics.
//
// Thread: any, no state.
#ifndef EXPORTER_WATCH_WATCH_PAGE_H_
#define EXPORTER_WATCH_WATCH_PAGE_H_

#include <string>

#include "exporter/watch/findings.h"

namespace nccl_pulse {

// Returns all jobs, jobs in trouble first, with their verdicts and with links to their nodes' pages,
// which link back. The page has no scripts, and reloads every 5 s.
// `own_url`: URL of this page as the client sees it, for links back; "": not known.
std::string WatchPage(const WatchState& state, const std::string& own_url);

// Renders the text of a diagnosis as a page.
std::string VerdictPage(const std::string& text);

// Returns metrics in Prometheus' text format. docs/prometheus.md lists them. No label identifies the
// watcher, so that two watchers of the same jobs cause only one alert.
// `external_url`: this watcher's URL for people, for links to its reports; "": not known.
std::string WatchMetrics(const WatchState& state, const std::string& external_url = "");

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_WATCH_PAGE_H_

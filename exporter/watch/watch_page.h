// WatchPage renders the watcher's HTML page: all jobs, jobs in trouble first, with their verdicts
// and with links to their nodes' pages, which link back. It has no scripts, and reloads every 5 s.
//
// Thread: any, no state.
#ifndef EXPORTER_WATCH_WATCH_PAGE_H_
#define EXPORTER_WATCH_WATCH_PAGE_H_

#include <string>

#include "exporter/watch/findings.h"

namespace nccl_pulse {

// `own_url`: URL of this page as the client sees it, for links back; "": not known.
std::string WatchPage(const WatchState& state, const std::string& own_url);

// Renders the text of a diagnosis as a page.
std::string VerdictPage(const std::string& text);

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_WATCH_PAGE_H_

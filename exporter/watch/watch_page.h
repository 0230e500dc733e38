// The watcher's page: all jobs, those in trouble first, each with what is said of it and with links
// to the pages of its nodes, which lead back here. Without scripts; it asks for itself every 5 s.
//
// Thread: any, no state.
#ifndef EXPORTER_WATCH_WATCH_PAGE_H_
#define EXPORTER_WATCH_WATCH_PAGE_H_

#include <string>

#include "exporter/watch/findings.h"

namespace nccl_pulse {

// `own_url`: where this page is to whoever asks for it; "": not known, and nothing leads back.
std::string WatchPage(const WatchState& state, const std::string& own_url);

// A verdict as a page of its own.
std::string VerdictPage(const std::string& text);

}  // namespace nccl_pulse

#endif  // EXPORTER_WATCH_WATCH_PAGE_H_

// Defines the page at "/", which shows /api/v1/communicators live in a browser.
//
// The page contains its style and script; its Content-Security-Policy allows no others. It requests
// only the JSON, by a relative address. Names that processes report are shown as text only.
//
// Thread: any. Constant data.
#ifndef EXPORTER_PAGE_STATUS_PAGE_H_
#define EXPORTER_PAGE_STATUS_PAGE_H_

#include <string_view>

namespace nccl_pulse {

// Returns the page. The caller must replace "@VERSION@" in it by the server's version.
std::string_view StatusPage();
// Returns header lines of its response, each with its CR LF.
std::string_view StatusPageHeaders();

}  // namespace nccl_pulse

#endif  // EXPORTER_PAGE_STATUS_PAGE_H_

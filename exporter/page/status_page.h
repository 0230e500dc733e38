// The page at "/": shows what /api/v1/communicators says, live, in a browser.
//
// Style and script are part of the page, and its policy lets nothing else run. It requests nothing
// but the JSON, by a relative address. Names from the segments are shown as text only.
//
// Thread: any. Constant data.
#ifndef EXPORTER_PAGE_STATUS_PAGE_H_
#define EXPORTER_PAGE_STATUS_PAGE_H_

#include <string_view>

namespace nccl_pulse {

// Has @VERSION@ where the server puts its version.
std::string_view StatusPage();
// Lines for the head of its response, each with its CR LF.
std::string_view StatusPageHeaders();

}  // namespace nccl_pulse

#endif  // EXPORTER_PAGE_STATUS_PAGE_H_

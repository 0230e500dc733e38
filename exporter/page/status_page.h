// The page at "/": what /api/v1/communicators says, live, for people with a browser.
//
// Style and script are part of it, and its policy lets nothing else run; it asks for nothing but
// the JSON, by a relative address. Names from the segments get onto it as text only.
//
// Thread: any. Constant data.
#ifndef EXPORTER_PAGE_STATUS_PAGE_H_
#define EXPORTER_PAGE_STATUS_PAGE_H_

#include <string_view>

namespace nccl_pulse {

std::string_view StatusPage();
// Lines for the head of its response, each with its CR LF.
std::string_view StatusPageHeaders();

}  // namespace nccl_pulse

#endif  // EXPORTER_PAGE_STATUS_PAGE_H_

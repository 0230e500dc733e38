#include "exporter/endpoint/endpoint_loop.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "exporter/base/time.h"
#include "exporter/base/version.h"
#include "exporter/http/handler.h"
#include "exporter/page/status_page.h"

namespace nccl_pulse {
namespace {

// Never cached, so that a client can measure the offset between the clocks.
std::string TimeJson(int64_t realtime_ns) {
  const int64_t us = realtime_ns / 1000;
  return absl::StrCat("{\"time\":", us / 1000000, ".", absl::Dec(us % 1000000, absl::kZeroPad6),
                      "}\n");
}

Handler HealthHandler() {
  return {"/healthz", "ok",
          [body = std::make_shared<const std::string>("ok\n")](const HttpRequest&) {
            return HttpResponse{200, kTextType, body};
          }};
}

Handler StatusPageHandler() {
  return {"/", "the status page",
          [body = std::make_shared<const std::string>(absl::StrReplaceAll(
               StatusPage(), {{"@VERSION@", BuildVersion()}}))](const HttpRequest&) {
            return HttpResponse{200, kHtmlType, body, std::string(StatusPageHeaders())};
          }};
}

}  // namespace

EndpointLoop::EndpointLoop(ServerOptions options)
    : options_(std::move(options)),
      node_({options_.listen_address, options_.memory, options_.peers, options_.service_directory,
             options_.guard != nullptr && options_.guard->is_https()},
            options_.log),
      entrance_(&node_),
      pages_(&options_, &node_,
             [this](bool in_any_case) { return loop_.CutOffSlowest(in_any_case); }),
      loop_(LoopOptions(), &entrance_) {}

ServerLoop::Options EndpointLoop::LoopOptions() {
  ServerLoop::Options options;
  options.handlers = pages_.Handlers();
  options.handlers.push_back(
      {"/api/v1/http_sd", "this endpoint, for Prometheus", [this](const HttpRequest&) {
         return TextResponse(200, node_.ServiceTargets(), kJsonType);
       }});
  options.handlers.push_back({"/api/v1/time", "this node's clock", [](const HttpRequest&) {
                                return TextResponse(200, TimeJson(RealtimeNs()), kJsonType);
                              }});
  options.handlers.push_back(HealthHandler());
  options.handlers.push_back(StatusPageHandler());
  options.guard = options_.guard;
  options.log = options_.log;
  options.cpu_share = options_.cpu_share;
  options.spent_by_handlers = [this] { return pages_.cpu_spent(); };
  return options;
}

}  // namespace nccl_pulse

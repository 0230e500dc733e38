// Makes the endpoint's pages: metrics in each format, and JSON. They are made from the segment of
// this process and those that other processes handed over, at most once per kPageLifetime, within
// their CPU share (page_cache.h).
//
// Thread: server thread only. Errors: status 500, and one warning.
#ifndef EXPORTER_ENDPOINT_PAGES_H_
#define EXPORTER_ENDPOINT_PAGES_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "exporter/base/log.h"
#include "exporter/diagnosis/diagnosis.h"
#include "exporter/diagnosis/stragglers/pace_history.h"
#include "exporter/endpoint/server_options.h"
#include "exporter/exposition/exposition.h"
#include "exporter/exposition/families.h"
#include "exporter/http/handler.h"
#include "exporter/http/page_cache.h"
#include "exporter/node/gpu_use.h"
#include "exporter/node/node.h"

namespace nccl_pulse {

class Pages {
 public:
  // `options` and `node` must outlive this object. `cut_off_slowest`: see PageCache::Options.
  Pages(const ServerOptions* options, Node* node,
        std::function<bool(bool in_any_case)> cut_off_slowest);
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::vector<Handler> Handlers();
  std::chrono::nanoseconds cpu_spent() const { return cache_.cpu_spent(); }

 private:
  // Kinds of pages. The metrics formats come first, in PageFormat's order. Then come the JSON of
  // communicators, the messages for `pulse diagnose` and `pulse watch`, and the last calls of one
  // communicator.
  enum Kind : std::size_t { kCommunicators = kPageFormats, kSnapshots, kSummary, kCalls };

  HttpResponse Answer(std::size_t kind, const HttpRequest& request,
                      const std::string& argument = "");
  HttpResponse AnswerCalls(const HttpRequest& request);
  PageCache::Options CacheOptions(std::function<bool(bool in_any_case)> cut_off_slowest);
  int64_t HangAfterNs() const;  // the endpoint's own threshold, 0: none was set
  SnapshotSet ReadAll(ReadWish wish = {});
  std::vector<Family> ReadFamilies(PageFormat format);
  std::string MakeCommunicators();
  std::string MakeSnapshots();
  std::string MakeSummary();
  std::optional<std::string> MakeCalls(const std::string& comm);

  const ServerOptions& options_;
  Node& node_;
  ScrapeStats stats_;
  Diagnosis diagnosis_;
  PaceHistory pace_;
  GpuUses gpu_uses_;
  OneWarning failure_;
  PageCache cache_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_ENDPOINT_PAGES_H_

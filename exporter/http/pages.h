// The pages that have to be made: metrics in each format, and the communicators as JSON. They are
// made from this process' segment and from those that were handed over, at most once per
// kPageLifetime, within their share of processor time (page_cache.h).
//
// Thread: the server's. Errors: an answer with status 500, and one warning.
#ifndef EXPORTER_HTTP_PAGES_H_
#define EXPORTER_HTTP_PAGES_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/diagnosis/diagnosis.h"
#include "exporter/exposition/exposition.h"
#include "exporter/exposition/families.h"
#include "exporter/http/one_warning.h"
#include "exporter/http/page_cache.h"
#include "exporter/http/server_options.h"
#include "exporter/node/node.h"

namespace nccl_pulse {

// What the thread that calls has used of its core.
std::chrono::nanoseconds ThreadCpuTime();

class Pages {
 public:
  // Kinds of pages: one of each format, in PageFormat's order, the JSON, and what `pulse diagnose`
  // asks for.
  static constexpr std::size_t kCommunicators = kPageFormats;
  static constexpr std::size_t kSnapshots = kPageFormats + 1;

  // Both must outlive this object. `cut_off_slowest`: see PageCache::Options.
  Pages(const ServerOptions* options, Node* node,
        std::function<bool(bool in_any_case)> cut_off_slowest);
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  PageCache::Answer Get(std::size_t kind, bool gzip) { return cache_.Get(kind, gzip); }
  static std::string_view TypeOf(std::size_t kind);
  std::chrono::nanoseconds cpu_spent() const { return cache_.cpu_spent(); }

 private:
  PageCache::Options CacheOptions(std::function<bool(bool in_any_case)> cut_off_slowest);
  SnapshotSet ReadAll();
  std::vector<Family> ReadFamilies(PageFormat format);
  std::string MakeCommunicators();
  std::string MakeSnapshots();

  const ServerOptions& options_;
  Node& node_;
  ScrapeStats stats_;
  Diagnosis diagnosis_;
  OneWarning failure_;
  PageCache cache_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_PAGES_H_

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
#include "exporter/diagnosis/pace_history.h"
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
  // Kinds of pages: one of each format, in PageFormat's order, the JSON, what `pulse diagnose` asks
  // for, and the last calls of one communicator.
  static constexpr std::size_t kCommunicators = kPageFormats;
  static constexpr std::size_t kSnapshots = kPageFormats + 1;
  static constexpr std::size_t kCalls = kPageFormats + 2;

  // Both must outlive this object. `cut_off_slowest`: see PageCache::Options.
  Pages(const ServerOptions* options, Node* node,
        std::function<bool(bool in_any_case)> cut_off_slowest);
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  PageCache::Answer Get(std::size_t kind, bool gzip) { return cache_.Get(kind, gzip); }
  // The last calls of that communicator; status 404: none of that id is known here.
  PageCache::Answer GetCalls(uint64_t comm_id, bool gzip);
  static std::string_view TypeOf(std::size_t kind);
  std::chrono::nanoseconds cpu_spent() const { return cache_.cpu_spent(); }

 private:
  PageCache::Options CacheOptions(std::function<bool(bool in_any_case)> cut_off_slowest);
  std::chrono::milliseconds HangAfter() const;
  SnapshotSet ReadAll(ReadWish wish = {});
  std::vector<Family> ReadFamilies(PageFormat format);
  std::string MakeCommunicators();
  std::string MakeSnapshots();
  std::string MakeCalls();

  const ServerOptions& options_;
  Node& node_;
  ScrapeStats stats_;
  Diagnosis diagnosis_;
  PaceHistory pace_;
  OneWarning failure_;
  uint64_t calls_of_ = 0;         // whose calls the page has
  bool calls_are_known_ = false;  // it is a communicator of this endpoint
  PageCache cache_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_PAGES_H_

// Caches a server's pages by kind and argument: the three formats of /metrics, for example, are
// three kinds, and a communicator's id is the argument of its last calls. A page is made on
// request, at most once per kPageLifetime, and shared by all clients that request it meanwhile.
//
// All pages have one CPU budget. Five sixths of it are divided among the kinds by weight; one sixth
// is for any kind. So requests for other pages cannot keep a scraper's page old. If the budget does
// not allow a new page, the old page is served, with its age.
//
// In a job's process each format of /metrics has 0.14 % of a core, /api/v1/communicators 0.28 %,
// last calls 0.17 %, the summary 0.08 %, the snapshots 0.06 %; any kind may use a further 0.2 %.
// So, whatever else is requested, the age of a scraped page is at most 720 times the CPU time to
// make and compress it: 3.6 s if that takes 5 ms. For /api/v1/communicators it is 360 times. A lone
// scraper always gets a new page if that takes less than 17 ms at a 5 s interval, 51 ms at 15 s.
// The status page, which polls /api/v1/communicators every 2 s, always gets a new one if that takes
// less than 5.5 ms, whatever the scrapers do.
//
// Memory: bodies live while they are cached or being sent. Before another body is made, at most
// kMaxPages - 1 exist, of at most kMaxHeldBytes together. To make room, outdated bodies are dropped
// first. Then clients are cut off that have been receiving a body for longer than kPageGrace, then
// fresh cached bodies are dropped. If that does not suffice, a page younger than kPageGrace is
// served again; without one, the slowest client is cut off. Compressed bodies stay: they are a
// tenth of the size. A page whose body was dropped may have nothing to serve until the budget
// allows a new one; the answer is then status 503 with Retry-After.
//
// Thread: server thread only.
#ifndef EXPORTER_HTTP_PAGE_CACHE_H_
#define EXPORTER_HTTP_PAGE_CACHE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "exporter/base/cpu_budget.h"

namespace nccl_pulse {

// Bodies: of seven kinds, plain and compressed, and four older ones that are still being sent.
inline constexpr int kMaxPages = 18;
inline constexpr std::size_t kMaxHeldBytes = 8 << 20;
inline constexpr std::chrono::milliseconds kPageLifetime{250};
inline constexpr std::chrono::milliseconds kPageGrace{3000};
// Unused CPU time accumulates for at most this long: longer than scrape intervals.
inline constexpr std::chrono::seconds kPageBurst{20};

class PageCache {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Body = std::shared_ptr<const std::string>;

  struct Options {
    struct Kind {
      // Returns empty if there is no such page (status 404). May throw.
      std::function<std::optional<std::string>(const std::string& argument)> make;
      // Weight of the kind's own budget, 1 or more.
      int weight = 1;
    };
    std::vector<Kind> kinds;
    std::function<Time()> clock;
    std::function<std::chrono::nanoseconds()> cpu_time;  // of this thread
    // Cuts off the client that has been receiving a page for longest. Returns false if there is
    // none, or if none has exceeded kPageGrace and `in_any_case` is false.
    std::function<bool(bool in_any_case)> cut_off_slowest;
    std::function<void(const std::string& reason)> on_failure;
    // Reports the wall time of making (`made` is true) or compressing a page.
    std::function<void(double seconds, bool made)> on_work;
    double cpu_share;  // of one core, for all pages
  };

  struct Answer {
    int status = 0;
    Body body;
    bool is_packed = false;               // compressed
    std::chrono::seconds age{0};          // of the page
    std::chrono::seconds retry_after{0};  // with status 503
  };

  explicit PageCache(Options options);

  // Returns the page, made anew if it is older than kPageLifetime and the budget allows. Drops this
  // kind's older pages with other arguments, and beyond kMostArguments also newer ones.
  Answer Get(std::size_t kind, const std::string& argument, bool gzip);
  // CPU time spent on pages so far. The thread's other time is accounted for elsewhere.
  std::chrono::nanoseconds cpu_spent() const { return cpu_spent_; }

 private:
  struct Cached {
    int status = 0;
    Body body;
    Time made{};
    Body packed;
    Time packed_made{};  // when the compressed page was made
  };
  // A kind's own budget.
  struct Purse {
    CpuBudget budget;
    bool was_used;  // a kind's first page is made even if all budgets are spent
  };
  using Key = std::pair<std::size_t, std::string>;
  static constexpr std::size_t kMostArguments = 4;

  bool IsFresh(Time made, Time now) const { return now - made < kPageLifetime; }
  CpuBudget* BudgetFor(std::size_t kind, Time now);
  void ForgetOthers(const Key& key, Time now);
  bool Make(const Key& key, Cached* page, CpuBudget* budget);
  void Pack(std::size_t kind, Cached* page);
  Answer Packed(const Cached& page, Time now) const;
  Answer Plain(const Cached& page, Time now) const;
  Answer AnswerWith(std::size_t kind, Cached* page, bool gzip, Time now);
  bool MakeRoom(Cached* page, Time now);
  Cached* OldestToForget(const Cached* but);
  bool HasRoom();
  template <typename Work>
  double Charge(CpuBudget* budget, Work work);

  const Options options_;
  std::vector<Purse> purses_;  // one for each kind
  std::map<Key, Cached> pages_;
  // Every body that may still be held.
  std::vector<std::weak_ptr<const std::string>> bodies_;
  CpuBudget shared_budget_;
  std::chrono::nanoseconds cpu_spent_{0};
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_PAGE_CACHE_H_

// Keeps the pages that a server answers with, by their kind and an argument. A page is made when it
// is asked for, at most once per kPageLifetime, and shared by all who ask meanwhile. All pages
// together have a budget of processor time; when it is spent, an older page is served.
//
// Five sixths of that time are divided between the kinds of pages by their weights, and one sixth
// is there for all: so nobody keeps a scraper's page old by asking for others. A page that may not
// be made anew is answered with as it is, and says how old it is. In a process of a job each format
// of /metrics has 0.17 % of a core for itself, the JSON, at which people look, 0.33 %, the summary
// 0.1 %, the snapshots 0.07 %, and 0.2 % are for all. So a scraped page is at most 600 times as old
// as making and compressing it takes, whatever is asked (5 ms: 3 s), the JSON 300 times. A scraper
// that is alone gets a new one every time if that takes less than 18 ms at an interval of 5 s, 55
// ms at 15 s; the status page, which asks every 2 s, if it takes less than 6 ms, whatever the
// scrapers do.
//
// Memory. Bodies live as long as they are kept here or somebody is being sent them. Before another
// is made they are at most kMaxPages - 1, and at most kMaxHeldBytes together: kept ones go first,
// then whoever has taken one for longer than kPageGrace is cut off; until then a page that is there
// and no older than that is answered with. What is compressed stays: it is a tenth. Of a page whose
// body went there may be nothing left to answer with until the budget allows a new one; status 503
// says when.
//
// Thread: the server's.
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

// Seven kinds, plain and compressed, and older ones that are still being sent.
inline constexpr int kMaxPages = 18;
inline constexpr std::size_t kMaxHeldBytes = 8 << 20;
inline constexpr std::chrono::milliseconds kPageLifetime{250};
inline constexpr std::chrono::milliseconds kPageGrace{3000};
// A page that is not used is kept for so long: longer than scrapers wait between two scrapes.
inline constexpr std::chrono::seconds kPageBurst{20};

class PageCache {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Body = std::shared_ptr<const std::string>;

  struct Options {
    struct Kind {
      // Nothing: there is no such page, status 404. May throw.
      std::function<std::optional<std::string>(const std::string& argument)> make;
      // Its part of what is divided between them; 0: it is made from what is there for all.
      int weight = 1;
    };
    std::vector<Kind> kinds;
    std::function<Time()> clock;
    std::function<std::chrono::nanoseconds()> cpu_time;  // of this thread
    // Cuts off the client that has been taking a page for longest. False when there is none, or,
    // unless `in_any_case`, when none has taken longer than it may.
    std::function<bool(bool in_any_case)> cut_off_slowest;
    std::function<void(const std::string& reason)> on_failure;
    // Wall time that making or compressing a page took; `made`: it is a new one.
    std::function<void(double seconds, bool made)> on_work;
    double cpu_share;
  };

  struct Answer {
    int status = 0;
    Body body;
    bool is_packed = false;
    std::chrono::seconds age{0};          // of a page
    std::chrono::seconds retry_after{0};  // with status 503
  };

  explicit PageCache(Options options);

  // Of pages of one kind with another argument those are kept that are fresh, and kMostArguments of
  // them.
  Answer Get(std::size_t kind, const std::string& argument, bool gzip);
  // Spent on pages so far; the rest of the thread's time is accounted for elsewhere.
  std::chrono::nanoseconds cpu_spent() const { return cpu_spent_; }

 private:
  struct Page {
    int status = 0;
    Body body;
    Time made{};
    Body packed;
    Time packed_made{};  // when what is compressed was made
  };
  struct Purse {
    CpuBudget budget;
    bool is_own;  // false: the one for all is used
    bool was_used;
  };
  using Key = std::pair<std::size_t, std::string>;
  static constexpr std::size_t kMostArguments = 4;

  bool IsFresh(Time made, Time now) const { return now - made < kPageLifetime; }
  CpuBudget& BudgetOf(std::size_t kind) {
    return purses_[kind].is_own ? purses_[kind].budget : shared_budget_;
  }
  CpuBudget* WhoPays(std::size_t kind, Time now);
  void ForgetOthers(const Key& key, Time now);
  bool Make(const Key& key, Page* page, CpuBudget* budget);
  void Pack(std::size_t kind, Page* page);
  Answer Packed(const Page& page, Time now) const;
  Answer Plain(const Page& page, Time now) const;
  Answer AnswerWith(std::size_t kind, Page* page, bool gzip, Time now);
  bool MakeRoom(Page* page, Time now);
  Page* OldestToForget(const Page* but);
  bool HasRoom();
  template <typename Work>
  double Charge(CpuBudget* budget, Work work);

  const Options options_;
  std::vector<Purse> purses_;  // one for each kind
  std::map<Key, Page> pages_;
  // Every body that was made and may still be held by somebody.
  std::vector<std::weak_ptr<const std::string>> bodies_;
  CpuBudget shared_budget_;
  std::chrono::nanoseconds cpu_spent_{0};
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_PAGE_CACHE_H_

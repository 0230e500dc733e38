#include "exporter/http/page_cache.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/base/gzip.h"

namespace nccl_pulse {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::seconds;

// The part of the budget that is divided among the kinds.
constexpr double kOwnShare = 5.0 / 6;

}  // namespace

PageCache::PageCache(Options options)
    : options_(std::move(options)),
      shared_budget_(options_.cpu_share * (1 - kOwnShare), kPageBurst, options_.clock()) {
  int weights = 0;
  for (const Options::Kind& kind : options_.kinds) weights += kind.weight;
  for (const Options::Kind& kind : options_.kinds) {
    const double share = options_.cpu_share * kOwnShare * kind.weight / weights;
    purses_.push_back({CpuBudget(share, kPageBurst, options_.clock()), /*was_used=*/false});
  }
}

// Runs `work` and returns the wall time that it took.
template <typename Work>
double PageCache::Charge(CpuBudget* budget, Work work) {
  const Time start = options_.clock();
  const std::chrono::nanoseconds cpu_start = options_.cpu_time();
  work();
  const std::chrono::nanoseconds cpu = options_.cpu_time() - cpu_start;
  const Time end = options_.clock();
  cpu_spent_ += cpu;
  budget->Spend(cpu, end);
  return duration<double>(end - start).count();
}

PageCache::Answer PageCache::Get(std::size_t kind, const std::string& argument, bool gzip) {
  const Key key(kind, argument);
  const Time now = options_.clock();
  ForgetOthers(key, now);
  Cached& page = pages_[key];
  const bool is_fresh = (gzip && page.packed != nullptr && IsFresh(page.packed_made, now)) ||
                        (page.body != nullptr && IsFresh(page.made, now));
  if (!is_fresh) {
    CpuBudget* const budget = BudgetFor(kind, now);
    if (budget != nullptr && !Make(key, &page, budget)) {
      // Drops the entry, so that a page that appears later is not answered with 404.
      pages_.erase(key);
      Answer answer;
      answer.status = 404;
      return answer;
    }
  }
  Answer answer = AnswerWith(kind, &page, gzip, now);
  if (page.body == nullptr && page.packed == nullptr) pages_.erase(key);
  return answer;
}

PageCache::Answer PageCache::AnswerWith(std::size_t kind, Cached* page, bool gzip, Time now) {
  if (page->body != nullptr && page->status != 200) return Plain(*page, now);
  if (gzip) {
    const bool is_newer = page->packed == nullptr || page->packed_made < page->made;
    if (page->body != nullptr && is_newer) Pack(kind, page);
    if (page->packed != nullptr) return Packed(*page, now);
  }
  if (page->body != nullptr) return Plain(*page, now);
  Answer answer;
  answer.status = 503;
  answer.retry_after =
      std::max(duration_cast<seconds>(purses_[kind].budget.allows_from() - now), seconds(0)) +
      seconds(1);
  return answer;
}

// Bounds the pages left behind by a client that requests one argument after another.
void PageCache::ForgetOthers(const Key& key, Time now) {
  std::size_t others = 0;
  auto oldest = pages_.end();
  for (auto each = pages_.lower_bound({key.first, ""});
       each != pages_.end() && each->first.first == key.first;) {
    if (each->first != key && !IsFresh(each->second.made, now)) {
      each = pages_.erase(each);
      continue;
    }
    if (each->first != key && (others++ == 0 || each->second.made < oldest->second.made)) {
      oldest = each;
    }
    ++each;
  }
  if (others >= kMostArguments) pages_.erase(oldest);
}

PageCache::Answer PageCache::Packed(const Cached& page, Time now) const {
  const auto age = std::max(duration_cast<seconds>(now - page.packed_made), seconds(0));
  return {200, page.packed, true, age, seconds(0)};
}

PageCache::Answer PageCache::Plain(const Cached& page, Time now) const {
  const auto age = std::max(duration_cast<seconds>(now - page.made), seconds(0));
  return {page.status, page.body, false, age, seconds(0)};
}

// Returns the budget to charge for a new page; null if all are spent.
CpuBudget* PageCache::BudgetFor(std::size_t kind, Time now) {
  CpuBudget& budget = purses_[kind].budget;
  if (budget.Allows(now)) return &budget;
  if (shared_budget_.Allows(now)) return &shared_budget_;
  // The first page of a kind is made on credit: there are few kinds.
  return purses_[kind].was_used ? nullptr : &budget;
}

// Returns false if there is no such page.
bool PageCache::Make(const Key& key, Cached* page, CpuBudget* budget) {
  purses_[key.first].was_used = true;
  if (!MakeRoom(page, options_.clock())) return true;
  std::optional<std::string> text;
  std::optional<std::string> failure;
  const double took = Charge(budget, [&] {
    try {
      text = options_.kinds[key.first].make(key.second);
    } catch (const std::exception& e) {
      failure = e.what();
    } catch (...) {
      failure = "unknown exception";
    }
  });
  page->status = failure.has_value() ? 500 : 200;
  if (failure.has_value()) {
    options_.on_failure(*failure);
    // Cached like a good page: a failing source is not called more often than a healthy one.
    text = absl::StrCat("500 Internal Server Error\ncannot make the page: ", *failure, "\n");
    page->packed = nullptr;
  } else {
    options_.on_work(took, true);
  }
  if (!text.has_value()) return false;
  page->body = std::make_shared<const std::string>(*std::move(text));
  page->made = options_.clock();
  bodies_.push_back(page->body);
  return true;
}

// Compresses the page. If memory runs out, it is sent uncompressed.
void PageCache::Pack(std::size_t kind, Cached* page) {
  const double took = Charge(&purses_[kind].budget, [&] {
    std::optional<std::string> packed = Gzip(*page->body);
    if (!packed.has_value()) return;
    page->packed = std::make_shared<const std::string>(*std::move(packed));
    page->packed_made = page->made;
    bodies_.push_back(page->packed);
  });
  options_.on_work(took, false);
}

// True if one more body may be made.
bool PageCache::HasRoom() {
  std::size_t bytes = 0;
  const auto is_gone = [&bytes](const std::weak_ptr<const std::string>& each) {
    const Body body = each.lock();
    if (body != nullptr) bytes += body->size();
    return body == nullptr;
  };
  bodies_.erase(std::remove_if(bodies_.begin(), bodies_.end(), is_gone), bodies_.end());
  return bodies_.size() < std::size_t{kMaxPages} && bytes <= kMaxHeldBytes;
}

// Returns the page with the oldest cached body, except `but`, that is not being sent.
PageCache::Cached* PageCache::OldestToForget(const Cached* but) {
  Cached* oldest = nullptr;
  for (auto& [key, page] : pages_) {
    if (&page == but || page.body == nullptr || page.body.use_count() > 1) continue;
    if (oldest == nullptr || page.made < oldest->made) oldest = &page;
  }
  return oldest;
}

// Makes room for this page's body. Returns false if that would cut off a client within kPageGrace
// and this page has a body that is recent enough to serve.
bool PageCache::MakeRoom(Cached* page, Time now) {
  const bool has_answer = (page->body != nullptr && now - page->made < kPageGrace) ||
                          (page->packed != nullptr && now - page->packed_made < kPageGrace);
  while (!HasRoom()) {
    Cached* const oldest = OldestToForget(page);
    if (oldest != nullptr && !IsFresh(oldest->made, now)) {
      oldest->body = nullptr;
    } else if (options_.cut_off_slowest(/*in_any_case=*/false)) {
      continue;
    } else if (oldest != nullptr) {
      oldest->body = nullptr;
    } else if (page->body != nullptr && page->body.use_count() == 1) {
      page->body = nullptr;
    } else if (has_answer) {
      return false;
    } else if (!options_.cut_off_slowest(/*in_any_case=*/true)) {
      return true;
    }
  }
  return true;
}

}  // namespace nccl_pulse

#include "exporter/http/page_cache.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "exporter/http/gzip.h"

namespace nccl_pulse {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::seconds;

// The part of the whole budget that is divided between the kinds.
constexpr double kOwnShare = 5.0 / 6;

}  // namespace

PageCache::PageCache(Options options)
    : options_(std::move(options)),
      shared_budget_(options_.cpu_share * (1 - kOwnShare), kPageBurst, options_.clock()) {
  int weights = 0;
  for (const Options::Kind& kind : options_.kinds) weights += kind.weight;
  for (const Options::Kind& kind : options_.kinds) {
    const double share = options_.cpu_share * kOwnShare * kind.weight / weights;
    pages_.emplace_back(CpuBudget(share, kPageBurst, options_.clock()));
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

PageCache::Answer PageCache::Get(std::size_t kind, bool gzip) {
  Page& page = pages_[kind];
  const Time now = options_.clock();
  if (gzip && page.packed != nullptr && IsFresh(page.packed_made, now)) return Packed(page, now);
  const bool is_fresh = page.body != nullptr && IsFresh(page.made, now);
  if (!is_fresh) {
    CpuBudget* const budget = WhoPays(&page, now);
    if (budget != nullptr) Make(kind, budget);
  }
  if (page.body != nullptr && page.status != 200) return Plain(page, now);
  if (gzip) {
    const bool is_newer = page.packed == nullptr || page.packed_made < page.made;
    if (page.body != nullptr && is_newer) Pack(&page);
    if (page.packed != nullptr) return Packed(page, now);
  }
  if (page.body != nullptr) return Plain(page, now);
  Answer answer;
  answer.status = 503;
  answer.retry_after =
      std::max(duration_cast<seconds>(page.budget.allows_from() - now), seconds(0)) + seconds(1);
  return answer;
}

PageCache::Answer PageCache::Packed(const Page& page, Time now) const {
  const auto age = std::max(duration_cast<seconds>(now - page.packed_made), seconds(0));
  return {200, page.packed, true, age, seconds(0)};
}

PageCache::Answer PageCache::Plain(const Page& page, Time now) const {
  const auto age = std::max(duration_cast<seconds>(now - page.made), seconds(0));
  return {page.status, page.body, false, age, seconds(0)};
}

// Null if nobody pays.
CpuBudget* PageCache::WhoPays(Page* page, Time now) {
  if (page->budget.Allows(now)) return &page->budget;
  if (shared_budget_.Allows(now)) return &shared_budget_;
  // The first page of a kind is made on credit: there are few kinds.
  return page->was_made ? nullptr : &page->budget;
}

void PageCache::Make(std::size_t kind, CpuBudget* budget) {
  Page& page = pages_[kind];
  page.was_made = true;
  if (!MakeRoom(kind, options_.clock())) return;
  std::string text;
  std::optional<std::string> failure;
  const double took = Charge(budget, [&] {
    try {
      text = options_.kinds[kind].make();
    } catch (const std::exception& e) {
      failure = e.what();
    } catch (...) {
      failure = "unknown exception";
    }
  });
  page.status = failure.has_value() ? 500 : 200;
  if (failure.has_value()) {
    options_.on_failure(*failure);
    // Kept like a good page: a source in trouble is not called more often than a healthy one.
    text = absl::StrCat("500 Internal Server Error\ncannot make the page: ", *failure, "\n");
    page.packed = nullptr;
  } else {
    options_.on_work(took, true);
  }
  page.body = std::make_shared<const std::string>(std::move(text));
  page.made = options_.clock();
  bodies_.push_back(page.body);
}

// If there is no memory for packing, the page is sent unpacked.
void PageCache::Pack(Page* page) {
  const double took = Charge(&page->budget, [&] {
    std::optional<std::string> packed = Gzip(*page->body);
    if (!packed.has_value()) return;
    page->packed = std::make_shared<const std::string>(*std::move(packed));
    page->packed_made = page->made;
    bodies_.push_back(page->packed);
  });
  options_.on_work(took, false);
}

// Whether one more body may be made.
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

// The oldest kept body that is not being sent to anybody and is not of this kind.
PageCache::Page* PageCache::OldestToForget(std::size_t kind) {
  Page* oldest = nullptr;
  for (Page& page : pages_) {
    if (&page == &pages_[kind] || page.body == nullptr || page.body.use_count() > 1) continue;
    if (oldest == nullptr || page.made < oldest->made) oldest = &page;
  }
  return oldest;
}

// Called before a page of this kind is made. False if making it would cut off a client that has not
// had the time to take its page, and there is a page of this kind to answer with that is not too
// old for that.
bool PageCache::MakeRoom(std::size_t kind, Time now) {
  Page& page = pages_[kind];
  const bool has_answer = (page.body != nullptr && now - page.made < kPageGrace) ||
                          (page.packed != nullptr && now - page.packed_made < kPageGrace);
  while (!HasRoom()) {
    Page* const oldest = OldestToForget(kind);
    if (oldest != nullptr && !IsFresh(oldest->made, now)) {
      oldest->body = nullptr;
    } else if (options_.cut_off_slowest(/*in_any_case=*/false)) {
      continue;
    } else if (oldest != nullptr) {
      oldest->body = nullptr;
    } else if (page.body != nullptr && page.body.use_count() == 1) {
      page.body = nullptr;
    } else if (has_answer) {
      return false;
    } else if (!options_.cut_off_slowest(/*in_any_case=*/true)) {
      return true;
    }
  }
  return true;
}

}  // namespace nccl_pulse

#include "exporter/diagnosis/words/rank_words.h"

#include <utility>

#include "exporter/base/size_words.h"
#include "exporter/diagnosis/words/words.h"
#include "metrics/size_class.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostOperations = 3;

// Returns " (up to 1MiB)"; "" for a class below 0, for which sizes do not matter.
std::string SizeOf(int size_class) {
  if (size_class < 0) return "";
  return absl::StrCat(" (", SizeWords(SizeClassName(size_class), "up to ", "over "), ")");
}

}  // namespace

std::string Name(const RankView& rank) {
  const std::string& gpu = rank.communicator->gpu;
  const std::string& host = rank.process->hostname;
  return absl::StrCat("rank ", rank.rank(), " (",
                      rank.is_of_many_hosts && !host.empty() ? absl::StrCat(host, ", ") : "",
                      rank.process->is_of_dump
                          ? absl::StrCat("global rank ", rank.process->global_rank)
                          : absl::StrCat("pid ", PidWords(*rank.process)),
                      gpu.empty() ? "" : absl::StrCat(", GPU ", gpu), ")");
}

std::string Names(const Ranks& ranks) {
  return Enumerate(ranks, kMostListed, [](const RankView* rank) { return Name(*rank); });
}

std::string Numbers(const Ranks& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      Enumerate(ranks, kMostListed,
                                [](const RankView* rank) { return absl::StrCat(rank->rank()); }));
}

std::string CallWords(const Calls& calls) { return NumberedCallWords(calls, {}); }

std::string NumberedCallWords(const Calls& calls, const Calls& before) {
  return Enumerate(calls, kMostOperations, [&before](const auto& each) {
    const auto& [kind, count] = each;
    const auto known = before.find(kind);
    if (known == before.end()) {
      return absl::StrCat(count == 1 ? "" : absl::StrCat(count, " x "), kind.first,
                          SizeOf(kind.second));
    }
    const uint64_t first = known->second + 1;
    return absl::StrCat(
        kind.first, " #", first,
        count == 1 ? "" : absl::StrCat(count == 2 ? " and #" : " to #", first + count - 1),
        SizeOf(kind.second));
  });
}

std::string Capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] -= 'a' - 'A';
  return text;
}

std::string Fill(std::string_view text, const Ranks& ranks, Slots slots) {
  std::string filled;
  while (true) {
    const std::size_t begin = text.find('{');
    filled += text.substr(0, begin);
    if (begin == text.npos) return filled;
    const std::size_t end = text.find('}', begin);
    const std::string_view slot = text.substr(begin + 1, end - begin - 1);
    text.remove_prefix(end + 1);
    if (const std::size_t bar = slot.find('|'); bar != slot.npos) {
      filled += ranks.size() == 1 ? slot.substr(0, bar) : slot.substr(bar + 1);
    } else if (slot == "Who" || slot == "who") {
      filled += slot == "Who" ? Capital(Names(ranks)) : Names(ranks);
    } else if (slot == "Ranks" || slot == "ranks") {
      filled += slot == "Ranks" ? Capital(Numbers(ranks)) : Numbers(ranks);
    }
    for (const auto& [name, value] : slots) filled += name == slot ? value : "";
  }
}

std::string FillIfAny(std::string_view text, const Ranks& ranks, Slots slots) {
  return ranks.empty() ? "" : Fill(text, ranks, slots);
}

// Uses no time zone library, because this may run in a job's process.
std::string ClockWords(int64_t realtime_ns) {
  constexpr int64_t kDay = 86400;
  const int64_t second = (realtime_ns / 1000000000 % kDay + kDay) % kDay;
  return absl::StrCat(absl::Dec(second / 3600, absl::kZeroPad2), ":",
                      absl::Dec(second / 60 % 60, absl::kZeroPad2), ":",
                      absl::Dec(second % 60, absl::kZeroPad2), " UTC");
}

}  // namespace nccl_pulse

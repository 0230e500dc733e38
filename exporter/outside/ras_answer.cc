#include "exporter/outside/ras_answer.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "exporter/base/json_field.h"
#include "exporter/base/json_text.h"
#include "exporter/base/text_hash.h"

namespace nccl_pulse::outside {
namespace {

using Json = nlohmann::json;

// NCCL 2.28.7 and 2.28.9 omit the comma after "nvml_dev" in "missing_ranks" (mended in 2.29.2).
void AddMissingCommas(std::string* text) {
  constexpr std::string_view kKey = "\"nvml_dev\":";
  std::string mended;
  std::size_t copied = 0;
  for (std::size_t at = text->find(kKey); at != text->npos; at = text->find(kKey, at)) {
    at = text->find_first_not_of(" \t", at + kKey.size());
    if (at != text->npos) at = text->find_first_not_of("-0123456789", at);
    if (at == text->npos) break;
    const std::size_t next = text->find_first_not_of(" \t\r\n", at);
    if (next == text->npos || (*text)[next] != '"') continue;
    mended.append(*text, copied, at - copied);
    mended += ',';
    copied = at;
  }
  if (copied == 0) return;
  mended.append(*text, copied);
  *text = std::move(mended);
}

// Returns a number in hexadecimal digits; 0 if there is none.
uint64_t HashAt(const Json& object, const char* key) {
  const std::string text = TextAt(object, key);
  std::string_view digits = text;
  absl::ConsumePrefix(&digits, "0x");
  uint64_t hash = 0;
  return digits.size() <= 16 && absl::SimpleHexAtoi(digits, &hash) ? hash : 0;
}

bool IsSet(const Json& object, const char* key) {
  const Json& value = At(object, key);
  return value.is_boolean() ? value.get<bool>() : NumberAt(object, key) != 0;
}

int32_t SmallAt(const Json& object, const char* key, int32_t otherwise) {
  const int64_t number = NumberAt(object, key, otherwise);
  return number < 0 || number > INT32_MAX ? otherwise : static_cast<int32_t>(number);
}

RasRank ReadRank(const Json& json, bool is_missing) {
  RasRank rank;
  rank.rank = SmallAt(json, "rank", -1);
  rank.host = TextAt(json, "host", 256);
  rank.pid = SmallAt(json, "pid", 0);
  rank.nvml_dev = SmallAt(json, "nvml_dev", -1);
  const Json& status = At(json, "status");
  rank.has_counts = !is_missing;
  rank.is_dead = is_missing && IsSet(status, "considered_dead");
  rank.is_missing = is_missing && (rank.is_dead || IsSet(status, "unresponsive"));
  rank.is_creating = !is_missing && NumberAt(status, "init_state") != 0;
  // A process that answers without this communicator has destroyed or aborted it (rasClientRunComms).
  rank.has_left = (is_missing && !rank.is_missing) || IsSet(status, "finalize_called") ||
                  IsSet(status, "destroy_flag") || IsSet(status, "abort_flag");
  rank.async_error = SmallAt(status, "async_error", 0);
  const Json& counts = At(json, "collective_counts");
  for (std::size_t op = 0; op < kCountedOps.size(); ++op) {
    rank.counts[op] =
        static_cast<uint64_t>(std::max<int64_t>(0, NumberAt(counts, kCountedOps[op])));
  }
  return rank;
}

}  // namespace

uint64_t Total(const Counts& counts) {
  uint64_t total = 0;
  for (const uint64_t count : counts) total += std::min(count, UINT64_MAX - total);
  return total;
}

bool ReadRasAnswer(std::string text, RasAnswer* answer, std::string* error) {
  *answer = RasAnswer();
  AddMissingCommas(&text);
  const Json json = ParseJson(text);
  const Json& communicators = At(json, "communicators");
  if (!communicators.is_array()) {
    *error = "its report is not the JSON that NCCL 2.28.7 and later write";
    return false;
  }
  answer->nccl_version = TextAt(json, "nccl_version", 32);
  std::size_t room = kMostAnswerRanks;
  for (const Json& each : communicators) {
    RasCommunicator communicator;
    communicator.id = HashAt(each, "hash");
    const uint64_t secondary = TextHash(TextAt(each, "secondary_hash", 64)) | 1;
    communicator.size = SmallAt(each, "size", 0);
    std::map<int32_t, RasRank> ranks;  // the first of each number
    for (const char* list : {"ranks", "missing_ranks"}) {
      const Json& array = At(each, list);
      if (!array.is_array()) continue;
      for (const Json& json_of_rank : array) {
        if (room == 0) {
          *error = "its report has more ranks than can be compared";
          return false;
        }
        --room;
        RasRank rank = ReadRank(json_of_rank, list[0] == 'm');
        communicator.is_creating |= rank.is_creating;
        const int32_t number = rank.rank;
        if (number >= 0 && number < communicator.size) ranks.try_emplace(number, std::move(rank));
      }
    }
    for (auto& [number, rank] : ranks) communicator.ranks.push_back(std::move(rank));
    if (communicator.id == 0 || communicator.is_creating) answer->proves_absence = false;
    if (communicator.id != 0 && !ranks.empty()) {
      answer->communicators.try_emplace({communicator.id, secondary}, std::move(communicator));
    }
  }
  answer->is_any = true;
  return true;
}

bool RasAnswer::Add(const RasAnswer& other) {
  is_any |= other.is_any;
  proves_absence &= other.proves_absence;
  nccl_version = other.nccl_version;
  const auto worth = [](const RasCommunicator& each) {
    std::pair<std::size_t, uint64_t> ranks_and_launches;
    for (const RasRank& rank : each.ranks) {
      ranks_and_launches.first += rank.is_missing ? 0 : 1;
      ranks_and_launches.second += Total(rank.counts);
    }
    return ranks_and_launches;
  };
  std::size_t ranks = 0;
  for (const auto& [hashes, communicator] : communicators) ranks += communicator.ranks.size();
  bool is_whole = true;
  for (const auto& [hashes, communicator] : other.communicators) {
    const auto found = communicators.find(hashes);
    if (found != communicators.end() && worth(communicator) <= worth(found->second)) continue;
    const std::size_t more =
        communicator.ranks.size() - (found == communicators.end() ? 0 : found->second.ranks.size());
    if (ranks + more > kMostAnswerRanks) {
      is_whole = false;
      continue;
    }
    ranks += more;
    communicators.insert_or_assign(hashes, communicator);
  }
  return is_whole;
}

}  // namespace nccl_pulse::outside

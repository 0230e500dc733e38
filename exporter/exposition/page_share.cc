#include "exporter/exposition/page_share.h"

#include <algorithm>
#include <cstddef>

#include "exporter/exposition/classic_buckets.h"

namespace nccl_pulse {
namespace {

// Generous: measured with tests/node/limits_test.py.
constexpr uint64_t kLineBytes = 160;      // one line of the text format, without the user's labels
constexpr uint64_t kSeriesBytes = 640;    // a series of one number before it is text: six labels
constexpr uint64_t kClassicBytes = 1024;  // a series with buckets
constexpr uint64_t kHistogramLines = kClassicExponents.size() + 3;
constexpr uint64_t kLabelBytes = 64;  // a label before it is text, without a long text
constexpr uint64_t kTimedCallBytes = 512;
// Series of a communicator and a process that are not counted in lists: info, gauges, JSON.
constexpr uint64_t kSeriesOfCommunicator = 18;
constexpr uint64_t kSeriesOfProcess = 40;

uint64_t TextBytes(const CommunicatorSnapshot& communicator) {
  return communicator.name.size() + communicator.uuid.size() + communicator.pci_bus_id.size() +
         communicator.gpu.size();
}

// Bytes of one series of a process, with its labels.
struct Prices {
  uint64_t counter;
  uint64_t histogram;
};

Prices PricesOf(const ProcessSnapshot& process) {
  const std::string& labels = process.static_labels;
  const uint64_t label_count =
      labels.empty()
          ? 0
          : std::min<uint64_t>(1 + std::count(labels.begin(), labels.end(), ','), kMaxStaticLabels);
  const uint64_t line = kLineBytes + labels.size() + 3 * label_count;
  const uint64_t label_bytes = label_count * kLabelBytes + 2 * labels.size();
  const uint64_t counter = kSeriesBytes + label_bytes + line;
  return {counter,
          sizeof(LatencySnapshot) + kClassicBytes + label_bytes + kHistogramLines * line + counter};
}

}  // namespace

uint64_t PageBytes(const ProcessSnapshot& process) {
  const auto [counter, histogram] = PricesOf(process);
  const uint64_t identity =
      4 * (process.hostname.size() + process.job_id.size() + process.global_rank.size());

  uint64_t bytes = kSeriesOfProcess * counter + identity;
  for (const CommunicatorSnapshot& each : process.communicators) {
    const uint64_t counters = 2 * each.calls.size() + each.algorithms.size() + each.untimed.size() +
                              each.uncompleted.size() + each.sequences.size() +
                              each.longest_waits.size() + each.composites.size();
    bytes += (kSeriesOfCommunicator + counters) * counter + each.latencies.size() * histogram +
             (each.timed_calls.size() + each.picked_calls.size()) * kTimedCallBytes +
             4 * TextBytes(each) + identity;
  }
  return bytes;
}

uint64_t FinalizedHistogramBytes(const ProcessSnapshot& process) {
  uint64_t histograms = 0;
  for (const CommunicatorSnapshot& each : process.communicators) {
    if (each.finalized) histograms += each.latencies.size();
  }
  return histograms * PricesOf(process).histogram;
}

std::optional<uid_t> LargestShare(const Shares& shares) {
  const auto most =
      std::max_element(shares.begin(), shares.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == shares.end() || most->second == 0) return std::nullopt;
  return most->first;
}

uid_t GivesWay(const Shares& shares, uid_t newcomer) {
  const std::optional<uid_t> most = LargestShare(shares);
  if (!most.has_value()) return newcomer;
  const auto own = shares.find(newcomer);
  const uint64_t has = own == shares.end() ? 0 : own->second;
  return shares.at(*most) > has + 1 ? *most : newcomer;
}

}  // namespace nccl_pulse

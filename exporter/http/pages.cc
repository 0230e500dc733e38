#include "exporter/http/pages.h"

#include <malloc.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "exporter/diagnosis/shared_ranks.h"
#include "exporter/exposition/calls_json.h"
#include "exporter/exposition/communicators_json.h"
#include "exporter/exposition/negotiation.h"
#include "exporter/exposition/protobuf_format.h"
#include "exporter/exposition/snapshot_message.h"
#include "exporter/exposition/text_format.h"
#include "exporter/http/limits.h"
#include "exporter/node/monotonic_clock.h"
#include "exporter/node/realtime_clock.h"

namespace nccl_pulse {
namespace {

// Shares of the processor time for pages. People look at the JSON every 2 s with the status page
// open, scrapers come every 15 s, and a diagnosis of a job asks twice.
constexpr int kFormatWeight = 5, kCommunicatorsWeight = 10, kSnapshotsWeight = 1;
// What one communicator called last: seldom asked for, and made from what is there for all.
constexpr int kCallsWeight = 0;
// What stands for so long may be said to hang: less than the shortest time that can be set.
constexpr int64_t kStandsNs = 500000000;

}  // namespace

std::chrono::nanoseconds ThreadCpuTime() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

Pages::Pages(const ServerOptions* options, Node* node,
             std::function<bool(bool in_any_case)> cut_off_slowest)
    : options_(*options),
      node_(*node),
      diagnosis_(options->hang_after),
      failure_(options->log),
      cache_(CacheOptions(std::move(cut_off_slowest))) {}

std::string_view Pages::TypeOf(std::size_t kind) {
  if (kind == kCommunicators || kind == kCalls) return "application/json";
  if (kind == kSnapshots) return kSnapshotMessageType;
  return ContentType(static_cast<PageFormat>(kind));
}

std::chrono::milliseconds Pages::HangAfter() const {
  return options_.hang_after_now ? options_.hang_after_now() : options_.hang_after;
}

SnapshotSet Pages::ReadAll(ReadWish wish) {
  // What the diagnosis compares in a hang. Nothing is read for it while all goes on.
  wish.order_of_standing_since_ns = RealtimeNs() - kStandsNs;
  const std::chrono::milliseconds hang_after = HangAfter();
  diagnosis_.set_hang_after(hang_after);
  SnapshotSet set = options_.wish_source ? options_.wish_source(wish) : options_.source();
  node_.Read(&set, MonotonicNow(), wish);
  ForgetSharedRanks(&set);
  // What has stopped must not pass for the present by the time at which a hang is called.
  set.stands_after_ns =
      std::min(kStoppedAfterNs, int64_t{std::chrono::nanoseconds(hang_after).count()});
  pace_.Update(&set, options_.pace_clock ? options_.pace_clock() : RealtimeNs());
  stats_.segments_read += std::count_if(
      set.processes.begin(), set.processes.end(),
      [](const ProcessSnapshot& process) { return process.end == ProcessEnd::kLive; });
  return set;
}

std::vector<Family> Pages::ReadFamilies(PageFormat format) {
  const SnapshotSet set = ReadAll();
  const int64_t now_ns = RealtimeNs();
  return BuildFamilies(set, options_.static_labels, stats_, options_.exposition, format,
                       diagnosis_.Update(set, now_ns), now_ns);
}

std::string Pages::MakeCommunicators() {
  const SnapshotSet set = ReadAll();
  const int64_t now_ns = RealtimeNs();
  return CommunicatorsJson(set, now_ns, diagnosis_.Update(set, now_ns));
}

std::string Pages::MakeSnapshots() {
  const SnapshotSet set = ReadAll();
  return WriteSnapshots(set, RealtimeNs(), std::chrono::nanoseconds(HangAfter()).count());
}

std::string Pages::MakeCalls() {
  const SnapshotSet set = ReadAll({ReadWish::LastCalls::kOfOne, calls_of_});
  const int64_t now_ns = RealtimeNs();
  std::string text = CallsJson(set, calls_of_, now_ns, diagnosis_.Update(set, now_ns));
  calls_are_known_ = !text.empty();
  return text;
}

PageCache::Answer Pages::GetCalls(uint64_t comm_id, bool gzip) {
  if (comm_id != calls_of_) cache_.Forget(kCalls);
  calls_of_ = comm_id;
  PageCache::Answer answer = cache_.Get(kCalls, gzip);
  if (answer.status != 200 || calls_are_known_) return answer;
  // Not to be taken for an answer about one that appears.
  cache_.Forget(kCalls);
  answer = {};
  answer.status = 404;
  return answer;
}

PageCache::Options Pages::CacheOptions(std::function<bool(bool in_any_case)> cut_off_slowest) {
  PageCache::Options options;
  options.kinds = {
      {[this] { return TextFormat(ReadFamilies(PageFormat::kText)); }, kFormatWeight},
      {[this] { return OpenMetricsFormat(ReadFamilies(PageFormat::kOpenMetrics)); }, kFormatWeight},
      {[this] { return ProtobufFormat(ReadFamilies(PageFormat::kProtobuf)); }, kFormatWeight},
      {[this] { return MakeCommunicators(); }, kCommunicatorsWeight},
      {[this] { return MakeSnapshots(); }, kSnapshotsWeight},
      {[this] { return MakeCalls(); }, kCallsWeight}};
  options.clock = [] { return MonotonicNow(); };
  options.cpu_time = ThreadCpuTime;
  options.cut_off_slowest = std::move(cut_off_slowest);
  options.on_failure = [this](const std::string& reason) {
    failure_.Give("HTTP endpoint: cannot make the page: ", reason);
  };
  options.on_work = [this](double seconds, bool made) {
    if (made) stats_.pages += 1;
    stats_.seconds += seconds;
    // One page leaves memory in pieces that the next one does not fit into. Not done in a process
    // of a job, where it would hold up the job's own threads.
    if (made && options_.peers.agent) malloc_trim(0);
  };
  options.cpu_share = options_.cpu_share * kPagesShare;
  return options;
}

}  // namespace nccl_pulse

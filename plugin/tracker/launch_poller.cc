#include "plugin/tracker/launch_poller.h"

#include <algorithm>

#include "metrics/driver_error.h"
#include "plugin/tracker/communicator_parts.h"
#include "plugin/tracker/counting.h"
#include "plugin/tracker/instruments.h"
#include "plugin/tracker/work_follower.h"

namespace nccl_pulse {
namespace {

// Owner checks whether the polled communicator still owns its record. Otherwise nothing may be
// counted: the record was recycled, or its place belongs to the next communicator, which has no
// timer yet. A driver call may block for that long, so call counts() after each.
class Owner {
 public:
  Owner(const Communicator& communicator, uint32_t record_generation, bool is_on)
      : communicator_(communicator), record_generation_(record_generation), is_on_(is_on) {}
  bool counts() const {
    // Claiming a lane checks this again.
    return communicator_.record->life.IsOf(record_generation_) &&
           (is_on_ || !communicator_.is_live());
  }
  uint32_t record_generation() const { return record_generation_; }

 private:
  const Communicator& communicator_;
  const uint32_t record_generation_;
  const bool is_on_;
};

class CountResults : public StreamTimer::Results {
 public:
  CountResults(Instruments& instruments, const Communicator& communicator,
               const TimedLaunches& timed, const Owner& owner)
      : instruments_(instruments), communicator_(communicator), timed_(timed), owner_(owner) {}

  void OnTimed(uint32_t pair, uint64_t launch_ns, uint64_t duration_ns) override {
    if (!owner_.counts()) return;
    CountTimedLaunch(instruments_, communicator_, owner_.record_generation(), timed_.LoadOf(pair),
                     launch_ns, duration_ns);
  }
  void OnLost(uint32_t pair) override {
    if (!owner_.counts()) return;
    CountLostLaunch(instruments_, communicator_, owner_.record_generation(), timed_.LoadOf(pair));
  }

 private:
  Instruments& instruments_;
  const Communicator& communicator_;
  const TimedLaunches& timed_;
  const Owner& owner_;
};

}  // namespace

Standstill::Wait Standstill::Look(uint32_t record_generation, const StreamTimer::Progress& progress,
                                  uint64_t now_ns, uint64_t last_call, bool lives) {
  constexpr uint64_t kShortestNs = 1000000000;
  constexpr uint64_t kApartNs = 5000000000;  // polls of a running process are closer together
  if (record_generation_ != record_generation) {
    *this = {};
    record_generation_ = record_generation;
  }
  if (!progress.advanced && progress.oldest_ns != 0) {
    if (since_ns_ == 0) unseen_ns_ = 0;
    if (since_ns_ != 0 && now_ns > seen_ns_ + kApartNs) unseen_ns_ += now_ns - seen_ns_;
    since_ns_ = std::max(progress.oldest_ns, progress.progress_ns);
    seen_ns_ = std::max(now_ns, since_ns_);
    last_call_ = last_call;
    return {};
  }
  uint64_t waited_ns = since_ns_ != 0 ? seen_ns_ - since_ns_ : 0;
  waited_ns -= std::min(waited_ns, unseen_ns_);
  since_ns_ = 0;
  if (waited_ns < kShortestNs || !progress.advanced || !lives) return {};
  return {waited_ns, seen_ns_, last_call_};
}

bool LaunchPoller::Poll(Instruments& instruments, Communicator& communicator,
                        const WorkFollower& work, uint64_t now_ns, bool may_destroy,
                        bool* is_stalled) {
  constexpr uint64_t kStalledNs = 1000000000;
  CommunicatorParts* const parts = communicator.parts.acquire();
  if (parts == nullptr) return false;
  LaunchFollower& launches = parts->launches;
  CommunicatorTimer& timer = launches.timer();
  StreamTimer& stream_timer = *instruments.stream_timer;
  // Read before the state: a driver call may block until the place has a new owner, whose numbers
  // must not be touched.
  const uint32_t record_generation = communicator.record_generation.acquire();
  const CommunicatorTimer::State state = timer.state();
  if (state == CommunicatorTimer::kOff) return false;
  const Owner owner(communicator, record_generation, state == CommunicatorTimer::kOn);
  CountResults results(instruments, communicator, launches.timed(), owner);
  StreamTimer::Progress progress;
  const bool alive = stream_timer.Poll(timer, work.Counted(communicator, record_generation), now_ns,
                                       results, &progress);
  const bool ends = StreamTimer::IsOver(timer, now_ns);
  const bool counts = owner.counts();
  RecordWriter writer = communicator.Writer(instruments.segment);
  // No data is better than wrong data, if the driver failed or polling ends with work in flight.
  if (counts && (!alive || (ends && progress.in_flight))) {
    writer.ChangeCompletionSource(CompletionSource::kStream, CompletionSource::kNone);
  }
  if (alive && progress.oldest_ns != 0 &&
      now_ns >= std::max(progress.oldest_ns, progress.progress_ns) + kStalledNs) {
    *is_stalled = true;
  }
  launches.NoteLook();
  const bool is_lost = !alive && DriverErrorName(timer.error()) != nullptr;
  if (counts && (alive || is_lost)) {
    // The lane is held so that the record is not recycled meanwhile.
    LaneWriter lane(instruments.segment, *communicator.record, record_generation,
                    LaneRole::kBackground);
    if (lane.ok() && is_lost) writer.NoteDriverError(timer.error(), now_ns);
    if (lane.ok() && alive) {
      writer.StoreHeartbeat(
          {progress.completed, progress.oldest_ns, progress.oldest, progress.is_at_oldest});
      const Standstill::Wait wait =
          standstill_.Look(record_generation, progress, now_ns,
                           communicator.record->followed.last_call.load(), communicator.is_live());
      if (wait.ns != 0) writer.NoteWait(wait.last_call, wait.ns, wait.ended_ns);
      if (progress.advanced) {
        lane.lane().last_completion_ns.store(now_ns);
      }
    }
  }
  // All threads that record these events do so in one of the two visits.
  if (ends && may_destroy && parts->calling.IsOver() && parts->launching.IsOver()) {
    stream_timer.Destroy(timer);
  }
  return progress.in_flight || progress.advanced;
}

}  // namespace nccl_pulse

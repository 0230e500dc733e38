// WorkProof finds NCCL's private counter of finished work in a copy of a communicator's device
// memory, proves that a word is this counter, and drops it at the first contradiction.
//
// At the end of each kernel, eager or replayed, NCCL stores the number of work items that each
// channel has finished (src/device/common.h writes ncclShmem.channel.workCounter back; 2.26.2 to
// 2.31.2). A collective is one item on each channel that it uses. So the sum over the channels
// grows by the operation's nChannels, which the Coll event reports. The counter is in the
// communicator's block of device memory (struct ncclKernelCommAndChannels):
//
//   0     rank, nRanks, node, nNodes             int32 each; all but the node are known from init
//   56    address of byte 96 of this block       where the channels begin
//   96    channel[64], 368 bytes each            one of a channel's 46 words is the counter
//
// The counter's word differs between releases, so it is found by its values.
//
//   kUnknown ─▶ kLocated ─▶ kCalibrating ─▶ kProven       any of them ─▶ kRefuted, kGone
//
//   state         event                                                        next
//   kUnknown      first launch: the memory in front of the profiler context,   kLocated
//                 by address, has pointers to device memory (work_search.h)
//   kLocated      one of them points to a block as drawn above                 kCalibrating
//   kCalibrating  in three quiet polls, each with more work, the sum of one    kProven
//                 word over all channels equals the work of all launches;
//                 or in kReplayMatches polls only one word grew as replays
//                 and eager launches together require
//   any           a contradiction (WorkRefutal)                                kRefuted
//   any           the communicator has ended                                   kGone
//
// A poll is quiet if CUDA events show that nothing is in flight. If a launch had begun but its
// operation was not reported yet, the poll is not quiet: the launching thread may have lost the
// processor while the GPU finished the launch.
//
// Checks in each poll once a word is proven. `others` is the part of the sum, up to the last quiet
// poll, that is not work of reported launches: graph replays, and launches that NCCL does not
// report. It is 0 without either.
//   sum >= others + work of the complete launches                        else kBehind
//   sum <= others + launched work, if others can't grow                  else kAhead
//   sum == others + launched work, in a quiet poll, if others can't grow else kDiffers, if twice
//
// An inference engine may replay graphs without a pause, with few eager calls between them. Its
// communicators are never quiet. Two polls are then compared within bounds (CalibrateByReplays):
//
//   finished eager work     at least the work of launches that events show to be complete before
//                           the copy, at most the work of all launches made until after it
//   replays                 a collective alone in its launch uses channel 0 once, and n channels in
//                           all; n is between the least and the most of the captured ones. So if
//                           channel 0 grows by r, the sum grows by least * r to most * r, plus or
//                           minus a launch in progress at either poll
//   unreported Broadcasts   as replays, with 1 to 64 channels each (finished_calls.h)
//
// A communicator may come to rest, or hang, before two polls can be compared. Since its counter
// began at 0, the same bounds also hold from its creation on. If only one word fits, it is
// known since when the counter has not grown (moved_ns), but the word is not proven.
//
// Two rules reject words that are clocks: no channel grows faster than channel 0, and no launch
// takes less than kLeastLaunchNs. The bounds are as far apart as the work in flight at both polls, so
// a word that grows a tenth more or less than the work could fit. Its growth since the first poll
// must therefore be at least kLeastWeight times that work in flight.
//
// Communicators of a process normally use the same NCCL, so a word proven on one communicator needs
// only kKnownWordMatches polls on the next.
//
// The work of a launch is known microseconds after it, when NCCL has reported its operations.
//
// If `others` is 0, the sum shows which launches are complete, because NCCL orders the launches of
// a communicator and their work finishes in that order.
//
// Thread: one. Cost: while calibrating, each poll reads 23 KiB; afterwards 64 words.
#ifndef PLUGIN_CUDA_WORK_PROOF_H_
#define PLUGIN_CUDA_WORK_PROOF_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "metrics/kinds.h"

namespace nccl_pulse {

inline constexpr size_t kWorkChannels = 64;
inline constexpr size_t kWorkChannelBytes = 368;
inline constexpr size_t kWorkChannelsAddressAt = 56;
inline constexpr size_t kWorkChannelsAt = 96;
inline constexpr size_t kWorkBlockBytes = kWorkChannelsAt + kWorkChannels * kWorkChannelBytes;
inline constexpr size_t kWorkWords = kWorkChannelBytes / sizeof(uint64_t);

// The owner of a block.
struct WorkOwner {
  int32_t rank, nranks, nnodes;
};

// A communicator's launches outside graphs. Load `work` before `launches`: it then includes no
// later launch.
struct LaunchedWork {
  uint64_t work = 0;      // sum of nChannels of the reported operations
  uint64_t alone = 0;     // number of launches with one reported operation
  uint64_t grouped = 0;   // number of reported operations that shared a launch
  uint64_t launches = 0;  // number of launches with CUDA events behind them
  uint64_t reported = 0;  // number of the newest launch with a reported operation
  uint64_t hidden = 0;    // Broadcast calls whose launches NCCL may not report
};

// Facts about the moment at which a block was copied.
struct WorkLook {
  LaunchedWork before, after;      // read before and after the copy
  uint64_t completed = 0;          // launches that events showed to be complete before the copy
  uint64_t completed_work = 0;     // lower bound of their work
  bool is_launching = false;       // after the copy, some launch had begun but was not counted
  bool is_captured = false;        // some calls were captured into a graph
  bool is_group_captured = false;  // some captured calls share a launch, or may not be counted
  uint32_t least_channels = 0;     // least number of channels of a captured operation
  uint32_t most_channels = 0;      // most channels; 0: no captured operation was reported
  bool may_hide = false;           // unreported launches are possible
  bool has_hidden = false;         // a reported launch may have followed an unreported launch
  bool hides_others = false;       // unreported launches other than lone Broadcasts are possible
  uint64_t now_ns = 0;
};

class WorkProof {
 public:
  static constexpr uint32_t kMatches = 3;  // quiet polls, each with new work
  // Polls that compare replays, each with kReplayedLaunches more launches.
  static constexpr uint32_t kReplayMatches = 8;
  static constexpr uint32_t kKnownWordMatches = 4;
  static constexpr uint64_t kReplayedLaunches = 8;
  static constexpr uint64_t kLeastLaunchNs = 2000;
  // Least ratio of the growth over the kReplayMatches polls to the work in flight.
  static constexpr uint64_t kLeastWeight = 16;
  // Least ratio of the growth since creation to the work in flight, to know since when the
  // counter has not grown.
  static constexpr uint64_t kLeastWeightAtRest = 2;
  static constexpr uint64_t kLongestPauseNs = 600000000000;  // limit of longest_pause_ns

  // True if NCCL has reported all work that the copy may include.
  static bool IsReported(const WorkLook& look) {
    return !look.is_launching && look.after.reported == look.after.launches;
  }
  // True if CUDA events showed that nothing was in flight.
  static bool IsQuiet(const WorkLook& look) {
    return look.completed == look.before.launches && IsStill(look) && IsReported(look);
  }

  // True if `block`, copied from NCCL's address `at`, begins like the block of `owner`.
  static bool IsBlock(const char* block, uint64_t at, const WorkOwner& owner);

  static constexpr size_t kNoWord = kWorkWords;

  // Begins to calibrate with the block at `at`. `launched_ns`: time of the communicator's first
  // launch. `known_word`: the word proven on another communicator.
  void Begin(uint64_t at, const WorkOwner& owner, uint64_t launched_ns,
             size_t known_word = kNoWord);
  // Checks a copy of the block, and updates the state.
  void Take(const char* block, const WorkLook& look);
  void Refute(WorkRefutal refutal) {
    state_ = WorkState::kRefuted;
    refutal_ = refutal;
  }
  void Enter(WorkState state) { state_ = state; }

  WorkState state() const { return state_; }
  WorkRefutal refutal() const { return refutal_; }
  size_t word() const { return word_; }  // valid if kProven
  // True if a new copy could change the state or any result.
  bool IsNews(const LaunchedWork& work, uint64_t completed, bool is_captured) const {
    return is_captured || !is_settled_ || work.work != seen_.work || completed != completed_;
  }

  // Returns the finished work of eager launches in the last copy, if is_finished_known. After the
  // first capture the value may include replays: compare it only with the work up to a launch made
  // before the capture, which NCCL finishes before any replay.
  bool is_finished_known() const { return state_ == WorkState::kProven && is_finished_known_; }
  uint64_t finished_work() const { return sum_ - others_before_capture_; }
  // Return the counter in the last copy: sum over the channels, and channel 0. Valid if kProven.
  uint64_t sum() const { return sum_; }
  uint64_t first() const { return first_; }
  // Returns the number of collectives that replays have executed, if are_operations_known: channel
  // 0 counts each collective that is alone in its launch. Valid if kProven.
  bool are_operations_known() const { return are_operations_known_; }
  uint64_t operations() const { return operations_; }
  // Returns the time of the last poll that found the sum changed. While calibrating: of the last
  // poll that found any word of the block changed, because the counter has not grown since then; 0
  // if no word has grown like the counter yet.
  uint64_t moved_ns() const { return state_ == WorkState::kProven || has_counted_ ? moved_ns_ : 0; }
  // Returns the longest time in which the sum did not change, since calls were captured.
  uint64_t longest_pause_ns() const { return longest_pause_ns_; }

 private:
  void Calibrate(const char* block, const WorkLook& look);
  void CalibrateByReplays(const char* block, const WorkLook& look);
  // Bounds of the finished eager work in a copy, and of channel 0.
  struct Eager {
    uint64_t least_work = 0, most_work = 0;
    uint64_t least_first = 0, most_first = 0;
    explicit Eager(const WorkLook& look);
    Eager() = default;
  };
  struct Replays;
  // True if a word grew within the bounds of the counter from `then` to `now`: by at least
  // `replays` replays, and by at least `weight` times the work in flight at both polls.
  static bool Fits(size_t word, const Replays& then, const Replays& now, int64_t replays,
                   uint64_t weight, const WorkLook& look);
  // True if exactly one word fits, assuming that the counter was 0 at the first launch.
  bool HasOneCounted(const Replays& now, uint64_t possible, const WorkLook& look) const;
  // Enters kProven with this word.
  void Prove(size_t word, const char* block, const WorkLook& look);
  void Check(const char* block, const WorkLook& look);
  void CountOperations(uint64_t first, const WorkLook& look, bool is_exact);
  // True if an earlier poll saw the same contradiction.
  bool IsSeenTwice(const WorkLook& look);
  // True if nothing was launched or reported during the copy.
  static bool IsStill(const WorkLook& look) {
    return look.after.launches == look.before.launches && look.after.work == look.before.work;
  }

  WorkState state_ = WorkState::kUnknown;
  WorkRefutal refutal_ = WorkRefutal::kNone;
  uint64_t at_ = 0;
  WorkOwner owner_{};
  // State of a word that may be the counter. Other words can have the right sum once or twice by
  // chance.
  struct Candidate {
    uint64_t others = 0;
    // Before the first capture: channel 0 less the number of launches with one operation, and the
    // number of grouped operations.
    uint64_t base = 0, base_grouped = 0;
    uint32_t matches = 0;  // quiet polls in which the word was right
    void SetBase(uint64_t first, const WorkLook& look) {
      base = first - look.before.alone;
      base_grouped = look.before.grouped;
    }
  };
  std::array<Candidate, kWorkWords> candidates_{};
  uint64_t words_ = 0;   // calibrating: bit set of the words that may be the counter
  uint64_t missed_ = 0;  // candidates that were wrong at the last conclusive quiet poll
  size_t word_ = 0;      // proven: the counter
  size_t known_word_ = kNoWord;
  uint64_t hash_ = 0;          // calibrating: hash of all words in the last copy
  bool has_counted_ = false;   // calibrating: see moved_ns
  uint64_t launched_ns_ = 0;   // time of the first launch
  uint64_t matched_work_ = 0;  // work at the last match
  LaunchedWork suspect_;       // launches at the last contradicting quiet poll
  // For each word: the sum over the channels, and channel 0, in a poll that compares replays.
  struct Replays {
    uint64_t now_ns = 0;
    Eager eager;
    std::array<uint64_t, kWorkWords> sum{}, first{};
  } first_replays_, replays_;  // at the first compared poll; at the last match
  uint64_t replay_words_ = 0;  // bit set of the words compared in this way; 0: none
  uint32_t replay_matches_ = 0;
  // From the last copy.
  LaunchedWork seen_, seen_after_;
  uint64_t completed_ = 0;
  uint64_t sum_ = 0, first_ = 0;
  bool is_settled_ = false;  // the finished work equals the launched work
  bool is_finished_known_ = false;
  bool is_base_known_ = false;  // the counter was proven before calls were captured
  uint64_t others_before_capture_ = 0;
  bool are_operations_known_ = false;
  uint64_t operations_ = 0;
  uint64_t moved_ns_ = 0, longest_pause_ns_ = 0;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_WORK_PROOF_H_

// WorkProof proves NCCL's own counter of finished work on one communicator, and drops it at the
// first contradiction.
//
// At the end of each kernel, eager or replayed, NCCL stores for each channel how many work items it
// has finished (src/device/common.h: ncclShmem.channel.workCounter is written back; 2.26.2 to
// 2.31.2). A collective is one item on each channel that it uses. So the sum over the channels
// grows by the operation's nChannels, which Coll reports. The store is in the communicator's block
// of device memory (struct ncclKernelCommAndChannels), which is private to NCCL:
//
//   0     rank, nRanks, node, nNodes             int32 each: known from init, except the node
//   56    address of the block's 96th byte       the channels
//   96    channel[64], 368 bytes each            one of the 46 words of each is the counter
//
// The word differs between releases, and is found by its values.
//
//   kUnknown ─▶ kLocated ─▶ kCalibrating ─▶ kProven       any of them ─▶ kRefuted, kGone
//
//   state         event                                                        next
//   kUnknown      the first launch: words in front of NCCL's context that      kLocated
//                 address device memory (work_search.h)
//   kLocated      one of these has the head and the pointer above              kCalibrating
//   kCalibrating  three times, with more work each time: all launches are      kProven
//                 complete by CUDA events, and a word's sum is their work; or
//                 kReplayMatches times the only word that changed grew as
//                 replays and eager launches together must have it grow
//   any           a contradiction (WorkRefutal)                                kRefuted
//
// Checks of a poll. `others` is the other work counted until the last quiet poll: replays of
// graphs, and launches that NCCL does not report; 0 on a communicator without either.
//   sum >= others + work of the complete launches                        else kBehind
//   sum <= others + launched work, if others can't grow                  else kAhead
//   quiet (nothing in flight): equal, if others can't grow               else kDiffers, the second time
// A poll is not quiet if a launch had begun and its operation was not reported: its thread may have
// lost the processor, and the GPU may have ended it.
//
// A communicator may hardly launch outside of graphs, or never be quiet: an engine replays without
// a pause, with eager calls between. Two polls are then compared within bounds
// (CalibrateByReplays):
//
//   eager work that has finished    at least that of the launches that events show to be complete
//                                   before the copy, at most that of all that were launched behind it
//   replays                         each lone collective uses channel 0 once, and n channels in all,
//                                   where n lies between the least and the most of those captured.
//                                   So if channel 0 counts r of them, the sum grows by least * r to
//                                   most * r, give or take a launch in progress at either poll
//   Broadcasts not reported         as replays, of 1 to 64 channels each (finished_calls.h)
//
// A communicator may come to rest, or hang, before two polls can be compared. Its counter began at
// 0, so the same bounds hold since its creation. If one word alone fits, the counter is known to be
// at rest (moved_ns), which is no proof.
//
// No channel grows faster than channel 0, and no launch takes less than kLeastLaunchNs. This
// rejects words that tick like a clock. The growth since the first poll must also fit, and exceed
// the work in flight at the first and last poll. This rejects words that deviate by a tenth.
//
// Communicators of a process normally use the same NCCL. So a word proven on one needs fewer polls
// on the others (kKnownWordMatches), but never none.
//
// Launched work is known when NCCL has reported its operations, microseconds later.
//
// Without others, the sum shows which launches are complete: NCCL orders the launches of a
// communicator, so their work finishes in that order.
//
// Thread: one. Cost: a pass over 23 KiB per poll while calibrating, over 64 words afterwards.
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

// A communicator's launches outside of graphs. Read `work` first: it then belongs to `launches`.
struct LaunchedWork {
  uint64_t work = 0;      // nChannels of the operations that were reported
  uint64_t alone = 0;     // launches that carried one of these alone
  uint64_t grouped = 0;   // operations that shared a launch
  uint64_t launches = 0;  // that events follow
  uint64_t reported = 0;  // `launches`, when nothing of them was to be reported any more
  uint64_t hidden = 0;    // Broadcasts that were called, where NCCL reports nothing else of them
};

struct WorkLook {
  LaunchedWork before, after;   // the copy
  uint64_t completed = 0;       // launches, by events; before the copy
  uint64_t completed_work = 0;  // what these have done, at least
  bool is_launching = false;    // behind the copy a launch had begun, and was not made or reported
  bool is_captured = false;     // some calls were captured into a graph
  bool is_group_captured = false;  // of these some share a launch, or may not count
  uint32_t least_channels = 0;     // of a captured operation
  uint32_t most_channels = 0;      // 0: none was reported
  bool may_hide = false;           // some launches may not have been reported
  bool has_hidden = false;         // and others may stand behind these
  bool hides_others = false;       // among them others than of a lone Broadcast
  uint64_t now_ns = 0;
};

class WorkProof {
 public:
  // So many quiet looks, each with new work.
  static constexpr uint32_t kMatches = 3;
  // So many looks, with so many replayed launches each.
  static constexpr uint32_t kReplayMatches = 8;
  static constexpr uint32_t kKnownWordMatches = 4;
  static constexpr uint64_t kReplayedLaunches = 8;
  static constexpr uint64_t kLeastLaunchNs = 2000;
  // So many times what is in flight the growth over all of them has to be.
  static constexpr uint64_t kLeastWeight = 16;
  // The same since the first launch, for a word that is only taken to be at rest.
  static constexpr uint64_t kLeastWeightAtRest = 2;
  // No pause counts longer.
  static constexpr uint64_t kLongestPauseNs = 600000000000;

  // All that the copy may have found finished was reported.
  static bool IsReported(const WorkLook& look) {
    return !look.is_launching && look.after.reported == look.after.launches;
  }
  // Nothing was in flight, as events show.
  static bool IsQuiet(const WorkLook& look) {
    return look.completed == look.before.launches && IsStill(look) && IsReported(look);
  }

  // Whether `block` is one of that owner's, at the address `at` where NCCL has it.
  static bool IsBlock(const char* block, uint64_t at, const WorkOwner& owner);

  static constexpr size_t kNoWord = kWorkWords;

  // A block was found at that address. `launched_ns`: when the communicator's first launch was
  // made. `known_word`: that another communicator has proven.
  void Begin(uint64_t at, const WorkOwner& owner, uint64_t launched_ns,
             size_t known_word = kNoWord);
  // What a copy of it says. The state afterwards is the answer.
  void Take(const char* block, const WorkLook& look);
  void Refute(WorkRefutal refutal) {
    state_ = WorkState::kRefuted;
    refutal_ = refutal;
  }
  void Enter(WorkState state) { state_ = state; }

  WorkState state() const { return state_; }
  WorkRefutal refutal() const { return refutal_; }
  size_t word() const { return word_; }  // once proven
  // Whether a copy taken now could tell anything new.
  bool IsNews(const LaunchedWork& work, uint64_t completed, bool is_captured) const {
    return is_captured || !is_settled_ || work.work != seen_.work || completed != completed_;
  }

  // These say, once it is proven, how much work of eager launches the last look found finished.
  // That is known where nothing else is counted. Once calls are captured, more may be of replays:
  // it is good for launches made before, which NCCL finishes before any replay.
  bool is_finished_known() const { return state_ == WorkState::kProven && is_finished_known_; }
  uint64_t finished_work() const { return sum_ - others_before_capture_; }
  // Once proven: what the last look found counted, and of that on channel 0.
  uint64_t sum() const { return sum_; }
  uint64_t first() const { return first_; }
  // Once proven. Collectives that replays executed, if that is known: a launch of one collective
  // alone uses channel 0, so channel 0 counts these.
  bool are_operations_known() const { return are_operations_known_; }
  uint64_t operations() const { return operations_; }
  // When a look last found the sum changed, and how long it stood at most before it went on, since
  // calls were captured. While calibrating: when any word of the block changed, so whichever is the
  // counter, it stands since then; 0: no word has counted yet as the counter does.
  uint64_t moved_ns() const { return state_ == WorkState::kProven || has_counted_ ? moved_ns_ : 0; }
  uint64_t longest_pause_ns() const { return longest_pause_ns_; }

 private:
  void Calibrate(const char* block, const WorkLook& look);
  void CalibrateByReplays(const char* block, const WorkLook& look);
  // The bounds of eager work at a look, and of launches on channel 0.
  struct Eager {
    uint64_t least_work = 0, most_work = 0;
    uint64_t least_first = 0, most_first = 0;
    explicit Eager(const WorkLook& look);
    Eager() = default;
  };
  struct Replays;
  // True if a word has grown from one look to another as the counter does, by the bounds above: by
  // so many replays at least, and by so many times what was in flight at the looks.
  static bool Fits(size_t word, const Replays& then, const Replays& now, int64_t replays,
                   uint64_t weight, const WorkLook& look);
  // A word alone may be the counter if that was 0 at the first launch.
  bool HasOneCounted(const Replays& now, uint64_t possible, const WorkLook& look) const;
  // This word is the counter.
  void Prove(size_t word, const char* block, const WorkLook& look);
  void Check(const char* block, const WorkLook& look);
  void CountOperations(uint64_t first, const WorkLook& look, bool is_exact);
  // True the second time that the same is seen.
  bool IsSeenTwice(const WorkLook& look);
  // Nothing was launched or reported during the copy.
  static bool IsStill(const WorkLook& look) {
    return look.after.launches == look.before.launches && look.after.work == look.before.work;
  }

  WorkState state_ = WorkState::kUnknown;
  WorkRefutal refutal_ = WorkRefutal::kNone;
  uint64_t at_ = 0;
  WorkOwner owner_{};
  // A word that may be the counter. Another one can have the right sum once or twice, by chance.
  struct Candidate {
    uint64_t others = 0;
    // Channel 0 without eager launches that are alone, and the others, before the first capture.
    uint64_t base = 0, base_grouped = 0;  // and without hidden Broadcasts: at 0 then
    uint32_t matches = 0;
    void SetBase(uint64_t first, const WorkLook& look) {
      base = first - look.before.alone;
      base_grouped = look.before.grouped;
    }
  };
  std::array<Candidate, kWorkWords> candidates_{};
  uint64_t words_ = 0;   // calibrating: the candidates
  uint64_t missed_ = 0;  // of these were wrong at the last quiet look that could tell
  size_t word_ = 0;      // proven: that is it
  size_t known_word_ = kNoWord;
  uint64_t hash_ = 0;          // calibrating: of all words at the last look
  bool has_counted_ = false;   // calibrating: see moved_ns
  uint64_t launched_ns_ = 0;   // when the first launch was made
  uint64_t matched_work_ = 0;  // at the last match
  LaunchedWork suspect_;       // when a quiet look was wrong
  // A look that compares replays found this of each word: the sum over channels, and channel 0.
  struct Replays {
    uint64_t now_ns = 0;
    Eager eager;
    std::array<uint64_t, kWorkWords> sum{}, first{};
  } first_replays_, replays_;  // since when words are compared; at the last match
  uint64_t replay_words_ = 0;  // that may be the counter, 0: none is compared
  uint32_t replay_matches_ = 0;
  // The last look found these.
  LaunchedWork seen_, seen_after_;
  uint64_t completed_ = 0;
  uint64_t sum_ = 0, first_ = 0;
  bool is_settled_ = false;  // all that was launched was finished, no more and no less
  bool is_finished_known_ = false;
  bool is_base_known_ = false;  // a look found it proven before calls were captured
  uint64_t others_before_capture_ = 0;
  // These tell what replays have done.
  bool are_operations_known_ = false;
  uint64_t operations_ = 0;
  uint64_t moved_ns_ = 0, longest_pause_ns_ = 0;
};

}  // namespace nccl_pulse

#endif  // PLUGIN_CUDA_WORK_PROOF_H_

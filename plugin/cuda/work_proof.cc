#include "plugin/cuda/work_proof.h"

#include <algorithm>
#include <cstring>

namespace nccl_pulse {
namespace {

uint64_t Word(const char* block, size_t channel, size_t word) {
  uint64_t value;
  std::memcpy(&value, block + kWorkChannelsAt + channel * kWorkChannelBytes + word * sizeof(value),
              sizeof(value));
  return value;
}

uint64_t Sum(const char* block, size_t word) {
  uint64_t sum = 0;
  for (size_t channel = 0; channel < kWorkChannels; ++channel) sum += Word(block, channel, word);
  return sum;
}

bool AreOthersPossible(const WorkLook& look) { return look.is_captured || look.may_hide; }

}  // namespace

bool WorkProof::IsBlock(const char* block, uint64_t at, const WorkOwner& owner) {
  int32_t head[4];  // rank, nRanks, node, nNodes
  uint64_t channels;
  std::memcpy(head, block, sizeof(head));
  std::memcpy(&channels, block + kWorkChannelsAddressAt, sizeof(channels));
  return head[0] == owner.rank && head[1] == owner.nranks && head[2] >= 0 &&
         head[2] < owner.nnodes && head[3] == owner.nnodes && channels == at + kWorkChannelsAt;
}

void WorkProof::Begin(uint64_t at, const WorkOwner& owner) {
  at_ = at;
  owner_ = owner;
  words_ = (uint64_t{1} << kWorkWords) - 1;
  state_ = WorkState::kCalibrating;
}

void WorkProof::Take(const char* block, const WorkLook& look) {
  if (!IsBlock(block, at_, owner_)) return Refute(WorkRefutal::kMoved);
  is_settled_ = false;
  is_finished_known_ = !look.is_captured && !look.has_hidden;
  if (state_ == WorkState::kCalibrating) {
    Calibrate(block, look);
  } else if (state_ == WorkState::kProven) {
    Check(block, look);
  }
  seen_ = look.before;
  seen_after_ = look.after;
  completed_ = look.completed;
}

bool WorkProof::IsSeenTwice(const WorkLook& look) {
  const bool is_again =
      suspect_.launches == look.before.launches && suspect_.work == look.before.work;
  suspect_ = look.before;
  return is_again;
}

void WorkProof::Prove(size_t word, const char* block, const WorkLook& look) {
  word_ = word;
  sum_ = Sum(block, word);
  moved_ns_ = look.now_ns;
  state_ = WorkState::kProven;
  CountOperations(Word(block, 0, word), look, false);
}

void WorkProof::CalibrateByReplays(const char* block, const WorkLook& look) {
  std::array<uint64_t, kWorkWords> sum;
  std::array<uint64_t, kWorkWords> first;
  for (size_t word = 0; word < kWorkWords; ++word) {
    sum[word] = Sum(block, word);
    first[word] = Word(block, 0, word);
  }
  Replays& last = replays_;
  const bool is_comparable = last.words != 0 && last.work == look.before.work;
  const uint64_t most_launches = (look.now_ns - last.now_ns) / kLeastLaunchNs;
  uint64_t fit = 0;
  uint64_t changed = 0;
  for (size_t word = 0; is_comparable && word < kWorkWords; ++word) {
    const uint64_t bit = uint64_t{1} << word;
    const uint64_t grown = sum[word] - last.sum[word];
    const uint64_t launches = first[word] - last.first[word];
    if (grown == 0 && launches == 0) continue;
    changed |= bit;
    // A copy may find a launch on some of its channels.
    if (launches >= kReplayedLaunches && launches <= most_launches &&
        sum[word] >= look.before.work && grown >= look.least_channels * (launches - 1) &&
        grown <= look.most_channels * (launches + 1)) {
      fit |= bit;
    }
  }
  // Too few replays since, or what changes is no counter.
  if (is_comparable && fit == 0) return;
  last.words = is_comparable ? last.words & fit : words_;
  const bool is_alone = changed == last.words && (changed & (changed - 1)) == 0;
  last.matches = is_comparable && is_alone ? last.matches + 1 : 0;
  last.work = look.before.work;
  last.now_ns = look.now_ns;
  last.sum = sum;
  last.first = first;
  if (last.matches < kReplayMatches) return;
  const auto word = static_cast<size_t>(__builtin_ctzll(last.words));
  candidates_[word].others = sum[word] - look.before.work;
  Prove(word, block, look);
}

void WorkProof::Calibrate(const char* block, const WorkLook& look) {
  if (look.most_channels != 0 && !look.is_group_captured && !look.may_hide && IsQuiet(look)) {
    CalibrateByReplays(block, look);
    if (state_ == WorkState::kProven) return;
  }
  const uint64_t work = look.before.work;
  if (!IsQuiet(look) || work == matched_work_) {
    is_settled_ = IsQuiet(look);
    return;
  }
  uint64_t fit = 0;
  size_t proven = kWorkWords;
  for (size_t word = 0; word < kWorkWords; ++word) {
    const uint64_t bit = uint64_t{1} << word;
    if ((words_ & bit) == 0) continue;
    Candidate& candidate = candidates_[word];
    const uint64_t sum = Sum(block, word);
    if (sum == candidate.others + work) {
      is_settled_ = true;
      if (++candidate.matches == kMatches) proven = word;
      if (!look.is_captured) candidate.SetBase(Word(block, 0, word), look);
    } else if (AreOthersPossible(look) && sum > candidate.others + work) {
      candidate.others = sum - work;
    } else {
      continue;
    }
    fit |= bit;
  }
  if (fit == 0) {
    if (IsSeenTwice(look)) Refute(WorkRefutal::kDiffers);
    return;
  }
  words_ = fit;
  if (is_settled_) matched_work_ = work;
  if (proven != kWorkWords) Prove(proven, block, look);
}

void WorkProof::Check(const char* block, const WorkLook& look) {
  const uint64_t sum = Sum(block, word_);
  uint64_t& others = candidates_[word_].others;
  if (sum < sum_) return Refute(WorkRefutal::kSteppedBack);
  // The launches that the last look found are complete by now.
  if (look.completed >= seen_.launches && sum < others + seen_.work) {
    return Refute(WorkRefutal::kBehind);
  }
  // An operation of a later launch was reported, so all of those that the last look could find were.
  if (!AreOthersPossible(look) && look.before.reported > seen_after_.launches &&
      sum_ > others + look.before.work) {
    return Refute(WorkRefutal::kAhead);
  }
  const bool is_exact = sum == others + look.before.work;
  const bool is_quiet = IsQuiet(look);
  const bool is_finished =
      is_finished_known_ && IsStill(look) && look.before.reported == look.before.launches;
  is_settled_ = is_exact && (is_quiet || is_finished);
  if (is_quiet && !is_exact) {
    if (sum > others + look.before.work && AreOthersPossible(look)) {
      others = sum - look.before.work;
    } else if (IsSeenTwice(look)) {
      return Refute(WorkRefutal::kDiffers);
    }
  }
  if (sum != sum_) {
    if (look.is_captured) {
      longest_pause_ns_ =
          std::max(longest_pause_ns_, std::min(look.now_ns - moved_ns_, kLongestPauseNs));
    }
    moved_ns_ = look.now_ns;
  }
  sum_ = sum;
  CountOperations(Word(block, 0, word_), look, is_quiet && is_exact);
}

void WorkProof::CountOperations(uint64_t first, const WorkLook& look, bool is_exact) {
  first_ = first;
  Candidate& counter = candidates_[word_];
  if (!look.is_captured) {
    if (is_exact) counter.SetBase(first, look);
    return;
  }
  // Without a base: from the communicator's first launch on, when the counter was 0.
  are_operations_known_ =
      !look.is_group_captured && !look.may_hide && look.after.grouped == counter.base_grouped;
  if (!are_operations_known_ || !IsReported(look)) return;
  const uint64_t eager = counter.base + look.after.alone;
  // Some of the eager launches may still be in flight.
  if (first > eager) operations_ = std::max(operations_, first - eager);
}

}  // namespace nccl_pulse

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

uint64_t Most(const char* block, size_t word) {
  uint64_t most = 0;
  for (size_t channel = 0; channel < kWorkChannels; ++channel) {
    most = std::max(most, Word(block, channel, word));
  }
  return most;
}

uint64_t HashOfWords(const char* block) {
  uint64_t hash = 0;
  for (size_t channel = 0; channel < kWorkChannels; ++channel) {
    for (size_t word = 0; word < kWorkWords; ++word) {
      hash = (hash ^ Word(block, channel, word)) * 0x9e3779b97f4a7c15;
    }
  }
  return hash;
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

void WorkProof::Begin(uint64_t at, const WorkOwner& owner, uint64_t launched_ns,
                      size_t known_word) {
  launched_ns_ = launched_ns;
  known_word_ = known_word;
  at_ = at;
  owner_ = owner;
  words_ = (uint64_t{1} << kWorkWords) - 1;
  state_ = WorkState::kCalibrating;
}

void WorkProof::Take(const char* block, const WorkLook& look) {
  if (!IsBlock(block, at_, owner_)) return Refute(WorkRefutal::kMoved);
  is_settled_ = false;
  if (state_ == WorkState::kCalibrating) {
    Calibrate(block, look);
  } else if (state_ == WorkState::kProven) {
    Check(block, look);
  }
  if (state_ == WorkState::kProven && !look.is_captured) {
    is_base_known_ = true;
    others_before_capture_ = candidates_[word_].others;
  }
  is_finished_known_ = is_base_known_ && !look.has_hidden;
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

WorkProof::Eager::Eager(const WorkLook& look)
    : least_work(look.completed_work), most_work(look.after.work) {
  const uint64_t in_flight = look.before.launches - std::min(look.completed, look.before.launches);
  least_first = look.before.alone - std::min(in_flight, look.before.alone);
  most_first = look.after.alone + look.after.grouped;
}

bool WorkProof::Fits(size_t word, const Replays& then, const Replays& now, int64_t replays,
                     uint64_t weight, const WorkLook& look) {
  const Eager& a = then.eager;
  const Eager& b = now.eager;
  const uint64_t grown = now.sum[word] - then.sum[word];
  const uint64_t grown_first = now.first[word] - then.first[word];
  const uint64_t slack = b.most_work - b.least_work + a.most_work - a.least_work;
  const uint64_t slack_first = b.most_first - b.least_first + a.most_first - a.least_first;
  // Signed: more may have been launched than was counted.
  const auto least_replayed = static_cast<int64_t>(grown - (b.most_work - a.least_work));
  const auto most_replayed = static_cast<int64_t>(grown - b.least_work + a.most_work);
  const auto least_launches = static_cast<int64_t>(grown_first - (b.most_first - a.least_first));
  const auto most_launches = static_cast<int64_t>(grown_first - b.least_first + a.most_first);
  if (least_launches < replays || weight * slack > grown || weight * slack_first > grown_first) {
    return false;
  }
  const int64_t least = look.may_hide ? 1 : look.least_channels;
  const int64_t most = look.may_hide ? int64_t{kWorkChannels} : look.most_channels;
  return grown_first <= (now.now_ns - then.now_ns) / kLeastLaunchNs &&
         most_replayed >= least * (least_launches - 1) &&
         least_replayed <= most * (most_launches + 1);
}

bool WorkProof::HasOneCounted(const Replays& now, uint64_t possible, const WorkLook& look) const {
  Replays start;
  start.now_ns = launched_ns_;
  Replays end = now;
  end.now_ns = moved_ns_;  // no word has grown since
  uint64_t fit = 0;
  for (size_t word = 0; word < kWorkWords; ++word) {
    const uint64_t bit = uint64_t{1} << word;
    if ((possible & bit) != 0 && now.first[word] >= kReplayedLaunches &&
        Fits(word, start, end, INT64_MIN, kLeastWeightAtRest, look)) {
      fit |= bit;
    }
  }
  return fit != 0 && (fit & (fit - 1)) == 0;
}

void WorkProof::CalibrateByReplays(const char* block, const WorkLook& look) {
  Replays now;
  now.now_ns = look.now_ns;
  now.eager = Eager(look);
  const bool is_comparable = replay_words_ != 0;
  uint64_t possible = 0;
  uint64_t fit = 0;
  uint64_t changed = 0;
  for (size_t word = 0; word < kWorkWords; ++word) {
    const uint64_t bit = uint64_t{1} << word;
    now.sum[word] = Sum(block, word);
    now.first[word] = Word(block, 0, word);
    if (now.sum[word] >= now.eager.least_work && now.first[word] >= now.eager.least_first &&
        // A copy may see a launch that only some of its channels have finished. An operation that
        // shares its launch need not use channel 0.
        Most(block, word) <= now.first[word] + 1 + look.after.grouped) {
      possible |= bit;
    }
    if (!is_comparable ||
        (now.sum[word] == replays_.sum[word] && now.first[word] == replays_.first[word])) {
      continue;
    }
    changed |= bit;
    if ((possible & bit) != 0 && Fits(word, replays_, now, kReplayedLaunches, 0, look)) fit |= bit;
  }
  has_counted_ |= HasOneCounted(now, possible & words_ & ~missed_, look);
  // Too few replays since then, or the changing words are no counters.
  if (is_comparable && fit == 0) return;
  replays_ = now;
  replay_words_ = (is_comparable ? replay_words_ & fit : words_) & ~missed_;
  const bool is_alone = changed == replay_words_ && (changed & (changed - 1)) == 0;
  has_counted_ |= is_comparable && is_alone;
  if (!is_comparable || !is_alone) {
    first_replays_ = now;
    replay_matches_ = 0;
    return;
  }
  const bool is_known = known_word_ != kNoWord && replay_words_ == uint64_t{1} << known_word_;
  const auto word = static_cast<size_t>(__builtin_ctzll(replay_words_));
  if (++replay_matches_ < (is_known ? kKnownWordMatches : kReplayMatches)) return;
  if (!Fits(word, first_replays_, now, kReplayedLaunches, kLeastWeight, look)) return;
  // A lower bound; a quiet poll gives the exact value.
  candidates_[word].others = now.sum[word] - std::min(now.sum[word], now.eager.most_work);
  Prove(word, block, look);
}

void WorkProof::Calibrate(const char* block, const WorkLook& look) {
  const uint64_t hash = HashOfWords(block);
  if (hash != hash_) moved_ns_ = look.now_ns;
  hash_ = hash;
  if (look.is_captured && !look.is_group_captured && IsReported(look) &&
      (look.most_channels != 0 || look.may_hide)) {
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
      has_counted_ |= candidate.others == 0;
      if (!AreOthersPossible(look)) missed_ &= ~bit;
      if (++candidate.matches == kMatches) proven = word;
      if (!look.is_captured && look.after.hidden == 0)
        candidate.SetBase(Word(block, 0, word), look);
    } else if (AreOthersPossible(look) && sum > candidate.others + work) {
      candidate.others = sum - work;
    } else {
      missed_ |= bit;
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
  // The launches found by the last poll are complete by now.
  if (look.completed >= seen_.launches && sum < others + seen_.work) {
    return Refute(WorkRefutal::kBehind);
  }
  // An operation of a later launch was reported, so all operations that the last poll could count
  // have been reported.
  if (!AreOthersPossible(look) && look.before.reported > seen_after_.launches &&
      sum_ > others + look.before.work) {
    return Refute(WorkRefutal::kAhead);
  }
  const bool is_exact = sum == others + look.before.work;
  const bool is_quiet = IsQuiet(look);
  const bool is_finished = !look.is_captured && !look.has_hidden && IsStill(look) &&
                           look.before.reported == look.before.launches;
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
    // Hidden launches may not have finished.
    if (is_exact && look.after.hidden == 0) counter.SetBase(first, look);
    return;
  }
  // Without a base: from the communicator's first launch on, when the counter was 0.
  are_operations_known_ =
      !look.is_group_captured && !look.hides_others && look.after.grouped == counter.base_grouped;
  if (!are_operations_known_ || !IsReported(look)) return;
  const uint64_t eager = counter.base + look.after.alone + look.after.hidden;
  // Some of the eager launches may still be in flight.
  if (first > eager) operations_ = std::max(operations_, first - eager);
}

}  // namespace nccl_pulse

#include "exporter/web/password_checker.h"

#include <openssl/digest.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "exporter/base/cpu_budget.h"
#include "exporter/base/time.h"
#include "exporter/web/bcrypt.h"

namespace nccl_pulse {
namespace {

// A keyed hash of a user, a bcrypt hash and a password. Only this process has the key.
using Digest = std::array<uint8_t, 32>;

// The most recent digests, oldest first.
class Memory {
 public:
  bool Has(const Digest& digest) const { return digests_.count(digest) != 0; }
  void Add(const Digest& digest) {
    if (!digests_.insert(digest).second) return;
    order_.push_back(digest);
    if (order_.size() <= PasswordChecker::kRemembered) return;
    digests_.erase(order_.front());
    order_.pop_front();
  }

 private:
  std::set<Digest> digests_;
  std::deque<Digest> order_;
};

struct Question {
  Digest digest;
  std::string hash;
  std::string password;
  PasswordChecker::Source source;
};

// Unused time of kPasswordCpuShare is saved for this long: a second of hashing.
constexpr std::chrono::seconds kBurst{20};

// Waiting passwords. Sources take turns.
class Questions {
 public:
  bool empty() const { return waiting_.empty(); }

  bool Has(const Digest& digest) const {
    return std::any_of(waiting_.begin(), waiting_.end(),
                       [&digest](const Question& each) { return each.digest == digest; });
  }

  // Returns false if there is no room: other sources have no more places than this one.
  bool Add(Question question) {
    if (waiting_.size() == PasswordChecker::kMaxQueued) {
      std::map<PasswordChecker::Source, std::size_t> places;
      for (const Question& each : waiting_) ++places[each.source];
      const auto most =
          std::max_element(places.begin(), places.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      if (places[question.source] + 1 >= most->second) return false;
      const auto newest =
          std::find_if(waiting_.rbegin(), waiting_.rend(),
                       [most](const Question& each) { return each.source == most->first; });
      waiting_.erase(std::next(newest).base());
    }
    waiting_.push_back(std::move(question));
    return true;
  }

  // Removes the oldest question of a source that has had no turn in this cycle.
  Question Take() {
    const auto next = std::find_if(waiting_.begin(), waiting_.end(), [this](const Question& each) {
      return had_turn_.count(each.source) == 0;
    });
    if (next == waiting_.end()) had_turn_.clear();
    const auto taken = next == waiting_.end() ? waiting_.begin() : next;
    Question question = std::move(*taken);
    waiting_.erase(taken);
    had_turn_.insert(question.source);
    if (had_turn_.size() > PasswordChecker::kMaxQueued) had_turn_ = {question.source};
    return question;
  }

 private:
  std::deque<Question> waiting_;
  std::set<PasswordChecker::Source> had_turn_;
};

}  // namespace

struct PasswordChecker::Shared {
  Shared() {
    verdicts.Open();
    RAND_bytes(key.data(), key.size());
  }

  Digest DigestOf(const std::string& user, const std::string& hash,
                  std::string_view password) const;
  void Loop();

  Wake verdicts;
  std::array<uint8_t, 32> key;
  std::mutex mutex;  // guards the members below; never held while hashing
  std::condition_variable changed;
  Questions questions;
  Digest checked{};  // being checked now
  Memory right;
  Memory wrong;
  bool stopping = false;
};

// Unambiguous: a hash has a fixed length, and a name has no colon.
Digest PasswordChecker::Shared::DigestOf(const std::string& user, const std::string& hash,
                                         std::string_view password) const {
  const std::string text = hash + user + ":" + std::string(password);
  Digest digest{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), key.size(), reinterpret_cast<const uint8_t*>(text.data()),
       text.size(), digest.data(), &size);
  return digest;
}

void PasswordChecker::Shared::Loop() {
  CpuBudget budget(kPasswordCpuShare, kBurst, MonotonicNow());
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stopping || !questions.empty(); });
    while (!stopping && !budget.Allows(MonotonicNow())) {
      changed.wait_until(lock, budget.allows_from());
    }
    if (stopping) return;
    const Question question = questions.Take();
    checked = question.digest;
    lock.unlock();
    const auto used_before = ThreadCpuTime();
    const bool matches = MatchesBcrypt(question.hash, question.password);
    budget.Spend(ThreadCpuTime() - used_before, MonotonicNow());
    lock.lock();
    (matches ? right : wrong).Add(question.digest);
    checked = {};
    verdicts.Signal();
  }
}

PasswordChecker::PasswordChecker() : shared_(std::make_shared<Shared>()) {}

PasswordChecker::~PasswordChecker() {
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_one();
}

const Wake& PasswordChecker::verdicts() const { return shared_->verdicts; }

PasswordChecker::Verdict PasswordChecker::Check(const std::string& user, const std::string& hash,
                                                std::string_view password, Source source) {
  const Digest digest = shared_->DigestOf(user, hash, password);
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  if (shared_->right.Has(digest)) return Verdict::kRight;
  if (shared_->wrong.Has(digest)) return Verdict::kWrong;
  if (shared_->checked == digest || shared_->questions.Has(digest)) return Verdict::kPending;
  if (!shared_->questions.Add({digest, hash, std::string(password), source})) {
    return Verdict::kPending;
  }
  if (!started_) {
    std::thread thread([shared = shared_] {
      pthread_setname_np(pthread_self(), "pulse-passwords");
      shared->Loop();
    });
    thread.detach();
    started_ = true;
  }
  shared_->changed.notify_one();
  return Verdict::kPending;
}

}  // namespace nccl_pulse

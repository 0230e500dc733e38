#include "exporter/web/password_checker.h"

#include <openssl/digest.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <pthread.h>

#include <array>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "exporter/web/bcrypt.h"

namespace nccl_pulse {
namespace {

// A keyed hash of a user, a hash and a password. Only this process has the key.
using Digest = std::array<uint8_t, 32>;

// The most recent ones, oldest first.
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
  std::mutex mutex;  // guards what follows; never held while a password is hashed
  std::condition_variable changed;
  std::deque<Question> questions;  // the first one is being checked
  Memory right;
  Memory wrong;
  bool stopping = false;
};

// A hash has a fixed length and a name has no colon, so no two triples make the same text.
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
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stopping || !questions.empty(); });
    if (stopping) return;
    const Question& question = questions.front();  // the first element of a deque does not move
    lock.unlock();
    const bool matches = MatchesBcrypt(question.hash, question.password);
    lock.lock();
    (matches ? right : wrong).Add(question.digest);
    questions.pop_front();
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
                                                std::string_view password) {
  const Digest digest = shared_->DigestOf(user, hash, password);
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  if (shared_->right.Has(digest)) return Verdict::kRight;
  if (shared_->wrong.Has(digest)) return Verdict::kWrong;
  for (const Question& question : shared_->questions) {
    if (question.digest == digest) return Verdict::kPending;
  }
  if (shared_->questions.size() >= kMaxQueued) return Verdict::kPending;
  if (!started_) {
    std::thread thread([shared = shared_] {
      pthread_setname_np(pthread_self(), "pulse-passwords");
      shared->Loop();
    });
    thread.detach();
    started_ = true;
  }
  shared_->questions.push_back({digest, hash, std::string(password)});
  shared_->changed.notify_one();
  return Verdict::kPending;
}

}  // namespace nccl_pulse

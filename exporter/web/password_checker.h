// Checks passwords against bcrypt hashes without blocking the server. bcrypt takes 60 ms and more
// by design, so it runs on a thread of its own, one password at a time, and its answers are
// remembered.
//
// The last kRemembered right passwords and as many wrong ones are remembered, apart from each
// other: guesses do not push out a scraper that is let in every time. What is kept is a keyed
// digest, never a password.
//
// Guesses cost kPasswordCpuShare of a core at most, after a burst that lets all scrapers of a node in
// at once. Sources take turns, and share kMaxQueued places: when these are taken, the source with the
// most gives one to a source with fewer. So whoever guesses from one host delays a newcomer from
// another by one password. More are not taken until there is room.
//
// Thread: one calls the methods, the server's. The checker's own thread starts with the first
// password; it is not waited for at the end, when it may be in the middle of one.
#ifndef EXPORTER_WEB_PASSWORD_CHECKER_H_
#define EXPORTER_WEB_PASSWORD_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "exporter/http/wake.h"

namespace nccl_pulse {

// A share of one core. `pulse agent` takes it from the share of its server.
inline constexpr double kPasswordCpuShare = 0.05;

class PasswordChecker {
 public:
  enum class Verdict { kRight, kWrong, kPending };
  // The host that asks. Any number: it only has to differ between hosts.
  using Source = uint64_t;

  static constexpr std::size_t kRemembered = 128;
  static constexpr std::size_t kMaxQueued = 32;

  PasswordChecker();
  ~PasswordChecker();
  PasswordChecker(const PasswordChecker&) = delete;
  PasswordChecker& operator=(const PasswordChecker&) = delete;

  // kPending: ask again after the next of verdicts(). Microseconds.
  // `user`: what is found out for one says nothing about another, not even by the time it takes.
  Verdict Check(const std::string& user, const std::string& hash, std::string_view password,
                Source source);

  // Signalled at each one; closed when the system refused it.
  const Wake& verdicts() const;

 private:
  struct Shared;

  const std::shared_ptr<Shared> shared_;
  bool started_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_PASSWORD_CHECKER_H_

// PasswordChecker checks passwords against bcrypt hashes without blocking the server. bcrypt takes
// 60 ms and more by design. So it runs on a separate thread, one password at a time, and results
// are remembered.
//
// The last kRemembered right passwords and as many wrong ones are remembered separately, so that
// guesses do not evict a scraper's password. Keeps keyed digests of them, never passwords.
//
// Hashing takes at most kPasswordCpuShare of a core, after a burst that admits all scrapers of a
// node at once. At most kMaxQueued passwords wait. The hosts that sent them (sources) take turns,
// so guesses from one host delay another host by one password. When all places are taken, the
// source with most waiting passwords loses one to a source with fewer; other passwords are not
// accepted until there is room.
//
// Thread: methods on the server thread only. The first password starts the checker's own thread.
// The destructor does not wait for it, since it may be hashing.
#ifndef EXPORTER_WEB_PASSWORD_CHECKER_H_
#define EXPORTER_WEB_PASSWORD_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "exporter/http/wake.h"

namespace nccl_pulse {

// Fraction of one core. `pulse agent` takes it from its server's share.
inline constexpr double kPasswordCpuShare = 0.05;

class PasswordChecker {
 public:
  enum class Verdict { kRight, kWrong, kPending };
  // The requesting host: any number that differs between hosts.
  using Source = uint64_t;

  static constexpr std::size_t kRemembered = 128;
  static constexpr std::size_t kMaxQueued = 32;

  PasswordChecker();
  ~PasswordChecker();
  PasswordChecker(const PasswordChecker&) = delete;
  PasswordChecker& operator=(const PasswordChecker&) = delete;

  // Checks a password. kPending: check again when verdicts() is signaled. Takes microseconds. A
  // result for one user reveals nothing about another user, not even by its timing.
  Verdict Check(const std::string& user, const std::string& hash, std::string_view password,
                Source source);

  // Returns the signal of each new verdict. It is closed if the system refused its sockets.
  const Wake& verdicts() const;

 private:
  struct Shared;

  const std::shared_ptr<Shared> shared_;
  bool started_ = false;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_PASSWORD_CHECKER_H_

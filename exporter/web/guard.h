// The agent's web configuration at work: TLS, passwords and headers of exporter/web/config.h, and
// reading them again while clients are served.
//
// Thread: Open and Reload the program's main one, the rest the server's.
#ifndef EXPORTER_WEB_GUARD_H_
#define EXPORTER_WEB_GUARD_H_

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "exporter/base/log_level.h"
#include "exporter/http/guard.h"
#include "exporter/web/password_checker.h"
#include "exporter/web/tls.h"

namespace nccl_pulse {

class WebGuard : public Guard {
 public:
  // Null, with a message that names the file and what is wrong with it in `error`.
  static std::unique_ptr<WebGuard> Open(const std::string& path, LogFunction log,
                                        std::string* error);

  // Reads the file again, and all files that it names. Clients that come from then on get what is
  // in there; those that are connected keep their TLS, and need the new passwords. False, with the
  // reason in `error`, when something is wrong with it: then nothing changes at all. Whether TLS is
  // spoken cannot change, since Prometheus was told.
  bool Reload(std::string* error);

  bool is_https() const override { return is_https_; }
  std::unique_ptr<Transport> MakeTransport(int fd) override;
  Verdict Check(std::string_view authorization, int fd) override;
  const Wake& verdicts() const override { return checker_.verdicts(); }
  std::string headers() const override;

 private:
  struct Settings;

  WebGuard(std::string path, LogFunction log);
  std::shared_ptr<const Settings> Read(std::string* error) const;
  std::shared_ptr<const Settings> settings() const;

  const std::string path_;
  const LogFunction log_;
  bool is_https_ = false;
  HandshakeLog handshake_log_;
  PasswordChecker checker_;
  mutable std::mutex mutex_;  // of the pointer
  std::shared_ptr<const Settings> settings_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_GUARD_H_

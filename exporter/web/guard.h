// WebGuard applies the web configuration of `pulse agent` and `pulse watch`
// (exporter/web/config.h): TLS, passwords and headers. Reload works while clients are served.
//
// Thread: Open and Reload on the program's main thread, the rest on the server thread.
#ifndef EXPORTER_WEB_GUARD_H_
#define EXPORTER_WEB_GUARD_H_

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "exporter/base/log.h"
#include "exporter/http/guard.h"
#include "exporter/web/password_checker.h"
#include "exporter/web/tls.h"

namespace nccl_pulse {

class WebGuard : public Guard {
 public:
  // Returns null, with the file and the reason in `error`, if the configuration is invalid.
  static std::unique_ptr<WebGuard> Open(const std::string& path, LogFunction log,
                                        std::string* error);

  // Reads the file and all files named in it again. New clients get the new configuration.
  // Connected clients keep their TLS, but need the new passwords. Returns false, with the reason in
  // `error`, if anything is invalid; then nothing changes. TLS cannot be switched on or off, since
  // Prometheus is configured with http or https.
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
  mutable std::mutex mutex_;  // guards settings_
  std::shared_ptr<const Settings> settings_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_GUARD_H_

// Replaces guard.cc and its dependencies in builds with --//exporter/web:with_tls=false. Refuses
// every configuration, so that no user believes that passwords are required.
#include "absl/strings/str_cat.h"
#include "exporter/web/guard.h"

namespace nccl_pulse {

struct WebGuard::Settings {};

std::unique_ptr<WebGuard> WebGuard::Open(const std::string& path, LogFunction, std::string* error) {
  *error = absl::StrCat("web configuration ", path,
                        ": this program was built without TLS and passwords (--config=demo). Build "
                        "it without that option");
  return nullptr;
}

// Never called, since Open returns no guard. Needed by the linker.

bool WebGuard::Reload(std::string*) { return false; }
std::unique_ptr<Transport> WebGuard::MakeTransport(int) { return nullptr; }
Guard::Verdict WebGuard::Check(std::string_view, int) { return Verdict::kRefused; }
std::string WebGuard::headers() const { return ""; }

struct PasswordChecker::Shared {};
PasswordChecker::~PasswordChecker() = default;
const Wake& PasswordChecker::verdicts() const {
  static const Wake kNone;
  return kNone;
}

}  // namespace nccl_pulse

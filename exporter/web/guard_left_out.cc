// A build with --//exporter/web:with_tls=false has this in place of guard.cc, and of all that it
// stands on. A configuration is refused, whatever it says: nobody must
// believe that passwords are asked for.
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

// There is no guard, so nobody calls what follows. The linker wants it.

bool WebGuard::Reload(std::string*) { return false; }
std::unique_ptr<Transport> WebGuard::MakeTransport(int) { return nullptr; }
Guard::Verdict WebGuard::Check(std::string_view, int) { return Verdict::kRefused; }
std::string WebGuard::headers() const { return ""; }

struct PasswordChecker::Shared {};
PasswordChecker::~PasswordChecker() = default;
const Wake& PasswordChecker::verdicts() const {
  static const Wake none;
  return none;
}

}  // namespace nccl_pulse

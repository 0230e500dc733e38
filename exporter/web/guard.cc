#include "exporter/web/guard.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "exporter/web/config.h"

namespace nccl_pulse {
namespace {

// Parses "Basic dXNlcjpwYXNzd29yZA==" (RFC 7617).
bool ParseBasic(std::string_view authorization, std::string* user, std::string* password) {
  constexpr std::string_view kBasic = "basic ";
  if (!absl::StartsWithIgnoreCase(authorization, kBasic)) return false;
  std::string text;
  if (!absl::Base64Unescape(authorization.substr(kBasic.size()), &text)) return false;
  const std::size_t colon = text.find(':');
  if (colon == text.npos) return false;
  *user = text.substr(0, colon);
  *password = text.substr(colon + 1);
  return true;
}

// Identifies the client's host: by its IPv4 address, its IPv6 network (/64), which one host owns,
// or its user on a Unix socket.
PasswordChecker::Source SourceOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&address)->sin_addr.s_addr;
  }
  if (address.ss_family == AF_INET6) {
    const in6_addr& ip = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
    PasswordChecker::Source source = 0;
    if (IN6_IS_ADDR_V4MAPPED(&ip)) {
      std::memcpy(&source, &ip.s6_addr[12], 4);
    } else {
      std::memcpy(&source, &ip.s6_addr[0], 8);
    }
    return source;
  }
  ucred peer{};
  size = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.uid : 0;
}

}  // namespace

struct WebGuard::Settings {
  std::shared_ptr<const TlsContext> tls;
  std::string headers;
  std::map<std::string, std::string> users;
};

WebGuard::WebGuard(std::string path, LogFunction log)
    : path_(std::move(path)), log_(log), handshake_log_(std::move(log)) {}

std::unique_ptr<WebGuard> WebGuard::Open(const std::string& path, LogFunction log,
                                         std::string* error) {
  std::unique_ptr<WebGuard> guard(new WebGuard(path, std::move(log)));
  guard->settings_ = guard->Read(error);
  if (guard->settings_ == nullptr) return nullptr;
  guard->is_https_ = guard->settings_->tls != nullptr;
  if (guard->verdicts().fd() < 0) {
    *error = "cannot open a pair of sockets";
    return nullptr;
  }
  return guard;
}

std::shared_ptr<const WebGuard::Settings> WebGuard::Read(std::string* error) const {
  WebConfig config;
  if (!ReadWebConfig(path_, &config, error)) return nullptr;
  auto settings = std::make_shared<Settings>();
  if (config.tls.has_value()) {
    settings->tls = TlsContext::Make(*config.tls, &config.notes, error);
    if (settings->tls == nullptr) {
      *error = absl::StrCat("web configuration ", path_, ": ", *error);
      return nullptr;
    }
  }
  settings->headers = std::move(config.headers);
  settings->users = std::move(config.users);
  for (const std::string& note : config.notes) {
    log_(LogLevel::kWarning, absl::StrCat("web configuration ", path_, ": ", note));
  }
  return settings;
}

bool WebGuard::Reload(std::string* error) {
  std::shared_ptr<const Settings> settings = Read(error);
  if (settings == nullptr) return false;
  if ((settings->tls != nullptr) != is_https_) {
    *error = absl::StrCat("web configuration ", path_, ": tls_server_config was ",
                          is_https_ ? "removed" : "added", ", which needs a restart");
    return false;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  settings_ = std::move(settings);
  return true;
}

std::shared_ptr<const WebGuard::Settings> WebGuard::settings() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return settings_;
}

std::unique_ptr<Transport> WebGuard::MakeTransport(int fd) {
  const std::shared_ptr<const Settings> current = settings();
  return current->tls != nullptr ? current->tls->Accept(fd, &handshake_log_) : nullptr;
}

std::string WebGuard::headers() const { return settings()->headers; }

Guard::Verdict WebGuard::Check(std::string_view authorization, int fd) {
  const std::shared_ptr<const Settings> current = settings();
  if (current->users.empty()) return Verdict::kGranted;
  std::string name;
  std::string password;
  if (!ParseBasic(authorization, &name, &password)) return Verdict::kRefused;
  // An unknown name takes as long as a known one.
  const auto user = current->users.find(name);
  const bool known = user != current->users.end();
  switch (checker_.Check(name, known ? user->second : current->users.begin()->second, password,
                         SourceOf(fd))) {
    case PasswordChecker::Verdict::kRight:
      return known ? Verdict::kGranted : Verdict::kRefused;
    case PasswordChecker::Verdict::kWrong:
      return Verdict::kRefused;
    case PasswordChecker::Verdict::kPending:
      return Verdict::kPending;
  }
  return Verdict::kRefused;
}

}  // namespace nccl_pulse

#include "exporter/cli/status_endpoint.h"

#include <fstream>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace nccl_pulse {
namespace {

constexpr std::string_view kDefaultHost = "localhost";
constexpr std::string_view kDefaultPort = "9410";

bool IsPort(std::string_view text) {
  int number = 0;
  return absl::SimpleAtoi(text, &number) && number >= 1 && number <= 65535;
}

// "host:port" from what people write, without scheme. "" if it is not an address.
std::string HostAndPort(std::string_view text) {
  text = text.substr(0, text.find('/'));
  if (IsPort(text)) return absl::StrCat(kDefaultHost, ":", text);
  std::string_view host = text;
  std::string_view port = kDefaultPort;
  const std::size_t colon = text.rfind(':');
  const bool is_bare_ipv6 =
      !absl::EndsWith(text, "]") && !absl::StartsWith(text, "[") && text.find(':') != colon;
  if (is_bare_ipv6) return "";
  if (colon != text.npos && !absl::EndsWith(text, "]")) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (!IsPort(port)) return "";
  }
  if (host.find_first_of(" @?#") != host.npos) return "";
  return absl::StrCat(host.empty() ? kDefaultHost : host, ":", port);
}

}  // namespace

bool FindStatusEndpoint(const std::string& address, const StatusSecrets& secrets,
                        StatusEndpoint* endpoint, std::string* error) {
  std::string_view rest = address;
  bool is_secure = absl::ConsumePrefix(&rest, "https://");
  if (!is_secure) absl::ConsumePrefix(&rest, "http://");
  if (absl::StartsWith(rest, "unix:/")) {
    endpoint->address = std::string(rest);
  } else {
    endpoint->address =
        address.empty() ? absl::StrCat(kDefaultHost, ":", kDefaultPort) : HostAndPort(rest);
  }
  if (endpoint->address.empty()) {
    *error = absl::StrCat(
        "\"", address, "\" is not an endpoint: write host:port, https://host:port or unix:/path");
    return false;
  }
  is_secure = is_secure || !secrets.tls.ca_file.empty() || !secrets.tls.cert_file.empty() ||
              !secrets.tls.key_file.empty() || !secrets.tls.name.empty();
  if (is_secure) {
    std::shared_ptr<const TlsClient> client = TlsClient::Make(secrets.tls, error);
    if (client == nullptr) return false;
    endpoint->access.secure = [client = std::move(client)](int fd, const std::string& host) {
      return client->Connect(fd, host);
    };
  }
  if (secrets.user.empty() != secrets.password_file.empty()) {
    *error = "--user and --password-file belong together";
    return false;
  }
  if (secrets.user.empty()) return true;
  std::ifstream file(secrets.password_file);
  std::string password;
  if (!std::getline(file, password)) {
    *error =
        absl::StrCat("--password-file=", secrets.password_file, ": cannot be read, or is empty");
    return false;
  }
  absl::StripTrailingAsciiWhitespace(&password);
  endpoint->access.authorization =
      absl::StrCat("Basic ", absl::Base64Escape(absl::StrCat(secrets.user, ":", password)));
  return true;
}

}  // namespace nccl_pulse

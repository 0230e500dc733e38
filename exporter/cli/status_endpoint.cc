#include "exporter/cli/status_endpoint.h"

#include <fstream>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "exporter/cli/local_endpoints.h"

namespace nccl_pulse {
namespace {

constexpr std::size_t kMostBytes = std::size_t{512} << 20;

// False when it is none: `error` says why.
bool ReadAddress(std::string_view text, bool is_secure, Address* address, std::string* error) {
  if (absl::StartsWith(text, "unix:/")) {
    *address = LocalAddress(0, is_secure);
    address->unix_path = std::string(text.substr(text.find('/')));
    return true;
  }
  text = text.substr(0, text.find('/'));
  // "9410" is a port of this machine, like ":9410".
  const bool is_port = text.find_first_not_of("0123456789") == text.npos;
  if (!ParseAddress(is_port ? absl::StrCat(text.empty() ? "localhost" : ":", text) : text,
                    is_secure, address, error)) {
    return false;
  }
  if (!address->has_port) address->port = kDefaultEndpointPort;
  return true;
}

}  // namespace

bool FindStatusEndpoint(const std::string& address, const StatusSecrets& secrets,
                        StatusEndpoint* endpoint, std::string* error) {
  std::string_view rest = address;
  bool is_secure = absl::ConsumePrefix(&rest, "https://");
  if (!is_secure) absl::ConsumePrefix(&rest, "http://");
  is_secure = is_secure || !secrets.tls.ca_file.empty() || !secrets.tls.cert_file.empty() ||
              !secrets.tls.key_file.empty() || !secrets.tls.name.empty();
  if (!ReadAddress(rest, is_secure, &endpoint->address, error)) {
    *error = absl::StrCat(*error, ": write host:port, https://host:port or unix:/path");
    return false;
  }
  FleetClientOptions& client = endpoint->client;
  client.most_bytes = client.most_unpacked_bytes = kMostBytes;
  client.most_at_once = 1;
  if (is_secure) {
    client.tls = TlsClient::Make(secrets.tls, error);
    if (client.tls == nullptr) return false;
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
  client.authorization =
      absl::StrCat("Basic ", absl::Base64Escape(absl::StrCat(secrets.user, ":", password)));
  return true;
}

}  // namespace nccl_pulse

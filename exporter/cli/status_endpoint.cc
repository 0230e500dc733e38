#include "exporter/cli/status_endpoint.h"

#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "exporter/cli/fleet_flags.h"
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

bool FindStatusEndpoint(const std::string& address, bool is_https, const FleetClientOptions& client,
                        StatusEndpoint* endpoint, std::string* error) {
  std::string_view rest = address;
  bool is_secure = absl::ConsumePrefix(&rest, "https://");
  if (!is_secure) is_secure = !absl::ConsumePrefix(&rest, "http://") && is_https;
  if (!ReadAddress(rest, is_secure, &endpoint->address, error)) {
    *error = absl::StrCat(*error, ": write host:port, https://host:port or unix:/path");
    return false;
  }
  endpoint->client = client;
  endpoint->client.most_bytes = endpoint->client.most_unpacked_bytes = kMostBytes;
  endpoint->client.most_at_once = 1;
  FleetQuestion question;
  question.endpoints = {endpoint->address};
  question.client = client;
  return HasAuthorities(question, error);
}

}  // namespace nccl_pulse

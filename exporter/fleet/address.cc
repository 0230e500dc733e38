#include "exporter/fleet/address.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace nccl_pulse {

std::string Address::name() const {
  if (!unix_path.empty()) return absl::StrCat("unix:", unix_path);
  return host.find(':') == host.npos ? absl::StrCat(host, ":", port)
                                     : absl::StrCat("[", host, "]:", port);
}

std::string PercentEncoded(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      encoded += c;
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" ||
         (absl::StartsWith(host, "127.") && host.find_first_not_of("0123456789.") == host.npos);
}

bool ParseAddress(std::string_view text, bool otherwise_https, Address* address,
                  std::string* error) {
  *address = Address();
  const std::string_view whole = text;
  const auto fail = [&](std::string_view what) {
    *error = absl::StrCat("\"", whole, "\": ", what);
    return false;
  };
  address->is_https = otherwise_https;
  address->has_port = absl::StrContains(text, "://");
  if (absl::ConsumePrefix(&text, "https://")) {
    address->is_https = true;
  } else if (absl::ConsumePrefix(&text, "http://")) {
    address->is_https = false;
  } else if (absl::StrContains(text, "://")) {
    return fail("neither http nor https");
  }
  const std::size_t slash = text.find('/');
  if (slash != text.npos) {
    std::string_view path = text.substr(slash);
    while (absl::ConsumeSuffix(&path, "/")) {
    }
    address->path = std::string(path);
    text = text.substr(0, slash);
  }
  const bool has_odd = std::any_of(whole.begin(), whole.end(), [](char c) {
    return c <= ' ' || c == '\x7f' || c == '?' || c == '#';
  });
  if (has_odd) return fail("has a character that an address cannot have");
  if (absl::StrContains(text, '@'))
    return fail("write credentials into a file (--credentials-file)");
  std::size_t colon = text.rfind(':');
  const std::size_t bracket = text.rfind(']');
  if (colon != text.npos && bracket != text.npos && colon < bracket) colon = text.npos;
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ':')) {
    return fail("write an IPv6 address in brackets: [::1]:9410");
  }
  address->host = host.empty() ? "localhost" : std::string(host);
  if (text.empty()) return fail("no host");
  int port = address->is_https ? 443 : 80;
  if (colon != text.npos) {
    address->has_port = true;
    if (!absl::SimpleAtoi(text.substr(colon + 1), &port)) return fail("the port is not a number");
  }
  if (port < 1 || port > 65535) return fail("the port is not between 1 and 65535");
  address->port = static_cast<uint16_t>(port);
  return true;
}

bool ParseEndpointAddress(std::string_view text, bool otherwise_https, uint16_t otherwise_port,
                          Address* address, std::string* error) {
  text = absl::StripAsciiWhitespace(text);
  std::string_view socket = text;
  if (absl::ConsumePrefix(&socket, "unix:") && absl::StartsWith(socket, "/")) {
    *address = Address();
    address->is_https = otherwise_https;
    address->host = "localhost";
    address->unix_path = std::string(socket);
    return true;
  }
  const bool is_port = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  std::string url(text.substr(0, text.find_first_of("?#")));
  if (is_port) url.insert(0, ":");
  if (!ParseAddress(url, otherwise_https, address, error)) {
    absl::StrAppend(error, ": write HOST:PORT, https://HOST:PORT or unix:/PATH");
    return false;
  }
  for (const std::string_view page : {"/metrics", "/api/v1", "/healthz"}) {
    const std::size_t at = absl::StrCat(address->path, "/").rfind(absl::StrCat(page, "/"));
    if (at != std::string::npos) address->path.erase(at);
  }
  if (!address->has_port) address->port = otherwise_port;
  return true;
}

}  // namespace nccl_pulse

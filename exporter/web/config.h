// Reads a web configuration: YAML in the format of Prometheus' exporter-toolkit
// (web-configuration.md of prometheus/exporter-toolkit), so that a site's existing files also work
// here.
//
// Unsupported settings are errors that name the setting: a security setting must not be ignored
// silently.
//
// Thread: any, no state. Cost: reads the file, but not the certificates and keys that it names.
// Errors: a message with the file, the line, the key and what is accepted.
#ifndef EXPORTER_WEB_CONFIG_H_
#define EXPORTER_WEB_CONFIG_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace nccl_pulse {

enum class ClientAuth {
  kNone,           // NoClientCert
  kRequest,        // requested, not verified
  kRequireAny,     // required, not verified
  kVerifyIfGiven,  // VerifyClientCertIfGiven
  kVerify          // RequireAndVerifyClientCert
};

struct TlsConfig {
  // Paths: absolute, or relative to the working directory.
  std::string cert_file;
  std::string key_file;
  std::string client_ca_file;
  ClientAuth client_auth = ClientAuth::kNone;
  std::vector<std::string> client_allowed_sans;  // empty: any name
  uint16_t min_version = 0x0303;                 // encoded as in TLS: 1.2
  uint16_t max_version = 0x0304;                 // 1.3
  std::vector<std::string> cipher_suites;        // of TLS up to 1.2; empty: the library's default
  std::vector<std::string> curves;               // by the library's names; empty: its default
  bool prefer_server_cipher_suites = true;
};

struct WebConfig {
  std::optional<TlsConfig> tls;
  std::string headers;                       // header lines of responses, each with its CR LF
  std::map<std::string, std::string> users;  // bcrypt hashes by user; empty: no passwords
  std::vector<std::string> notes;            // ignored settings, and why
};

// On failure returns false and sets `error`.
bool ReadWebConfig(const std::string& path, WebConfig* config, std::string* error);

// Limit for the size of each file of configuration, certificates, keys, passwords and tokens.
inline constexpr std::size_t kMostSecretBytes = 1 << 20;

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_CONFIG_H_

// The agent's web configuration: a YAML file in the format of Prometheus' exporter-toolkit
// (web-configuration.md of prometheus/exporter-toolkit), so that what a site has written for its
// other exporters serves here, too.
//
// A setting that this endpoint does not support is refused by name, not ignored: nobody must find
// out later that a setting for security did nothing.
//
// Thread: any, no state. Cost: reads the file; the files that it names are read by whoever uses
// them. Errors: a message with the file, the line, the key and what is accepted.
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
  kRequest,        // RequestClientCert: asked for, not verified
  kRequireAny,     // RequireAnyClientCert: must be there, not verified
  kVerifyIfGiven,  // VerifyClientCertIfGiven
  kVerify          // RequireAndVerifyClientCert
};

struct TlsConfig {
  // Absolute, or relative to the working directory as the configuration's own path is.
  std::string cert_file;
  std::string key_file;
  std::string client_ca_file;
  ClientAuth client_auth = ClientAuth::kNone;
  std::vector<std::string> client_allowed_sans;  // none: every name will do
  uint16_t min_version = 0x0303;                 // as TLS spells them: 1.2
  uint16_t max_version = 0x0304;                 // 1.3
  std::vector<std::string> cipher_suites;        // below TLS 1.3; none: the library's choice
  std::vector<std::string> curves;               // as the library spells them; none: its choice
  bool prefer_server_cipher_suites = true;
};

struct WebConfig {
  std::optional<TlsConfig> tls;
  std::string headers;                       // lines for the head of a response, with their CR LF
  std::map<std::string, std::string> users;  // bcrypt hashes; none: everybody is admitted
  std::vector<std::string> notes;            // what is ignored, and why
};

bool ReadWebConfig(const std::string& path, WebConfig* config, std::string* error);

// Limit for each file of configuration, certificates, keys, passwords and tokens.
inline constexpr std::size_t kMostSecretBytes = 1 << 20;

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_CONFIG_H_

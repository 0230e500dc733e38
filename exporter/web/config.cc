#include "exporter/web/config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "exporter/base/files.h"
#include "exporter/web/bcrypt_hash.h"

namespace nccl_pulse {
namespace {

// A word of the configuration, and its value.
template <typename T>
struct Word {
  std::string_view name;
  T value;
};

constexpr Word<uint16_t> kVersions[] = {
    {"TLS10", 0x0301}, {"TLS11", 0x0302}, {"TLS12", 0x0303}, {"TLS13", 0x0304}};

constexpr Word<ClientAuth> kClientAuths[] = {
    {"NoClientCert", ClientAuth::kNone},
    {"RequestClientCert", ClientAuth::kRequest},
    {"RequireAnyClientCert", ClientAuth::kRequireAny},
    {"VerifyClientCertIfGiven", ClientAuth::kVerifyIfGiven},
    {"RequireAndVerifyClientCert", ClientAuth::kVerify}};

constexpr Word<std::string_view> kCurves[] = {
    {"CurveP256", "P-256"}, {"CurveP384", "P-384"}, {"CurveP521", "P-521"}, {"X25519", "X25519"}};

// Suites of TLS 1.3, which cannot be configured. Accepted because full lists of suites contain
// them.
constexpr std::string_view kTls13Suites[] = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384",
                                             "TLS_CHACHA20_POLY1305_SHA256"};

// Names in the configuration, and in the TLS library.
constexpr Word<std::string_view> kSuites[] = {
    {"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"},
    {"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"},
    {"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"},
    {"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"},
    {"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"},
    {"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"},
    {"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "ECDHE-ECDSA-AES128-SHA"},
    {"TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "ECDHE-RSA-AES128-SHA"},
    {"TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "ECDHE-ECDSA-AES256-SHA"},
    {"TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", "ECDHE-RSA-AES256-SHA"},
    {"TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"},
    {"TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"},
    {"TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"},
    {"TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"}};

// An error and its position. Thrown within this file only.
struct Problem {
  YAML::Mark mark;
  std::string message;
};

[[noreturn]] void Fail(const YAML::Node& node, std::string message) {
  throw Problem{node.Mark(), std::move(message)};
}

std::string Quote(std::string_view text) {
  // A misplaced value may be a secret, or very long.
  return text.size() <= 60 ? absl::StrCat("\"", text, "\"")
                           : absl::StrCat("\"", text.substr(0, 60), "...\"");
}

std::string Text(const YAML::Node& node, const std::string& key) {
  if (node.IsNull()) return "";
  if (!node.IsScalar()) Fail(node, absl::StrCat(key, ": text is expected here"));
  return node.Scalar();
}

bool Boolean(const YAML::Node& node, const std::string& key) {
  bool value = false;
  if (!node.IsScalar() || !YAML::convert<bool>::decode(node, value)) {
    Fail(node, absl::StrCat(key, ": true or false is expected here"));
  }
  return value;
}

template <typename T, std::size_t kCount>
T Choice(const YAML::Node& node, const std::string& key, const Word<T> (&words)[kCount]) {
  const std::string text = Text(node, key);
  for (const Word<T>& word : words) {
    if (word.name == text) return word.value;
  }
  Fail(node, absl::StrCat(key, ": ", Quote(text), " is none of ",
                          absl::StrJoin(words, ", ", [](std::string* out, const Word<T>& word) {
                            out->append(word.name);
                          })));
}

std::vector<YAML::Node> List(const YAML::Node& node, const std::string& key) {
  if (node.IsNull()) return {};
  if (!node.IsSequence()) Fail(node, absl::StrCat(key, ": a list is expected here"));
  return {node.begin(), node.end()};
}

using Reader = std::function<void(const YAML::Node& value, const std::string& key)>;
using Readers = std::vector<std::pair<std::string_view, Reader>>;
// Keys of other endpoints, and what to use instead.
using Unsupported = std::map<std::string_view, std::string_view>;

// Calls the reader of each key of a mapping. Unknown and repeated keys are errors. `name`: path of
// the mapping, "" for the top.
void ReadMapping(const YAML::Node& node, const std::string& name, const Readers& readers,
                 const Unsupported& unsupported = {}) {
  if (node.IsNull()) return;
  if (!node.IsMap()) {
    Fail(node, absl::StrCat(name.empty() ? "the file" : name, ": keys and values are expected"));
  }
  std::set<std::string> seen;
  for (const auto& entry : node) {
    const std::string word = Text(entry.first, name.empty() ? "a key" : name);
    const std::string key = name.empty() ? word : absl::StrCat(name, ".", word);
    if (!seen.insert(word).second) Fail(entry.first, absl::StrCat(key, " is there twice"));
    const auto instead = unsupported.find(word);
    if (instead != unsupported.end()) {
      Fail(entry.first, absl::StrCat(key, " is not supported: ", instead->second));
    }
    const auto reader = std::find_if(readers.begin(), readers.end(),
                                     [&word](const auto& pair) { return pair.first == word; });
    if (reader == readers.end()) {
      Fail(entry.first, absl::StrCat("unknown key ", key, "; there may be ",
                                     absl::StrJoin(readers, ", ", [](auto* out, const auto& pair) {
                                       out->append(pair.first);
                                     })));
    }
    reader->second(entry.second, key);
  }
}

class ConfigReader {
 public:
  ConfigReader(std::string directory, WebConfig* config)
      : directory_(std::move(directory)), config_(config) {}

  void Read(const YAML::Node& root) {
    if (!root.IsDefined() || root.IsNull()) {
      throw Problem{YAML::Mark::null_mark(),
                    "the file is empty; there may be tls_server_config, http_server_config, "
                    "basic_auth_users"};
    }
    ReadMapping(
        root, "",
        {{"tls_server_config", [this](const auto& node, const auto& key) { Tls(node, key); }},
         {"http_server_config", [this](const auto& node, const auto& key) { Http(node, key); }},
         {"basic_auth_users", [this](const auto& node, const auto& key) { Users(node, key); }}},
        {{"rate_limit", "connections and their times are bounded anyway"}});
  }

 private:
  Reader File(std::string* path) {
    return [this, path](const YAML::Node& node, const std::string& key) {
      *path = Text(node, key);
      if (!path->empty() && (*path)[0] != '/') *path = directory_ + *path;
    };
  }

  void Tls(const YAML::Node& node, const std::string& name) {
    TlsConfig tls;
    ReadMapping(node, name,
                {{"cert_file", File(&tls.cert_file)},
                 {"key_file", File(&tls.key_file)},
                 {"client_ca_file", File(&tls.client_ca_file)},
                 {"client_auth_type",
                  [&tls](const auto& value, const auto& key) {
                    tls.client_auth = value.IsNull() || Text(value, key).empty()
                                          ? ClientAuth::kNone
                                          : Choice(value, key, kClientAuths);
                  }},
                 {"client_allowed_sans",
                  [&tls](const auto& value, const auto& key) {
                    for (const YAML::Node& item : List(value, key)) {
                      tls.client_allowed_sans.push_back(Text(item, key));
                    }
                  }},
                 {"min_version",
                  [&tls](const auto& value, const auto& key) {
                    tls.min_version = Choice(value, key, kVersions);
                  }},
                 {"max_version",
                  [&tls](const auto& value, const auto& key) {
                    tls.max_version = Choice(value, key, kVersions);
                  }},
                 {"cipher_suites",
                  [&tls](const auto& value, const auto& key) { CipherSuites(value, key, &tls); }},
                 {"curve_preferences",
                  [&tls](const auto& value, const auto& key) {
                    for (const YAML::Node& item : List(value, key)) {
                      tls.curves.emplace_back(Choice(item, key, kCurves));
                    }
                  }},
                 {"prefer_server_cipher_suites",
                  [&tls](const auto& value, const auto& key) {
                    tls.prefer_server_cipher_suites = Boolean(value, key);
                  }}},
                {{"cert", "put the certificate into a file, cert_file"},
                 {"key", "put the key into a file, key_file"},
                 {"client_ca", "put the certificates into a file, client_ca_file"}});

    if (tls.cert_file.empty()) Fail(node, absl::StrCat(name, ".cert_file is missing"));
    if (tls.key_file.empty()) Fail(node, absl::StrCat(name, ".key_file is missing"));
    const bool verifies =
        tls.client_auth == ClientAuth::kVerify || tls.client_auth == ClientAuth::kVerifyIfGiven;
    if (verifies && tls.client_ca_file.empty()) {
      Fail(node, absl::StrCat(name,
                              ".client_ca_file is missing: client_auth_type asks for "
                              "certificates to be verified"));
    }
    if (!tls.client_ca_file.empty() && tls.client_auth == ClientAuth::kNone) {
      Fail(node, absl::StrCat(name,
                              ".client_ca_file has no use without client_auth_type, such as "
                              "RequireAndVerifyClientCert"));
    }
    if (!tls.client_allowed_sans.empty() && !verifies) {
      Fail(node, absl::StrCat(name,
                              ".client_allowed_sans has no use without client_auth_type "
                              "RequireAndVerifyClientCert or VerifyClientCertIfGiven"));
    }
    if (tls.min_version > tls.max_version) {
      Fail(node, absl::StrCat(name, ".min_version is above max_version"));
    }
    config_->tls = std::move(tls);
  }

  static void CipherSuites(const YAML::Node& node, const std::string& key, TlsConfig* tls) {
    const std::vector<YAML::Node> items = List(node, key);
    for (const YAML::Node& item : items) {
      const std::string name = Text(item, key);
      if (std::find(std::begin(kTls13Suites), std::end(kTls13Suites), name) !=
          std::end(kTls13Suites)) {
        continue;
      }
      tls->cipher_suites.emplace_back(Choice(item, key, kSuites));
    }
    if (!items.empty() && tls->cipher_suites.empty()) {
      Fail(node, absl::StrCat(key,
                              " has suites of TLS 1.3 only, which cannot be chosen; for only "
                              "TLS 1.3 set min_version: TLS13"));
    }
  }

  void Http(const YAML::Node& node, const std::string& name) {
    ReadMapping(node, name,
                {{"http2",
                  [this](const auto& value, const auto& key) {
                    if (!Boolean(value, key)) return;
                    config_->notes.push_back(
                        absl::StrCat(key, " is ignored: this endpoint speaks only HTTP/1.1"));
                  }},
                 {"headers", [this](const auto& value, const auto& key) { Headers(value, key); }}});
  }

  // If `accepted` is empty, any valid header value.
  Reader Header(std::initializer_list<std::string_view> accepted = {}) {
    return [this, words = std::vector<std::string_view>(accepted)](const YAML::Node& node,
                                                                   const std::string& key) {
      const std::string value = Text(node, key);
      if (value.empty()) return;
      if (!words.empty() &&
          std::none_of(words.begin(), words.end(), [&value](std::string_view word) {
            return absl::EqualsIgnoreCase(word, value);
          })) {
        Fail(node,
             absl::StrCat(key, ": ", Quote(value), " is none of ", absl::StrJoin(words, ", ")));
      }
      if (!std::all_of(value.begin(), value.end(), absl::ascii_isprint)) {
        Fail(node, absl::StrCat(key, ": a header is one line of printable ASCII characters"));
      }
      absl::StrAppend(&config_->headers, key.substr(key.rfind('.') + 1), ": ", value, "\r\n");
    };
  }

  void Headers(const YAML::Node& node, const std::string& name) {
    ReadMapping(node, name,
                {{"Content-Security-Policy", Header()},
                 {"Strict-Transport-Security", Header()},
                 {"X-Content-Type-Options", Header({"nosniff"})},
                 {"X-Frame-Options", Header({"deny", "sameorigin"})},
                 {"X-XSS-Protection", Header()}});
  }

  void Users(const YAML::Node& node, const std::string& name) {
    // An empty list would admit everybody, hardly the author's intention.
    if (!node.IsMap() || node.size() == 0) {
      Fail(node, absl::StrCat(name, ": users and their bcrypt hashes are expected"));
    }
    for (const auto& entry : node) {
      const std::string user = Text(entry.first, name);
      const std::string key = absl::StrCat(name, ".", Quote(user));
      // In basic authentication the user's name ends at the first colon (RFC 7617, 2).
      if (user.find(':') != user.npos) {
        Fail(entry.first, absl::StrCat(key, ": no client can send a name with a colon"));
      }
      const std::string hash = Text(entry.second, key);
      std::string reason;
      if (!IsBcryptHash(hash, &reason)) Fail(entry.second, absl::StrCat(key, ": ", reason));
      if (!config_->users.emplace(user, hash).second) {
        Fail(entry.first, absl::StrCat(key, " is there twice"));
      }
    }
  }

  const std::string directory_;  // "", or with a slash at its end
  WebConfig* const config_;
};

std::string AtLine(const YAML::Mark& mark) {
  return mark.is_null() ? "" : absl::StrCat("line ", mark.line + 1, ": ");
}

}  // namespace

bool ReadWebConfig(const std::string& path, WebConfig* config, std::string* error) {
  const std::string prefix = absl::StrCat("web configuration ", path, ": ");
  std::string text;
  if (!ReadRegularFile(path, kMostSecretBytes, &text, error)) {
    *error = prefix + *error;
    return false;
  }
  *config = WebConfig();
  const std::size_t slash = path.rfind('/');
  try {
    ConfigReader(slash == path.npos ? "" : path.substr(0, slash + 1), config)
        .Read(YAML::Load(text));
    return true;
  } catch (const Problem& problem) {
    *error = absl::StrCat(prefix, AtLine(problem.mark), problem.message);
  } catch (const YAML::Exception& e) {
    *error = absl::StrCat(prefix, AtLine(e.mark), "no YAML: ", e.msg);
  } catch (const std::exception& e) {
    *error = absl::StrCat(prefix, e.what());
  }
  return false;
}

}  // namespace nccl_pulse

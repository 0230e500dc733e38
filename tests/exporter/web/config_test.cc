// The format, and that whatever is wrong with a file is said: where, what, and what may stand
// there.
#include "exporter/web/config.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nccl_pulse {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr char kHashOfAnn[] = "$2b$04$abcdefghijklmnopqrstuuCi15uRb1eH7NAlJ/TgeJertyknQpYn2";

std::string Path() { return testing::TempDir() + "/web.yml"; }

bool Read(const std::string& text, WebConfig* config, std::string* error) {
  std::ofstream(Path()) << text;
  return ReadWebConfig(Path(), config, error);
}

WebConfig Good(const std::string& text) {
  WebConfig config;
  std::string error;
  EXPECT_TRUE(Read(text, &config, &error)) << error;
  return config;
}

// Without what all messages begin with.
std::string Bad(const std::string& text) {
  WebConfig config;
  std::string error;
  EXPECT_FALSE(Read(text, &config, &error)) << text;
  const std::string prefix = "web configuration " + Path() + ": ";
  EXPECT_THAT(error, StartsWith(prefix));
  return error.substr(std::min(prefix.size(), error.size()));
}

std::string Tls(const std::string& lines) {
  return "tls_server_config:\n  cert_file: c.pem\n  key_file: /k.pem\n" + lines;
}

TEST(WebConfig, ReadsAll) {
  const WebConfig config = Good(Tls("  client_ca_file: ca.pem\n"
                                    "  client_auth_type: VerifyClientCertIfGiven\n"
                                    "  client_allowed_sans: [a.example, 10.0.0.1]\n"
                                    "  min_version: TLS11\n"
                                    "  max_version: TLS12\n"
                                    "  cipher_suites:\n"
                                    "  - TLS_AES_128_GCM_SHA256\n"
                                    "  - TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\n"
                                    "  curve_preferences: [X25519, CurveP256]\n"
                                    "  prefer_server_cipher_suites: false\n"
                                    "http_server_config:\n"
                                    "  http2: false\n"
                                    "  headers:\n"
                                    "    X-Frame-Options: deny\n"
                                    "    X-XSS-Protection:\n"
                                    "    Strict-Transport-Security: max-age=1\n"
                                    "basic_auth_users:\n"
                                    "  ann: ") +
                                kHashOfAnn + "\n  '': " + kHashOfAnn + "\n");
  ASSERT_TRUE(config.tls.has_value());
  EXPECT_EQ(config.tls->cert_file, testing::TempDir() + "/c.pem");
  EXPECT_EQ(config.tls->key_file, "/k.pem");
  EXPECT_EQ(config.tls->client_ca_file, testing::TempDir() + "/ca.pem");
  EXPECT_EQ(config.tls->client_auth, ClientAuth::kVerifyIfGiven);
  EXPECT_THAT(config.tls->client_allowed_sans, ElementsAre("a.example", "10.0.0.1"));
  EXPECT_EQ(config.tls->min_version, 0x0302);
  EXPECT_EQ(config.tls->max_version, 0x0303);
  EXPECT_THAT(config.tls->cipher_suites, ElementsAre("ECDHE-RSA-AES128-GCM-SHA256"));
  EXPECT_THAT(config.tls->curves, ElementsAre("X25519", "P-256"));
  EXPECT_FALSE(config.tls->prefer_server_cipher_suites);
  EXPECT_EQ(config.headers, "X-Frame-Options: deny\r\nStrict-Transport-Security: max-age=1\r\n");
  EXPECT_EQ(config.users.size(), 2U);
  EXPECT_EQ(config.users.at("ann"), kHashOfAnn);
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(WebConfig, Defaults) {
  const WebConfig config = Good(Tls("http_server_config:\n  http2: true\n"));
  EXPECT_EQ(config.tls->client_auth, ClientAuth::kNone);
  EXPECT_EQ(config.tls->min_version, 0x0303);
  EXPECT_EQ(config.tls->max_version, 0x0304);
  EXPECT_THAT(config.tls->cipher_suites, IsEmpty());
  EXPECT_EQ(config.headers, "");
  EXPECT_THAT(config.users, IsEmpty());
  EXPECT_THAT(config.notes, ElementsAre("http_server_config.http2 is ignored: this endpoint speaks "
                                        "only HTTP/1.1"));
}

TEST(WebConfig, SaysWhichFile) {
  WebConfig config;
  std::string error;
  EXPECT_FALSE(ReadWebConfig("/nowhere/web.yml", &config, &error));
  EXPECT_EQ(error, "web configuration /nowhere/web.yml: No such file or directory");
  EXPECT_FALSE(ReadWebConfig("/", &config, &error));
  EXPECT_EQ(error, "web configuration /: it is a folder");
  const std::string fifo = testing::TempDir() + "/web_" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_FALSE(ReadWebConfig(fifo, &config, &error));
  EXPECT_EQ(error, "web configuration " + fifo + ": it is not a regular file");
}

TEST(WebConfig, AnEmptyFileGuardsNothing) {
  for (const char* text : {"", "\n", "# nothing\n", "---\n"}) {
    EXPECT_THAT(Bad(text), HasSubstr("the file is empty; there may be tls_server_config")) << text;
  }
}

TEST(WebConfig, UnknownKeys) {
  EXPECT_EQ(Bad("basic_auth_user: {}\n"),
            "line 1: unknown key basic_auth_user; there may be tls_server_config, "
            "http_server_config, basic_auth_users");
  EXPECT_THAT(
      Bad(Tls("  certfile: x\n")),
      StartsWith("line 4: unknown key tls_server_config.certfile; there may be cert_file,"));
  EXPECT_THAT(Bad("http_server_config: {headers: {Server: x}}\n"),
              HasSubstr("unknown key http_server_config.headers.Server; there may be "
                        "Content-Security-Policy,"));
  EXPECT_EQ(Bad("http_server_config:\n  http2: true\n  http2: true\n"),
            "line 3: http_server_config.http2 is there twice");
}

TEST(WebConfig, WhatIsNotSupportedIsRefused) {
  EXPECT_THAT(Bad("rate_limit: {}\n"), HasSubstr("rate_limit is not supported: "));
  EXPECT_THAT(
      Bad("tls_server_config: {cert: x}\n"),
      HasSubstr("tls_server_config.cert is not supported: put the certificate into a file"));
}

TEST(WebConfig, WrongKinds) {
  EXPECT_THAT(Bad("a: [\n"), HasSubstr("no YAML: "));
  EXPECT_THAT(Bad("just text\n"), HasSubstr("the file: keys and values are expected"));
  EXPECT_THAT(Bad("tls_server_config: yes\n"), HasSubstr("keys and values are expected"));
  EXPECT_THAT(Bad("tls_server_config: {cert_file: [a]}\n"),
              HasSubstr("tls_server_config.cert_file: text is expected"));
  EXPECT_THAT(Bad(Tls("  cipher_suites: x\n")), HasSubstr("cipher_suites: a list is expected"));
  EXPECT_THAT(Bad("http_server_config: {http2: 7}\n"), HasSubstr("http2: true or false"));
}

TEST(WebConfig, TlsNeedsBothFiles) {
  EXPECT_THAT(Bad("tls_server_config:\n"), HasSubstr("tls_server_config.cert_file is missing"));
  EXPECT_THAT(Bad("tls_server_config: {cert_file: x}\n"),
              HasSubstr("tls_server_config.key_file is missing"));
}

TEST(WebConfig, TlsValues) {
  EXPECT_EQ(
      Bad(Tls("  min_version: TLS9\n")),
      "line 4: tls_server_config.min_version: \"TLS9\" is none of TLS10, TLS11, TLS12, TLS13");
  EXPECT_THAT(Bad(Tls("  min_version: TLS13\n  max_version: TLS12\n")),
              HasSubstr("min_version is above max_version"));
  EXPECT_THAT(Bad(Tls("  client_auth_type: Yes\n")),
              HasSubstr("client_auth_type: \"Yes\" is none of NoClientCert, RequestClientCert,"));
  EXPECT_THAT(
      Bad(Tls("  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n")),
      HasSubstr("\"TLS_RSA_WITH_RC4_128_SHA\" is none of TLS_ECDHE_ECDSA_WITH_AES_128_GCM"));
  EXPECT_THAT(Bad(Tls("  cipher_suites: [TLS_AES_128_GCM_SHA256]\n")),
              HasSubstr("suites of TLS 1.3 only"));
  EXPECT_THAT(Bad(Tls("  curve_preferences: [P-256]\n")),
              HasSubstr("\"P-256\" is none of CurveP256, CurveP384, CurveP521, X25519"));
}

TEST(WebConfig, ClientCertificates) {
  EXPECT_THAT(Bad(Tls("  client_auth_type: RequireAndVerifyClientCert\n")),
              HasSubstr("client_ca_file is missing"));
  EXPECT_THAT(Bad(Tls("  client_ca_file: ca.pem\n")),
              HasSubstr("client_ca_file has no use without client_auth_type"));
  EXPECT_THAT(Bad(Tls("  client_allowed_sans: [a]\n")),
              HasSubstr("client_allowed_sans has no use without client_auth_type"));
}

TEST(WebConfig, Headers) {
  EXPECT_THAT(Bad("http_server_config: {headers: {X-Frame-Options: maybe}}\n"),
              HasSubstr("X-Frame-Options: \"maybe\" is none of deny, sameorigin"));
  EXPECT_THAT(Bad("http_server_config: {headers: {X-XSS-Protection: \"1\\r\\nX: y\"}}\n"),
              HasSubstr("one line of printable ASCII"));
}

TEST(WebConfig, Users) {
  EXPECT_THAT(Bad("basic_auth_users:\n"), HasSubstr("users and their bcrypt hashes are expected"));
  EXPECT_THAT(Bad("basic_auth_users: {}\n"), HasSubstr("users and their bcrypt hashes"));
  const std::string message = Bad("basic_auth_users:\n  ann: secret\n");
  EXPECT_THAT(message, StartsWith("line 2: basic_auth_users.\"ann\": not a bcrypt hash"));
  EXPECT_EQ(message.find("secret"), message.npos);
  EXPECT_THAT(Bad(std::string("basic_auth_users: {'a:b': ") + kHashOfAnn + "}\n"),
              HasSubstr("no client can send a name with a colon"));
}

TEST(WebConfig, AFileWithoutEndIsRefused) {
  EXPECT_THAT(Bad("# " + std::string(2 << 20, 'x')), HasSubstr("larger than 1 MiB"));
}

}  // namespace
}  // namespace nccl_pulse

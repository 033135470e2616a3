// Checks the head as it came: names and values of headers, contradictory lengths, and escapes in
// the path.
#include "server/http/http_head.h"

#include <arpa/inet.h>
#include <microhttpd.h>

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kMostHeaders = 100;

std::string PeerOf(MHD_Connection* connection) {
  const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  char host[INET6_ADDRSTRLEN] = "";
  if (info == nullptr || info->client_addr == nullptr) return "?";
  if (info->client_addr->sa_family == AF_INET) {
    const auto* in = reinterpret_cast<const sockaddr_in*>(info->client_addr);
    inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
    return StrCat("ipv4:", host, ":", ntohs(in->sin_port));
  }
  const auto* in = reinterpret_cast<const sockaddr_in6*>(info->client_addr);
  inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof(host));
  return StrCat("ipv6:[", host, "]:", ntohs(in->sin6_port));
}

// Headers as they came.
struct Headers {
  HttpHead* head;
  size_t count = 0;
  int lengths = 0, encodings = 0, hosts = 0;
  bool names = true;  // all are names; "Content-Length " is none, and others trim it
};

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool IsToken(std::string_view text) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           kOthers.find(c) != std::string_view::npos;
  });
}

MHD_Result AddHeader(void* to, MHD_ValueKind, const char* name, const char* value) {
  auto& headers = *static_cast<Headers*>(to);
  const std::string key = absl::AsciiStrToLower(name == nullptr ? "" : name);
  const std::string text = value == nullptr ? "" : value;
  if (++headers.count > kMostHeaders) return MHD_NO;
  headers.names &= IsToken(key);
  headers.lengths += key == "content-length";
  headers.encodings += key == "transfer-encoding";
  headers.hosts += key == "host";
  if (key == "authorization") headers.head->authorizations.push_back(text);
  headers.head->headers[key] = text;
  return MHD_YES;
}

}  // namespace

HttpHead ReadHead(MHD_Connection* connection, const char* url, const char* method) {
  HttpHead head{.method = method,
                .path = url,
                .peer = PeerOf(connection),
                .headers = {},
                .authorizations = {}};
  Headers headers{.head = &head};
  MHD_get_connection_values(connection, MHD_HEADER_KIND, &AddHeader, &headers);
  return head;
}

size_t UnescapePath(void*, MHD_Connection*, char* text) {
  char* to = text;
  for (const char* from = text; *from != '\0';) {
    const int high = from[0] == '%' ? HexDigit(from[1]) : -1;
    const int low = high >= 0 ? HexDigit(from[2]) : -1;
    const int code = low >= 0 ? high * 16 + low : 0;
    if (code == 0 || code == '/') {
      *to++ = *from++;
      continue;
    }
    *to++ = static_cast<char>(code);
    from += 3;
  }
  *to = '\0';
  return static_cast<size_t>(to - text);
}

absl::StatusOr<int64_t> BodyLength(const HttpHead& head, MHD_Connection* connection) {
  HttpHead unused;
  Headers headers{.head = &unused};
  MHD_get_connection_values(connection, MHD_HEADER_KIND, &AddHeader, &headers);
  if (headers.count > kMostHeaders) return InvalidArgument("more than ", kMostHeaders, " headers");
  if (!headers.names) return InvalidArgument("a header whose name is none");
  if (headers.hosts > 1) return InvalidArgument("more than one Host");
  if (headers.lengths > 1) return InvalidArgument("more than one Content-Length");
  if (headers.encodings > 1) return InvalidArgument("more than one Transfer-Encoding");
  if (headers.encodings > 0) {
    if (headers.lengths > 0) {
      return InvalidArgument("both a Content-Length and a Transfer-Encoding");
    }
    if (absl::AsciiStrToLower(head.headers.at("transfer-encoding")) != "chunked") {
      return Unimplemented("the only Transfer-Encoding is chunked");
    }
    return -1;
  }
  if (headers.lengths == 0) return 0;
  const std::string& text = head.headers.at("content-length");
  const bool digits = std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  int64_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (!digits || error != std::errc() || end != text.data() + text.size()) {
    return InvalidArgument("Content-Length '", Clip(text, 32), "' is not a number");
  }
  return length;
}

}  // namespace telegrad

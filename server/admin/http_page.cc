// One thread polls all connections, reads heads of limited size, and writes answers as far as
// sockets take them.
#include "server/admin/http_page.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/base/status.h"
#include "engine/net/tcp.h"

namespace telegrad {
namespace {

constexpr size_t kMaxHttpHead = 8192;
constexpr int kPagePauseMs = 100;  // where there was no descriptor for a connection
constexpr std::string_view kEndOfHead = "\r\n\r\n";

std::string Response(std::string_view status, std::string_view type, std::string_view body,
                     bool with_body) {
  return StrCat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
                "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n",
                with_body ? body : "");
}

// The value of a field of the head, by its lower-case name; "" where it has none.
std::string_view FieldOf(std::string_view head, std::string_view name) {
  for (size_t at = head.find("\r\n"); at != std::string_view::npos;
       at = head.find("\r\n", at + 2)) {
    const std::string_view line = head.substr(at + 2, head.find("\r\n", at + 2) - at - 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon != name.size()) continue;
    const bool same = std::ranges::equal(line.substr(0, colon), name, {}, [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    if (same) return line.substr(colon + 1);
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpPage>> HttpPage::Start(Options options) {
  TG_ASSIGN_OR_RETURN(UniqueFd listener, ListenTcp(options.address));
  std::unique_ptr<HttpPage> page(new HttpPage(std::move(options), std::move(listener)));
  if (!page->stop_.valid()) return ResourceExhausted("eventfd: no descriptor is left");
  page->thread_ = std::thread([page = page.get()] { page->Serve(); });
  return page;
}

HttpPage::HttpPage(Options options, UniqueFd listener)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      stop_(eventfd(0, EFD_CLOEXEC)) {}

HttpPage::~HttpPage() {
  eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

int HttpPage::port() const { return PortOf(listener_); }

void HttpPage::Serve() {
  while (true) {
    std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    int64_t wait_ms = -1;
    for (const Peer& peer : peers_) {
      polled.push_back({peer.fd.get(), peer.out.empty() ? short{POLLIN} : short{POLLOUT}, 0});
    }
    if (!peers_.empty()) {  // all have the same patience, so the oldest ends first
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(peers_.front().ends - Clock::now());
      wait_ms = std::max<int64_t>(left.count(), 0);
    }
    if (poll(polled.data(), polled.size(), static_cast<int>(wait_ms)) < 0) continue;
    if (polled[0].revents != 0) return;
    size_t at = 2;
    for (Peer& peer : peers_) {
      if (polled[at++].revents != 0) peer.out.empty() ? Read(peer) : Write(peer);
    }
    const auto now = Clock::now();
    peers_.remove_if([&](const Peer& peer) { return peer.over || peer.ends <= now; });
    if (polled[1].revents != 0) Accept();
  }
}

void HttpPage::Accept() {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno != EMFILE && errno != ENFILE) return;
    if (!peers_.empty()) peers_.pop_front();
    pollfd stop = {stop_.get(), POLLIN, 0};
    poll(&stop, 1, kPagePauseMs);
    return;
  }
  if (peers_.size() >= options_.most) peers_.pop_front();
  peers_.push_back({.fd = std::move(fd), .ends = Clock::now() + options_.patience});
}

void HttpPage::Read(Peer& peer) const {
  char bytes[2048];
  const ssize_t n = recv(peer.fd.get(), bytes, sizeof(bytes), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    peer.over = true;
    return;
  }
  peer.in.append(bytes, static_cast<size_t>(n));
  if (peer.in.find(kEndOfHead) != std::string::npos) {
    peer.out = Answer(peer.in);
  } else if (peer.in.size() > kMaxHttpHead) {
    peer.out = Response("431 Request Header Fields Too Large", "text/plain", "", true);
  } else {
    return;
  }
  Write(peer);
}

void HttpPage::Write(Peer& peer) {
  const ssize_t n = send(peer.fd.get(), peer.out.data() + peer.sent, peer.out.size() - peer.sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0) {
    peer.over = errno != EAGAIN && errno != EINTR;
    return;
  }
  peer.sent += static_cast<size_t>(n);
  peer.over = peer.sent == peer.out.size();
}

// To "METHOD PATH VERSION" and fields, of which only Accept matters here.
std::string HttpPage::Answer(const std::string& request) const {
  const std::string line = request.substr(0, request.find("\r\n"));
  const size_t first = line.find(' '), last = line.rfind(' ');
  constexpr std::string_view kText = "text/plain; charset=utf-8";
  if (first == last || !line.substr(last + 1).starts_with("HTTP/1.")) {
    return Response("400 Bad Request", kText, "not a request of HTTP/1\n", true);
  }
  const std::string method = line.substr(0, first);
  std::string path = line.substr(first + 1, last - first - 1);
  path = path.substr(0, path.find('?'));
  const bool get = method == "GET";
  if (!get && method != "HEAD") {
    return Response("405 Method Not Allowed", kText, "only GET and HEAD\n", true);
  }
  if (path != options_.path) {
    return Response("404 Not Found", kText, StrCat("there is only ", options_.path, "\n"), get);
  }
  const Options::Body body = options_.body(FieldOf(request, "accept"));
  return Response("200 OK", body.content_type, body.text, get);
}

}  // namespace telegrad

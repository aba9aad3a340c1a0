// Opens many streams at once and writes down when their events came: the client of `memra bench --served`.
//
//   load_client ADDRESS PORT FILE
//
// FILE holds the requests, each as its length in decimal, a newline, and that many bytes of HTTP. All are sent at once,
// one connection each, and answered with `Connection: close`. On stdout goes one JSON object: per stream the HTTP
// status, the seconds since the first connection of every event, and the last `completion_tokens` that was seen.
// Compiled, and one thread, because it shares the processors with the server that it measures.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kLimitSeconds = 600;
constexpr size_t kReadBytes = 1 << 16;

// Undoes HTTP/1.1 chunked transfer: framing may fall anywhere, also inside an event.
class Body {
 public:
  bool chunked = false;

  void take(const char* data, size_t size, std::string& out) {
    if (!chunked) {
      out.append(data, size);
      return;
    }
    for (size_t at = 0; at < size;) {
      if (left_ > 0) {
        const size_t part = std::min(left_, size - at);
        out.append(data + at, part);
        left_ -= part;
        at += part;
        continue;
      }
      const char byte = data[at++];
      if (byte != '\n') {
        line_ += byte;
        continue;
      }
      left_ = std::strtoul(line_.c_str(), nullptr, 16);  // the empty line after a chunk reads as 0
      line_.clear();
    }
  }

 private:
  size_t left_ = 0;
  std::string line_;
};

struct Stream {
  int fd = -1;
  int status = 0;
  bool is_done = false;
  long tokens = -1;
  std::vector<double> times;
  std::string head, text;
  Body body;
};

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

std::vector<std::string> read_requests(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> requests;
  size_t size = 0;
  while (file >> size) {
    file.get();
    std::string request(size, '\0');
    file.read(request.data(), static_cast<std::streamsize>(size));
    requests.push_back(std::move(request));
  }
  return requests;
}

int open_connection(const char* address, int port) {
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, address, &target.sin_addr) != 1) fail("address");
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&target), sizeof target) != 0) fail("connect");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

void send_all(int fd, const std::string& request) {
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t size = write(fd, request.data() + sent, request.size() - sent);
    if (size <= 0) fail("write");
    sent += static_cast<size_t>(size);
  }
}

bool holds_text(const std::string& line) {
  for (const char* key : {"\"text\":", "\"content\":"}) {
    const size_t at = line.find(key);
    if (at == std::string::npos) continue;
    const size_t value = line.find_first_not_of(' ', at + std::string(key).size());
    if (value != std::string::npos && line[value] == '"' && line[value + 1] != '"') return true;
  }
  return false;
}

void note_line(Stream& stream, const std::string& line, double now) {
  static const std::string kTokens = "\"completion_tokens\":";
  if (line.rfind("data:", 0) != 0) return;
  if (line.find("[DONE]") != std::string::npos) {
    stream.is_done = true;
    stream.times.push_back(now);
    return;
  }
  if (holds_text(line)) stream.times.push_back(now);
  const size_t at = line.find(kTokens);
  if (at != std::string::npos) stream.tokens = std::atol(line.c_str() + at + kTokens.size());
}

void note_bytes(Stream& stream, const char* data, size_t size, double now) {
  if (stream.status == 0) {
    stream.head.append(data, size);
    const size_t end = stream.head.find("\r\n\r\n");
    if (end == std::string::npos) return;
    const std::string rest = stream.head.substr(end + 4);
    stream.head.resize(end);
    stream.status = std::atoi(stream.head.c_str() + stream.head.find(' '));
    for (char& letter : stream.head) letter = static_cast<char>(std::tolower(letter));
    stream.body.chunked = stream.head.find("transfer-encoding: chunked") != std::string::npos;
    stream.body.take(rest.data(), rest.size(), stream.text);
  } else {
    stream.body.take(data, size, stream.text);
  }
  size_t begin = 0;
  for (size_t end; (end = stream.text.find('\n', begin)) != std::string::npos; begin = end + 1)
    note_line(stream, stream.text.substr(begin, end - begin), now);
  stream.text.erase(0, begin);
}

void print(const std::vector<Stream>& streams) {
  std::printf("{\"streams\":[");
  for (size_t index = 0; index < streams.size(); ++index) {
    const Stream& stream = streams[index];
    std::printf("%s{\"status\":%d,\"is_done\":%s,\"tokens\":%ld,\"times\":[", index ? "," : "", stream.status,
                stream.is_done ? "true" : "false", stream.tokens);
    for (size_t at = 0; at < stream.times.size(); ++at) std::printf("%s%.6f", at ? "," : "", stream.times[at]);
    std::printf("]}");
  }
  std::printf("]}\n");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: load_client ADDRESS PORT FILE\n");
    return 2;
  }
  const std::vector<std::string> requests = read_requests(arguments[3]);
  std::vector<Stream> streams(requests.size());
  std::vector<pollfd> waiting(requests.size());
  const Clock::time_point start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  for (size_t index = 0; index < requests.size(); ++index) {
    streams[index].fd = open_connection(arguments[1], std::atoi(arguments[2]));
    send_all(streams[index].fd, requests[index]);
    waiting[index] = {streams[index].fd, POLLIN, 0};
  }
  std::vector<char> buffer(kReadBytes);
  for (size_t open = requests.size(); open > 0 && seconds() < kLimitSeconds;) {
    if (poll(waiting.data(), waiting.size(), 1000) < 0) fail("poll");
    for (size_t index = 0; index < streams.size(); ++index) {
      if (waiting[index].fd < 0 || waiting[index].revents == 0) continue;
      const ssize_t size = read(streams[index].fd, buffer.data(), buffer.size());
      if (size > 0) note_bytes(streams[index], buffer.data(), static_cast<size_t>(size), seconds());
      if (size > 0 && !streams[index].is_done) continue;
      close(streams[index].fd);
      waiting[index].fd = -1;
      --open;
    }
  }
  print(streams);
}

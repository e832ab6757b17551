// A mark is the soft limit on the time a realtime thread may run without sleeping: inherited by fork and exec, readable
// by everybody, and above a century, so it never limits anything. Environments stay exact, nothing is left to clean up,
// and it takes one system call and no privilege. A descendant that sets this limit itself is lost sight of; it still
// ends with the server, to which orphans come.
#include "process/mark.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace procwire {
namespace {

// Microseconds: 142 years. Below 2^53 with all that is added, so that JavaScript's numbers hold it.
constexpr uint64_t kFirstMark = uint64_t{1} << 52;
constexpr int kSerialBits = 24;
// The kernel's RLIM64_INFINITY, whose name not every C library has.
constexpr uint64_t kUnlimited = ~uint64_t{0};
constexpr int kProgramBits = 27;

// The part of this program, so that two of them do not take each other's orphans for their own.
uint64_t programPart() {
  static const uint64_t part = [] {
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) {
      struct timespec now = {};
      clock_gettime(CLOCK_REALTIME, &now);
      number = static_cast<uint64_t>(now.tv_nsec) * 2654435761u + static_cast<uint64_t>(getpid());
    }
    return kFirstMark + ((number & ((uint64_t{1} << kProgramBits) - 1)) << kSerialBits);
  }();
  return part;
}

bool isMark(uint64_t value) { return value >= kFirstMark && value < 2 * kFirstMark; }

// For a process of another user: its limits as /proc shows them to everybody.
uint64_t markInProc(pid_t pid) {
  char path[32];
  char text[4096];
  snprintf(path, sizeof path, "/proc/%d/limits", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = 0;
  constexpr char kName[] = "Max realtime timeout";
  const char* line = strstr(text, kName);
  return line ? strtoull(line + sizeof kName - 1, nullptr, 10) : 0;
}

}  // namespace

uint64_t nextMark(std::vector<ResourceLimit>& limits) {
  static std::atomic<uint64_t> serial{0};
  uint64_t own[2] = {0, 0};  // soft, hard
  if (syscall(SYS_prlimit64, 0, RLIMIT_RTTIME, nullptr, own) < 0) return 0;
  const uint64_t mark = programPart() + (serial++ & ((uint64_t{1} << kSerialBits) - 1));
  // A program above this one has set a limit that means something: it stays as it is.
  if (own[1] < mark || (own[0] != kUnlimited && !isMark(own[0]))) return 0;
  limits.push_back({RLIMIT_RTTIME, {mark, own[1]}, false});
  return mark;
}

uint64_t markOf(pid_t pid) {
  uint64_t values[2] = {0, 0};
  const bool told = syscall(SYS_prlimit64, pid, RLIMIT_RTTIME, nullptr, values) == 0;
  const uint64_t mark = told ? values[0] : markInProc(pid);
  return isMark(mark) ? mark : 0;
}

}  // namespace procwire

#include "process/child-fds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

namespace procwire {
namespace {

// Moves a descriptor out of the way of 0, 1 and 2, should the program have been started without them.
bool aboveStdio(int& fd) {
  if (fd < 0 || fd > 2) return fd >= 0;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  int err = errno;
  close(fd);
  fd = moved;
  errno = err;
  return moved >= 0;
}

bool setNonBlocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

uint64_t inodeOf(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_ino) : 0;
}

bool openPipe(SpawnRequest& request, int& parentEnd, int& childEnd, bool parentReads) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return failed(request, "pipe2", request.file);
  parentEnd = ends[parentReads ? 0 : 1];
  childEnd = ends[parentReads ? 1 : 0];
  if (!aboveStdio(parentEnd) || !aboveStdio(childEnd)) return failed(request, "fcntl", request.file);
  // Only our end: the other one is a file description of its own, and programs expect theirs to block.
  if (!setNonBlocking(parentEnd)) return failed(request, "fcntl", request.file);
  return true;
}

}  // namespace

bool failed(SpawnRequest& request, const char* call, const std::string& path) {
  request.err = errno;
  request.syscall = call;
  request.path = path;
  return false;
}

bool openPipes(SpawnRequest& request, ChildFds& child) {
  if (request.pipeStdin) {
    if (!openPipe(request, request.stdinFd, child.in, false)) return false;
    request.pipeInodes[0] = inodeOf(request.stdinFd);
  } else {
    child.in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (child.in < 0 || !aboveStdio(child.in)) return failed(request, "open", "/dev/null");
  }
  if (!openPipe(request, request.stdoutFd, child.out, true)) return false;
  if (!openPipe(request, request.stderrFd, child.err, true)) return false;
  request.pipeInodes[1] = inodeOf(request.stdoutFd);
  request.pipeInodes[2] = inodeOf(request.stderrFd);
  return true;
}

// Copies above all the numbers they get in the child, so that none is overwritten before it is in its place.
bool copyPassed(SpawnRequest& request, ChildFds& child) {
  for (int fd : request.passed) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3 + static_cast<int>(request.passed.size()));
    if (copy < 0) return failed(request, "fcntl", request.file);
    child.passed.push_back(copy);
  }
  return true;
}

bool openCgroups(SpawnRequest& request, ChildFds& child) {
  for (const std::string& path : request.cgroups) {
    int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0 || !aboveStdio(fd)) return failed(request, "open", path);
    child.cgroups.push_back(fd);
  }
  return true;
}

bool openTerminal(SpawnRequest& request) {
  int& master = request.stdoutFd;
  master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (master < 0 || !aboveStdio(master)) return failed(request, "openpt", "/dev/ptmx");
  int unlock = 0;
  if (ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCGPTN, &request.pts) < 0)
    return failed(request, "ioctl", "/dev/ptmx");
  int& slave = request.slaveFd;
  slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) {
    std::string name = "/dev/pts/" + std::to_string(request.pts);
    slave = open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0) return failed(request, "open", name);
  }
  if (!aboveStdio(slave)) return failed(request, "fcntl", "/dev/ptmx");
  struct winsize size = {};
  size.ws_row = request.rows;
  size.ws_col = request.cols;
  if (ioctl(slave, TIOCSWINSZ, &size) < 0) return failed(request, "ioctl", "/dev/ptmx");
  // So that erasing a character in the line discipline erases all of its bytes.
  struct termios mode;
  if (tcgetattr(slave, &mode) == 0) {
    mode.c_iflag |= IUTF8;
    tcsetattr(slave, TCSANOW, &mode);
  }
  return true;
}

// The child's end is above every number that the child gives to a descriptor.
bool openReport(SpawnRequest& request, ChildFds& child) {
  if (pipe2(child.report, O_CLOEXEC) < 0) return failed(request, "pipe2", request.file);
  int above = fcntl(child.report[1], F_DUPFD_CLOEXEC, 4 + static_cast<int>(request.passed.size()));
  if (above < 0) return failed(request, "fcntl", request.file);
  close(child.report[1]);
  child.report[1] = above;
  return true;
}

}  // namespace procwire

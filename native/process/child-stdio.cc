#include "process/child-stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <utility>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif

namespace procwire {
namespace {

// Moves a descriptor above 0, 1 and 2, in case the server was started without them.
bool aboveStdio(UniqueFd& fd) {
  if (fd && fd.get() <= STDERR_FILENO) fd = UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
  return static_cast<bool>(fd);
}

// A new pipe has no other flags, so that there are none to keep.
bool setNonBlocking(int pipe) { return fcntl(pipe, F_SETFL, O_NONBLOCK) == 0; }

uint64_t readInode(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 ? static_cast<uint64_t>(info.st_ino) : 0;
}

bool openStdioPipe(SpawnRequest& request, UniqueFd& parentEnd, UniqueFd& childEnd, bool parentReads) {
  if (!openPipe(parentReads ? parentEnd : childEnd, parentReads ? childEnd : parentEnd))
    return failed(request, "pipe2", request.file);
  if (!aboveStdio(parentEnd) || !aboveStdio(childEnd)) return failed(request, "fcntl", request.file);
  // Only the parent's end. The child's end is a separate file description, and processes expect theirs to block.
  if (!setNonBlocking(parentEnd.get())) return failed(request, "fcntl", request.file);
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
    if (!openStdioPipe(request, request.stdinFd, child.in, false)) return false;
    request.pipeInodes[0] = readInode(request.stdinFd.get());
  } else {
    child.in.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!aboveStdio(child.in)) return failed(request, "open", "/dev/null");
  }
  if (!openStdioPipe(request, request.stdoutFd, child.out, true)) return false;
  if (!openStdioPipe(request, request.stderrFd, child.err, true)) return false;
  request.pipeInodes[1] = readInode(request.stdoutFd.get());
  request.pipeInodes[2] = readInode(request.stderrFd.get());
  return true;
}

// Duplicates the descriptors above all numbers that they get in the child, so that dup3 overwrites none of them.
bool copyInheritedFds(SpawnRequest& request, ChildFds& child) {
  for (int fd : request.inheritedFds) {
    UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3 + static_cast<int>(request.inheritedFds.size())));
    if (!copy) return failed(request, "fcntl", request.file);
    child.inheritedFds.push_back(std::move(copy));
  }
  return true;
}

bool openCgroups(SpawnRequest& request, ChildFds& child) {
  for (const std::string& path : request.cgroups) {
    UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!aboveStdio(fd)) return failed(request, "open", path);
    child.cgroups.push_back(std::move(fd));
  }
  return true;
}

bool openTerminal(SpawnRequest& request) {
  request.stdoutFd.reset(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  if (!aboveStdio(request.stdoutFd)) return failed(request, "openpt", "/dev/ptmx");
  const int master = request.stdoutFd.get();
  int unlock = 0;
  if (ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCGPTN, &request.pts) < 0)
    return failed(request, "ioctl", "/dev/ptmx");
  request.ptySlaveFd.reset(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!request.ptySlaveFd) {
    std::string name = "/dev/pts/" + std::to_string(request.pts);
    request.ptySlaveFd.reset(open(name.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!request.ptySlaveFd) return failed(request, "open", name);
  }
  if (!aboveStdio(request.ptySlaveFd)) return failed(request, "fcntl", "/dev/ptmx");
  const int ptySlave = request.ptySlaveFd.get();
  struct winsize size = {};
  size.ws_row = request.rows;
  size.ws_col = request.cols;
  if (ioctl(ptySlave, TIOCSWINSZ, &size) < 0) return failed(request, "ioctl", "/dev/ptmx");
  // Makes the line discipline erase whole UTF-8 characters.
  struct termios mode;
  if (tcgetattr(ptySlave, &mode) == 0) {
    mode.c_iflag |= IUTF8;
    tcsetattr(ptySlave, TCSANOW, &mode);
  }
  return true;
}

// Moves the write end above all numbers that the child assigns.
bool openFailurePipe(SpawnRequest& request, ChildFds& child) {
  UniqueFd writeEnd;
  if (!openPipe(child.failurePipe[0], writeEnd)) return failed(request, "pipe2", request.file);
  child.failurePipe[1].reset(fcntl(writeEnd.get(), F_DUPFD_CLOEXEC, 4 + static_cast<int>(request.inheritedFds.size())));
  return child.failurePipe[1] || failed(request, "fcntl", request.file);
}

}  // namespace procwire

// Only clone3 can start a child in a cgroup, and no C library wraps it. The child returns from the system call on its
// own stack, which has no frame of the calling function. So assembly makes the call and runs the child, which never
// returns.
#include "process/clone-into-cgroup.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>

#include "core/syscall-numbers.h"

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif

namespace procwire {
namespace {

constexpr uint64_t kCloneIntoCgroup = 0x200000000ull;
// Resets all handlers in one call, as of Linux 5.5; ignored signals stay ignored.
constexpr uint64_t kCloneClearSighand = 0x100000000ull;

// The kernel's struct clone_args as of Linux 5.7.
struct CloneArgs {
  uint64_t flags, pidfd, childTid, parentTid, exitSignal, stack, stackSize, tls, setTid, setTidSize, cgroup;
};

long clone3(CloneArgs* args, int (*run)(void*), void* argument) {
#if defined(__x86_64__)
  long result = SYS_clone3;
  __asm__ volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "mov %[argument], %%rdi\n\t"
      "call *%[run]\n\t"
      "hlt\n"
      "1:"
      : "+a"(result)
      : "D"(args), "S"(sizeof *args), [run] "r"(run), [argument] "r"(argument)
      : "rcx", "r11", "memory", "cc");
  return result;
#elif defined(__aarch64__)
  register long number __asm__("x8") = SYS_clone3;
  register long result __asm__("x0") = reinterpret_cast<long>(args);
  register long size __asm__("x1") = sizeof *args;
  __asm__ volatile(
      "svc #0\n\t"
      "cbnz x0, 1f\n\t"
      "mov x29, #0\n\t"
      "mov x0, %[argument]\n\t"
      "blr %[run]\n\t"
      "brk #1\n"
      "1:"
      : "+r"(result)
      : "r"(number), "r"(size), [run] "r"(run), [argument] "r"(argument)
      : "x30", "memory", "cc");
  return result;
#else
  (void)args, (void)run, (void)argument;
  return -ENOSYS;
#endif
}

}  // namespace

pid_t cloneIntoCgroup(const CloneIntoCgroupArgs& request, int (*run)(void*), void* argument) {
  CloneArgs args = {};
  args.flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | kCloneIntoCgroup | kCloneClearSighand;
  args.pidfd = reinterpret_cast<uint64_t>(request.pidfd);
  // A sibling inherits the exit signal of its parent.
  if (request.asSibling) args.flags |= CLONE_PARENT;
  else args.exitSignal = SIGCHLD;
  args.stack = reinterpret_cast<uint64_t>(request.stack);
  args.stackSize = request.stackBytes;
  args.cgroup = static_cast<uint64_t>(request.cgroupFd);
  const long result = clone3(&args, run, argument);
  if (result >= 0) return static_cast<pid_t>(result);
  errno = static_cast<int>(-result);
  return -1;
}

}  // namespace procwire

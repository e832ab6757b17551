#define _GNU_SOURCE
#include "supervisor-upgrade.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../core/monotonic-clock.h"
#include "close-fd.h"
#include "supervisor-state.h"

// Maximum time of a program that the supervisor asks. It needs milliseconds, and no server runs meanwhile.
#define ANSWER_TIMEOUT_MS 5000
#define POLL_INTERVAL_MS 2

// Runs in the child. Becomes the program, with its output in `output`.
static void run(const char* file, char** argv, const sigset_t* mask, int output) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(output >= 0 ? output : null, STDOUT_FILENO);
  sigprocmask(SIG_SETMASK, mask, NULL);
  signal(SIGPIPE, SIG_DFL);
  execvp(file, argv);
  _exit(127);
}

// Waits for the program and kills it at the deadline. Returns true if it succeeded.
static int has_succeeded(pid_t pid, long long deadline_ms) {
  int status = -1;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (now_ms() > deadline_ms) kill(pid, SIGKILL);
    pause_ms(POLL_INTERVAL_MS);
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Returns true if the command printed the path of its supervisor (bin/procwire).
static int locate(char** command, const sigset_t* mask, char path[PATH_MAX]) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return 0;
  pid_t pid = fork();
  if (pid == 0) {
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    // A command of a version without this request starts as a server, and fails because it has no supervisor.
    dup2(null, STDERR_FILENO);
    setenv("PROCWIRE_SUPERVISOR", "locate", 1);
    run(command[0], command, mask, ends[1]);
  }
  close_fd(&ends[1]);
  long long deadline = now_ms() + ANSWER_TIMEOUT_MS;
  size_t length = 0;
  while (pid > 0 && length < PATH_MAX - 1) {
    struct pollfd readable = {.fd = ends[0], .events = POLLIN};
    long long left = deadline - now_ms();
    int ready = poll(&readable, 1, left > 0 ? (int)left : 0);
    if (ready < 0 && errno == EINTR) continue;
    ssize_t received = ready <= 0 ? 0 : read(ends[0], path + length, PATH_MAX - 1 - length);
    if (received <= 0) break;
    length += (size_t)received;
  }
  close_fd(&ends[0]);
  if (pid < 0 || !has_succeeded(pid, deadline) || length < 2 || path[length - 1] != '\n') return 0;
  path[length - 1] = 0;
  return 1;
}

static int is_running_file(const char* path) {
  struct stat running, found;
  if (stat("/proc/self/exe", &running) < 0 || stat(path, &found) < 0) return 1;
  return running.st_dev == found.st_dev && running.st_ino == found.st_ino;
}

static size_t count_arguments(char** arguments) {
  size_t count = 0;
  while (arguments[count]) count++;
  return count;
}

// Runs the new supervisor once to check that it runs on this host and can read the state.
static int can_take_over(char* path, int state, const sigset_t* mask) {
  char number[16];
  snprintf(number, sizeof number, "%d", state);
  char* const argv[] = {path, "--check-state", number, NULL};
  pid_t pid = fork();
  if (pid == 0) {
    set_state_inherited(state, 1);
    run(path, (char**)argv, mask, -1);
  }
  return pid > 0 && has_succeeded(pid, now_ms() + ANSWER_TIMEOUT_MS);
}

static void execute(char* path, int state, char** command, long max_backoff_ms) {
  char number[16], backoff[24];
  snprintf(number, sizeof number, "%d", state);
  snprintf(backoff, sizeof backoff, "%ld", max_backoff_ms);
  char* const options[] = {path, "--restore-state", number, "--max-backoff-ms", backoff, "--upgradable"};
  const size_t option_count = sizeof options / sizeof *options, count = count_arguments(command);
  char** argv = calloc(option_count + count + 1, sizeof *argv);
  if (!argv) return;
  memcpy(argv, options, sizeof options);
  memcpy(argv + option_count, command, count * sizeof *command);
  set_state_inherited(state, 1);
  execv(path, argv);
  const int err = errno;
  set_state_inherited(state, 0);
  free(argv);
  fprintf(stderr, "procwire: cannot run supervisor %s: %s\n", path, strerror(err));
}

void upgrade_supervisor(char** command, const sigset_t* mask, long max_backoff_ms) {
  static char path[PATH_MAX];
  if (!locate(command, mask, path) || is_running_file(path)) return;
  int state = save_state();
  if (state < 0) {
    fprintf(stderr, "procwire: cannot replace the supervisor: %s\n", strerror(errno));
    return;
  }
  if (can_take_over(path, state, mask)) execute(path, state, command, max_backoff_ms);
  else
    fprintf(stderr,
            "procwire: supervisor %s cannot take over; the running supervisor stays; restart the service, which "
            "terminates persistent processes\n",
            path);
  close_fd(&state);
}

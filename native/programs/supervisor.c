// supervisor [--max-backoff-ms N] [--upgradable] [--restore-state FD] PROGRAM [ARGUMENT...]
// supervisor --check-state FD
//
// Runs a server below the watchdogs (watchdog.c) and replaces it: at once after a crash or a hang, and on SIGHUP with
// the executable that is now at the same path. The supervisor holds everything that survives a server: its listening
// socket and the persistent processes. These are children of the supervisor (the server clones them with CLONE_PARENT),
// so its death kills them. For each, the supervisor holds the descriptors, writes the input and records the exit. All
// other state is in the state segment (state-segment-layout.h), which the server reads and writes.
//
// All other processes end with their server: the supervisor kills every orphan without the tree tag of a persistent
// process before it starts the next server.
//
// The server is a child of the supervisor. They communicate through a socket named in PROCWIRE_SUPERVISOR as
// FD:INSTANCE:GENERATION, and the server sends heartbeats.
//
// With --upgradable, PROGRAM prints the path of its supervisor if PROCWIRE_SUPERVISOR is "locate". If that file
// changed, the supervisor replaces itself between two servers: it executes the file with --restore-state
// (supervisor-upgrade.c).
//
// This file contains the signals and the event loop. See persistent-process.c for the processes, server-lifecycle.c for
// the server, server-channel.c for packets and supervisor-orphans.c for orphans.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "../core/monotonic-clock.h"
#include "close-fd.h"
#include "epoll-watch.h"
#include "persistent-process.h"
#include "private-process.h"
#include "server-channel.h"
#include "server-lifecycle.h"
#include "service-state.h"
#include "supervisor-orphans.h"
#include "supervisor-state.h"

#define POLL_INTERVAL_MS 100
#define MAX_TIMEOUT_MS 60000
#define EVENTS 64

static pid_t watchdog;

// Returns -1 to continue, else the exit code.
static int handle_signal(const struct signalfd_siginfo* info) {
  // Sent by a process, not by a terminal.
  int is_from_process = info->ssi_code <= 0;
  int exit_code;
  switch (info->ssi_signo) {
    case SIGCHLD:
      exit_code = check_server();
      if (exit_code < 0) reap_orphans();
      return exit_code;
    case SIGUSR1:
      // A server that shuts down reports progress, which is forwarded to the watchdog.
      if ((pid_t)info->ssi_pid == server_pid() && getppid() == watchdog) kill(watchdog, SIGUSR1);
      return -1;
    case SIGHUP:
      if (!is_from_process) return stop_server(0);
      hand_off();
      return -1;
    // A terminal has signaled the server as well, but the server does not handle a hang-up.
    default: return stop_server(!is_from_process);
  }
}

static int timeout_ms(void) {
  long long now = now_ms(), next = next_server_timer_ms();
  if (is_any_traced() && (next == 0 || next > now + POLL_INTERVAL_MS)) next = now + POLL_INTERVAL_MS;
  if (next == 0) return -1;
  return next <= now ? 0 : next - now > MAX_TIMEOUT_MS ? MAX_TIMEOUT_MS : (int)(next - now);
}

static int serve(int signals) {
  for (;;) {
    struct epoll_event events[EVENTS];
    int count = wait_for_events(events, EVENTS, timeout_ms());
    recheck_traced();
    // Timers and packets may free processes that other events refer to, so they are handled last.
    int has_packets = 0, has_signal = 0;
    for (int at = 0; at < count; at++) {
      const struct watch* watch = events[at].data.ptr;
      switch (watch->kind) {
        case WATCH_SIGNALS: has_signal = 1; break;
        case WATCH_SERVER: has_packets = 1; break;
        case WATCH_EXIT: record_exit(watch->process); break;
        case WATCH_INPUT: write_input(watch->process); break;
        case WATCH_WAKE: handle_wake(watch->process); break;
      }
    }
    if (has_packets) {
      read_packets();
      reap_deferred();
    }
    on_server_timer();
    struct signalfd_siginfo info;
    while (has_signal && read(signals, &info, sizeof info) == sizeof info) {
      int exit_code = handle_signal(&info);
      if (exit_code >= 0) return exit_code;
    }
  }
}

static void raise_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Blocks the handled signals and returns a signalfd, or -1 with errno set.
static int open_signals(sigset_t* before) {
  const int numbers[] = {SIGCHLD, SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1};
  sigset_t taken;
  sigemptyset(&taken);
  for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) sigaddset(&taken, numbers[at]);
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  sigprocmask(SIG_BLOCK, &taken, before);
  return signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
}

#define USAGE "usage: supervisor [--max-backoff-ms N] [--upgradable] [--restore-state FD] PROGRAM [ARGUMENT...]\n"

struct arguments {
  char** command;
  long max_backoff_ms;
  int is_upgradable;
  int restored_state;  // -1: none
  int checked_state;   // -1: none
};

// Returns -1 if the arguments are invalid.
static int parse_arguments(char** argv, struct arguments* arguments) {
  *arguments = (struct arguments){.max_backoff_ms = MAX_BACKOFF_MS, .restored_state = -1, .checked_state = -1};
  char** next = argv + 1;
  for (; *next && strncmp(*next, "--", 2) == 0; next++) {
    if (strcmp(*next, "--upgradable") == 0) {
      arguments->is_upgradable = 1;
      continue;
    }
    const char* name = *next++;
    if (!*next) return -1;
    if (strcmp(name, "--max-backoff-ms") == 0) arguments->max_backoff_ms = atol(*next);
    else if (strcmp(name, "--restore-state") == 0) arguments->restored_state = atoi(*next);
    else if (strcmp(name, "--check-state") == 0) arguments->checked_state = atoi(*next);
    else return -1;
  }
  arguments->command = next;
  return (*next || arguments->checked_state >= 0) && arguments->max_backoff_ms >= 0 ? 0 : -1;
}

// Reports whether this executable can take over the state of the running supervisor.
static int check_state(int state) {
  const char* why = open_watches() < 0 ? strerror(errno) : load_state(state);
  if (why) fprintf(stderr, "procwire: cannot read the state of the running supervisor: %s\n", why);
  return why ? 1 : 0;
}

int main(int argc, char** argv) {
  (void)argc;
  struct arguments arguments;
  if (parse_arguments(argv, &arguments) < 0) {
    fprintf(stderr, USAGE);
    return 2;
  }
  if (arguments.checked_state >= 0) return check_state(arguments.checked_state);
  make_process_private();
  watchdog = getppid();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
    fprintf(stderr, "procwire: cannot adopt orphans: %s\n", strerror(errno));
  raise_descriptor_limit();
  open_service_state();

  sigset_t before;
  struct watch signals_watch = {.kind = WATCH_SIGNALS};
  int signals = open_signals(&before);
  if (signals < 0 || open_watches() < 0) {
    fprintf(stderr, "procwire: supervisor cannot run: %s\n", strerror(errno));
    return 126;
  }
  watch_fd(signals, EPOLLIN, &signals_watch);
  const struct server_options options = {arguments.command, &before, arguments.max_backoff_ms, arguments.is_upgradable};
  configure_server(&options);
  if (arguments.restored_state >= 0) {
    const char* why = load_state(arguments.restored_state);
    if (why) {
      fprintf(stderr, "procwire: cannot read the state of the replaced supervisor: %s\n", why);
      return 126;
    }
    close_fd(&arguments.restored_state);
    fprintf(stderr, "procwire: supervisor replaced by %s\n", argv[0]);
    for (struct persistent_process* process = first_persistent; process; process = process->next) write_input(process);
    reap_orphans();
  }
  start_server();
  return serve(signals);
}

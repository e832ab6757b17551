// keeper [--deaths N] PROGRAM [ARGUMENT...]
//
// Runs a server below the watchdogs (watchdog.c) and replaces it: at once when it has crashed or hangs, and on SIGHUP
// with the program that is now at the same path. What outlives a server is held here: its listening socket, and the
// processes that were started to be kept. Those are children of this program (the server clones them with
// CLONE_PARENT), so they get SIGKILL when it dies. For each it holds the descriptors, writes its input and records how
// it ended; everything else about it lies in memory that both share (kept-memory.h), which the server reads and writes.
//
// What is not kept ends with its server: every orphan that comes here without the mark of a kept process is killed
// before the next server starts.
//
// The server is the child of this program. It talks to it over a socket named in PROCWIRE_KEEPER, as
// FD:INSTANCE:COUNT, and reports from time to time that it is alive.
//
// This file: its signals and its loop. kept-process.c has the processes, server-life.c the server, server-channel.c
// their messages, keeper-children.c what is neither.
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

#include "clock.h"
#include "fds.h"
#include "keeper-children.h"
#include "kept-process.h"
#include "server-channel.h"
#include "server-life.h"

#define LOOK_AGAIN_MS 100
#define MOST_TIMEOUT_MS 60000
#define EVENTS 64

static pid_t watchdog;

// -1 to go on.
static int take_signal(const struct signalfd_siginfo* info) {
  // By a program, not by a terminal.
  int is_sent = info->ssi_code <= 0;
  int end;
  switch (info->ssi_signo) {
    case SIGCHLD:
      end = look_at_server();
      if (end < 0) reap_strangers();
      return end;
    case SIGUSR1:
      // A server that is ending reports it, and the report is passed on to the watchdog above.
      if ((pid_t)info->ssi_pid == server_pid() && getppid() == watchdog) kill(watchdog, SIGUSR1);
      return -1;
    case SIGHUP:
      if (!is_sent) return end_server(0);
      hand_over();
      return -1;
    // A terminal has signalled the server itself; but the server does not know what a hang-up means.
    default: return end_server(!is_sent);
  }
}

static int timeout_ms(void) {
  long long now = now_ms(), next = server_time_ms();
  if (is_any_traced() && (next == 0 || next > now + LOOK_AGAIN_MS)) next = now + LOOK_AGAIN_MS;
  if (next == 0) return -1;
  return next <= now ? 0 : next - now > MOST_TIMEOUT_MS ? MOST_TIMEOUT_MS : (int)(next - now);
}

static int serve(int signals) {
  for (;;) {
    struct epoll_event events[EVENTS];
    int count = await_events(events, EVENTS, timeout_ms());
    look_at_traced();
    // Time and packets may free what other events are about, so they come last.
    int has_packets = 0, has_signal = 0;
    for (int at = 0; at < count; at++) {
      const struct watch* watch = events[at].data.ptr;
      switch (watch->what) {
        case WATCH_SIGNALS: has_signal = 1; break;
        case WATCH_SERVER: has_packets = 1; break;
        case WATCH_END: note_end(watch->kept); break;
        case WATCH_INPUT: write_input(watch->kept); break;
        case WATCH_POKE: take_poke(watch->kept); break;
      }
    }
    if (has_packets) {
      read_packets();
      reap_rest();
    }
    on_server_time();
    struct signalfd_siginfo info;
    while (has_signal && read(signals, &info, sizeof info) == sizeof info) {
      int end = take_signal(&info);
      if (end >= 0) return end;
    }
  }
}

static void raise_descriptor_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The signals that the loop takes, blocked; -1 with errno set.
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

int main(int argc, char** argv) {
  char** command = argv + 1;
  // For tests, which kill more.
  int gives_up_after = GIVES_UP_AFTER;
  if (argc > 3 && strcmp(argv[1], "--deaths") == 0) {
    gives_up_after = atoi(argv[2]);
    command += 2;
  }
  if (argc < 2 || !*command || gives_up_after < 1 || gives_up_after > MOST_DEATHS) {
    fprintf(stderr, "usage: keeper [--deaths N] PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  watchdog = getppid();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
    fprintf(stderr, "procwire: cannot adopt orphans: %s\n", strerror(errno));
  raise_descriptor_limit();

  sigset_t before;
  struct watch signals_watch = {.what = WATCH_SIGNALS};
  int signals = open_signals(&before);
  if (signals < 0 || open_watches() < 0) {
    fprintf(stderr, "procwire: the keeper cannot run: %s\n", strerror(errno));
    return 126;
  }
  watch_fd(signals, EPOLLIN, &signals_watch);
  set_server(command, &before, (unsigned)gives_up_after);
  start_server();
  return serve(signals);
}

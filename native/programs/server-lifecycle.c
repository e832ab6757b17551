#define _GNU_SOURCE
#include "server-lifecycle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../core/monotonic-clock.h"
#include "close-fd.h"
#include "persistent-process.h"
#include "server-channel.h"
#include "service-state.h"
#include "supervisor-orphans.h"
#include "supervisor-upgrade.h"

#define CRASH_WINDOW_MS 60000
// Restart delay after the second crash in a row, doubled with each further crash.
#define FIRST_BACKOFF_MS 100
// Time after which a server that does not complete a handoff is killed. The server's own timeout is shorter
// (src/server/server-config.ts).
#define HANDOFF_TIMEOUT_MS 10000
// Shorter for a hung server, which is unlikely to respond.
#define HUNG_HANDOFF_TIMEOUT_MS 1000

static struct server_history history;

static struct {
  char** command;
  sigset_t mask;
  long max_backoff_ms;
  int is_upgradable;
  pid_t pid;
  int has_been_ready;  // a server was ready once
  long long ready_at_ms;
  int is_ready;
  int is_stopping;
  int is_handing_off;
  int needs_handoff;     // SIGHUP arrived during startup: hand off once ready
  long long kill_at_ms;  // 0: not scheduled
  long long start_at_ms;
} server;

void configure_server(const struct server_options* options) {
  unsigned random = 0;
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
    random = (unsigned)now_ms() ^ (unsigned)getpid();
  snprintf(history.instance, sizeof history.instance, "%08x", random);
  server.command = options->command;
  server.mask = *options->mask;
  server.max_backoff_ms = options->max_backoff_ms;
  server.is_upgradable = options->is_upgradable;
  for (int number = 1; number <= 64; number++)
    if (sigismember(options->mask, number) == 1) history.signal_mask |= (uint64_t)1 << (number - 1);
}

void restore_server_history(const struct server_history* restored) {
  history = *restored;
  server.has_been_ready = 1;
  sigemptyset(&server.mask);
  for (int number = 1; number <= 64; number++)
    if ((history.signal_mask >> (number - 1)) & 1) sigaddset(&server.mask, number);
}

const struct server_history* server_history(void) { return &history; }

void set_give_up_after(uint64_t crashes) {
  history.give_up_after = crashes > MAX_CRASH_LIMIT ? MAX_CRASH_LIMIT : (int64_t)crashes;
}

pid_t server_pid(void) { return server.pid; }

// ---- start

// Runs in the child.
static void run_server(int channel, pid_t supervisor) {
  char text[64];
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != supervisor) _exit(0);
  sigprocmask(SIG_SETMASK, &server.mask, NULL);
  signal(SIGPIPE, SIG_DFL);
  fcntl(channel, F_SETFD, 0);
  snprintf(text, sizeof text, "%d:%s:%llu", channel, history.instance, (unsigned long long)history.generation);
  setenv("PROCWIRE_SUPERVISOR", text, 1);
  snprintf(text, sizeof text, "%d", (int)supervisor);
  setenv("PROCWIRE_WATCHDOG", text, 1);
  execvp(server.command[0], server.command);
  int err = errno;
  fprintf(stderr, "procwire: cannot run %s: %s\n", server.command[0], strerror(err));
  _exit(err == ENOENT ? 127 : 126);
}

void start_server(void) {
  int channel = open_channel();
  pid_t supervisor = getpid();
  history.generation++;
  pid_t pid = channel < 0 ? -1 : fork();
  if (pid == 0) run_server(channel, supervisor);
  int err = errno;
  close_fd(&channel);
  if (pid < 0) {
    close_channel();
    fprintf(stderr, "procwire: supervisor cannot start the server: %s\n", strerror(err));
    server.start_at_ms = now_ms() + FIRST_BACKOFF_MS;
    return;
  }
  server.pid = pid;
  server.is_ready = 0;
  server.is_handing_off = 0;
  server.needs_handoff = 0;
  server.start_at_ms = 0;
  server.kill_at_ms = 0;
}

// Starts the next server, below the supervisor that is installed now.
static void restart_server(void) {
  if (server.is_upgradable) upgrade_supervisor(server.command, &server.mask, server.max_backoff_ms);
  start_server();
}

// ---- handoff

static void request_handoff(long long timeout_ms) {
  if (server.is_handing_off) return;
  server.is_handing_off = 1;
  server.kill_at_ms = now_ms() + timeout_ms;
  send_handoff();
}

void hand_off(void) {
  if (server.is_handing_off || server.is_stopping) return;
  if (server.pid <= 0) {
    // The user has probably repaired the cause of the crashes.
    server.start_at_ms = now_ms();
    return;
  }
  // A starting server may still run the old executable, so it has to hand off as well.
  server.needs_handoff = !server.is_ready;
  if (server.needs_handoff) return;
  report_service_state(SERVICE_RELOADING);
  request_handoff(HANDOFF_TIMEOUT_MS);
}

void on_server_ready(void) {
  server.is_ready = 1;
  server.has_been_ready = 1;
  server.ready_at_ms = now_ms();
  report_service_state(SERVICE_READY);
  if (server.needs_handoff) hand_off();
}

// ---- exit

static int shut_down_with(int status) {
  terminate_all_persistent();
  kill_non_persistent();
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Returns true if the server crashed too often. Otherwise schedules the next start.
static int record_crash(void) {
  long long now = now_ms();
  int64_t recent = 0;
  history.crashes[history.crash_count++ % MAX_CRASH_LIMIT] = now;
  for (int at = 0; at < MAX_CRASH_LIMIT; at++)
    if (history.crashes[at] > 0 && now - history.crashes[at] < CRASH_WINDOW_MS) recent++;
  if (history.give_up_after > 0 && recent >= history.give_up_after) return 1;
  // A server that served longer than the longest delay was not part of a crash loop.
  if (server.is_ready && now - server.ready_at_ms > MAX_BACKOFF_MS) history.backoff_ms = 0;
  server.start_at_ms = now + history.backoff_ms;
  history.backoff_ms = history.backoff_ms > 0 ? 2 * history.backoff_ms : FIRST_BACKOFF_MS;
  if (history.backoff_ms > server.max_backoff_ms) history.backoff_ms = server.max_backoff_ms;
  return 0;
}

static int on_server_exit(int status) {
  int was_handing_off = server.is_handing_off;
  close_channel();
  server.pid = 0;
  server.kill_at_ms = 0;
  server.is_handing_off = 0;
  if (server.is_stopping || !server.has_been_ready) return shut_down_with(status);
  // Exit code 0 means that the server was stopped or replaced.
  if (!was_handing_off && WIFEXITED(status) && WEXITSTATUS(status) == 0) return shut_down_with(status);
  kill_non_persistent();
  if (was_handing_off) {
    restart_server();
    return -1;
  }
  char how[64];
  if (WIFSIGNALED(status)) snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status));
  else snprintf(how, sizeof how, "exited with code %d", WEXITSTATUS(status));
  if (record_crash()) {
    fprintf(stderr,
            "procwire: server %s, %lld crashes within a minute; supervisor gives up and terminates all processes\n",
            how, (long long)history.give_up_after);
    shut_down_with(status);
    return 1;
  }
  long long delay = server.start_at_ms - now_ms();
  if (delay <= 0) {
    fprintf(stderr, "procwire: server %s; supervisor restarts it\n", how);
    restart_server();
  } else {
    fprintf(stderr, "procwire: server %s; supervisor restarts it in %lld ms\n", how, delay);
  }
  return -1;
}

int check_server(void) {
  int status;
  read_packets();
  if (server.pid > 0 && waitpid(server.pid, &status, WNOHANG) == server.pid) return on_server_exit(status);
  return -1;
}

int stop_server(int is_signaled) {
  server.is_stopping = 1;
  report_service_state(SERVICE_STOPPING);
  if (server.pid <= 0) return shut_down_with(0);
  if (!is_signaled) kill(server.pid, SIGTERM);
  return -1;
}

// ---- timers

// Time at which the server counts as hung; 0: never.
static long long server_deadline_ms(void) {
  int is_expected = server.pid > 0 && server.is_ready && !server.is_handing_off && !server.is_stopping;
  return is_expected ? liveness_deadline_ms() : 0;
}

static int is_due(long long at) { return at > 0 && now_ms() >= at; }

long long next_server_timer_ms(void) {
  long long due[] = {server.kill_at_ms, server.start_at_ms, server_deadline_ms()};
  long long next = 0;
  for (size_t at = 0; at < sizeof due / sizeof *due; at++)
    if (due[at] > 0 && (next == 0 || due[at] < next)) next = due[at];
  return next;
}

void on_server_timer(void) {
  if (is_due(server.kill_at_ms)) {
    fprintf(stderr, "procwire: server did not complete the handoff; killing it\n");
    kill(server.pid, SIGKILL);
    server.kill_at_ms = 0;
  }
  if (is_due(server.start_at_ms)) restart_server();
  if (!is_due(server_deadline_ms())) return;
  // Received packets may not be read yet.
  read_packets();
  if (!is_due(server_deadline_ms())) return;
  fprintf(stderr, "procwire: server sent no heartbeat for %lld ms; replacing it\n", liveness_timeout_ms());
  request_handoff(HUNG_HANDOFF_TIMEOUT_MS);
}

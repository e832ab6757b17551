#define _GNU_SOURCE
#include "server-life.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "keeper-children.h"
#include "kept-process.h"
#include "server-channel.h"
#include "service-manager.h"

#define DEATHS_WITHIN_MS 60000
// The delay after the second death; doubled with each one.
#define FIRST_PAUSE_MS 100
#define LAST_PAUSE_MS 800
// A server that was told to leave and has not exited by then is killed. Servers allow themselves less time
// (src/server/limits.ts).
#define LEAVE_WITHIN_MS 10000
// The same for one that hangs: it will hardly react.
#define HUNG_LEAVE_WITHIN_MS 1000

static struct {
  char** command;
  sigset_t mask;
  char instance[16];    // names this keeper
  unsigned long count;  // of servers
  pid_t pid;
  int was_ready;  // one of them
  int is_ready;
  int is_ending;
  int is_leaving;
  int is_outdated;       // SIGHUP came while it was starting: it hands over as soon as it can
  long long kill_at_ms;  // 0: not
  long long start_at_ms;
  long long deaths[MOST_DEATHS];
  unsigned death_count, gives_up_after;
} server;

void set_server(char** command, const sigset_t* mask, unsigned gives_up_after) {
  unsigned random = 0;
  if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
    random = (unsigned)now_ms() ^ (unsigned)getpid();
  snprintf(server.instance, sizeof server.instance, "%08x", random);
  server.command = command;
  server.mask = *mask;
  server.gives_up_after = gives_up_after;
}

pid_t server_pid(void) { return server.pid; }

// ---- its start

// In the child.
static void run_server(int channel, pid_t keeper) {
  char text[64];
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != keeper) _exit(0);
  sigprocmask(SIG_SETMASK, &server.mask, NULL);
  signal(SIGPIPE, SIG_DFL);
  fcntl(channel, F_SETFD, 0);
  snprintf(text, sizeof text, "%d:%s:%lu", channel, server.instance, server.count);
  setenv("PROCWIRE_KEEPER", text, 1);
  snprintf(text, sizeof text, "%d", (int)keeper);
  setenv("PROCWIRE_WATCHDOG", text, 1);
  unsetenv("NOTIFY_SOCKET");
  execvp(server.command[0], server.command);
  int err = errno;
  fprintf(stderr, "procwire: cannot run %s: %s\n", server.command[0], strerror(err));
  _exit(err == ENOENT ? 127 : 126);
}

void start_server(void) {
  int channel = open_channel();
  pid_t keeper = getpid();
  server.count++;
  pid_t pid = channel < 0 ? -1 : fork();
  if (pid == 0) run_server(channel, keeper);
  int err = errno;
  close_fd(&channel);
  if (pid < 0) {
    close_channel();
    fprintf(stderr, "procwire: the keeper cannot start its server: %s\n", strerror(err));
    server.start_at_ms = now_ms() + FIRST_PAUSE_MS;
    return;
  }
  server.pid = pid;
  server.is_ready = 0;
  server.is_leaving = 0;
  server.is_outdated = 0;
  server.start_at_ms = 0;
  server.kill_at_ms = 0;
}

// ---- its replacement

static void ask_to_leave(long long within_ms) {
  if (server.is_leaving) return;
  server.is_leaving = 1;
  server.kill_at_ms = now_ms() + within_ms;
  send_leave();
}

void hand_over(void) {
  if (server.pid <= 0 || server.is_leaving || server.is_ending) return;
  // One that is starting may be the former program still, so it is not enough.
  server.is_outdated = !server.is_ready;
  if (server.is_outdated) return;
  tell_reloading();
  ask_to_leave(LEAVE_WITHIN_MS);
}

void server_is_ready(void) {
  server.is_ready = 1;
  server.was_ready = 1;
  tell_ready();
  if (server.is_outdated) hand_over();
}

// ---- its end

static int exit_as(int status) {
  end_all_kept();
  sweep_unkept();
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// True when there have been too many deaths lately; else the next start is scheduled.
static int count_death(void) {
  long long now = now_ms();
  server.deaths[server.death_count++ % MOST_DEATHS] = now;
  unsigned recent = 0;
  for (int at = 0; at < MOST_DEATHS; at++)
    if (server.deaths[at] > 0 && now - server.deaths[at] < DEATHS_WITHIN_MS) recent++;
  if (recent >= server.gives_up_after) return 1;
  long pause = 0;
  for (unsigned death = 1; death < recent && pause < LAST_PAUSE_MS; death++) pause = pause ? 2 * pause : FIRST_PAUSE_MS;
  // A test that expects many deaths wants no delays.
  server.start_at_ms = now + (server.gives_up_after > GIVES_UP_AFTER ? 0 : pause);
  return 0;
}

static int server_ended(int status) {
  int was_leaving = server.is_leaving;
  close_channel();
  server.pid = 0;
  server.kill_at_ms = 0;
  server.is_leaving = 0;
  if (server.is_ending || !server.was_ready) return exit_as(status);
  // One that exits with 0 was told to end, or was replaced.
  if (!was_leaving && WIFEXITED(status) && WEXITSTATUS(status) == 0) return exit_as(status);
  sweep_unkept();
  if (was_leaving) {
    start_server();
    return -1;
  }
  char how[64];
  if (WIFSIGNALED(status)) snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status));
  else snprintf(how, sizeof how, "ended with code %d", WEXITSTATUS(status));
  if (count_death()) {
    fprintf(stderr, "procwire: the server %s, the %uth time within a minute; the keeper gives up and ends everything\n",
            how, server.gives_up_after);
    exit_as(status);
    return 1;
  }
  fprintf(stderr, "procwire: the server %s; the keeper starts another one\n", how);
  if (server.start_at_ms <= now_ms()) start_server();
  return -1;
}

int look_at_server(void) {
  int status;
  read_packets();
  if (server.pid > 0 && waitpid(server.pid, &status, WNOHANG) == server.pid) return server_ended(status);
  return -1;
}

int end_server(int is_told) {
  server.is_ending = 1;
  tell_stopping();
  if (server.pid <= 0) return exit_as(0);
  if (!is_told) kill(server.pid, SIGTERM);
  return -1;
}

// ---- what time brings

// When it counts as hung; 0: never.
static long long hangs_at_ms(void) {
  int is_expected = server.pid > 0 && server.is_ready && !server.is_leaving && !server.is_ending;
  return is_expected ? hung_at_ms() : 0;
}

static int is_due(long long at) { return at > 0 && now_ms() >= at; }

long long server_time_ms(void) {
  long long due[] = {server.kill_at_ms, server.start_at_ms, hangs_at_ms()};
  long long next = 0;
  for (size_t at = 0; at < sizeof due / sizeof *due; at++)
    if (due[at] > 0 && (next == 0 || due[at] < next)) next = due[at];
  return next;
}

void on_server_time(void) {
  if (is_due(server.kill_at_ms)) {
    fprintf(stderr, "procwire: the server was to hand over and has not; it is killed\n");
    kill(server.pid, SIGKILL);
    server.kill_at_ms = 0;
  }
  if (is_due(server.start_at_ms)) start_server();
  if (!is_due(hangs_at_ms())) return;
  // Its messages may have arrived and not be read yet.
  read_packets();
  if (!is_due(hangs_at_ms())) return;
  fprintf(stderr, "procwire: the server has said nothing for %lld ms and counts as hung; it is replaced\n",
          hung_after_ms());
  ask_to_leave(HUNG_LEAVE_WITHIN_MS);
}

#define _GNU_SOURCE
#include "server-channel.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "fds.h"
#include "keeper-children.h"
#include "keeper-packets.h"
#include "kept-process.h"
#include "server-life.h"

// A server that does not take what it inherits within this time is broken.
#define INHERIT_WITHIN_MS 10000
#define LOOK_AGAIN_MS 100

static int channel = -1;
static int listener = -1;
static unsigned starting;
static long long alive_at, hung_after;
static struct watch channel_watch = {.what = WATCH_SERVER};

unsigned starts_under_way(void) { return starting; }

long long hung_at_ms(void) { return hung_after > 0 ? alive_at + hung_after : 0; }

long long hung_after_ms(void) { return hung_after; }

int open_channel(void) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) return -1;
  // Few are in flight at once: descriptors in flight count towards the user's limit.
  int size = 16 * 1024;
  setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  channel = ends[0];
  starting = 0;
  alive_at = now_ms();
  watch_fd(channel, EPOLLIN, &channel_watch);
  return ends[1];
}

static void drop_channel(void) {
  if (channel >= 0) unwatch_fd(channel);
  close_fd(&channel);
}

void close_channel(void) {
  read_packets();
  drop_channel();
  starting = 0;
}

// ---- to the server

static int send_packet(enum keeper_word word, uint64_t id, uint64_t value, const int* fds, unsigned count) {
  struct keeper_packet packet = {.protocol = KEEPER_PROTOCOL, .word = word, .id = id, .value = value};
  struct keeper_message message;
  pack_message(&message, &packet, fds, count);
  long long deadline = now_ms() + INHERIT_WITHIN_MS;
  while (channel >= 0) {
    if (sendmsg(channel, &message.head, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: as many descriptors are in flight as one program may have open.
    if ((errno != EAGAIN && errno != ETOOMANYREFS) || now_ms() > deadline) return -1;
    struct pollfd room = {.fd = channel, .events = POLLOUT};
    if (errno == ETOOMANYREFS) pause_ms(1);
    else poll(&room, 1, LOOK_AGAIN_MS);
  }
  return -1;
}

static void tell_inheritance(void) {
  uint64_t count = 0;
  if (listener >= 0) send_packet(KEEPER_HAS_LISTENER, 0, 0, &listener, 1);
  for (const struct kept* kept = first_kept; kept; kept = kept->next) {
    int fds[KEPT_FDS];
    unsigned length = 0;
    uint64_t which = 0;
    for (int at = 0; at < KEPT_FDS; at++) {
      // Only the keeper has the write end of its input, so that closing it is an end of file for the reader.
      if (kept->fds[at] < 0 || at == KEPT_IN) continue;
      fds[length++] = kept->fds[at];
      which |= (uint64_t)1 << at;
    }
    if (send_packet(KEEPER_HAS, kept->id, which, fds, length) < 0) return;
    count++;
  }
  send_packet(KEEPER_HAS_ALL, KEPT_VERSION, count, NULL, 0);
}

void send_leave(void) { send_packet(KEEPER_LEAVE, 0, 0, NULL, 0); }

// ---- from the server

static void forget_asked(uint64_t id) {
  struct kept* kept = find_kept(id);
  if (!kept) return;
  if (!is_running(kept)) {
    forget_kept(kept);
    return;
  }
  // The server cannot read its memory, so it cannot end what the process started either.
  kill_kept(kept);
  if (starting == 0) sweep_unkept();
}

// Its messages mean something else. The answer shows it so too.
static void refuse_server(uint32_t protocol) {
  fprintf(stderr,
          "procwire: the server speaks version %u of the keeper's messages, and this keeper version %u; restart the "
          "whole service, which ends what is kept\n",
          protocol, KEEPER_PROTOCOL);
  send_packet(KEEPER_HAS_ALL, KEPT_VERSION, 0, NULL, 0);
}

// True when the descriptors are kept.
static int take_packet(const struct keeper_packet* packet, const int* fds, unsigned count) {
  struct kept* kept;
  if (packet->protocol != KEEPER_PROTOCOL) {
    if (packet->word == KEEPER_HELLO) refuse_server(packet->protocol);
    return 0;
  }
  alive_at = now_ms();
  switch (packet->word) {
    case KEEPER_HELLO:
      hung_after = (long long)packet->value;
      tell_inheritance();
      return 0;
    case KEEPER_LISTENER:
      if (count != 1) return 0;
      close_fd(&listener);
      listener = fds[0];
      return 1;
    case KEEPER_STARTING: starting++; return 0;
    case KEEPER_KEEP: {
      int is_taken = keep(packet->id, packet->value, fds, count) == 0;
      if (starting > 0) starting--;
      return is_taken;
    }
    case KEEPER_DROPPED:
      if (starting > 0) starting--;
      return 0;
    case KEEPER_CLOSED:
      if ((kept = find_kept(packet->id))) close_kept(kept);
      return 0;
    case KEEPER_FORGET: forget_asked(packet->id); return 0;
    case KEEPER_READY: server_is_ready(); return 0;
    default: return 0;
  }
}

void read_packets(void) {
  while (channel >= 0) {
    struct keeper_message message;
    make_room(&message);
    ssize_t length = recvmsg(channel, &message.head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // ECONNRESET comes once, before the rest, when the server died with messages of ours unread.
    if (length < 0 && (errno == EINTR || errno == ECONNRESET)) continue;
    if (length < 0) return;
    if (length == 0) {
      // The server is ending; SIGCHLD reports its end.
      drop_channel();
      return;
    }
    int fds[KEPT_FDS];
    unsigned count = unpack_fds(&message, fds);
    if (length != sizeof message.packet || !take_packet(&message.packet, fds, count))
      while (count > 0) close(fds[--count]);
  }
}

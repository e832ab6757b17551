// The messages between a server and its keeper, one packet each, with the descriptors that go with it. C and C++ both
// read it.
#ifndef PROCWIRE_KEEPER_PACKETS_H
#define PROCWIRE_KEEPER_PACKETS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

// The version of what follows. The packet itself, HELLO and HAS_ALL stay as they are in every version, so that both
// sides learn that they do not understand each other.
#define KEEPER_PROTOCOL 1u

// What the keeper adds to KEPT_TO_SERVER for a process that it cannot keep, and has ended; everything else is a 1.
#define KEPT_REFUSED ((uint64_t)1 << 32)

enum keeper_word {
  // The server.
  KEEPER_HELLO = 1,     // value: it counts as hung after so many milliseconds of silence; 0: never
  KEEPER_LISTENER = 2,  // with the socket it listens on
  KEEPER_STARTING = 3,  // a process is about to be started, and KEEP or DROPPED follows
  KEEPER_KEEP = 4,      // with its descriptors; value: which of them
  KEEPER_DROPPED = 5,   // the start failed
  KEEPER_CLOSED = 6,    // it has ended and all it wrote was read
  KEEPER_FORGET = 7,
  KEEPER_READY = 8,
  KEEPER_ALIVE = 9,
  // The keeper.
  KEEPER_HAS_LISTENER = 16,
  KEEPER_HAS = 17,
  // The answer to HELLO is complete; id: the version of KEPT_VERSION that the keeper reads (0: 1), value: how many
  // processes there were.
  KEEPER_HAS_ALL = 18,
  KEEPER_LEAVE = 19,  // the server is to hand over and go
};

// The descriptors that are there, in this order.
enum kept_fd {
  KEPT_MEMORY,
  KEPT_PIDFD,
  KEPT_OUT,
  KEPT_ERR,
  KEPT_IN,
  KEPT_SLAVE,
  KEPT_TO_KEEPER,
  KEPT_TO_SERVER,
  KEPT_FDS
};

struct keeper_packet {
  uint32_t protocol;
  uint32_t word;
  uint64_t id;
  uint64_t value;
};

// A packet as sendmsg and recvmsg take it: `head` points to the other members, so it cannot be copied.
struct keeper_message {
  struct keeper_packet packet;
  struct iovec part;
  size_t control[CMSG_SPACE(sizeof(int) * KEPT_FDS) / sizeof(size_t)];  // aligned as a cmsghdr has to be
  struct msghdr head;
};

// Ready to receive: room for a packet and for all the descriptors there may be.
static inline void make_room(struct keeper_message* message) {
  memset(message, 0, sizeof *message);
  message->part.iov_base = &message->packet;
  message->part.iov_len = sizeof message->packet;
  message->head.msg_iov = &message->part;
  message->head.msg_iovlen = 1;
  message->head.msg_control = message->control;
  message->head.msg_controllen = sizeof message->control;
}

// Ready to send, with `count` descriptors.
static inline void pack_message(struct keeper_message* message, const struct keeper_packet* packet, const int* fds,
                                unsigned count) {
  make_room(message);
  message->packet = *packet;
  message->head.msg_controllen = count > 0 ? CMSG_SPACE(sizeof(int) * count) : 0;
  if (count == 0) return;
  struct cmsghdr* rights = CMSG_FIRSTHDR(&message->head);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int) * count);
  memcpy(CMSG_DATA(rights), fds, sizeof(int) * count);
}

// The descriptors that came with a message; returns how many.
static inline unsigned unpack_fds(struct keeper_message* message, int fds[KEPT_FDS]) {
  const struct cmsghdr* rights = CMSG_FIRSTHDR(&message->head);
  if (!rights || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) return 0;
  unsigned count = (unsigned)((rights->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  memcpy(fds, CMSG_DATA(rights), sizeof(int) * count);
  return count;
}

#endif

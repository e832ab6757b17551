// Packets between the supervisor and its current server (supervisor-protocol.h).
#ifndef PROCWIRE_PROGRAMS_SERVER_CHANNEL_H
#define PROCWIRE_PROGRAMS_SERVER_CHANNEL_H

// Creates the socket pair. Returns the server's end, or -1 with errno set.
int open_channel(void);
// Reads the remaining packets of an exited server, then closes the channel.
void close_channel(void);

// Handles all received packets.
void read_packets(void);
void send_handoff(void);

// Listening socket of the servers; -1 before the first server has sent it.
int retained_listener(void);
// Continues with the listening socket of the supervisor that this one replaces.
void restore_listener(int fd);

// Number of starts in flight. A dead child may be one of them.
unsigned starts_in_flight(void);
// Time at which a silent server counts as hung; 0: never.
long long liveness_deadline_ms(void);
long long liveness_timeout_ms(void);

#endif

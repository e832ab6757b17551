// The messages between the keeper and its current server (keeper-packets.h).
#ifndef PROCWIRE_SERVER_CHANNEL_H
#define PROCWIRE_SERVER_CHANNEL_H

// Makes the socket; returns the server's end of it, or -1 with errno set.
int open_channel(void);
// The server has ended: reads what it has sent before.
void close_channel(void);

// Does what the server has asked for.
void read_packets(void);
void send_leave(void);

// How many processes the server is starting: a dead child may be one of them.
unsigned starts_under_way(void);
// When a server that says nothing more will count as hung; 0: never.
long long hung_at_ms(void);
long long hung_after_ms(void);

#endif

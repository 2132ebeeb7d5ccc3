/* The worker under a broker: messages of docs/architecture.md section 2 on one socket. */
#ifndef XPD_RESIDENT_H
#define XPD_RESIDENT_H

/* Serves until the socket closes or QUIT comes; returns the exit code. */
/* devices: names with commas between, NULL = all that there are. */
int xpd_resident_main(int socket, const char *devices);

#endif

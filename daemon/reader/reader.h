/* The modes of xptycho-reader; each returns an exit code (docs/architecture.md, section 6). */
#ifndef XPD_READER_H
#define XPD_READER_H

int xpd_serve(int socket);
int xpd_inspect(int argc, char **argv); /* argv[0] is the mode's name */
int xpd_import(int argc, char **argv);

#endif

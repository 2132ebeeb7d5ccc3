/* xptycho-reader: the only program that opens a user's file.
 *
 * Started by broker or worker with `--socket FD` it answers one request and leaves; started by the
 * command line it inspects or imports a file with the caller's own permissions.  It always leaves
 * by _exit: HDF5's own end-of-process code has crashed on hostile files. */
#include "reader.h"

#include "io/read/read.h"
#include "io/write/write.h"
#include "xptychod/protocol.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: xptycho-reader inspect FILE [options]   what the reader takes from a scan file\n"
    "       xptycho-reader import ARCHIVE [options] a NumPy archive into a scan file\n"
    "       xptycho-reader --socket FD              serve one request (started by xptychod)\n"
    "       xptycho-reader --version\n"
    "'inspect --help' and 'import --help' list the options.\n";

/* Flushes what was printed; a full pipe or disk is a failure. */
static _Noreturn void leave(int code)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        code = code ? code : 4;
    fflush(stderr);
    _exit(code);
}

static int socket_number(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);

    return *text && !*end && number >= 0 && number < 1024 ? (int)number : -1;
}

int main(int argc, char **argv)
{
    static char called[32]; /* as who typed it knows it: getopt's words begin with it */
    const char *mode = argc > 1 ? argv[1] : "";
    int socket;

    signal(SIGPIPE, SIG_IGN);
    xpp_init();
    xpe_read_init();
    if (strcmp(mode, "--socket") == 0 && argc == 3) {
        socket = socket_number(argv[2]);
        if (socket >= 0)
            leave(xpd_serve(socket));
    }
    if (argc > 1 && strlen(mode) < 16) {
        snprintf(called, sizeof called, "xptycho %s", mode);
        argv[1] = called;
    }
    if (strcmp(mode, "inspect") == 0)
        leave(xpd_inspect(argc - 1, argv + 1));
    if (strcmp(mode, "import") == 0) {
        xpe_write_init();
        leave(xpd_import(argc - 1, argv + 1));
    }
    if (strcmp(mode, "--version") == 0) {
        printf("xptycho-reader %s\n", xpp_version());
        leave(0);
    }
    if (strcmp(mode, "--help") == 0 || strcmp(mode, "-h") == 0) {
        fputs(usage, stdout);
        leave(0);
    }
    fputs(usage, stderr);
    leave(2);
}

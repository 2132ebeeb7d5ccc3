/* Keys in files. */
#include "curve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

bool xpd_curve_make(const char *file, char public_key[XPD_CURVE_KEY_SIZE])
{
    char secret[XPD_CURVE_KEY_SIZE + 1];
    int fd;
    bool good;

    if (zmq_curve_keypair(public_key, secret) != 0) {
        fprintf(stderr, "no key can be made: %s\n", zmq_strerror(zmq_errno()));
        return false;
    }
    fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    secret[XPD_CURVE_KEY_SIZE - 1] = '\n';
    good = fd >= 0 && write(fd, secret, XPD_CURVE_KEY_SIZE) == XPD_CURVE_KEY_SIZE;
    if (fd >= 0 && close(fd) != 0)
        good = false;
    if (!good)
        fprintf(stderr, "key file '%s' cannot be made: %s\n", file, strerror(errno));
    explicit_bzero(secret, sizeof secret);
    return good;
}

bool xpd_curve_read(const char *file, char secret[XPD_CURVE_KEY_SIZE],
                    char public_key[XPD_CURVE_KEY_SIZE])
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    struct stat st;
    uint8_t binary[32];
    ssize_t length = 0;
    bool good = false;

    memset(secret, 0, XPD_CURVE_KEY_SIZE);
    if (fd < 0 || fstat(fd, &st) != 0) {
        fprintf(stderr, "key file '%s' cannot be read: %s\n", file, strerror(errno));
    } else if (st.st_mode & 077) {
        fprintf(stderr, "key file '%s' can be read by others; chmod 600\n", file);
    } else {
        length = read(fd, secret, XPD_CURVE_KEY_SIZE - 1);
        good = length == XPD_CURVE_KEY_SIZE - 1 && strlen(secret) == XPD_CURVE_KEY_SIZE - 1 &&
               zmq_z85_decode(binary, secret) != NULL && zmq_curve_public(public_key, secret) == 0;
        if (!good)
            fprintf(stderr,
                    "key file '%s' holds no secret key of 40 characters; make one with "
                    "--make-curve-key\n",
                    file);
    }
    if (fd >= 0)
        close(fd);
    explicit_bzero(binary, sizeof binary);
    return good;
}

/* Bytes as a person reads them, for messages of the folders below and of the programs that link
 * them. */
#ifndef XPE_IO_SIZE_H
#define XPE_IO_SIZE_H

#include <stdio.h>

/* "512 bytes", "1.5 MiB", "1.9 TiB"; returns out. */
static inline const char *xpe_size_text(char out[32], double bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int i = 0;

    while (bytes >= 1023.95 && i < 6) { /* 1024.0 of a unit is 1.0 of the next */
        bytes /= 1024;
        i++;
    }
    snprintf(out, 32, i ? "%.1f %s" : "%.0f %s", bytes, units[i]);
    return out;
}

#endif

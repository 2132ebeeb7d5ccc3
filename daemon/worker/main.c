/* xptycho-worker: resident under a broker (--socket), or one of the modes that the command line
 * executes.  xptycho-worker-cuda is the same with GPUs instead of the CPU and without the modes
 * that need transforms on the host (XPD_GPU_WORKER). */
#include "fault.h"
#include "modes.h"
#include "resident.h"
#include "xptychod/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/write/write.h"

#ifdef XPD_GPU_WORKER
static const char help[] =
    "usage: xptycho-worker-cuda run JOB.json | devices | --socket FD\n"
    "\n"
    "  run JOB.json   reconstruct one job in the foreground, without a service\n"
    "  devices        the GPUs and whether this build runs on them\n"
    "  --socket FD    serve a broker on an inherited socket (started by xptychod);\n"
    "                 --devices cuda:0,cuda:2 before it: these GPUs only\n"
    "  --version      what this is and how it was built\n"
    "\n"
    "CUDA_VISIBLE_DEVICES is honoured: cuda:0, cuda:1, ... are the GPUs that it shows, in its "
    "order.\n"
    "xptycho-worker simulates, compares and times.\n";
#else
static const char help[] =
    "usage: xptycho-worker run JOB.json | simulate | compare A B | bench | --socket FD\n"
    "\n"
    "  run JOB.json   reconstruct one job in the foreground, without a service\n"
    "  simulate       make a scan of a procedural object\n"
    "  compare A B    error between two images after one complex scale\n"
    "  bench          time iterations beside bare transforms\n"
    "  --socket FD    serve a broker on an inherited socket (started by xptychod)\n"
    "  --version      what this is and how it was built\n"
    "\n"
    "Every mode has --help.  Exit codes: 0 success, 2 usage, 3 refused, 4 failed, 5 cancelled, 1 "
    "unexpected.\n";
#endif

#ifdef XPD_GPU_WORKER
/* Exit code 0 when there is a GPU to use. */
static int devices_main(int argc, char **argv)
{
    xpe_device_info infos[64];
    size_t count = xpe_devices_list(infos, sizeof infos / sizeof *infos);
    int code = XPD_EXIT_FAILED;

    (void)argc;
    (void)argv;
    for (size_t i = 0; i < count && i < sizeof infos / sizeof *infos; i++) {
        if (infos[i].absent[0])
            printf("%s: absent: %s\n", infos[i].name, infos[i].absent);
        else
            printf("%s: %s, %lld MiB, %lld MiB free\n", infos[i].name, infos[i].model,
                   (long long)(infos[i].bytes_total >> 20), (long long)(infos[i].bytes_free >> 20));
        if (strncmp(infos[i].name, "cuda", 4) == 0 && !infos[i].absent[0])
            code = XPD_EXIT_OK;
    }
    return code;
}
#endif

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
} modes[] = {
    {"run", xpd_run_main},
#ifdef XPD_GPU_WORKER
    {"devices", devices_main},
#else
    {"simulate", xpd_simulate_main},
    {"compare", xpd_compare_main},
    {"bench", xpd_bench_main},
#endif
};

/* [--devices LIST] --socket FD */
static int serve(int argc, char **argv)
{
    const char *devices = NULL, *text = NULL;
    char *end = NULL;
    long socket = 0;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--devices") == 0)
            devices = argv[i + 1];
        else if (strcmp(argv[i], "--socket") == 0)
            text = argv[i + 1];
    }
    if (text)
        socket = strtol(text, &end, 10);
    if (!text || *text == 0 || *end || socket < 3 || socket > 1023) {
        fprintf(stderr, "xptycho-worker: --socket: '%s' is not a descriptor from 3 up\n",
                text ? text : "");
        return XPD_EXIT_USAGE;
    }
    return xpd_resident_main((int)socket, devices);
}

int main(int argc, char **argv)
{
    static char called[32]; /* as who typed it knows it: getopt's words begin with it */

#ifdef XPD_GPU_WORKER
    /* cuda:N is then the N-th of nvidia-smi and of Slurm, not the N-th by speed */
    (void)setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0); /* NOLINT(concurrency-mt-unsafe): alone */
#endif
    xpp_init();
    xpe_write_init();
    if (argc < 2) {
        fputs(help, stderr);
        return XPD_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(help, stdout);
        return XPD_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("xptycho-worker %s (%s)\n", xpp_version(), xpe_build_identity());
        return XPD_EXIT_OK;
    }
    if ((strcmp(argv[1], "--socket") == 0 && argc == 3) ||
        (strcmp(argv[1], "--devices") == 0 && argc == 5))
        return serve(argc, argv);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(argv[1], modes[i].name) == 0) {
            snprintf(called, sizeof called, "xptycho %s", modes[i].name);
            argv[1] = called;
            return modes[i].main(argc - 1, argv + 1);
        }
    fprintf(stderr, "xptycho-worker: unknown mode '%s'\n\n%s", argv[1], help);
    return XPD_EXIT_USAGE;
}

/* The worker's modes; each takes the arguments after its name and returns an exit code. */
#ifndef XPD_MODES_H
#define XPD_MODES_H

int xpd_run_main(int argc, char **argv);
int xpd_simulate_main(int argc, char **argv);
int xpd_compare_main(int argc, char **argv);
int xpd_bench_main(int argc, char **argv);

#endif

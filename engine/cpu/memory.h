/* Memory of the host that this process may use: the machine's, or less where a control group limits
 * it.  Any thread. */
#ifndef XPE_CPU_MEMORY_H
#define XPE_CPU_MEMORY_H

#include <stdint.h>

void xpe_cpu_memory(int64_t *bytes_total, int64_t *bytes_free);

/* The least of the limits and the least room under the control groups of this process, both
 * INT64_MAX where there is no limit.  `list` is /proc/self/cgroup and `root` /sys/fs/cgroup, or
 * stand-ins of a test. */
void xpe_cpu_memory_group(const char *list, const char *root, int64_t *limit, int64_t *room);

#endif

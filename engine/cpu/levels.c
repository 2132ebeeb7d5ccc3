/* Choice of the compiled loops by what the processor can run. */
#include "loops.h"

extern const xpe_loops xpe_loops_base;
#if defined(__x86_64__)
extern const xpe_loops xpe_loops_avx2, xpe_loops_avx512;
#endif

const xpe_loops *xpe_loops_level(int i)
{
    if (i == 0)
        return &xpe_loops_base;
#if defined(__x86_64__)
    if (i == 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"))
        return &xpe_loops_avx2;
    if (i == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd"))
        return &xpe_loops_avx512;
#endif
    return NULL;
}

const xpe_loops *xpe_loops_best(void)
{
    const xpe_loops *best = &xpe_loops_base;
    for (int i = 1; xpe_loops_level(i); i++)
        best = xpe_loops_level(i);
    return best;
}

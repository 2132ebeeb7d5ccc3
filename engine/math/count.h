/* Recorded counts to amplitudes: algorithm.md 3, "Masked pixels", one detector pixel. */
#ifndef XPE_COUNT_H
#define XPE_COUNT_H

#include "hd.h"

#if !defined(__CUDACC__)
#include <math.h>
#endif

#define XPE_MASKED (-1.0f) /* the amplitude of a pixel where the data say nothing */

/* The count as a double; -1 where the type's own conventions mask it: its largest value, negative
 * values of the signed types.  Floats pass as they are, negative ones count as 0. */
#define XPE_COUNT_INTEGER(type, largest)                                                           \
    XPE_HD double xpe_count_##type(type##_t c)                                                     \
    {                                                                                              \
        return c == (largest) || c < 0 ? -1.0 : (double)c;                                         \
    }
#define XPE_COUNT_UNSIGNED(type, largest)                                                          \
    XPE_HD double xpe_count_##type(type##_t c)                                                     \
    {                                                                                              \
        return c == (largest) ? -1.0 : (double)c;                                                  \
    }
XPE_COUNT_UNSIGNED(uint8, UINT8_MAX)
XPE_COUNT_UNSIGNED(uint16, UINT16_MAX)
XPE_COUNT_UNSIGNED(uint32, UINT32_MAX)
XPE_COUNT_UNSIGNED(uint64, UINT64_MAX)
XPE_COUNT_INTEGER(int8, INT8_MAX)
XPE_COUNT_INTEGER(int16, INT16_MAX)
XPE_COUNT_INTEGER(int32, INT32_MAX)
XPE_COUNT_INTEGER(int64, INT64_MAX)

XPE_HD double xpe_count_float64(double c)
{
    return !isfinite(c) ? -1.0 : (c > 0 ? c : 0.0);
}

XPE_HD double xpe_count_float32(float c)
{
    return xpe_count_float64((double)c);
}

/* sqrt(count), or XPE_MASKED where it is masked (negative here) or saturated (saturation 0: none
 * stated). */
XPE_HD float xpe_amplitude(double count, double saturation)
{
    if (count < 0 || (saturation > 0 && count >= saturation))
        return XPE_MASKED;
    return (float)sqrt(count);
}

#endif

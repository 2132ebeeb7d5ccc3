/* Colours of the previews. */
#ifndef XPD_COLOUR_H
#define XPD_COLOUR_H

#include <stdint.h>

#define XPD_COLOURS 254        /* entries of the circle; two palette places stay free */
#define XPD_COLOUR_OUTSIDE 254 /* the place of pixels that no patch lit */

/* A closed circle of colours: entry 0 is the darkest, the one half way round the brightest, and
 * neighbours differ by the same perceived amount all the way. */
void xpd_colour_circle(uint8_t rgb[XPD_COLOURS][3]);

/* Palette place of an angle.  A quarter of the way in, from `low` to `high`, runs from the darkest
 * to the brightest colour; what is outside goes back over the other half, so the map stays cyclic.
 * With low = -pi, high = 0 the circle is even. */
uint8_t xpd_colour_of_phase(double phase, double low, double high);

#endif

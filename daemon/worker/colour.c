/* A cyclic colour map by formula.  A circle of one lightness shows hue only, and fine lines of a
 * weak object drown, because the eye resolves lightness and not hue.  So the circle is tilted: in
 * OKLab (Ottosson 2020) it runs round the hues and up and down in lightness once, and entries are
 * placed at equal steps of OKLab distance along it. */
#include "colour.h"

#include <math.h>

#define LIGHTNESS 0.605  /* centre of the circle */
#define TILT 0.275       /* lightness from 0.33 to 0.88 */
#define CHROMA 0.088     /* stays inside sRGB all the way round */
#define HUE_DARK (-1.30) /* radians: blue at the dark end, sand at the bright one */

static void lab_of(double turn, double lab[3])
{
    lab[0] = LIGHTNESS - TILT * cos(turn);
    lab[1] = CHROMA * cos(HUE_DARK + turn);
    lab[2] = CHROMA * sin(HUE_DARK + turn);
}

static uint8_t encode(double linear)
{
    double v = linear <= 0.0031308 ? 12.92 * linear : 1.055 * pow(linear, 1.0 / 2.4) - 0.055;

    return (uint8_t)lround(255.0 * fmin(fmax(v, 0.0), 1.0));
}

/* OKLab to sRGB, matrices of the published definition. */
static void rgb_of(const double lab[3], uint8_t rgb[3])
{
    double l = lab[0] + 0.3963377774 * lab[1] + 0.2158037573 * lab[2];
    double m = lab[0] - 0.1055613458 * lab[1] - 0.0638541728 * lab[2];
    double s = lab[0] - 0.0894841775 * lab[1] - 1.2914855480 * lab[2];

    l *= l * l;
    m *= m * m;
    s *= s * s;
    rgb[0] = encode(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s);
    rgb[1] = encode(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s);
    rgb[2] = encode(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s);
}

void xpd_colour_circle(uint8_t rgb[XPD_COLOURS][3])
{
    enum { STEPS = 8192 };
    double length[STEPS + 1] = {0.0}, before[3], lab[3];

    lab_of(0.0, before);
    for (int i = 1; i <= STEPS; i++) {
        lab_of(2.0 * M_PI * i / STEPS, lab);
        length[i] = length[i - 1] + sqrt((lab[0] - before[0]) * (lab[0] - before[0]) +
                                         (lab[1] - before[1]) * (lab[1] - before[1]) +
                                         (lab[2] - before[2]) * (lab[2] - before[2]));
        for (int k = 0; k < 3; k++)
            before[k] = lab[k];
    }
    for (int i = 0, at = 0; i < XPD_COLOURS; i++) {
        while (at < STEPS && length[at] < length[STEPS] * i / XPD_COLOURS)
            at++;
        lab_of(2.0 * M_PI * at / STEPS, lab);
        rgb_of(lab, rgb[i]);
    }
}

uint8_t xpd_colour_of_phase(double phase, double low, double high)
{
    double span = high - low;
    double above = fmod(fmod(phase - low, 2.0 * M_PI) + 2.0 * M_PI, 2.0 * M_PI); /* [0, 2 pi) */
    double turn =
        above <= span ? 0.5 * above / span : 0.5 + 0.5 * (above - span) / (2.0 * M_PI - span);
    int place = (int)(turn * XPD_COLOURS);

    return (uint8_t)(place < XPD_COLOURS ? place : 0);
}

/* Single numbers and short texts, which some writers store as attributes and others as datasets. */
#include "h5.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void clean(char *text)
{
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127)
            *p = ' ';
}

/* The text of an attribute or dataset that is one string, fixed or of variable length. */
static bool read_text(hid_t id, bool attribute, char *out, size_t size)
{
    bool good = false;
    hid_t type = attribute ? H5Aget_type(id) : H5Dget_type(id);
    hid_t space = attribute ? H5Aget_space(id) : H5Dget_space(id);

    if (type < 0 || space < 0 || H5Tget_class(type) != H5T_STRING ||
        H5Sget_simple_extent_npoints(space) != 1)
        goto done;
    if (H5Tis_variable_str(type) > 0) {
        char *text = NULL;
        hid_t memory = H5Tcopy(H5T_C_S1);
        H5Tset_size(memory, H5T_VARIABLE);
        H5Tset_cset(memory, H5Tget_cset(type));
        if ((attribute ? H5Aread(id, memory, &text)
                       : H5Dread(id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, &text)) >= 0 &&
            text) {
            snprintf(out, size, "%s", text);
            good = true;
        }
        H5free_memory(text);
        H5Tclose(memory);
    } else {
        size_t bytes = H5Tget_size(type);
        char *text = bytes <= XPE_ATTR_BYTES_MAX ? calloc(1, bytes + 1) : NULL;
        if (text && (attribute ? H5Aread(id, type, text)
                               : H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text)) >= 0) {
            snprintf(out, size, "%s", text);
            good = true;
        }
        free(text);
    }
done:
    if (type >= 0)
        H5Tclose(type);
    if (space >= 0)
        H5Sclose(space);
    H5Eclear2(H5E_DEFAULT);
    if (good)
        clean(out);
    return good;
}

static bool attribute_text(hid_t object, const char *name, char *out, size_t size)
{
    bool good = false;
    hid_t id;

    out[0] = '\0';
    if (H5Aexists(object, name) <= 0)
        return false;
    id = H5Aopen(object, name, H5P_DEFAULT);
    if (id >= 0) {
        good = read_text(id, true, out, size);
        H5Aclose(id);
    }
    return good;
}

static void join(char *out, size_t size, const char *at, const char *name)
{
    snprintf(out, size, "%s/%s", strcmp(at, "/") == 0 ? "" : at, name);
}

bool xpe_h5_text(xpe_h5 *h, const char *at, const char *name, char *out, size_t size)
{
    bool good = false;
    char path[256];
    hid_t object;

    out[0] = '\0';
    if (xpe_h5_look(h, at) == XPE_H5_GROUP || xpe_h5_look(h, at) == XPE_H5_DATASET ||
        strcmp(at, "/") == 0) {
        object = H5Oopen(h->file, at, h->lapl);
        if (object >= 0) {
            good = attribute_text(object, name, out, size);
            H5Oclose(object);
        }
    }
    join(path, sizeof path, at, name);
    if (!good && xpe_h5_look(h, path) == XPE_H5_DATASET) {
        xpe_dset d;
        if (xpe_dset_open(&d, h, path, NULL) == XPE_OK) {
            good = read_text(d.id, false, out, size);
            xpe_dset_close(&d);
        }
    }
    H5Eclear2(H5E_DEFAULT);
    return good;
}

static bool one_number(hid_t type, hid_t space)
{
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);

    return space >= 0 && (class == H5T_INTEGER || class == H5T_FLOAT) && H5Tget_size(type) <= 16 &&
           H5Sget_simple_extent_npoints(space) == 1;
}

/* found stays false where the attribute does not exist. */
static xpe_status attribute_number(xpe_h5 *h, const char *at, const char *name, double *value,
                                   bool *found, xpe_error *err)
{
    xpe_status st = XPE_OK;
    hid_t object = H5Oopen(h->file, at, h->lapl), id = -1, type = -1, space = -1;

    if (object < 0 || H5Aexists(object, name) <= 0)
        goto done;
    *found = true;
    id = H5Aopen(object, name, H5P_DEFAULT);
    type = id < 0 ? -1 : H5Aget_type(id);
    space = id < 0 ? -1 : H5Aget_space(id);
    if (!one_number(type, space) || H5Aread(id, H5T_NATIVE_DOUBLE, value) < 0)
        st = xpe_h5_fail(h, err, "attribute '%s' of '%s' is not a single number", name, at);
done:
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    if (id >= 0)
        H5Aclose(id);
    if (object >= 0)
        H5Oclose(object);
    H5Eclear2(H5E_DEFAULT);
    return st;
}

xpe_status xpe_h5_number(xpe_h5 *h, const char *at, const char *name, double *value, bool *found,
                         char *units, xpe_error *err)
{
    xpe_status st = XPE_OK;
    char path[256];
    xpe_dset d;
    xpe_h5_kind kind;

    *found = false;
    if (units)
        units[0] = '\0';
    XPE_TRY(attribute_number(h, at, name, value, found, err));
    if (!*found) {
        join(path, sizeof path, at, name);
        kind = xpe_h5_look(h, path);
        if (kind == XPE_H5_ABSENT)
            return XPE_OK;
        XPE_TRY(xpe_dset_open(&d, h, path, err));
        if (d.class != XPE_H5_NUMBER || d.count != 1)
            st = xpe_h5_fail(h, err, "'%s' is %s of %s; a single number is needed", path,
                             d.count == 1 ? "one value" : "an array", d.type_text);
        else
            st = xpe_dset_read(&d, h, 0, 1, H5T_NATIVE_DOUBLE, value, err);
        if (st == XPE_OK && units)
            attribute_text(d.id, "units", units, 32);
        xpe_dset_close(&d);
        if (st != XPE_OK)
            goto done;
        *found = true;
    }
    if (!isfinite(*value))
        st = xpe_h5_fail(h, err, "'%s' of '%s' is %g; a finite number is needed", name, at, *value);
done:
    return st;
}

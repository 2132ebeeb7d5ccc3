/* Virtual datasets: HDF5 reads a source that is missing as fill values, that is as zeros, and says
 * nothing.  So every source is opened here first, and what no source covers is counted. */
#include "h5.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOURCES_MAX 20000
#define NAME_MAX_BYTES 1024

/* "." is the file itself. */
static hid_t open_source(const xpe_h5 *h, const char *file)
{
    char name[8192];

    if (strcmp(file, ".") == 0)
        return h->file;
    snprintf(name, sizeof name, "%s%s%s", file[0] == '/' ? "" : h->folder,
             file[0] == '/' ? "" : "/", file);
    return H5Fopen(name, H5F_ACC_RDONLY, H5P_DEFAULT);
}

/* The source file and dataset exist and can be read; `last` remembers what was checked before,
 * since a source often stands for many pieces. */
static xpe_status check_source(xpe_h5 *h, const char *path, const char *file, const char *dataset,
                               xpe_error *err)
{
    xpe_status st = XPE_OK;
    char reason[256] = "";
    bool own = strcmp(file, ".") == 0;
    hid_t source = -1, id = -1, plist = -1;

    h->denied[0] = '\0';
    if (!own && !xpe_h5_link_allowed(h, file))
        return xpe_h5_fail(h, err, "dataset '%s' is virtual and cannot be put together: %s", path,
                           h->denied[0] ? h->denied : "a source has too long a name");
    source = open_source(h, file);
    if (source < 0 && xpe_h5_busy())
        return xpe_h5_fail_busy(h, file, err);
    id = source < 0 ? -1 : H5Dopen2(source, dataset, h->lapl);
    plist = id < 0 ? -1 : H5Dget_create_plist(id);
    if (plist < 0)
        st = xpe_h5_fail(
            h, err, "dataset '%s' is virtual and its source '%.150s' in '%.150s' cannot be opened",
            path, dataset, file);
    else if (H5Pget_layout(plist) == H5D_VIRTUAL)
        st = xpe_h5_fail(
            h, err,
            "dataset '%s' is virtual and so is its source '%.150s' in '%.150s'; only one level is "
            "followed",
            path, dataset, file);
    else if (H5Pget_external_count(plist) > 0)
        st = xpe_h5_fail(
            h, err,
            "dataset '%s' is virtual and its source '%.150s' keeps its data outside HDF5, which is "
            "not allowed",
            path, dataset);
    else if (!xpe_h5_filters_ready(id, reason, sizeof reason))
        st = xpe_h5_fail(h, err, "dataset '%s' is virtual; source '%.100s': %s", path, dataset,
                         reason);
    else if (!xpe_h5_expect_chunks(id))
        st = xpe_h5_fail(h, err,
                         "dataset '%s' is virtual; the chunks of source '%.100s' are larger than "
                         "1 GiB or of too many sizes",
                         path, dataset);
    if (plist >= 0)
        H5Pclose(plist);
    if (id >= 0)
        H5Dclose(id);
    if (!own && source >= 0)
        H5Fclose(source);
    H5Eclear2(H5E_DEFAULT);
    return st;
}

xpe_status xpe_h5_check_sources(xpe_h5 *h, hid_t dataset, const char *path, xpe_error *err)
{
    xpe_status st = XPE_OK;
    hid_t plist = H5Dget_create_plist(dataset);
    char file[NAME_MAX_BYTES], name[NAME_MAX_BYTES], last_file[NAME_MAX_BYTES] = "",
                                                     last_name[NAME_MAX_BYTES] = "";
    size_t count = 0;

    if (plist < 0 || H5Pget_virtual_count(plist, &count) < 0)
        count = 0;
    for (size_t i = 0; st == XPE_OK && i < count; i++) {
        hsize_t rows[H5S_MAX_RANK] = {0};
        hid_t source, id, space;
        if (H5Pget_virtual_filename(plist, i, file, sizeof file) < 0 ||
            H5Pget_virtual_dsetname(plist, i, name, sizeof name) < 0 ||
            (strcmp(file, last_file) == 0 && strcmp(name, last_name) == 0))
            continue;
        snprintf(last_file, sizeof last_file, "%s", file);
        snprintf(last_name, sizeof last_name, "%s", name);
        source = open_source(h, file);
        id = source < 0 ? -1 : H5Dopen2(source, name, h->lapl);
        space = id < 0 ? -1 : H5Dget_space(id);
        if (space < 0)
            st = xpe_h5_fail(h, err, "source '%.150s' of dataset '%s' cannot be opened any more",
                             file, path);
        else if (H5Sget_simple_extent_dims(space, rows, NULL) > 0)
            st = xpe_chunks_check(h, id, path, 0, (int64_t)rows[0], err);
        if (space >= 0)
            H5Sclose(space);
        if (id >= 0)
            H5Dclose(id);
        if (source >= 0 && source != h->file)
            H5Fclose(source);
    }
    if (plist >= 0)
        H5Pclose(plist);
    H5Eclear2(H5E_DEFAULT);
    return st;
}

/* Points of the virtual dataset that mapping i fills; -1 for an unlimited mapping. */
static hssize_t mapped_points(hid_t plist, size_t i)
{
    hid_t space = H5Pget_virtual_vspace(plist, i);
    hssize_t points = space < 0 ? 0 : H5Sget_select_npoints(space);

    if (space >= 0)
        H5Sclose(space);
    return points < 0 ? -1 : points; /* H5S_UNLIMITED is negative too */
}

xpe_status xpe_h5_check_virtual(xpe_h5 *h, hid_t dataset, const char *path, xpe_error *err)
{
    xpe_status st = XPE_OK;
    hid_t plist = H5Dget_create_plist(dataset), space = H5Dget_space(dataset);
    hssize_t total = space < 0 ? -1 : H5Sget_simple_extent_npoints(space), mapped = 0;
    char file[NAME_MAX_BYTES], name[NAME_MAX_BYTES], last_file[NAME_MAX_BYTES] = "",
                                                     last_name[NAME_MAX_BYTES] = "";
    size_t count = 0;
    bool unlimited = false;

    if (plist < 0 || total < 0 || H5Pget_virtual_count(plist, &count) < 0) {
        st = xpe_h5_fail(h, err, "the sources of virtual dataset '%s' cannot be listed", path);
        goto done;
    }
    if (count > SOURCES_MAX) {
        st = xpe_h5_fail(h, err, "virtual dataset '%s' has %zu sources; at most %d are followed",
                         path, count, SOURCES_MAX);
        goto done;
    }
    for (size_t i = 0; i < count; i++) {
        ssize_t a = H5Pget_virtual_filename(plist, i, file, sizeof file);
        ssize_t b = H5Pget_virtual_dsetname(plist, i, name, sizeof name);
        hssize_t points = mapped_points(plist, i);
        if (a < 0 || b < 0 || a >= (ssize_t)sizeof file || b >= (ssize_t)sizeof name) {
            st = xpe_h5_fail(h, err, "source %zu of virtual dataset '%s' cannot be read", i, path);
            goto done;
        }
        if (strchr(file, '%') || strchr(name, '%')) {
            st = xpe_h5_fail(
                h, err,
                "virtual dataset '%s' names its sources by a pattern ('%.150s'), which is not "
                "followed; give every source its own mapping",
                path, file);
            goto done;
        }
        unlimited = unlimited || points < 0;
        mapped += points > 0 ? points : 0;
        if (strcmp(file, last_file) != 0 || strcmp(name, last_name) != 0)
            XPE_TRY(check_source(h, path, file, name, err));
        snprintf(last_file, sizeof last_file, "%s", file);
        snprintf(last_name, sizeof last_name, "%s", name);
    }
    if (!unlimited && mapped < total)
        st = xpe_h5_fail(
            h, err,
            "virtual dataset '%s' has sources for %lld of its %lld elements; the rest would read "
            "as zeros",
            path, (long long)mapped, (long long)total);
done:
    if (space >= 0)
        H5Sclose(space);
    if (plist >= 0)
        H5Pclose(plist);
    return st;
}

/* A run that can be saved at an iteration boundary and taken up again with the same bits, on any
 * number of devices.
 *
 * A step normally runs one trip ahead (state.h).  xpe_run_hold makes the next step stop short: it
 * takes its data error but leaves step 1 of the following iteration undone, so that no sums are on
 * their way and the state is patches, copies, modes, images and a few numbers.  The step after that
 * does what is due first; the units of its sums come from the same bounds, so the bits are those of
 * a run that was never held.
 *
 * The stream: header, mode numbers, x-bar, z, modes; known probe: V_k and L_k in double precision;
 * estimated probe: u, deviations; patches in original frame order; copies, mode by mode, in
 * original frame order.  Little-endian as the machine has it; the caller keeps identity and
 * integrity (hash, scan, build). */
#include "state.h"

#include "backend/util.h"

#include <math.h>
#include <string.h>

#define MAGIC 0x31504b4358ULL /* "XCKP1" */
#define SLAB ((int64_t)64 << 20)

typedef struct header {
    uint64_t magic;
    int64_t n, num_frames, rows, cols;
    int32_t modes_max, modes, iteration, known, pending, reserved;
    double bounds_v, bounds_z, bounds_image, bounds_s, bounds_u, patch_eps, data_error;
} header;

typedef struct stream {
    xpe_run *run;
    bool save;
    xpe_run_sink sink;
    xpe_run_source source;
    void *arg;
    char *slab;
    int64_t slab_size;
    int32_t *device; /* [J] where a frame is */
    int64_t *index;  /* [J] in its block */
} stream;

void xpe_run_hold(xpe_run *run)
{
    run->hold = true;
}

bool xpe_run_held(const xpe_run *run)
{
    return run->due;
}

static xpe_status pass(stream *s, void *data, size_t bytes, xpe_error *err)
{
    return s->save ? s->sink(s->arg, data, bytes, err) : s->source(s->arg, data, bytes, err);
}

/* One piece of a buffer through the slab. */
static xpe_status pass_piece(stream *s, xpe_buffer *buffer, size_t offset, size_t bytes,
                             xpe_error *err)
{
    xpe_run *run = s->run;
    xpe_status st = XPE_OK;

    for (size_t done = 0; done < bytes;) {
        size_t part = bytes - done < (size_t)s->slab_size ? bytes - done : (size_t)s->slab_size;
        if (s->save) {
            run->backend->download(run->team, s->slab, buffer, offset + done, part);
            XPE_TRY(xpe_state_wait(run, err));
        }
        XPE_TRY(pass(s, s->slab, part, err));
        if (!s->save) {
            run->backend->upload(run->team, buffer, offset + done, s->slab, part);
            XPE_TRY(xpe_state_wait(run, err));
        }
        done += part;
    }
done:
    return st;
}

/* A band array of `planes` planes, plane by plane over all bands. */
static xpe_status pass_bands(stream *s, size_t member, int planes, size_t pixel, xpe_error *err)
{
    xpe_status st = XPE_OK;

    for (int k = 0; k < planes; k++)
        for (int g = 0; g < s->run->plan->count; g++) {
            const xpe_shard *shard = &s->run->shards[g];
            size_t bytes = (size_t)(shard->band_rows * s->run->cols) * pixel;
            XPE_TRY(pass_piece(s, xpe_shard_buffer(shard, member), (size_t)k * bytes, bytes, err));
        }
done:
    return st;
}

/* Modes on their owner; after loading, on every device. */
static xpe_status pass_modes(stream *s, size_t member, size_t pixel, xpe_error *err)
{
    xpe_run *run = s->run;
    size_t bytes = (size_t)(run->modes * run->n * run->n) * pixel;
    xpe_status st;

    XPE_TRY(pass_piece(s, xpe_shard_buffer(&run->shards[0], member), 0, bytes, err));
    if (!s->save)
        XPE_TRY(xpe_exchange_broadcast(run, member, bytes, err));
done:
    return st;
}

/* Patches or copies of one mode in original frame order, as many frames at a time as the slab
 * holds. */
static xpe_status pass_frames(stream *s, size_t member, int mode, xpe_error *err)
{
    xpe_run *run = s->run;
    size_t bytes = (size_t)(run->n * run->n) * sizeof(xpe_c32);
    int64_t many = xpe_max64(1, s->slab_size / (int64_t)bytes);
    xpe_status st = XPE_OK;

    for (int64_t j = 0; j < run->num_frames; j += many) {
        int64_t count = xpe_min64(many, run->num_frames - j);
        if (!s->save)
            XPE_TRY(s->source(s->arg, s->slab, (size_t)count * bytes, err));
        for (int64_t i = 0; i < count; i++) {
            const xpe_shard *shard = &run->shards[s->device[j + i]];
            size_t at = (size_t)(mode * shard->frames + s->index[j + i]) * bytes;
            if (s->save)
                run->backend->download(run->team, s->slab + (size_t)i * bytes,
                                       xpe_shard_buffer(shard, member), at, bytes);
            else
                run->backend->upload(run->team, xpe_shard_buffer(shard, member), at,
                                     s->slab + (size_t)i * bytes, bytes);
        }
        XPE_TRY(xpe_state_wait(run, err));
        if (s->save)
            XPE_TRY(s->sink(s->arg, s->slab, (size_t)count * bytes, err));
    }
done:
    return st;
}

static xpe_status pass_arrays(stream *s, xpe_error *err)
{
    xpe_run *run = s->run;
    double cover_eps[XPE_MODES_MAX];
    xpe_status st;

    for (int k = 0; k < run->modes; k++)
        cover_eps[k] = run->numbers.mode[k].cover_eps;
    XPE_TRY(pass(s, cover_eps, (size_t)run->modes * sizeof *cover_eps, err));
    for (int k = 0; k < run->modes; k++)
        run->numbers.mode[k].cover_eps = cover_eps[k];
    XPE_TRY(pass_bands(s, XPE_AT(band_image[0]) + (size_t)run->slot * sizeof(xpe_buffer *), 1,
                       sizeof(xpe_c32), err));
    XPE_TRY(pass_bands(s, XPE_AT(band_z), 1, sizeof(xpe_c32), err));
    XPE_TRY(pass_modes(s, XPE_AT(d), sizeof(xpe_c32), err));
    if (run->known) {
        XPE_TRY(pass_bands(s, XPE_AT(v_sum), run->modes, 2 * sizeof(double), err));
        XPE_TRY(pass_bands(s, XPE_AT(l_sum), run->modes, sizeof(double), err));
    } else {
        XPE_TRY(pass_modes(s, XPE_AT(u), sizeof(xpe_c32), err));
        XPE_TRY(pass_modes(s, XPE_AT(deviation), sizeof(float), err));
    }
    XPE_TRY(pass_frames(s, XPE_AT(v), 0, err));
    for (int k = 0; !run->known && k < run->modes; k++)
        XPE_TRY(pass_frames(s, XPE_AT(s), k, err));
done:
    return st;
}

static xpe_status stream_init(stream *s, xpe_run *run, xpe_error *err)
{
    int64_t frame = run->n * run->n * (int64_t)sizeof(xpe_c32), at = 0;
    xpe_status st;

    s->run = run;
    s->slab_size = xpe_max64(frame, xpe_min64(SLAB, frame * run->num_frames));
    XPE_TRY(xpe_new(&s->slab, (size_t)s->slab_size, 1, err));
    XPE_TRY(xpe_new(&s->device, (size_t)run->num_frames, sizeof *s->device, err));
    XPE_TRY(xpe_new(&s->index, (size_t)run->num_frames, sizeof *s->index, err));
    for (int g = 0; g < run->plan->count; g++)
        for (int64_t i = 0; i < run->shards[g].frames; i++, at++) {
            s->device[run->plan->order[at]] = g;
            s->index[run->plan->order[at]] = i;
        }
done:
    return st;
}

static void stream_release(stream *s)
{
    free(s->slab);
    free(s->device);
    free(s->index);
}

xpe_status xpe_run_save(xpe_run *run, xpe_run_sink sink, void *arg, xpe_error *err)
{
    stream s = {.save = true, .sink = sink, .arg = arg};
    header h = {MAGIC,
                run->n,
                run->num_frames,
                run->rows,
                run->cols,
                run->modes_max,
                run->modes,
                run->iteration,
                run->known,
                run->pending,
                0,
                run->numbers.v,
                run->numbers.z,
                run->numbers.image,
                run->numbers.s,
                run->numbers.u,
                run->numbers.patch_eps,
                atomic_load(&run->progress_error)};
    xpe_status st;

    if (!run->due || run->stage.algorithm != XPE_PMACE)
        return xpe_fail(err, XPE_INVALID, "",
                        "iteration %d: the run is not held at a boundary; hold it before the step",
                        run->iteration);
    XPE_TRY(stream_init(&s, run, err));
    XPE_TRY(pass(&s, &h, sizeof h, err));
    XPE_TRY(pass_arrays(&s, err));
done:
    stream_release(&s);
    return st;
}

static xpe_status check_header(const xpe_run *run, const header *h, xpe_error *err)
{
    if (h->magic != MAGIC)
        return xpe_fail(err, XPE_INVALID, "", "this is not the state of a run");
    if (h->n != run->n || h->num_frames != run->num_frames || h->rows != run->rows ||
        h->cols != run->cols || h->modes_max != run->modes_max || h->known != (int32_t)run->known)
        return xpe_fail(err, XPE_INVALID, "",
                        "the state is of %lld frames of %lld, an object of %lld x %lld and %d "
                        "modes, the run of %lld of %lld, %lld x "
                        "%lld and %d",
                        (long long)h->num_frames, (long long)h->n, (long long)h->rows,
                        (long long)h->cols, h->modes_max, (long long)run->num_frames,
                        (long long)run->n, (long long)run->rows, (long long)run->cols,
                        run->modes_max);
    if (h->modes < 1 || h->modes > h->modes_max || h->iteration < 1 ||
        h->iteration >= run->stage.iterations)
        return xpe_fail(
            err, XPE_INVALID, "",
            "the state is after iteration %d with %d modes; a stage of %d cannot go on from it",
            h->iteration, h->modes, run->stage.iterations);
    if (!isfinite(h->bounds_v) || !isfinite(h->bounds_z) || !isfinite(h->bounds_image) ||
        !isfinite(h->bounds_s) || !isfinite(h->bounds_u) || !(h->known || h->patch_eps > 0))
        return xpe_fail(err, XPE_INVALID, "", "the state's numbers are not finite");
    return XPE_OK;
}

xpe_status xpe_run_load(xpe_run *run, xpe_run_source source, void *arg, xpe_error *err)
{
    stream s = {.source = source, .arg = arg};
    header h;
    xpe_status st;

    if (run->iteration || run->primed || run->stage.algorithm != XPE_PMACE)
        return xpe_fail(err, XPE_INVALID, "", "only a new pmace run can take up a saved state");
    XPE_TRY(stream_init(&s, run, err));
    XPE_TRY(pass(&s, &h, sizeof h, err));
    XPE_TRY(check_header(run, &h, err));
    run->modes = h.modes;
    XPE_TRY(pass_arrays(&s, err));
    XPE_TRY(xpe_exchange_windows(run, XPE_AT(band_z), XPE_AT(z), err));
    XPE_TRY(xpe_exchange_windows(
        run, XPE_AT(band_image[0]) + (size_t)run->slot * sizeof(xpe_buffer *), XPE_AT(image), err));
    run->iteration = h.iteration;
    run->pending = h.pending;
    run->numbers.v = h.bounds_v;
    run->numbers.z = h.bounds_z;
    run->numbers.image = h.bounds_image;
    run->numbers.s = h.bounds_s;
    run->numbers.u = h.bounds_u;
    run->numbers.patch_eps = h.patch_eps;
    XPE_TRY(xpe_numbers_send(run, err));
    xpe_modes_derive(run);
    run->primed = true;
    run->coverage_good = run->known;
    run->due = true;
    atomic_store(&run->progress_error, h.data_error);
    atomic_store(&run->progress_iteration, run->iteration);
    st = xpe_state_wait(run, err);
done:
    stream_release(&s);
    return st;
}
